"""Exposed communication beside communication hidden under computation."""

from .. import figure, parts, rows
from ..model import Chart, NotShown, Table

TITLE = "Exposed and hidden communication"

CAPTION = (
    "Exposed: time of a step in MPI calls, with waiting for the last rank apart. Hidden: "
    "computation while a message was in flight, an upper bound, since a message in flight need not "
    "make progress; it lies within computation, so it neither adds to the step time nor shows what "
    "overlap saves. Means over the ranks and the steps of the step time, of the run with the median one.")

# Key, title, colour.
BARS = [
    ("exposed", "exposed communication", figure.PART["exposed"]),
    ("waiting", "waiting for the last rank (exposed, too)", figure.PART["waiting"]),
    ("hidden", "hidden, at most", figure.SERIES[2]),
]


def bars_of(cell):
    """{exposed, waiting, hidden: seconds} of a step; None: no run measured them."""
    runs = [run for run in cell.runs
            if "exposed" in parts.parts_of(run).seconds and run.means.get("inflight_s") is not None]
    if not runs:
        return None
    middle = parts.middle_of(runs, lambda run: run.means["wall_s"])
    found = [dict(parts.parts_of(run).seconds, hidden=run.means["inflight_s"]) for run in middle]
    return {key: None if any(key not in one for one in found)
            else sum(one[key] for one in found) / len(found) for key, _, _ in BARS}


def legend(figures):
    return [figure.patch(title, colour) for key, title, colour in BARS
            if any((bar or {}).get(key) for _, bar in figures)]


def unit_of(figures):
    return rows.unit([sum(value or 0 for value in bar.values()) for _, bar in figures if bar])


def draw(fig, figures):
    grid = rows.Rows(fig, [rows.row_label(cell) for cell, _ in figures], legend=legend(figures))
    ax = grid.axes[0]
    factor, name = unit_of(figures)
    for i, (_, bar) in enumerate(figures):
        y = grid.at(i)
        left = 0.0
        for key, _, colour in BARS:
            value = ((bar or {}).get(key) or 0.0) * factor
            if value > 0:
                ax.barh(y, value, height=rows.THICK, left=left, facecolor=colour, linewidth=0)
                left += value
        if bar is None:
            grid.absent(ax, i)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"step ({name})")


def table(figures):
    factor, name = unit_of(figures)
    columns = ["configuration", "runs", f"exposed without waiting ({name})",
               f"waiting ({name})", f"hidden, at most ({name})"]
    return Table(columns, [
        [rows.label(cell), len(cell.runs), *(rows.scaled((bar or {}).get(key), factor) for key, _, _ in BARS)]
        for cell, bar in figures])


def see(figures):
    shares = [(bar["hidden"] / (bar["hidden"] + bar["exposed"] + (bar["waiting"] or 0.0)), cell.label)
              for cell, bar in figures if bar and bar["hidden"] and bar["exposed"] is not None]
    if not shares:
        return "Nothing ran under computation: all communication is exposed."
    share, label = max(shares)
    return f"At most {share:.0%} of the communication of {label} ran under computation: the largest share measured (no test compares them)."


def notes(cells, figures):
    said = rows.noted(("Measured without phases (--profile off)",
                       [cell.label for cell, bar in figures if bar is None]))
    return said + rows.remarks(cells)


def build(results):
    figures = [(cell, bars_of(cell)) for cell in results.cells]
    if not any(bar for _, bar in figures):
        raise NotShown("No run measured its communication: all had --profile off.")
    if not any(run.info["machine"]["ranks"] > 1 for run in results.runs):
        raise NotShown("All runs had one rank, which communicates with nobody.")
    visible, left_out = rows.chosen(figures, results.baseline)
    return Chart(TITLE, CAPTION, lambda fig: draw(fig, visible), table(figures),
                 notes(results.cells, figures) + left_out, see(figures))
