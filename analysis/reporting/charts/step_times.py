"""The distribution of each configuration's step times."""

import numpy as np

from .. import figure, panels, rows, stats
from ..model import Chart, NotShown, Table

TITLE = "Distribution of step times"

BINS = 90
QUANTILES = [("p50", 0.50), ("p95", 0.95), ("p99", 0.99)]
CLOCK_S = 1e-9  # the clock's resolution: the least time of a logarithmic axis
LONG_TAIL = 4.0  # largest step / median: beyond it the axis is logarithmic
SLOW = 2.0  # medians of its run that a slow step takes at least

CAPTION = (
    "Steps after the warm-up, each on its slowest rank. The shape is the distribution "
    "of all runs' steps, each run with the same weight; points are the medians of single runs, "
    "lines the 95% and 99% quantiles of a run (of several runs, the median of each one's own). "
    "Intervals in the table are over runs: steps of one run are not independent. The bound there "
    "is that of the step, from parts measured apart (--bound); beside it is the step time over "
    "the bound, medians over the runs.")


def quantiles_of(cell):
    """{p50, p95, p99: Interval over the runs of each run's own quantile}."""
    return {name: stats.median_ci([float(np.quantile(run.walls, q)) for run in cell.runs])
            for name, q in QUANTILES}


def slow_share(run):
    """Share of steps that took twice the run's median or longer."""
    return float(np.mean(run.walls >= SLOW * np.median(run.walls)))


def tail_is_long(cells):
    return any(run.walls.max() > LONG_TAIL * np.median(run.walls) for cell in cells
               for run in cell.runs)


def edges_of(cells, logarithmic):
    """Edges of bins over all steps that are drawn."""
    low = min(max(run.walls.min(), CLOCK_S) for cell in cells for run in cell.runs)
    high = max(run.walls.max() for cell in cells for run in cell.runs)
    if logarithmic:
        return np.geomspace(low * 0.98, high * 1.02, BINS + 1)
    margin = 0.02 * (high - low) or 0.02 * high
    return np.linspace(max(0.0, low - margin), high + margin, BINS + 1)


def density(cell, edges):
    """Share of the steps in each bin, mean over the runs, as a fraction of the fullest bin."""
    shares = np.mean([np.histogram(run.walls, edges)[0] / len(run.walls) for run in cell.runs],
                     axis=0)
    return shares / shares.max()


def draw_row(ax, y, cell, edges, factor, quantiles):
    height = density(cell, edges) * 0.11
    ax.fill_between(edges * factor, np.append(y - height, y), np.append(y + height, y),
                    step="post", facecolor=figure.SERIES[5], linewidth=0)
    tail = [run.walls.max() for run in cell.runs]
    ax.plot([np.median(cell.runs[0].walls) * factor, max(tail) * factor], [y, y],
            color=figure.SERIES[5], linewidth=0.8)
    for name, size in (("p95", 0.07), ("p99", 0.05)):
        at = quantiles[name].value * factor
        ax.plot([at, at], [y - size, y + size], color=figure.INK, linewidth=1.2)
    medians = [np.median(run.walls) * factor for run in cell.runs]
    ax.plot(medians, [y] * len(medians), linestyle="none", marker="o", color=figure.SERIES[1],
            markersize=4, markeredgecolor=figure.GROUND, markeredgewidth=0.4, zorder=5)
    middle = quantiles["p50"].value * factor
    panels.figure_above(ax, middle, y, f"{middle:.3g}")


def draw(fig, cells, quantiles):
    legend = [figure.patch("steps of all runs", figure.SERIES[5]),
              figure.dot("median of a run", figure.SERIES[1]),
              figure.line("p95, p99", figure.INK, linewidth=1.2)]
    grid = rows.Rows(fig, [rows.row_label(cell) for cell in cells], legend=legend)
    logarithmic = tail_is_long(cells)
    edges = edges_of(cells, logarithmic)
    factor, name = rows.unit([quantiles[cell.name]["p50"].value for cell in cells])
    ax = grid.axes[0]
    if logarithmic:
        panels.log_axis(ax, "x", edges * factor)
    ax.set_xlim(edges[0] * factor, edges[-1] * factor)
    for i, cell in enumerate(cells):
        draw_row(ax, grid.at(i), cell, edges, factor, quantiles[cell.name])
    ax.set_xlabel(f"step ({name})" + (", logarithmic" if logarithmic else ""))


def table(cells, quantiles):
    factor, name = rows.unit([quantiles[cell.name]["p50"].value for cell in cells])
    columns = ["configuration", "runs", "steps a run",
               *(title for what, _ in QUANTILES for title in rows.titles(what, name)),
               f"longest ({name})", "steps of 2 medians and more (%)", f"bound ({name})", "of bound"]
    return Table(columns, [
        [rows.label(cell), len(cell.runs), float(cell.middle(lambda run: len(run.walls))),
         *(value for what, _ in QUANTILES for value in rows.figures(quantiles[cell.name][what], factor)),
         max(float(run.walls.max()) for run in cell.runs) * factor, cell.middle(slow_share) * 100,
         rows.scaled(cell.middle(lambda run: run.bound_s), factor),
         cell.middle(lambda run: run.of_bound)] for cell in cells])


def see(cells, quantiles):
    """The longest tail."""
    tails = [(found["p99"].value / found["p50"].value, cell.label) for cell in cells
             if (found := quantiles[cell.name])["p50"].value > 0]
    if not tails:
        return ""
    ratio, label = max(tails)
    return f"The longest tail measured: the slowest 1% of {label}'s steps take {ratio:.3g} medians or more."


def notes(cells):
    drifting, apart = [], []
    for cell in cells:
        flags = [stats.drift_within(run.walls) for run in cell.runs]
        drifting += [f"{run.folder}: {flag.text}." for run, flag in zip(cell.runs, flags)
                     if flag.raised]
        far = stats.outliers([run.step_s for run in cell.runs])
        apart += [f"{run.folder}: its step time lies far from those of the other runs of {cell.label}."
                  for run, out in zip(cell.runs, far) if out]
    return rows.capped(drifting) + rows.capped(apart)


def build(results):
    cells = [cell for cell in results.cells if any(len(run.walls) for run in cell.runs)]
    if not cells:
        raise NotShown("There is no finished run with steps after the warm-up.")
    quantiles = {cell.name: quantiles_of(cell) for cell in cells}
    drawn, left_out = rows.chosen(cells, results.baseline)
    return Chart(TITLE, CAPTION,
                 lambda fig: draw(fig, drawn, quantiles), table(cells, quantiles),
                 notes(cells) + rows.remarks(cells) + rows.repetitions(cells) + left_out,
                 see(cells, quantiles))
