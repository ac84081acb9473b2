"""Where the time of a step goes: one bar per configuration."""

from .. import figure, parts, rows, stats
from ..model import Chart, NotShown, Table

TITLE = "Where the time of a step goes"

CAPTION = (
    "Parts of the step time, each a mean over the ranks and the same "
    "steps, so that they add up to it; medians would not. Of several runs the "
    "bar shows the one with the median step (of an even number, the mean of the middle two): its length "
    "is the median over the runs, and its parts still add up. The line at a bar's "
    "end is the 95% interval of that median, over runs. Exposed communication is the "
    "time in MPI calls without waiting for the last rank. Hidden communication is computation while a message was in "
    "flight, an upper bound, since such a message need not make progress: it lies within computation, so it neither "
    "adds to the step time nor shows what overlap saves. If bars differ much in length, their parts are also shown as "
    "shares.")

FAR = 5.0  # longest bar / shortest: beyond it shares are drawn, too
UNTOLD = 0.1  # of a bar: a part that is not told apart has its reason from here on
HIDDEN = {"color": figure.SERIES[2], "linewidth": 2, "solid_capstyle": "butt"}
UNEVEN = 1.5  # bar / step time, where that is a median: beyond it a note mentions rare long steps

NOTES = {
    parts.COUNTERS: "Memory-bound: measured by hardware counters, a share of computation ({who}).",
    parts.MODEL: "Memory-bound: modelled, not measured ({who}). Solid parts are certainly core or "
                 "memory-bound; hatched parts may be either, including all products in steps whose "
                 "interval is empty.",
    None: "Computation is not divided ({who}): the run had neither counters nor ceilings, or more "
          "threads than CPUs.",
}


def title_of(key, title, bars):
    """The title in the legend, which marks modelled parts."""
    modelled = key in ("core", "either", "memory") and \
        any(bar.source == parts.MODEL for _, bar in bars)
    return title + " (modelled)" if modelled else title


def style(key, colour):
    """Hatched one way: modelled, may be either; the other way: measured, but undivided."""
    hatch = figure.MODELLED if key == "either" else {"linewidth": 0}
    if key in ("compute", "undivided"):
        hatch = dict(figure.MODELLED, hatch="\\\\\\\\")
    return {"facecolor": figure.PART[colour], **hatch}


def merged(bar):
    """Parts as drawn: data and checkpoint, which are thin, count as other."""
    seconds = dict(bar.seconds)
    small = [seconds.pop(key) for key in ("data", "checkpoint", "other") if key in seconds]
    if small:
        seconds["other"] = sum(small)
    return seconds


def legend(bars):
    used = {key for _, bar in bars for key, value in merged(bar).items() if value > 0}
    names = {"other": "data, checkpoint, other"}
    return [figure.patch(names.get(key, title_of(key, title, bars)), None, **style(key, colour))
            for key, title, colour in parts.PARTS if key in used] + \
        [figure.line("hidden communication, at most", HIDDEN["color"], linewidth=HIDDEN["linewidth"])] * any(bar.hidden for _, bar in bars)


def limit(bars, intervals):
    """The end of the axis; an interval far beyond all bars is cut, so that bars stay readable."""
    longest = max(bar.total() for _, bar in bars)
    far = [intervals[cell.name].high for cell, _ in bars]
    return 1.04 * min(max([longest] + [high for high in far if rows.known(high)]), 1.5 * longest)


def draw_bar(ax, y, bar, factor):
    seconds, left = merged(bar), 0.0
    for key, _, colour in parts.PARTS:
        value = max(0.0, seconds.get(key, 0.0)) * factor
        if value > 0:
            ax.barh(y, value, height=rows.THICK, left=left, **style(key, colour))
            left += value
    if bar.hidden:
        ax.plot([0, bar.hidden * factor], [y + 0.6 * rows.THICK] * 2, **HIDDEN)


def draw(fig, bars, intervals):
    totals = [bar.total() for _, bar in bars]
    far_apart = max(totals) > FAR * min(totals)
    titles = ("step", "its parts as shares") if far_apart else ("",)
    grid = rows.Rows(fig, [rows.row_label(cell) for cell, _ in bars], titles, legend(bars))
    factor, name = rows.unit(totals)
    ax = grid.axes[0]
    end = limit(bars, intervals) * factor
    right = end * (1.2 if far_apart else 1.08)  # room for the figures
    for i, (cell, bar) in enumerate(bars):
        draw_bar(ax, grid.at(i), bar, factor)
        rows.measured(ax, grid.at(i), bar.total(), intervals[cell.name], factor, end)
        if len(grid.axes) > 1 and bar.total() > 0:
            draw_bar(grid.axes[1], grid.at(i), bar, 100 / bar.total())
    ax.set_xlim(0, right)
    ax.set_xlabel(f"step ({name})")
    if len(grid.axes) > 1:
        grid.axes[1].set_xlim(0, 100)
        grid.axes[1].set_xlabel("of the step (%)")


