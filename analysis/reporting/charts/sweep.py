"""Step time over the factor that the study names for the axis (`report: {x: FACTOR}`)."""

from collections import namedtuple

import numpy

from .. import levels, panels, rows, stats, verdicts
from ..model import Chart, NotShown, Table

TITLE = "Step time over a factor"

# Intervals of the step and of its exposed communication (without ends; value None: not measured).
Point = namedtuple("Point", "x cell step exposed")
Line = namedtuple("Line", "label points first")  # `first`: holds the baseline


def point_of(x, cell):
    """Exposed communication is a part of the step time, over the same steps."""
    exposed = [run.info["results"]["summary"]["exposed_s"] for run in cell.runs]
    middle = None if None in exposed else float(numpy.median(exposed))
    return Point(x, cell, stats.median_ci([run.step_s for run in cell.runs]),
                 stats.Interval(middle, None, None, len(exposed), "none"))


def factor_of(results):
    factor = results.hints.get("x")
    if factor is None:
        raise NotShown("The study names no factor for the axis (report: {x: FACTOR}).")
    if factor not in results.factors:
        raise NotShown(f"The study's report: {{x: {factor}}} names none of its factors.")
    return factor


def lines_of(cells, factor, values):
    lines = []
    for rest, group in levels.group_cells(cells, (factor,)):
        points = sorted((point_of(values[cell.levels[factor]].value, cell) for cell in group
                         if cell.levels.get(factor) in values), key=lambda point: point.x)
        if points:
            lines.append(Line(levels.rest_label(rest, cells) or "all", points,
                              any(cell.baseline for cell in group)))
    return lines


def table_of(factor, lines):
    return Table([factor, "configuration", "step (ms)", "low (ms)", "high (ms)",
                  "exposed communication (ms)", "runs"],
                 [[point.cell.levels[factor], rows.label(point.cell), *rows.figures(point.step, 1e3),
                   rows.scaled(point.exposed.value, 1e3), len(point.cell.runs)]
                  for line in lines for point in line.points])


def shown(lines, figures):
    """Whether any line has these figures, and is not 0 throughout."""
    return any(getattr(point, figures).value for line in lines for point in line.points)


def draw(fig, factor, values, named, others):
    """One line per combination of the other factors' levels: the step, and dashed its exposed
    communication."""
    lines = named + others
    titles = {"step": "step", "exposed": "exposed communication"}
    titles = {figures: title for figures, title in titles.items() if shown(lines, figures)}
    entries = panels.entries(named, others, marker="o")
    entries += panels.hollow(point.cell for line in named for point in line.points)
    steps = [point.step.value for line in lines for point in line.points]
    scale, unit = rows.unit(steps)
    axes = panels.panels(fig, len(titles), entries, 2.8)
    for ax, (figures, title) in zip(axes, titles.items()):
        drawn = []
        for line, colour, strong in panels.coloured(named, others):
            drawn += draw_line(ax, line.points, figures, scale, colour, strong)
        panels.axis(ax, "y", drawn, panels.spread(steps) > 10, 1.1)
        x_axis(ax, factor, values, 5 if len(titles) > 1 else 10)
        panels.figures_at(ax, [(point.x, getattr(point, figures).value * scale,
                                f"{getattr(point, figures).value * scale:.3g}")
                               for line in named for point in line.points
                               if getattr(point, figures).value])
        ax.set_title(title, loc="left")
        ax.set_ylabel(f"{'step time' if figures == 'step' else 'part of the step time'} ({unit})")


def draw_line(ax, points, figures, scale, colour, strong):
    """Returns the values drawn."""
    known = [(point, getattr(point, figures).of(lambda s: s * scale)) for point in points]
    known = [(point, interval) for point, interval in known if interval.value]
    y = [interval.value for _, interval in known]
    ax.plot([point.x for point, _ in known], y, "-" if figures == "step" else "--", color=colour,
            linewidth=1.5 if strong else 0.7, zorder=3)
    for point, interval in known:
        panels.point(ax, point.x, interval, point.cell, colour)
    return y


def see(results, factor, lines):
    """What takes least at either end, and whether it is told from the others there."""
    ends = [(pick(point.x for line in lines for point in line.points), pick) for pick in (min, max)]
    said = []
    for x, _ in ends:
        there = [(point, line) for line in lines for point in line.points if point.x == x]
        if len({point.cell.kind for point, _ in there}) > 1:
            said.append(f"at {there[0][0].cell.levels[factor]} step times of two kinds")
            continue
        point, line = min(there, key=lambda pair: pair[0].step.value)
        others = verdicts.standing(results, point.cell, [one.cell for one, _ in there if one is not point])
        said.append(f"at {point.cell.levels[factor]} the least measured is {line.label}'s, "
                    f"{point.step.value * 1e3:.3g} ms{verdicts.doubt(point.cell)}{others}" if len(lines) > 1 else
                    f"at {point.cell.levels[factor]} a step takes {point.step.value * 1e3:.3g} ms")
    return f"How the step time changes with {factor}: {', '.join(dict.fromkeys(said))}."


def x_axis(ax, factor, values, most):
    ticks = {number.value: number.text for number in values.values()}
    log = min(ticks) > 0 and panels.spread(ticks) > 10
    kept = panels.apart(ticks, most, log)
    if log:
        panels.log_axis(ax, "x", ticks, labels=kept)
    else:
        ax.set_xticks(list(kept), kept.values())
    ax.set_xlabel(factor + " (logarithmic)" * log)


def build(results):
    factor = factor_of(results)
    cells = [cell for cell in results.cells if factor in cell.levels]
    values = levels.numbers(dict.fromkeys(cell.levels[factor] for cell in cells))
    if not values:
        raise NotShown(f"The levels of {factor} are not numbers, or fewer than two of them have "
                       "finished runs.")
    lines = lines_of(cells, factor, values)
    first = next((line for line in lines if line.first), lines[0])
    named, others = panels.named(lines, first, lambda line: line.points[-1].step.value)
    notes = rows.noted(("Without a place on the axis", [
        level for level in results.factors[factor] if level not in values]))
    if others:
        notes.append(f"{len(others)} of {len(lines)} lines have no name; those with one "
                     "are the baseline's and those with the least step at the largest level. The table has all.")
    if not shown(lines, "exposed"):
        notes.append("No run had exposed communication, or none measured it.")
    caption = (f"The step time of each run over {factor}, median over runs with its 95% "
               "interval, a line for each combination of the other factors' levels; beside it, "
               "dashed, the part of it in MPI calls, when the step could not compute: a mean over the "
               "same steps. Measured.")
    return Chart(TITLE, caption,
                 lambda fig: draw(fig, factor, values, named, others),
                 table_of(factor, lines),
                 notes + rows.repetitions(cells) + rows.remarks(cells), see(results, factor, lines))
