"""Step time over the factor that the study names for the axis (`report: {x: FACTOR}`)."""

from collections import namedtuple

import numpy

from reporting import figure, levels, panels, rows, stats
from reporting.model import Chart, NotShown, Table

NAME = "sweep"
TITLE = "Step time over a factor"

# `step`: an Interval; `exposed`: median of the exposed communication (None: not measured).
Point = namedtuple("Point", "x cell step exposed")
Line = namedtuple("Line", "label points first")  # `first`: holds the baseline


def exposed_s(run):
    """The run's median over its steps, like its step time; a mean would include rare long waits."""
    return run.info["results"]["summary"]["exposed_s"]


def point_of(x, cell):
    exposed = [exposed_s(run) for run in cell.runs]
    return Point(x, cell, stats.median_ci([run.step_s for run in cell.runs]),
                 None if None in exposed else float(numpy.median(exposed)))


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
    table = Table([factor, "configuration", "step (ms)", "low (ms)", "high (ms)",
                   "exposed communication (ms)", "runs"], [])
    for line in lines:
        for point in line.points:
            table.rows.append([point.cell.levels[factor], rows.label(point.cell),
                               point.step.value * 1e3, *rows.ends(point.step, 1e3),
                               rows.scaled(point.exposed, 1e3), len(point.cell.runs)])
    return table


class Drawing:
    """One line per combination of the other factors' levels: the step, and dashed its exposed
    communication."""

    def __init__(self, factor, values, lines):
        self.factor, self.values = factor, values
        first = next((line for line in lines if line.first), lines[0])
        self.named, self.others = panels.named(lines, first,
                                               lambda line: line.points[-1].step.value)
        steps = [point.step.value for line in lines for point in line.points]
        self.unit = rows.unit(steps)
        self.exposed = any(point.exposed for line in lines for point in line.points)
        places = [number.value for number in values.values()]
        self.log_x = min(places) > 0 and panels.spread(places) > 10
        self.log_y = panels.spread(steps) > 10

    def __call__(self, fig, narrow):
        entries = [figure.line(line.label, figure.SERIES[i], marker="o")
                   for i, line in enumerate(self.named)]
        if self.others:
            entries.append(figure.line(f"{len(self.others)} others", figure.FAINT, linewidth=0.7))
        entries += panels.hollow(point.cell for line in self.named for point in line.points)
        titles = ["step"] + ["exposed communication"] * self.exposed
        axes = panels.panels(fig, narrow, len(titles), entries, 2.8)
        for ax, title, figures in zip(axes, titles, ("step", "exposed")):
            self.plot(ax, figures)
            ax.set_title(title, loc="left")
            self.x_axis(ax, narrow)
            ax.set_ylabel(f"median of the steps ({self.unit[1]})")

    def x_axis(self, ax, narrow):
        ticks = {number.value: number.text for number in self.values.values()}
        kept = panels.every(ticks, 5 if narrow or self.exposed else 10)
        if self.log_x:
            panels.log_axis(ax, "x", ticks, labels=kept)
        else:
            ax.set_xticks(list(kept), kept.values())
        ax.set_xlabel(self.factor + (" (logarithmic)" if self.log_x else ""))

    def plot(self, ax, figures):
        for line in self.others:
            self.draw_line(ax, line, figures, figure.FAINT, 0.7)
        for i, line in enumerate(self.named):
            self.draw_line(ax, line, figures, figure.SERIES[i], 1.5)
        if self.log_y:
            panels.log_axis(ax, "y", self.values_of(figures))
        else:
            ax.set_ylim(0, 1.1 * max(self.values_of(figures)))

    def values_of(self, figures):
        found = [point.step.value if figures == "step" else point.exposed
                 for line in self.named + self.others for point in line.points]
        return [value * self.unit[0] for value in found if value]

    def draw_line(self, ax, line, figures, colour, width):
        factor = self.unit[0]
        known = [point for point in line.points if figures == "step" or point.exposed]
        y = [(point.step.value if figures == "step" else point.exposed) * factor for point in known]
        ax.plot([point.x for point in known], y, color=colour, linewidth=width,
                linestyle="-" if figures == "step" else "--", marker="o", markersize=3, zorder=3)
        for point, value in zip(known, y):
            if point.cell.oversubscribed:
                ax.plot(point.x, value, "o", color=colour, markersize=5,
                        markerfacecolor=figure.GROUND, zorder=4)
            if figures == "step" and point.step.low is not None:
                ax.plot([point.x] * 2, [point.step.low * factor, point.step.high * factor],
                        color=colour, linewidth=width)


def build(results):
    factor = factor_of(results)
    cells = [cell for cell in results.cells if factor in cell.levels]
    values = levels.numbers(dict.fromkeys(cell.levels[factor] for cell in cells))
    if not values:
        raise NotShown(f"The levels of {factor} are not numbers, or fewer than two of them have "
                       "finished runs.")
    lines = lines_of(cells, factor, values)
    drawing = Drawing(factor, values, lines)
    notes = rows.noted(("Without a place on the axis", [
        level for level in results.factors[factor] if level not in values]))
    if drawing.others:
        notes.append(f"{len(drawing.others)} of {len(lines)} lines have no name; those with one "
                     "are the baseline's and the quickest at the largest level. The table has all.")
    if not drawing.exposed:
        notes.append("No run had exposed communication, or none measured it.")
    caption = (f"The median step of each run over {factor}, median over runs with its 95% "
               "interval, a line for each combination of the other factors' levels; beside it, "
               "dashed, the median time in MPI calls, when the step could not compute. Measured.")
    return Chart(NAME, TITLE, caption, drawing, table_of(factor, lines),
                 notes + rows.repetitions(cells) + rows.remarks(cells))
