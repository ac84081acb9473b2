"""The predicted step time beside the measured one."""

import numpy as np

from .. import figure, panels, rows, stats
from ..model import Chart, NotShown, Table

TITLE = "Predicted and measured step time"

BAND = 0.15
SIDE = 2.6  # of the scatter, inches

CAPTION = (
    "Predicted: modelled at the start of the run from parts that it measured there "
    "(docs/benchmarks.md, Plan). Measured: the step time of that run. Points are medians over "
    "the runs of a configuration, lines their 95% intervals. On the line the prediction is right; "
    "the band is 15% to either side.")


def forecast_of(run):
    """(predicted, measured) in seconds; None: one of them is absent."""
    found = run.info.get("forecast") or {}
    pair = found.get("predicted_step_s"), found.get("measured_step_s")
    return pair if all(value is not None and value > 0 for value in pair) else None


def figures_of(cell):
    """Intervals over the runs of predicted, measured and their ratio, and the number of runs; None:
    no forecast."""
    pairs = cell.figures(forecast_of)
    if not pairs:
        return None
    predicted, measured = zip(*pairs)
    return (stats.median_ci(predicted), stats.median_ci(measured),
            stats.median_ci([p / m for p, m in pairs]), len(pairs))


def limits(figures):
    """Ends of both axes in seconds: all points, and as much of intervals as keeps these legible."""
    ends = [one for _, (predicted, measured, _, _) in figures for one in (predicted, measured)]
    low, high = min(one.value for one in ends), max(one.value for one in ends)
    far = [end for one in ends for end in (one.low, one.high) if rows.known(end)]
    room = max(1.3, high / low)
    return (max(min(far + [low]), low / room) / 1.1, min(max(far + [high]), high * room) * 1.1)


def draw_cross(ax, predicted, measured, factor):
    """Intervals in both directions."""
    for one, line in ((measured, lambda ends: (ends, [predicted.value * factor] * 2)),
                      (predicted, lambda ends: ([measured.value * factor] * 2, ends))):
        ends = rows.ends(one, factor)
        if ends[0] is not None:
            ax.plot(*line(ends), color=figure.FAINT, linewidth=1.0, zorder=3)


def draw_scatter(ax, figures, logarithmic):
    low, high = limits(figures)
    factor, name = rows.unit([high])
    line = np.geomspace(low, high, 50) * factor
    ax.fill_between(line, line * (1 - BAND), line * (1 + BAND), facecolor=figure.GRID, linewidth=0)
    ax.plot(line, line, color=figure.FAINT, linewidth=1.0)
    for _, (predicted, measured, _, _) in figures:
        draw_cross(ax, predicted, measured, factor)
        x, y = measured.value * factor, predicted.value * factor
        ax.plot([x], [y], marker="o", color=figure.SERIES[0], markeredgecolor=figure.GROUND,
                markersize=5, zorder=4)
    if logarithmic:
        for which in "xy":
            panels.log_axis(ax, which, [low * factor, high * factor])
    ax.set_xlim(low * factor, high * factor)
    ax.set_ylim(low * factor, high * factor)
    ax.set_aspect("equal")
    ax.grid(color=figure.GRID)
    ax.set_xlabel(f"measured ({name})")
    ax.set_ylabel(f"predicted, modelled ({name})")


def draw_ratios(grid, ax, figures):
    ax.axvspan(1 - BAND, 1 + BAND, facecolor=figure.GRID, linewidth=0)
    ax.axvline(1, color=figure.FAINT, linewidth=1.0)
    values = [ratio.value for _, (_, _, ratio, _) in figures] + [1 - BAND, 1 + BAND]
    low, high = min(values) / 1.1, max(values) * 1.1
    for i, (_, (_, _, ratio, _)) in enumerate(figures):
        rows.whisker(ax, grid.at(i), ratio, within=(low, high))
        ax.plot([ratio.value], [grid.at(i)], marker="o", color=figure.SERIES[0], zorder=6)
    if high / low > 10:
        panels.log_axis(ax, "x", [low, high])
    ax.set_xlim(low, high)
    ax.set_xlabel("predicted / measured" + (", logarithmic" if high / low > 10 else ""))


def draw(fig, figures, visible):
    legend = [figure.dot("configuration", figure.SERIES[0]),
              figure.line("as predicted", figure.FAINT, linewidth=1.0),
              figure.patch(f"within {BAND:.0%}", figure.GRID)]
    grid = rows.Rows(fig, [rows.row_label(cell) for cell, _ in visible], legend=legend,
                     above=SIDE + 0.65)
    low, high = limits(figures)
    draw_scatter(grid.place(0.6, grid.legend_in() + 0.1, SIDE, SIDE), figures, high / low > 10)
    draw_ratios(grid, grid.axes[0], visible)


def table(figures):
    factor, name = rows.unit([limits(figures)[1]])
    lines = [[rows.label(cell), n, predicted.value * factor, measured.value * factor,
              *rows.figures(ratio), "yes" if abs(ratio.value - 1) <= BAND else "no"]
             for cell, (predicted, measured, ratio, n) in figures]
    return Table(["configuration", "runs", f"predicted, modelled ({name})",
                  f"measured ({name})", "predicted / measured", "ratio, 95% from",
                  "ratio, 95% to", "within 15%"], lines)


def notes(figures, without):
    inside = sum(abs(ratio.value - 1) <= BAND for _, (_, _, ratio, _) in figures)
    return [f"{inside} of {len(figures)} predictions lie within 15% of the measured step.",
            *rows.noted(("Without a forecast (neither --forecast nor --compress auto)", without))]


def build(results):
    found = [(cell, figures_of(cell)) for cell in results.cells]
    figures = [(cell, one) for cell, one in found if one]
    if not figures:
        raise NotShown("No run has a forecast: neither --forecast nor --compress auto was used.")
    without = [cell.label for cell, one in found if not one]
    visible, left_out = rows.chosen(figures, results.baseline)
    said = notes(figures, without)
    return Chart(TITLE, CAPTION, lambda fig: draw(fig, figures, visible),
                 table(figures), said + rows.remarks([cell for cell, _ in figures]) + left_out,
                 said[0])
