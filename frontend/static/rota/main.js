// What runs on every page: times that go on, small helps for forms, and the live connection.
import { keepTimes } from "./times.js";
import { keepLive } from "./live.js";
import { helpForms } from "./forms.js";

const config = JSON.parse(document.getElementById("rota-config")?.textContent || "{}");
window.rota = { config };

keepTimes(config.time);
helpForms(config);
// What only some pages have is fetched only there.
const parts = {
  "[data-log]": () => import("./log.js"),
  "[data-gpu-map]": () => import("./map.js"),
  "[data-chart]": () => import("./chart.js"),
  "[data-tokens]": () => import("./tokens.js"),
  "[data-job-form]": () => import("./jobform.js"),
};
const loaded = await Promise.all(
  Object.entries(parts).filter(([selector]) => document.querySelector(selector)).map(([, load]) => load()),
);
for (const part of loaded) part.start(config);
if (document.querySelector("[data-live-sign]")) keepLive(config);
