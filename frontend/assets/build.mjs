// Builds frontend/static/vendor from the packages that package-lock.json pins, and writes its MANIFEST.json.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const MODULES = join(HERE, "..", "node_modules");
const VENDOR = join(HERE, "..", "static", "vendor");

const read = (path) => readFileSync(join(MODULES, path), "utf8");
const withoutMap = (text) => text.replace(/\n?\/[/*][#@] sourceMappingURL=\S+( \*\/)?\s*$/, "\n");

function sprite() {
  const names = JSON.parse(readFileSync(join(HERE, "icons.json"), "utf8"));
  const symbols = names.map((name) => {
    const svg = read(`@tabler/icons/icons/outline/${name}.svg`);
    const inner = svg.replace(/^[\s\S]*?<svg[^>]*>/, "").replace(/<\/svg>\s*$/, "").replace(/\s*\n\s*/g, "");
    return `<symbol id="${name}" viewBox="0 0 24 24">${inner}</symbol>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg">\n${symbols.join("\n")}\n</svg>\n`;
}

async function charts() {
  const result = await build({
    entryPoints: [join(HERE, "echarts.mjs")],
    bundle: true, minify: true, format: "esm", target: "es2021", write: false, legalComments: "eof",
    define: { "process.env.NODE_ENV": '"production"' },
  });
  return result.outputFiles[0].text;
}

// file in static/vendor -> [package, content]
const files = {
  "tabler.min.css": ["@tabler/core", withoutMap(read("@tabler/core/dist/css/tabler.min.css"))],
  "tabler.min.js": ["@tabler/core", withoutMap(read("@tabler/core/dist/js/tabler.min.js"))],
  "icons.svg": ["@tabler/icons", sprite()],
  "echarts.min.js": ["echarts", await charts()],
  "idiomorph.esm.js": ["idiomorph", read("idiomorph/dist/idiomorph.esm.js")],
};

rmSync(VENDOR, { recursive: true, force: true });
mkdirSync(VENDOR, { recursive: true });
const manifest = {};
for (const [file, [name, content]] of Object.entries(files)) {
  const { version, license } = JSON.parse(read(`${name}/package.json`));
  writeFileSync(join(VENDOR, file), content);
  const sha256 = createHash("sha256").update(content).digest("hex");
  manifest[file] = { package: name, version, license, bytes: Buffer.byteLength(content), sha256 };
}
for (const name of new Set(Object.values(files).map(([name]) => name))) {
  const folder = join(MODULES, name);
  const licence = readdirSync(folder).find((file) => /^licen[cs]e/i.test(file));
  if (licence) writeFileSync(join(VENDOR, `LICENSE.${name.replace(/^@/, "").replace("/", "-")}.txt`), read(join(name, licence)));
}
writeFileSync(join(VENDOR, "MANIFEST.json"), JSON.stringify(manifest, null, 2) + "\n");
console.table(Object.fromEntries(Object.entries(manifest).map(([file, { version, license, bytes }]) => [file, { version, license, bytes }])));
