// The submit form's two tabs say the same: a change of tab asks the server to translate, so nothing is guessed here.
export function start() {
  const form = document.querySelector("[data-job-form]");
  const mode = form.elements.mode;
  const panes = { form: document.getElementById("pane-form"), yaml: document.getElementById("pane-yaml") };
  const tabs = [...form.querySelectorAll("[data-mode]")];

  async function go(next) {
    if (next === mode.value) return;
    const answer = await fetch(form.dataset.jobForm, { method: "POST", body: new FormData(form) });
    if (answer.status === 422) return complain(await answer.json());
    if (!answer.ok) return;
    const said = await answer.json();
    if (next === "yaml") form.elements.yaml.value = said.yaml;
    else fill(said.fields);
    show(next);
  }

  function fill(fields) {
    for (const element of form.elements) {
      if (!element.name || ["token", "mode", "yaml", "csrfmiddlewaretoken", "has_preemptible"].includes(element.name)) continue;
      const value = fields[element.name] ?? "";
      if (element.type === "checkbox") element.checked = Boolean(value);
      else element.value = value;
    }
  }

  function show(next) {
    mode.value = next;
    for (const [name, pane] of Object.entries(panes)) pane.hidden = name !== next;
    for (const tab of tabs) {
      const on = tab.dataset.mode === next;
      tab.classList.toggle("active", on);
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
    }
  }

  function complain({ field, problem }) {
    const element = form.elements[field];
    if (!element) return;
    element.setCustomValidity(problem);
    element.reportValidity();
    element.addEventListener("input", () => element.setCustomValidity(""), { once: true });
  }

  for (const tab of tabs) tab.addEventListener("click", () => go(tab.dataset.mode));
  form.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const other = tabs.find((tab) => tab.dataset.mode !== mode.value);
    go(other.dataset.mode).then(() => tabs.find((tab) => tab.dataset.mode === mode.value).focus());
  });
  show(mode.value || "form");
  form.querySelector("[aria-invalid=true]")?.focus();
}
