// The last hour: GPUs held as an area, jobs running and waiting as lines. The library is fetched only for this.
export async function start(config) {
  const { init } = await import("../vendor/echarts.min.js");
  for (const box of document.querySelectorAll("[data-chart]")) {
    const chart = init(box, null, { renderer: "svg" });
    const show = () => {
      const source = document.getElementById(box.dataset.chart);
      if (source) chart.setOption(option(JSON.parse(source.textContent), config, getComputedStyle(box)), { notMerge: true });
    };
    show();
    document.addEventListener("rota:theme", show);
    document.addEventListener("rota:morphed", show);
    new ResizeObserver(() => chart.resize()).observe(box);
  }
}

function option(past, { words, language }, style) {
  const colour = (name) => style.getPropertyValue(`--tblr-${name}`).trim();
  const muted = colour("secondary"), line = colour("border-color");
  const time = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const series = (name, key, shade, axis, area) => ({
    name, type: "line", yAxisIndex: axis, showSymbol: false, smooth: 0.2, animation: false,
    lineStyle: { width: 2, color: shade }, itemStyle: { color: shade }, areaStyle: area ? { color: shade, opacity: 0.12 } : undefined,
    data: past.at.map((at, index) => [at * 1000, past[key][index]]),
  });
  const axis = (max, position) => ({
    type: "value", min: 0, max, position, minInterval: 1, axisLabel: { color: muted }, splitLine: { show: position === "left", lineStyle: { color: line } },
  });
  return {
    aria: { enabled: false },
    textStyle: { fontFamily: style.fontFamily },
    grid: { left: 8, right: 8, top: 36, bottom: 4, containLabel: true },
    legend: { top: 0, left: 0, textStyle: { color: muted }, icon: "roundRect", itemWidth: 12, itemHeight: 8 },
    tooltip: { trigger: "axis", backgroundColor: colour("bg-surface"), borderColor: line, textStyle: { color: colour("body-color") } },
    xAxis: { type: "time", axisLabel: { color: muted, hideOverlap: true, formatter: (at) => time.format(at) }, axisLine: { lineStyle: { color: line } } },
    yAxis: [axis(past.total || undefined, "left"), axis(undefined, "right")],
    series: [
      series(words.held, "cards", colour("green"), 0, true),
      series(words.running, "running", colour("blue"), 1),
      series(words.waiting, "waiting", colour("yellow"), 1),
    ],
  };
}
