// Tokens by the REST interface itself: the page knows no more than any program does.
import { ago } from "./times.js";

export function start(config) {
  const root = document.querySelector("[data-tokens]"), texts = JSON.parse(document.getElementById("token-texts").textContent);
  const rows = root.querySelector("[data-token-rows]"), problem = root.querySelector("[data-token-problem]");
  const secret = JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];

  async function call(method, path = "", body = undefined) {
    const headers = { Accept: "application/json", "X-CSRFToken": secret, ...(body && { "Content-Type": "application/json" }) };
    const answer = await fetch(root.dataset.tokens + path, { method, headers, body: body && JSON.stringify(body) });
    if (answer.status === 204) return null;
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.detail || said.title || answer.statusText);
    return said;
  }
  const tell = (text) => { problem.textContent = text; problem.hidden = !text; };
  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  function moment(text) {
    if (!text) return "–";
    const time = element("time", { dateTime: text, title: new Date(text).toLocaleString(config.language) });
    time.dataset.ago = "";
    time.textContent = ago((Date.now() - Date.parse(text)) / 1000, config.time);
    return time;
  }
  function row(token) {
    const ended = token.revoked_at || Date.parse(token.expires_at) < Date.now();
    const action = element("td");
    if (!ended) {
      const form = element("form", { onsubmit: (event) => revoke(event, token) });
      const button = element("button", { className: "btn btn-sm btn-ghost-danger", textContent: texts.revoke });
      button.dataset.confirm = texts.sure;
      form.append(button);
      action.append(form);
    }
    return element("tr", { className: ended ? "text-secondary" : "" },
      element("td", {}, element("div", { className: "fw-medium", textContent: token.name }), element("div", { className: "small font-monospace text-secondary", textContent: `rota_${token.key}.…` })),
      element("td", { className: "d-none d-md-table-cell", textContent: token.user }),
      element("td", { textContent: token.scopes.map((scope) => texts.scopes[scope] ?? scope).join(", ") }),
      element("td", { className: "num d-none d-sm-table-cell" }, moment(token.last_used_at)),
      element("td", { className: "num" }, token.revoked_at ? texts.revoked : moment(token.expires_at)), action);
  }
  async function show() {
    try {
      const { results } = await call("GET", "?limit=100");
      rows.replaceChildren(...(results.length ? results.map(row) : [element("tr", {}, element("td", { colSpan: 6, className: "text-secondary", textContent: texts.none }))]));
    } catch (error) { tell(error.message); }
  }
  async function revoke(event, token) {
    event.preventDefault();
    try { await call("DELETE", token.key); tell(""); } catch (error) { tell(error.message); }
    show();
  }
  root.querySelector("[data-token-form]").addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target.elements;
    try {
      const made = await call("POST", "", { name: form.name.value, scopes: [form.scope.value], expires_in_days: Number(form.days.value) });
      root.querySelector("[data-token-made]").hidden = false;
      const field = document.getElementById("token-text");
      field.value = made.token;
      field.select();
      event.target.reset();
      tell("");
    } catch (error) { tell(error.message); }
    show();
  });
  show();
}
