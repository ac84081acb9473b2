"""HTML elements. All text of a run passes through escape()."""

import base64
import hashlib
import html
import json
import math
import os
import re

from . import figure
from .figure import CSS as FIGURE_CSS


def _script():
    """page.js, with the colours that it needs."""
    with open(os.path.join(os.path.dirname(__file__), "page.js"), encoding="utf-8") as file:
        light = json.dumps({name: pair[0] for name, pair in figure.COLOURS.items()})
        return f"const LIGHT = {light};\n{file.read()}"


SCRIPT = _script()
# No other script and no requests, whatever a hostile run contains.
HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = ("default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
          f"script-src 'sha256-{HASH}'")

def stacked(width, which):
    """CSS: below this width each figure of such tables has a line of its own."""
    table = f".script .data table{which}"
    return f"""\
@media screen and (max-width: {width}px) {{
  {table} thead {{ display: none; }}
  {table}, {table} :is(tbody, tr, td, th) {{ display: block; width: auto; min-width: 0; }}
  {table} tr {{ padding: .4rem 0; border-bottom: 1px solid var(--grid); }}
  {table} tbody :is(td, th) {{ border: 0; padding: 0 .6rem; text-align: left;
    white-space: normal; }}
  {table} tbody th {{ font-weight: bold; }}
  {table} td::before {{ content: attr(data-title) ": "; color: var(--faint);
    font-weight: normal; font-style: normal; }}
}}
"""


