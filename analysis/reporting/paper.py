"""`gradwire report --paper DIR`: what a paper and the evaluation of its artifact ask for, as files.
README.md in DIR, which README below becomes, says what is there."""

import itertools
import json
import math
import os
import re
import textwrap

from . import answer, figure, perrun, sheet, summary
from .markup import number
from .base import BadInput
from .base import write as write_file

README = """\
# Figures, tables and data of {name}

Written by `gradwire report --paper` from {runs} finished runs. Everything follows from the folders of these
runs; the same command on them writes the same files.

| file | what |
|---|---|
| `figures/STUDY-CHART.pdf`, `.svg` | the charts of the report |
| `tables/STUDY-answer.tex` | the main figures of all configurations |
| `tables/STUDY-CHART.tex` | the data of each chart; they need `amssymb`, `booktabs`, `graphicx` |
| `specs/STUDY.yaml` | the spec that `gradwire run` measured, to run it again |
| `raw/runs.csv` | a row per run: every figure, its machine, commit and command |
| `raw/STUDY-steps.csv` | the time of each step after the warm-up on its slowest rank, in seconds |
| `raw/summary.csv` | a row per configuration: medians, intervals, verdicts |
| `provenance.json` | of each run: commit, machine, MPI, options, command; SHA-256 of the specs |

A table wider than the text is scaled down to it: wide ones are best read on a page turned on its side
(`sidewaystable` of `rotating`). Columns without a figure are left out. Names in other than Latin letters need
XeLaTeX or LuaLaTeX and a font that has them; the PDF figures have the letters of DejaVu Sans alone.

## Studies

{studies}
"""

LIGATURE = re.compile(r"(?<=[-,'`?!])(?=[-,'`])")  # TeX would set -- as a dash
ESCAPES = {"\\": r"\textbackslash{}", "~": r"$\sim$", "^": r"\textasciicircum{}",
           "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
           '"': r"\char34{}",  # babel makes commands of a bare one
           "\u2212": "$-$", "\u2248": r"$\approx$", "\u2264": r"$\leq$", "\u2265": r"$\geq$",
           "\0": "{}", **{letter: "\\" + letter for letter in "&%$#_{}"}}
ARROWS = {True: r"$\blacktriangle$ ", False: r"$\blacktriangledown$ "}
HEAD, CELL = 14, 28  # letters in a line of a heading, of a cell
# A table that is wider than the text is scaled down to it.
TABLE = r"""% \usepackage{{amssymb,booktabs,graphicx}}
\resizebox{{\ifdim\width>\linewidth\linewidth\else\width\fi}}{{!}}{{%
\begin{{tabular}}{{{columns}}}
\toprule
{head}
\midrule
{rows}
\bottomrule
\end{{tabular}}}}
"""


def absent(value):
    return value is None or (isinstance(value, float) and math.isnan(value))


def latex(value, width):
    """A cell of a table, as lines of at most so many letters."""
    value = value.item() if hasattr(value, "item") else value  # a number of numpy's
    if absent(value):
        return ["--"]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    sense = ARROWS.get(getattr(value, "better", None), "")
    if isinstance(value, str):
        lines = ["".join(ESCAPES.get(letter, letter) for letter in LIGATURE.sub("\0", line))
                 for line in textwrap.wrap(value, width, break_on_hyphens=False)] or [""]
    else:
        lines = [re.sub(r"e(.*)", lambda hit: rf"$\cdot 10^{{{int(hit[1])}}}$",
                        number(value).replace("inf", r"$\infty$"))]
        lines = [re.sub("^-", "$-$", lines[0])]
    return [sense + lines[0], *lines[1:]]


def stack(lines, place):
    # Of a line that begins with * or [, the \\ or rule before would take that as an argument.
    text = "{}" + r"\\{}".join(lines)
    return text if len(lines) == 1 else rf"\begin{{tabular}}{place}{text}\end{{tabular}}"


def side(values):
    """Figures stand on the right, with or without their intervals."""
    figures = [not isinstance(value, str) or re.match(r"[~\s]*-?\d", value) is not None
               for value in values if not absent(value)]
    return "r" if 2 * sum(figures) > len(figures) else "l"


