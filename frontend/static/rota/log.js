// The output of a job, a piece at a time: follows while it grows, keeps its place when somebody reads further up.
const MOST = 400000, SOON = 800, LATER = 3000;

export function start(config) {
  const box = document.querySelector("[data-log]");
  const text = box.querySelector("pre"), note = box.querySelector("[data-log-note]");
  const follow = document.querySelector("[data-log-follow]");
  const pick = (name) => document.querySelector(`[data-log-${name}]`);
  let offset = 0, following = true, run = 0, shown = "", attempt = 0;

  const address = (path) => {
    const query = new URLSearchParams();
    if (attempt) query.set("attempt", attempt);
    const replica = pick("replica")?.value;
    if (replica) query.set("replica", replica);
    if (path) query.set("offset", offset);
    return query;
  };

  async function read(mine) {
    while (mine === run) {
      let pause = SOON;
      try {
        const answer = await fetch(`${box.dataset.log}?${address(true)}`);
        if (!answer.ok) throw new Error(answer.status);
        const piece = await answer.json();
        if (mine !== run) return;
        if (piece.problem) say(config.words.log_failed), (pause = LATER);
        else {
          if (piece.offset > offset && offset > 0) append(`\n[${config.words.log_gap}]\n`);
          offset = piece.next;
          append(piece.text);
          say(piece.eof ? (shown ? config.words.log_ended : config.words.log_empty) : shown ? "" : config.words.log_empty);
          if (piece.eof) return;
          if (piece.text) pause = 60;
        }
      } catch {
        say(config.words.log_failed);
        pause = LATER;
      }
      await new Promise((done) => setTimeout(done, document.hidden ? LATER : pause));
    }
  }

  function append(piece) {
    if (!piece) return;
    shown += piece;
    // A carriage return writes a line anew, as progress bars do.
    if (piece.includes("\r")) shown = shown.replace(/[^\n]*\r(?=[^\n])/g, "").replace(/\r(?=\n|$)/g, "");
    if (shown.length > MOST) shown = shown.slice(shown.indexOf("\n", shown.length - MOST) + 1);
    text.textContent = shown;
    if (following) box.scrollTop = box.scrollHeight;
  }

  const say = (words) => { note.textContent = words; note.hidden = !words; };
  function again() {
    run += 1;
    offset = 0;
    shown = text.textContent = "";
    const download = pick("download");
    download.search = `?${address(false)}`;
    read(run);
  }
  function set(on) {
    following = on;
    follow.setAttribute("aria-pressed", String(on));
    follow.querySelector("span").textContent = on ? config.words.pause : config.words.follow;
    follow.querySelector("use").setAttribute("href", follow.querySelector("use").getAttribute("href").replace(/#.*/, on ? "#player-pause" : "#player-play"));
    if (on) box.scrollTop = box.scrollHeight;
  }
  follow.addEventListener("click", () => set(!following));
  box.addEventListener("wheel", (event) => event.deltaY < 0 && following && set(false), { passive: true });
  box.addEventListener("keydown", (event) => ["ArrowUp", "PageUp", "Home"].includes(event.key) && following && set(false));
  document.addEventListener("change", ({ target }) => {
    if (target.matches("[data-log-replica]")) again();
    if (target.matches("[data-log-attempt]")) { attempt = Number(target.value); again(); }
  });
  // A new attempt begins a new log.
  let attempts = Number(box.dataset.logAttempts);
  document.addEventListener("rota:morphed", () => {
    const now = document.querySelectorAll("#attempts-body tr").length;
    if (now > attempts && !attempt) { attempts = now; again(); }
  });
  again();
}
