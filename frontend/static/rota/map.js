// The map of a cluster's GPUs: one canvas, one byte a GPU, drawn in one pass; a change redraws only what changed.
const STATES = ["free", "shared", "held", "suspect", "out", "unknown", "cordoned", "down"];

export function start() {
  for (const root of document.querySelectorAll("[data-gpu-map]")) draw(root);
}

function draw(root) {
  const data = JSON.parse(document.getElementById(root.dataset.gpuMap).textContent);
  const canvas = root.querySelector("canvas"), tip = root.querySelector(".map-tip");
  const context = canvas.getContext("2d");
  root.dataset.mapTopic = `map:${data.cluster}`;
  let states = Uint8Array.from(data.states.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  const owners = [], places = [];
  data.nodes.forEach((node, index) => { for (let gpu = 0; gpu < node.gpus; gpu += 1) owners.push([index, gpu]); });
  const wide = Math.max(1, ...data.nodes.map((node) => node.gpus));
  let cell, colours, hovered = -1;

  function lay() {
    const width = root.clientWidth, count = owners.length;
    // As large as a thumb for a few GPUs, as small as two pixels for ten thousand.
    cell = count > 4000 ? 6 : count > 1500 ? 8 : count > 300 ? 11 : count > 60 ? 15 : 22;
    const gap = cell > 9 ? 2 : 1, apart = cell > 9 ? 10 : 5;
    const rows = wide > 8 ? 2 : 1, across = Math.ceil(wide / rows);
    const block = [across * (cell + gap) - gap, rows * (cell + gap) - gap];
    const columns = Math.max(1, Math.floor((width + apart) / (block[0] + apart)));
    places.length = 0;
    let x = 0, y = 0, column = 0, rack = data.nodes[0]?.rack;
    data.nodes.forEach((node) => {
      if (column === columns || node.rack !== rack) {
        if (column) { y += block[1] + apart; column = 0; }
        if (node.rack !== rack) y += apart;
        rack = node.rack;
      }
      x = column * (block[0] + apart);
      for (let gpu = 0; gpu < node.gpus; gpu += 1)
        places.push([x + (gpu % across) * (cell + gap), y + Math.floor(gpu / across) * (cell + gap)]);
      column += 1;
    });
    const height = y + block[1] + 2, ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(root);
    colours = STATES.map((state) => style.getPropertyValue(`--map-${state}`).trim());
    paintAll();
  }

  function paint(place) {
    const [x, y] = places[place], state = states[place], radius = cell > 9 ? 2 : 0;
    context.clearRect(x - 0.5, y - 0.5, cell + 1, cell + 1);
    context.fillStyle = colours[state];
    context.beginPath();
    if (radius) context.roundRect(x, y, cell, cell, radius);
    else context.rect(x, y, cell, cell);
    context.fill();
    // Not by colour alone: what takes no work has a mark.
    if (cell > 9 && state > 2) {
      context.strokeStyle = colours[0];
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(x + 3, y + cell - 3);
      context.lineTo(x + cell - 3, y + 3);
      context.stroke();
    }
    if (cell > 9 && state === 1) {
      context.fillStyle = colours[2];
      context.fillRect(x, y + cell / 2, cell, cell / 2);
    }
  }

  function paintAll() {
    context.clearRect(0, 0, canvas.width, canvas.height);
    for (let place = 0; place < places.length; place += 1) paint(place);
    count();
    root.dataset.painted = String(places.length);
  }

  function count() {
    const counts = new Array(STATES.length).fill(0);
    for (const state of states) counts[state] += 1;
    for (const element of document.querySelectorAll("[data-map-count]")) {
      const number = counts[element.dataset.mapCount];
      element.textContent = number.toLocaleString();
      element.parentElement.hidden = number === 0 && Number(element.dataset.mapCount) > 2;
    }
  }

  document.addEventListener("rota:map", ({ detail }) => {
    const view = new DataView(detail);
    if (view.getUint32(0, true) !== data.cluster) return;
    if (view.getUint8(8) === 0) {
      const next = new Uint8Array(detail, 9);
      if (next.length !== owners.length) { location.reload(); return; } // nodes have come or gone
      for (let place = 0; place < next.length; place += 1)
        if (states[place] !== next[place]) { states[place] = next[place]; paint(place); }
    } else {
      for (let at = 9; at < detail.byteLength; at += 5) {
        const place = view.getUint32(at, true);
        states[place] = view.getUint8(at + 4);
        paint(place);
      }
    }
    count();
  });

  function find(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    return places.findIndex(([left, top]) => x >= left - 1 && x <= left + cell + 1 && y >= top - 1 && y <= top + cell + 1);
  }
  canvas.addEventListener("pointermove", (event) => {
    const place = find(event);
    canvas.style.cursor = place < 0 ? "" : "pointer";
    tip.hidden = place < 0;
    if (place < 0) { hovered = -1; return; }
    if (place !== hovered) {
      hovered = place;
      const [node, gpu] = owners[place], { name, model } = data.nodes[node];
      tip.textContent = `${name} · GPU ${gpu} · ${data.names[STATES[states[place]]]}${model ? ` · ${model}` : ""}`;
    }
    const box = root.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth)}px`;
    tip.style.top = `${event.clientY - box.top + 14}px`;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; hovered = -1; });
  canvas.addEventListener("click", (event) => {
    const place = find(event);
    if (place >= 0) location.assign(`${data.href}${encodeURIComponent(data.nodes[owners[place][0]].name)}/`);
  });
  document.addEventListener("rota:theme", lay);
  new ResizeObserver(() => root.clientWidth !== parseFloat(canvas.style.width) && lay()).observe(root);
  lay();
}