def latex_table(table):
    """The columns that have a figure."""
    columns = [column for column in zip(table.columns, *table.rows)
               if not all(map(absent, column[1:]))]
    sides = ["l", *(side(column[1:]) for column in columns[1:])]
    made = [[stack(latex(column[0], HEAD), f"[b]{{@{{}}{at}@{{}}}}"),
             *(stack(latex(value, CELL), f"[t]{{@{{}}{at}@{{}}}}") for value in column[1:])]
            for column, at in zip(columns, sides)]
    head, *rows = [" & ".join(row) + r" \\" for row in zip(*made)]
    return TABLE.format(columns="".join(sides), head=head, rows="\n".join(rows))


def steps_csv(results):
    """Each step of each run; the first ones are the warm-up and in no figure."""
    return sheet.text_of(("folder", "step_after_warm_up", "wall_s"), (
        {"folder": run.folder, "step_after_warm_up": i, "wall_s": float(wall)}
        for run in results.runs for i, wall in enumerate(run.walls, 1)))


def provenance(all_results):
    kept = ("version", "commit", "command", "started_utc", "seed", "options", "data", "mpi", "machine",
            "link", "sources")
    studies = [{"name": results.name, "claim": results.study["claim"],
                "spec_sha256": results.study["spec"]["sha256"],
                "gradwire": results.study["gradwire"], "created_utc": results.study["created_utc"]}
               for results in all_results if results.study]
    runs = [{"study": results.name, "folder": run.folder, "cell": run.cell,
             **{key: run.info[key] for key in kept if key in run.info}}
            for results in all_results for run in results.runs]
    return json.dumps({"studies": studies, "runs": runs}, indent=1) + "\n"


def studies_text(all_results, names):
    parts = []
    for name, results in zip(names, all_results):
        study = results.study
        parts.append(f"- **{results.name}**: {len(results.runs)} runs of {len(results.cells)} "
                     "configurations" + (f". {study['claim']} To measure it again: `gradwire run "
                                         f"specs/{name}.yaml`." if study else "."))
    return "\n".join(parts)


def name_of(results):
    """For file names."""
    return re.sub(r"[^\w.-]+", "_", results.name).strip(".") or "runs"


def names_of(all_results):
    """A name for the files of each study, different ones."""
    found = []
    for results in all_results:
        name = plain = name_of(results)
        more = itertools.count(2)
        while name in found:
            name = f"{plain}-{next(more)}"
        found.append(name)
    return found


def files_of(all_results, drawn, names):
    """(path in DIR, text or bytes) of each file but README.md."""
    for name, results, one in zip(names, all_results, drawn):
        for chart, _ in one.shown:
            if chart.draw:
                yield f"figures/{name}-{chart.name}.svg", figure.standalone_svg(chart)
                yield f"figures/{name}-{chart.name}.pdf", figure.pdf(chart)
            yield f"tables/{name}-{chart.name}.tex", latex_table(chart.table)
        if results.cells:
            yield f"tables/{name}-answer.tex", latex_table(answer.table(results))
            yield f"raw/{name}-steps.csv", steps_csv(results)
        if results.study:
            yield f"specs/{name}.yaml", results.study["spec"]["text"]
    yield "raw/runs.csv", perrun.csv_text(perrun.of_all(all_results))
    yield "raw/summary.csv", summary.text(all_results)
    yield "provenance.json", provenance(all_results)


def write(folder, all_results, drawn, name):
    """Writes all files; others that lie there stay."""
    runs = sum(len(results.runs) for results in all_results)
    names = names_of(all_results)
    readme = README.format(name=name, runs=runs, studies=studies_text(all_results, names))
    try:
        for path, data in [*files_of(all_results, drawn, names), ("README.md", readme)]:
            path = os.path.join(folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_file(path, data if isinstance(data, bytes) else data.encode())
    except OSError as error:
        raise BadInput(f"--paper {folder}: {error.strerror}") from error
