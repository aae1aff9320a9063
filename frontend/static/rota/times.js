// "2 min ago", "1 h 5 min": kept true while a page is open. The patterns are the server's (frontend/clock.py).
const SIZES = { d: 86400, h: 3600, m: 60, s: 1 };

const fill = (pattern, count) => pattern.replace("%d", count);

export function ago(seconds, patterns) {
  const table = seconds >= 0 ? patterns.ago : patterns.ahead;
  const length = Math.abs(seconds);
  if (length < 1) return patterns.now;
  const unit = Object.keys(SIZES).find((name) => length >= SIZES[name]);
  return fill(table[unit], Math.floor(length / SIZES[unit]));
}

export function span(seconds, patterns) {
  let left = Math.max(0, Math.round(seconds));
  const said = [];
  for (const [unit, size] of Object.entries(SIZES)) {
    const count = Math.floor(left / size);
    left %= size;
    if (count || (unit === "s" && !said.length)) said.push(fill(patterns.units[unit], count));
    else if (said.length) break;
  }
  return said.slice(0, 2).join(" ");
}

export function keepTimes(patterns) {
  if (!patterns) return;
  const tick = () => {
    const now = Date.now();
    for (const element of document.querySelectorAll("time[data-ago], time[data-since]")) {
      const seconds = (now - Date.parse(element.dateTime)) / 1000;
      const text = "ago" in element.dataset ? ago(seconds, patterns) : span(seconds, patterns);
      if (element.textContent !== text) element.textContent = text;
    }
  };
  tick();
  setInterval(tick, 1000);
  document.addEventListener("rota:morphed", tick);
}