def table(bars, intervals):
    factor, name = rows.unit([bar.total() for _, bar in bars])
    used = [(key, title) for key, title, _ in parts.PARTS
            if any(key in bar.seconds for _, bar in bars)]
    columns = ["configuration", "runs", f"step ({name})", f"95% from ({name})", f"95% to ({name})",
               *(f"{title_of(key, title, bars)} ({name})" for key, title in used),
               "division of computation", f"hidden communication, at most ({name})"]
    return Table(columns, [
        [rows.label(cell), len(cell.runs), *rows.figures(intervals[cell.name], factor),
         *(rows.scaled(bar.seconds.get(key), factor) for key, _ in used), bar.source or "none",
         rows.scaled(bar.hidden, factor)]
        for cell, bar in bars])


REASONS = {
    "either": ("may be core or memory-bound", lambda run: reason_of(run, "memory_s")),
    "compute": ("is not divided into core and memory-bound", lambda run: reason_of(run, "memory_s")),
    "undivided": ("is not divided at all", lambda run: "measured without phases (--profile off)"),
    "other": ("is none of the phases", lambda run: "loops, bookkeeping and what the system did "
                                                   "between the timed regions"),
}


def reason_of(run, figure_name):
    """Why a source is no better, as run.json says."""
    said = run.info["sources"][figure_name]
    found = said.partition("; ")[2] or said
    return found if len(found) <= 300 else found[:297] + "..."


def untold(bars):
    """A line for each kind of part that tells nothing and takes more than UNTOLD of a bar."""
    lines = []
    for key, (what, why) in REASONS.items():
        found = [(cell, bar.seconds.get(key, 0.0) / bar.total()) for cell, bar in bars
                 if bar.total() > 0 and bar.seconds.get(key, 0.0) > UNTOLD * bar.total()]
        reasons = {}
        for cell, share in found:
            reasons.setdefault(why(cell.runs[0]), []).append((cell, share))
        for reason, members in reasons.items():
            shares = [share for _, share in members]
            much = f"{min(shares):.0%}" + f" to {max(shares):.0%}" * (len(members) > 1)
            lines.append(f"Untold: {much} of the bar {what} ("
                         f"{rows.listed([cell.label for cell, _ in members], len(bars))}): {reason}.")
    return rows.capped(lines)


def see(bars):
    """The share of communication, in a line."""
    shares = sorted(((bar.seconds["exposed"] + bar.seconds.get("waiting", 0.0)) / bar.total(), i)
                    for i, (_, bar) in enumerate(bars) if "exposed" in bar.seconds and bar.total() > 0)
    if not shares:
        return "The whole step: these runs measured no phases."
    (low, first), (high, last) = shares[0], shares[-1]
    if len(shares) == 1:
        return f"Communication that the step waits for takes {high:.0%} of it."
    return (f"Communication that the step waits for takes {low:.0%} ({bars[first][0].label}) to {high:.0%} "
            f"({bars[last][0].label}) of it; figures are the whole step.")


def hidden(bars):
    """How much of the communication ran under computation, at most."""
    shares = [(bar.hidden / (bar.hidden + bar.seconds["exposed"] + bar.seconds.get("waiting", 0.0)), cell.label)
              for cell, bar in bars if bar.hidden]
    if not shares:
        return []
    share, label = max(shares)
    return [f"At most {share:.0%} of the communication of {label} ran under computation: the largest share measured (no test "
            "compares them)."]


def sources(bars):
    """One note for each way in which computation was divided."""
    found = {}
    for cell, bar in bars:
        if "undivided" not in bar.seconds:
            found.setdefault(bar.source, []).append(cell.label)
    count = sum(map(len, found.values()))
    return [NOTES[source].format(who=rows.listed(who, count))
            for source, who in found.items()]


def notes(bars):
    return sources(bars) + hidden(bars) + untold(bars) + rows.noted(
        ("Measured without phases (--profile off), so the parts are unknown",
         [cell.label for cell, bar in bars if "undivided" in bar.seconds]),
        (f"Rare long steps weigh in means: the mean step is longer than {UNEVEN} median ones",
         [cell.label for cell, bar in bars if bar.total() > UNEVEN * cell.step_s]),
        ("Waiting is not separated from the rest of exposed communication",
         [cell.label for cell, bar in bars
          if "exposed" in bar.seconds and "waiting" not in bar.seconds]), of=len(bars))


def build(results):
    cells = results.cells
    if not cells:
        raise NotShown("There is no finished run.")
    bars = [(cell, parts.parts_of_cell(cell.runs)) for cell in cells]
    intervals = {cell.name: stats.median_ci([run.means["wall_s"] for run in cell.runs])
                 for cell in cells}
    visible, left_out = rows.chosen(bars, results.baseline)
    return Chart(TITLE, CAPTION,
                 lambda fig: draw(fig, visible, intervals),
                 table(bars, intervals),
                 notes(bars) + rows.remarks(cells) + rows.repetitions(cells) + left_out, see(bars))