CSS = FIGURE_CSS + """\
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 var(--font);
  overflow-wrap: anywhere; }
main, header, nav, footer { max-width: 84rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1rem; font-weight: normal; color: var(--faint); margin: .5rem 0 0; }
h2, h3 { line-height: 1.25; }
h2 { margin: 1rem 0 .5rem; }
section.study + section.study { border-top: 1px solid var(--grid); margin-top: 3rem; }
.claim { font-size: 1.15rem; margin: .3rem 0; }
.verdict { margin: .3rem 0 .8rem; }
.lost { font-weight: bold; }
.badge { font-weight: bold; border: 2px solid; border-radius: .3rem; padding: .05rem .5rem;
  margin-right: .5rem; white-space: nowrap; }
.skip { position: absolute; left: -99em; }
.skip:focus { left: 1rem; }
a { color: inherit; }
:focus-visible { outline: 2px solid var(--series-1); outline-offset: 2px; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; }
ul { margin: .4rem 0; padding-left: 1.2rem; }
dl.facts { display: grid; grid-template-columns: minmax(7rem, max-content) minmax(0, 1fr);
  gap: .25rem 1rem; }
dl.facts dt { color: var(--faint); }
dl.facts dd { margin: 0; }
.warnings { border-left: .3rem solid var(--worse); padding: .1rem 1rem; }
.chart { margin: 1.5rem 0 2.5rem; }
.chart h3 { margin: 0 0 .2rem; }
.see { margin: 0 0 .5rem; }
.note, .caption { font-size: .9rem; color: var(--faint); }
.better { color: var(--better); font-weight: bold; }
.worse { color: var(--worse); font-weight: bold; }
.scroll { overflow-x: auto; border: 1px solid var(--grid); }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums;
  min-width: 60%; }
.answer table { font-size: 1rem; width: 100%; }
.answer .note { margin: .3rem 0; }
th, td { padding: .2rem .6rem; text-align: left; vertical-align: top; overflow-wrap: break-word;
  border-bottom: 1px solid var(--grid); min-width: 4rem; }
thead th { hyphens: none; }
tbody th { font-weight: normal; min-width: 8rem; overflow-wrap: anywhere; }
td.long { min-width: 14rem; overflow-wrap: anywhere; }
td.number { text-align: right; white-space: nowrap; }
td.absent { color: var(--faint); font-style: italic; text-align: right; }
.wide { font-size: .75rem; }
.wide :is(th, td) { padding: .2rem .3rem; min-width: 2.6rem; hyphens: auto; overflow-wrap: break-word; }
.wide :is(tbody th, td.long) { overflow-wrap: anywhere; }
.wide tbody th { min-width: 6rem; }
.wide td.long { min-width: 9rem; }
.save { display: none; margin: .3rem 0; font-size: .85rem; color: var(--faint); }
.script .save { display: block; }
button { font: inherit; color: var(--ink); background: none; border: 1px solid var(--faint);
  border-radius: .25rem; padding: 0 .5rem; cursor: pointer; }
pre { overflow: auto; max-height: 26rem; padding: .5rem; border: 1px solid var(--grid);
  overflow-wrap: normal; }
details { margin: .5rem 0; }
summary { cursor: pointer; }
@media screen and (min-width: 901px) { .answer td { white-space: nowrap; } }
""" + stacked(600, "") + stacked(900, ".wide") + """\
@media (max-width: 500px) { dl.facts { grid-template-columns: minmax(0, 1fr); }
  dl.facts dd { margin: 0 0 .4rem; } }
@media print {
  body { font-size: 10pt; }
  main { padding: 0; max-width: none; }
  nav, .skip, .script .save, details:not([open]) { display: none; }
  .brief :is(.detail, .answer > .data:has(+ .paper)) { display: none; }
  .scroll, pre { max-height: none; overflow: visible; border: 0; }
  table { font-size: 7pt; width: 100%; }
  .answer table { font-size: 9pt; }
  .wide { font-size: 6pt; }
  .note, .caption, .save { font-size: 8pt; }
  .data :is(th, td, td.long):is(th, td) { overflow-wrap: break-word; hyphens: manual; padding: .1rem .15rem; min-width: 0; }
  .data tbody :is(th, td.long, td.parts):is(th, td) { overflow-wrap: anywhere; }
  .data tbody :is(th, td.long):is(th, td) { min-width: 4rem; }
  .drawing svg { max-height: 18cm; }
  .drawing, tr, li, p, dt, dd, .badge { break-inside: avoid; }
  h1, h2, h3, .claim, .see, summary, .runs { break-after: avoid; }
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


ARROWS = {True: ("better", "\u25b2 "), False: ("worse", "\u25bc ")}
WIDE = 8  # columns from which on a table is set tighter
LONG = 40  # letters of a text that gets a wide column
WHOLE = 14  # letters of a word that paper does not part; it parts no figure


def cell(value, name="td", **more):
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return tag(name, "absent", class_="absent", **more)
    if isinstance(value, bool):
        return tag(name, "yes" if value else "no", **more)
    if hasattr(value, "item"):  # a number of numpy's
        return cell(value.item(), name, **more)
    sense, arrow = ARROWS.get(getattr(value, "better", None), ("", ""))
    if isinstance(value, (int, float)):
        return tag(name, arrow + number(value), class_=f"number {sense}".strip(),
                   data_v=str(value) if isinstance(value, int) else f"{value:.9g}", **more)
    if not sense and name == "td":
        parted = not value[:1].isdigit() and max(map(len, value.split()), default=0) > WHOLE
        sense = "long" if len(value) > LONG else "parts" * parted
    return tag(name, arrow + escape(value), class_=sense or None, **more)


# Between the syllables of a word, roughly: a consonant goes with the vowel behind it.
SYLLABLES = re.compile(r"(?<=\w{3})(?<=[aeiouy])(?=[^\Waeiouy\d_][aeiouy]\w)|"
                       r"(?<=\w{2}[aeiouy][^\Waeiouy\d_])(?=[^\Waeiouy\d_][aeiouy]\w)")
LONG_WORD = re.compile(r"\w{8,}")


def soft(title):
    """The same with soft hyphens in long words: a narrow column parts them nowhere else."""
    return LONG_WORD.sub(lambda hit: SYLLABLES.sub("\u00ad", hit[0]), title)


def row_of(values):
    """The first value is the row's header, for screen readers."""
    return tag("tr", cell(values[0], "th", scope="row"), *map(cell, values[1:])) + "\n"


def button(kind, name, title):
    return tag("button", title, type="button", data_save=kind, data_name=name)


def table(columns, rows, label, name=None):
    """A table with buttons that save it as a file of this name (of its label), in a box that scrolls
    where the columns do not fit, reachable by keyboard."""
    name = name or re.sub(r"\W+", "-", label)
    head = tag("tr", *(tag("th", soft(escape(title)), scope="col") for title in columns))
    save = tag("p", "Save this table: ", " ".join(
        button(kind, name, title) for kind, title in
        (("csv", "CSV"), ("tex", "LaTeX"), ("md", "Markdown"))), class_="save")
    body = tag("table", tag("thead", head), tag("tbody", *map(row_of, rows)),
               class_="wide" if len(columns) >= WIDE else None)
    return tag("div", tag("div", body,
                          class_="scroll", tabindex=0, role="region", aria_label=label),
               save, class_="data")


def folded(title, *inside, paper=False):
    """paper: it is printed, also where the reader does not ask for all details."""
    return tag("details", tag("summary", escape(title)), *inside, class_="paper" if paper else None)


def page(title, *inside):
    return ("<!DOCTYPE html>\n" + '<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(title)}</title>\n<style>\n{CSS}</style></head>\n"
            f"<body>{''.join(inside)}<script>{SCRIPT}</script></body></html>\n")
