// Writes ../static from this folder: npm ci && npm run build.
//
// One script and one style sheet, the licences of what is in them, and checksums
// of these files and of their sources.

import { createHash } from "node:crypto";
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";

import { build } from "esbuild";

const OUT = "../static";
const PACKAGES = [
  "d3-array", "d3-color", "d3-dispatch", "d3-drag", "d3-ease", "d3-format",
  "d3-interpolate", "d3-scale", "d3-selection", "d3-time", "d3-time-format",
  "d3-timer", "d3-transition", "d3-zoom", "internmap", "preact", "uplot",
];

const made = await build({
  entryPoints: { page: "src/main.jsx" },
  bundle: true,
  minify: true,
  metafile: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  outdir: OUT,
});

const bundled = new Set();
for (const path of Object.keys(made.metafile.inputs)) {
  const inside = path.match(/node_modules\/([^/]+)/);
  if (inside) bundled.add(inside[1]);
}
for (const name of bundled) {
  if (!PACKAGES.includes(name)) throw new Error(`${name} is bundled, but not listed`);
}

let licences = "";
for (const name of [...bundled].sort()) {
  const folder = `node_modules/${name}`;
  const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  licences += `${name} ${version} (${license})\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n\n${"-".repeat(72)}\n\n`;
}
writeFileSync(`${OUT}/LICENCES.txt`, licences);
copyFileSync("page.html", `${OUT}/page.html`);
const library = readFileSync("node_modules/uplot/dist/uPlot.min.css", "utf8");
writeFileSync(`${OUT}/page.css`, `${library}\n${readFileSync("src/page.css", "utf8")}`);

const files = [
  "../static/LICENCES.txt", "../static/page.css", "../static/page.html", "../static/page.js",
  "build.mjs", "package-lock.json", "package.json", "page.html",
  ...readdirSync("src").sort().map((name) => `src/${name}`),
];
let sums = "";
for (const file of files) {
  const digest = createHash("sha256").update(readFileSync(file)).digest("hex");
  sums += `${digest}  ${file}\n`;
}
writeFileSync("SHA256SUMS", sums);
