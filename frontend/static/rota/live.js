// Keeps an open page up to date. The socket says which topics have a new version; the page then fetches its own live
// parts and morphs them in. One fetch at a time: news that come meanwhile are joined. After a break it catches up.
import { Idiomorph } from "../vendor/idiomorph.esm.js";

const FIRST_WAIT = 500, LONGEST_WAIT = 15000, SHORTEST_PAUSE = 1000, SIGNED_OUT = 4401;

export function keepLive(config) {
  let socket, wait = FIRST_WAIT, version = null, due = false, busy = false, last = 0, timer;

  const regions = () => [...document.querySelectorAll("[data-live]")];
  const topics = () => new Set(regions().flatMap((region) => region.dataset.live.split(" ")));
  const watched = () => [
    ...topics(),
    ...[...document.querySelectorAll("[data-map-topic]")].map((map) => map.dataset.mapTopic),
  ];

  const sign = (state, text) => {
    for (const element of document.querySelectorAll("[data-live-sign]")) {
      element.dataset.state = state;
      element.querySelector("[data-live-text]").textContent = text;
    }
  };

  function connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    socket = new WebSocket(`${scheme}//${location.host}${config.socket}`);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send(JSON.stringify({ watch: watched() }));
    socket.onmessage = ({ data }) => {
      if (data instanceof ArrayBuffer) {
        document.dispatchEvent(new CustomEvent("rota:map", { detail: data }));
        return;
      }
      const news = JSON.parse(data);
      if (!news.topics) {
        // The greeting. Something may have happened since the page was made, or while we were away.
        wait = FIRST_WAIT;
        sign("on", config.words.live);
        if (version !== null && news.version !== version) refresh();
        version = news.version;
        return;
      }
      version = news.version;
      refresh();
    };
    socket.onclose = ({ code }) => {
      if (code === SIGNED_OUT) {
        sign("off", config.words.offline);
        location.reload();
        return;
      }
      sign("off", config.words.offline);
      setTimeout(connect, wait * (0.75 + Math.random() / 2));
      wait = Math.min(wait * 2, LONGEST_WAIT);
    };
  }

  function refresh() {
    due = true;
    if (busy || document.hidden || timer) return;
    const pause = Math.max(0, last + SHORTEST_PAUSE - Date.now());
    timer = setTimeout(fetchParts, pause);
  }

  async function fetchParts() {
    timer = undefined;
    if (!regions().length) return;
    due = false;
    busy = true;
    last = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { "X-Rota-Live": "1" }, redirect: "manual" });
      if (answer.type === "opaqueredirect") location.reload();
      else if (answer.ok) morph(await answer.text());
    } catch {
      due = true; // the server is away; the socket will notice, and what was missed is fetched after that
    } finally {
      busy = false;
      if (due && socket.readyState === WebSocket.OPEN) refresh();
    }
  }

  function morph(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    for (const region of regions()) {
      const next = fresh.getElementById(region.id);
      if (next) Idiomorph.morph(region, next, { ignoreActiveValue: true, callbacks: { beforeNodeMorphed: keeps } });
    }
    document.dispatchEvent(new CustomEvent("rota:morphed"));
  }

  document.addEventListener("visibilitychange", () => !document.hidden && due && refresh());
  // After a filter has changed what the page shows, it follows other things.
  document.addEventListener("htmx:afterSettle", () => {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ watch: watched() }));
    document.dispatchEvent(new CustomEvent("rota:morphed"));
  });
  addEventListener("pagehide", () => { if (socket) { socket.onclose = null; socket.close(); } });
  addEventListener("pageshow", (event) => event.persisted && connect());
  sign("wait", config.words.connecting);
  connect();
}

// The browser's own state is left alone: ticked boxes, open menus and details, what a script draws.
function keeps(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) return true;
  if (old.hasAttribute("data-keep") || old.hasAttribute("data-chart")) return false;
  if (old.matches("input[type=checkbox]")) return false;
  if (old.tagName === "DETAILS" && old.open) next.setAttribute("open", "");
  if (old.tagName === "TIME" && old.dateTime === next.getAttribute("datetime")) return false;
  if (old.tagName === "SELECT") return false;
  return true;
}
