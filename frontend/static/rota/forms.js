// Small helps for forms: filters that apply themselves, questions before what cannot be undone, ticking many.
export function helpForms(config) {
  const dialog = document.createElement("dialog");
  dialog.className = "ask card";
  document.body.append(dialog);

  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (button?.dataset.confirm || button?.dataset.why) {
      if (button.dataset.asked) {
        delete button.dataset.asked;
        return;
      }
      event.preventDefault();
      event.stopPropagation();
      ask(dialog, button, (why) => {
        if (why !== undefined) put(event.target, "why", why);
        button.dataset.asked = "1";
        event.target.requestSubmit(button);
      });
    }
  }, true); // before anybody else hears of it

  // A filter applies itself: on choosing, or a moment after typing.
  let typed;
  const apply = (form) => {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    const address = `${location.pathname}${query.size ? `?${query}` : ""}`;
    const live = document.getElementById("live");
    if (!window.htmx || !live) location.assign(address);
    else
      window.htmx.ajax("GET", address, { target: "#live", select: "#live", swap: "outerHTML" })
        .then(() => history.replaceState(null, "", address));
  };
  document.addEventListener("input", ({ target }) => {
    const form = target.closest?.("form[data-auto]");
    if (!form) return;
    clearTimeout(typed);
    typed = setTimeout(() => apply(form), target.type === "search" ? 300 : 0);
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-auto]")) return;
    event.preventDefault();
    clearTimeout(typed);
    apply(event.target);
  });

  document.addEventListener("change", ({ target }) => {
    if (target.matches("[data-tick-all]"))
      for (const box of document.querySelectorAll('input[name="job"]')) box.checked = target.checked;
    if (target.matches('[data-tick-all], input[name="job"]')) count();
  });
  document.addEventListener("rota:morphed", count);
  function count() {
    const bar = document.querySelector("[data-bulk]");
    if (!bar) return;
    const ticked = document.querySelectorAll('input[name="job"]:checked').length;
    bar.hidden = ticked === 0;
    bar.querySelector("[data-bulk-count]").textContent = ticked;
  }

  document.addEventListener("click", async ({ target }) => {
    const button = target.closest?.("[data-copy]");
    if (!button) return;
    const source = document.querySelector(button.dataset.copy);
    await navigator.clipboard.writeText((source.value ?? source.textContent).trim());
    const label = [...button.childNodes].find((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!label) return;
    const before = label.textContent;
    label.textContent = config.words.copied;
    setTimeout(() => { label.textContent = before; }, 1500);
  });
}

function put(form, name, value) {
  const field = form.elements[name] ?? form.appendChild(Object.assign(document.createElement("input"), { type: "hidden", name }));
  field.value = value;
}

function ask(dialog, button, done) {
  const { confirm, why } = button.dataset;
  dialog.replaceChildren();
  const form = dialog.appendChild(Object.assign(document.createElement("form"), { method: "dialog", className: "card-body" }));
  const label = form.appendChild(Object.assign(document.createElement(why ? "label" : "p"), { className: "h3 mb-3 d-block", textContent: confirm ?? why }));
  let text;
  if (why) {
    text = form.appendChild(Object.assign(document.createElement("input"), { className: "form-control mb-3", id: "ask-why", required: true, maxLength: 1000 }));
    label.htmlFor = "ask-why";
  }
  const row = form.appendChild(Object.assign(document.createElement("div"), { className: "btn-list justify-content-end" }));
  const words = window.rota.config.words;
  const no = row.appendChild(Object.assign(document.createElement("button"), { type: "button", className: "btn", textContent: words.back }));
  row.appendChild(Object.assign(document.createElement("button"), { type: "submit", className: button.className.replace("btn-sm", "").replace("btn-ghost-danger", "btn-danger").replace("dropdown-item", "btn"), textContent: button.textContent.trim() }));
  no.onclick = () => dialog.close();
  form.onsubmit = (event) => {
    event.preventDefault();
    event.stopPropagation();
    dialog.close();
    done(text?.value);
  };
  dialog.setAttribute("aria-label", confirm ?? why);
  dialog.showModal();
}
