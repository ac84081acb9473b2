"""Exposed communication beside communication hidden under computation, and what overlap gained
where a run measured it."""

from .. import figure, parts, rows, stats
from ..model import Chart, NotShown, Table

TITLE = "Exposed and hidden communication"

CAPTION = (
    "Exposed: time of a step in MPI calls, with waiting for the last rank apart. Hidden: "
    "computation while a message was in flight, an upper bound, since a message in flight need not "
    "make progress; it lies within computation, so it neither adds to the step time nor shows what "
    "overlap saves. Means over the ranks and the steps of the step time, of the run with the median one.")

CAPTION_PAIRED = (
    " Saved (--paired): step time of the blocking twin minus that of the overlapped step, from the "
    "same states; negative where overlap costs time. Interference: computation of the overlapped "
    "step minus that of the blocking one, already subtracted in saved. Median over runs with its "
    "95% interval; of a single run, the interval over its pairs of steps (moving blocks).")

# Key, title, colour.
BARS = [
    ("exposed", "exposed communication", figure.PART["exposed"]),
    ("waiting", "waiting for the last rank (exposed, too)", figure.PART["waiting"]),
    ("hidden", "hidden, at most", figure.SERIES[2]),
]
GAINS = [("saved", "saved", figure.SERIES[0], "o", -0.04),
         ("interference", "interference", figure.SERIES[1], "D", 0.04)]


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


def gain(cell, key):
    """Interval of `saved` or `interference` over the runs that used --paired; None: none did."""
    found = cell.figures(lambda run: run.info["results"].get("paired"))
    if not found:
        return None
    if len(found) > 1:
        return stats.median_ci([one[f"{key}_s"] for one in found])
    own = found[0]
    return stats.Interval(own[f"{key}_s"], own[f"{key}_ci_low_s"], own[f"{key}_ci_high_s"], 1,
                          "moving blocks of pairs of steps")


def legend(figures):
    bars = [figure.patch(title, colour) for key, title, colour in BARS
            if any((bar or {}).get(key) for _, bar, _ in figures)]
    if any(gains["saved"] for _, _, gains in figures):
        bars += [figure.dot(title, colour, marker=marker) for _, title, colour, marker, _ in GAINS]
    return bars


def draw_bars(grid, ax, figures):
    factor, name = rows.unit([sum(value or 0 for value in bar.values())
                              for _, bar, _ in figures if bar])
    for i, (_, bar, _) in enumerate(figures):
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


def draw_gains(grid, ax, figures):
    shown = [interval for _, _, gains in figures for interval in gains.values() if interval]
    factor, name = rows.unit([end for one in shown for end in (one.value, one.low, one.high)
                              if rows.known(end)])
    ax.axvline(0, color=figure.FAINT, linewidth=1.0)
    for i, (_, _, gains) in enumerate(figures):
        y = grid.at(i)
        for key, _, colour, marker, offset in GAINS:
            interval = gains[key]
            if interval:
                rows.whisker(ax, y + offset, interval, factor, colour)
                ax.plot([interval.value * factor], [y + offset], color=colour, marker=marker,
                        zorder=6)
        if not any(gains.values()):
            grid.absent(ax, i)
    ax.set_xlabel(f"a step ({name})")


def draw(fig, narrow, figures):
    paired = any(gains["saved"] for _, _, gains in figures)
    panels = ("exposed and hidden", "what overlap gains and costs") if paired else ("",)
    grid = rows.Rows(fig, narrow, [rows.row_label(cell) for cell, _, _ in figures], panels,
                     legend(figures))
    draw_bars(grid, grid.axes[0], figures)
    if paired:
        draw_gains(grid, grid.axes[1], figures)


def table(figures):
    factor, name = rows.unit([sum(value or 0 for value in bar.values())
                              for _, bar, _ in figures if bar])
    columns = ["configuration", "runs", f"exposed without waiting ({name})",
               f"waiting ({name})", f"hidden, at most ({name})",
               *(column for _, title, *_ in GAINS for column in rows.titles(title, name))]
    return Table(columns, [
        [rows.label(cell), len(cell.runs),
         *(rows.scaled((bar or {}).get(key), factor) for key, _, _ in BARS),
         *(value for key, *_ in GAINS for value in rows.figures(gains[key], factor))]
        for cell, bar, gains in figures])


def see(figures):
    shares = [(bar["hidden"] / (bar["hidden"] + bar["exposed"] + (bar["waiting"] or 0.0)), cell.label)
              for cell, bar, _ in figures if bar and bar["hidden"] and bar["exposed"] is not None]
    if not shares:
        return "Nothing ran under computation: all communication is exposed."
    share, label = max(shares)
    return f"At most {share:.0%} of the communication of {label} ran under computation: the largest share measured (no test compares them)."


def notes(cells, figures):
    said = rows.noted(("Measured without phases (--profile off)",
                       [cell.label for cell, bar, _ in figures if bar is None]))
    if not any(gains["saved"] for _, _, gains in figures):
        said.append("No run used --paired, so the step time that overlap saves is unknown.")
    return said + rows.remarks(cells)


def build(results):
    figures = [(cell, bars_of(cell), {key: gain(cell, key) for key, *_ in GAINS})
               for cell in results.cells]
    if not any(bar for _, bar, _ in figures):
        raise NotShown("No run measured its communication: all had --profile off.")
    if not any(run.info["machine"]["ranks"] > 1 for run in results.runs):
        raise NotShown("All runs had one rank, which communicates with nobody.")
    visible, left_out = rows.chosen(figures, results.baseline)
    paired = any(gains["saved"] for _, _, gains in figures)
    return Chart(TITLE, CAPTION + (CAPTION_PAIRED if paired else ""),
                 lambda fig, narrow: draw(fig, narrow, visible), table(figures),
                 notes(results.cells, figures) + left_out, see(figures))
