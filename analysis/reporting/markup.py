"""HTML elements. All text of a run passes through escape()."""

import html
import math

from reporting.figure import CSS as FIGURE_CSS

# No scripts and no requests, whatever a hostile run contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

CSS = FIGURE_CSS + """\
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 var(--font);
  overflow-wrap: anywhere; }
main, header, nav, footer { max-width: 84rem; margin: 0 auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--grid); }
.claim { font-size: 1.15rem; }
.skip { position: absolute; left: -99em; }
.skip:focus { left: 1rem; }
a { color: inherit; }
:focus-visible { outline: 2px solid var(--series-1); outline-offset: 2px; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; }
dl.facts { display: grid; grid-template-columns: minmax(7rem, max-content) minmax(0, 1fr);
  gap: .25rem 1rem; }
dl.facts dt { color: var(--faint); }
dl.facts dd { margin: 0; }
.warnings { border-left: .3rem solid var(--series-1); padding: .1rem 1rem; }
.chart { margin: 1.5rem 0 2.5rem; }
.chart h3 { margin-bottom: .5rem; }
.note, .caption { font-size: .9rem; color: var(--faint); }
.scroll { overflow: auto; max-height: 26rem; border: 1px solid var(--grid); }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums;
  width: max-content; }
th, td { padding: .2rem .6rem; text-align: left; vertical-align: top; max-width: 22rem;
  border-bottom: 1px solid var(--grid); }
thead th { position: sticky; top: 0; background: var(--ground); max-width: 14rem; }
tbody th { font-weight: normal; }
td.number { text-align: right; white-space: nowrap; }
td.absent { color: var(--faint); font-style: italic; text-align: right; }
pre { overflow: auto; max-height: 26rem; padding: .5rem; border: 1px solid var(--grid);
  overflow-wrap: normal; }
details { margin: 1rem 0; }
summary { cursor: pointer; }
@media screen and (min-width: 1200px) {
  .chart .beside { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr);
    gap: 2rem; align-items: start; }
}
@media (max-width: 500px) { dl.facts { grid-template-columns: minmax(0, 1fr); }
  dl.facts dd { margin: 0 0 .4rem; } }
@media print {
  body { font-size: 10pt; }
  nav, .skip { display: none; }
  .scroll, pre { max-height: none; overflow: visible; }
  table { font-size: 7pt; width: auto; }
  thead th { position: static; }
  th, td { overflow-wrap: anywhere; padding: .1rem .25rem; }
  td.number { white-space: normal; }
  .drawing, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
"""


def escape(value):
    return html.escape(str(value))


def tag(name, *inside, **attributes):
    """An element around finished HTML; `class_` and `aria_label` give `class` and `aria-label`."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
                      for key, value in attributes.items() if value is not None)
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def paragraph(text, class_=None):
    return tag("p", escape(text), class_=class_)


def items(texts):
    """A list of finished HTML."""
    return tag("ul", *(tag("li", text) for text in texts))


def facts(pairs):
    """A list of (name, finished HTML); None omits a line."""
    return tag("dl", *(tag("dt", escape(name)) + tag("dd", value) for name, value in pairs
                       if value is not None), class_="facts")


def number(value):
    """Four significant digits, with separators of thousands."""
    if isinstance(value, int) or (abs(value) >= 1000 and abs(value) < 1e15):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def cell(value, name="td", **more):
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return tag(name, "absent", class_="absent", **more)
    if isinstance(value, bool):
        return tag(name, "yes" if value else "no", **more)
    if hasattr(value, "item"):  # a number of numpy's
        return cell(value.item(), name, **more)
    if isinstance(value, (int, float)):
        return tag(name, number(value), class_="number", **more)
    return tag(name, escape(value), **more)


def row_of(values):
    """The first value is the row's header, for screen readers."""
    return tag("tr", cell(values[0], "th", scope="row"), *map(cell, values[1:])) + "\n"


def table(columns, rows, label):
    """A table in a box that scrolls, reachable by keyboard."""
    head = tag("tr", *(tag("th", escape(name), scope="col") for name in columns))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *map(row_of, rows))),
               class_="scroll", tabindex=0, role="region", aria_label=label)


def folded(title, *inside):
    return tag("details", tag("summary", escape(title)), *inside)


def page(title, *inside):
    return ("<!DOCTYPE html>\n" + '<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(title)}</title>\n<style>\n{CSS}</style></head>\n"
            f"<body>{''.join(inside)}</body></html>\n")
