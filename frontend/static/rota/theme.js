// Loaded in the head, before anything is painted: light or dark, as chosen, else as the system says.
(() => {
  const KEY = "rota-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem(KEY) || "auto";
  const apply = () => {
    const theme = chosen() === "auto" ? (system.matches ? "dark" : "light") : chosen();
    document.documentElement.dataset.bsTheme = theme;
    document.documentElement.dataset.themeChoice = chosen();
    document.dispatchEvent(new CustomEvent("rota:theme", { detail: theme }));
  };
  system.addEventListener("change", apply);
  addEventListener("storage", (event) => event.key === KEY && apply());
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-set-theme]");
    if (!button) return;
    localStorage.setItem(KEY, button.dataset.setTheme);
    apply();
    mark();
  });
  const mark = () => {
    for (const button of document.querySelectorAll("[data-set-theme]")) {
      const on = button.dataset.setTheme === chosen();
      button.classList.toggle("active", on);
      button.setAttribute("aria-pressed", String(on));
    }
  };
  document.addEventListener("DOMContentLoaded", mark);
  apply();
})();
