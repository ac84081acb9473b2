// Of a report: saves a chart as SVG and a table as CSV, LaTeX or Markdown; narrow screens get one line per
// figure of a table, and paper gets of what is folded what belongs there, or all. LIGHT holds the colours of a light ground.
"use strict";
document.documentElement.classList.add("script");

const save = (name, type, text) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
};

const drawing = section => {
  const shown = section.querySelector(".drawing svg");
  const copy = shown.cloneNode(true), [, , width, height] = shown.getAttribute("viewBox").split(" ");
  for (const [key, value] of Object.entries({width: width + "pt", height: height + "pt", fill: LIGHT.ink,
    "stroke-linejoin": "round"}))
    copy.setAttribute(key, value);
  for (const use of copy.querySelectorAll("use"))
    use.setAttributeNS("http://www.w3.org/1999/xlink", "xlink:href", use.getAttribute("href"));
  const ground = `<rect width="100%" height="100%" fill="${LIGHT.ground}"/>`;
  return new XMLSerializer().serializeToString(copy).replace(/>/, ">" + ground)
    .replace(/var\(--([a-z0-9-]+)\)/g, (whole, name) => LIGHT[name] || "sans-serif");
};

const textOf = cell => cell.textContent.replaceAll("\u00ad", "");  // a title has soft hyphens
const cells = (table, raw) => [...table.rows].map(row => [...row.cells].map(
  cell => !raw ? textOf(cell) : cell.className === "absent" ? "" : cell.dataset.v || textOf(cell)));

// As sheet.py: a text that a spreadsheet would take for a formula gets an apostrophe; a number stays one.
const neutral = text => /^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(text)
  && !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? "'" + text : text;

const formats = {
  csv: table => cells(table, true).map(row => row.map(neutral).map(
    text => /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text).join(",") + "\n").join(""),
  md: table => {
    const lines = cells(table).map(
      row => "| " + row.map(text => text.replace(/[\\|]/g, "\\$&")).join(" | ") + " |\n");
    return lines[0] + "|" + "---|".repeat(table.rows[0].cells.length) + "\n" + lines.slice(1).join("");
  },
  tex: table => {  // {}: \\ and rules would take a * or [ that follows as an argument; -- would be a dash
    const code = {"\\": "\\textbackslash{}", "~": "$\\sim$", "^": "\\textasciicircum{}", "<": "\\textless{}",
      ">": "\\textgreater{}", "|": "\\textbar{}", '"': "\\char34{}"};
    const plain = text => text.replace(/[\\~^<>|"&%$#_{}]|(?<=[-,'`?!])(?=[-,'`])/g, found =>
      !found ? "{}" : code[found] || "\\" + found)
      .replace(/▲ /g, "$\\blacktriangle$ ").replace(/▼ /g, "$\\blacktriangledown$ ");
    const lines = cells(table).map(row => "{}" + row.map(plain).join(" & ") + " \\\\\n");
    return "% \\usepackage{amssymb,booktabs,graphicx}\n"
      + "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n"
      + `\\begin{tabular}{l${"r".repeat(table.rows[0].cells.length - 1)}}\n`
      + `\\toprule\n${lines[0]}\\midrule\n${lines.slice(1).join("")}\\bottomrule\n\\end{tabular}}\n`;
  },
};
const types = {csv: "text/csv", md: "text/markdown", tex: "application/x-tex"};

document.addEventListener("click", event => {
  const kind = event.target.dataset.save, name = event.target.dataset.name;
  if (kind === "svg")
    save(`${name}.svg`, "image/svg+xml", drawing(event.target.closest("section")));
  else if (kind)
    save(`${name}.${kind}`, types[kind], formats[kind](event.target.closest(".data").querySelector("table")));
});

for (const table of document.querySelectorAll(".data table")) {
  const titles = [...table.tHead.rows[0].cells].map(textOf);
  for (const row of table.tBodies[0].rows)
    [...row.cells].forEach((cell, i) => { cell.dataset.title = titles[i]; });
}

let opened = [];
addEventListener("beforeprint", () => {
  const all = document.querySelector("[data-print]").checked;
  opened = [...document.querySelectorAll(`details${all ? "" : ".paper"}:not([open])`)];
  opened.forEach(details => { details.open = true; });
  document.documentElement.classList.toggle("brief", !all);
});
addEventListener("afterprint", () => opened.forEach(details => { details.open = false; }));
