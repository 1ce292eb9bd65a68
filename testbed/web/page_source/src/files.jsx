// A picture of the page as files: SVG, PNG of the same, and its values as CSV.

const STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray",
  "font-family", "font-size", "font-weight",
];
// Pixels of a PNG for one of the page.
const DENSITY = 2;
const KEPT_MS = 60000;

export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function csvText(rows) {
  return rows.map((row) => `${row.map(cell).join(",")}\n`).join("");
}

function cell(value) {
  if (value === null || value === undefined) return "";
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// The text of an SVG that needs no style sheet, on the page's ground.
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const copies = [copy, ...copy.querySelectorAll("*")];
  [svg, ...svg.querySelectorAll("*")].forEach((part, number) => {
    const style = getComputedStyle(part);
    copies[number].removeAttribute("style");
    copies[number].removeAttribute("class");
    for (const name of STYLES) copies[number].setAttribute(name, style.getPropertyValue(name));
  });
  const ground = document.createElementNS(svg.namespaceURI, "rect");
  for (const name of ["width", "height"]) ground.setAttribute(name, svg.getAttribute(name));
  ground.setAttribute("fill", css("--page"));
  copy.prepend(ground);
  return new XMLSerializer().serializeToString(copy);
}

async function png(text, svg) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = DENSITY * Number(svg.getAttribute("width"));
  canvas.height = DENSITY * Number(svg.getAttribute("height"));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // The browser reads it after the click has returned.
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
}

// svg: a function that returns an element which is laid out; rows: one that
// returns the values, headings first.
export function Files({ title, svg, rows }) {
  const stem = `${document.title} ${title}`.replace(/[^\p{L}\p{N}]+/gu, "-");
  const kinds = {
    SVG: () => new Blob([standalone(svg())], { type: "image/svg+xml" }),
    PNG: () => png(standalone(svg()), svg()),
    CSV: () => new Blob([csvText(rows())], { type: "text/csv" }),
  };
  const write = async (kind) => save(`${stem}.${kind.toLowerCase()}`, await kinds[kind]());
  return (
    <span class="files">
      {Object.keys(kinds).map((kind) => (
        <button key={kind} aria-label={`${kind} of ${title}`} onClick={() => write(kind)}>{kind}</button>
      ))}
    </span>
  );
}
