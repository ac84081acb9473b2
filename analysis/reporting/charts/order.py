"""Runs in the order in which they ran: did the machine change during the study?"""

import itertools

import numpy as np

from .. import figure, panels, rows, stats
from ..model import Chart, NotShown, Table
from ..verdicts import started

TITLE = "Over the order of the runs"

WIDE_RANGE = 3.0  # largest / least: beyond it the axis is logarithmic

CAPTION = (
    "Each run's step time over the median of its configuration's runs, in the order of their "
    "starts; shades separate blocks. Drift affects all configurations alike, since their order "
    "within a block is random. It is tested over the whole study, each run compared with those of "
    "its own configuration (seasonal Kendall test). Ringed runs lie farther from the others of "
    "their configuration than noise explains; none is excluded.")


def ordered(cells):
    """[(cell, run, ratio to the median of the cell, whether an outlier)] in the order of starts."""
    found = []
    for cell in cells:
        flags = stats.outliers([run.step_s for run in cell.runs])
        found += [(cell, run, run.step_s / cell.step_s, bool(flag))
                  for run, flag in zip(cell.runs, flags)]
    return sorted(found, key=lambda one: started(one[1]))


def spans(found):
    """(first, last place) of each stretch of runs of one block."""
    stretches = [list(group) for _, group in
                 itertools.groupby(range(len(found)), lambda i: found[i][1].block)]
    return [(stretch[0], stretch[-1]) for stretch in stretches]


def draw_line(ax, change, ratios):
    """The drift as a line with the test's slope, through the middle of the runs."""
    places = np.arange(1, len(ratios) + 1)
    slope = np.log1p(change) / (len(ratios) - 1)
    logs = np.log(ratios)
    line = np.exp(np.median(logs - slope * places) + slope * places)
    ax.plot(places, line, color=figure.SERIES[1], linewidth=1.4)


def draw(fig, found, flag):
    blocks = spans(found)
    ratios = np.array([ratio for _, _, ratio, _ in found])
    places = np.arange(1, len(found) + 1)
    far = np.array([out for _, _, _, out in found])
    ring = {"markersize": 9, "markerfacecolor": "none"}
    legend = [figure.dot("a run", figure.SERIES[0])]
    legend += [figure.dot("outlier", figure.INK, **ring)] * bool(far.any())
    legend += [figure.line("drift", figure.SERIES[1])] * flag.raised
    legend += [figure.patch("every other block", figure.GRID, alpha=0.5)] * (len(blocks) > 1)
    ax = panels.panels(fig, 1, legend)[0]
    for first, last in blocks[1::2]:
        ax.axvspan(first + 0.5, last + 1.5, facecolor=figure.GRID, alpha=0.5, linewidth=0)
    ax.axhline(1, color=figure.FAINT, linewidth=1.0)
    ax.plot(places, ratios, linestyle="none", marker="o", color=figure.SERIES[0])
    ax.plot(places[far], ratios[far], linestyle="none", marker="o", color=figure.INK, **ring)
    if flag.raised:
        draw_line(ax, flag.change, ratios)
    ax.set_xlabel("run, in the order of the starts")
    wide = ratios.max() > WIDE_RANGE * ratios.min()
    ax.set_ylabel("step time / median" + (" (logarithmic)" if wide else ""))
    if wide:
        panels.log_axis(ax, "y", ratios)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(False, axis="x")


def table(found):
    factor, name = rows.unit([run.step_s for _, run, _, _ in found])
    return Table(["place", "run", "configuration", "block", "started (UTC)",
                  f"step time ({name})", "/ median of its configuration", "outlier"],
                 [[i + 1, run.folder, rows.label(cell), run.block, run.info.get("started_utc"),
                   run.step_s * factor, ratio, "yes" if out else "no"]
                  for i, (cell, run, ratio, out) in enumerate(found)])


def see(found, flag):
    far = sum(out for *_, out in found)
    return (("The machine drifted during the study" if flag.raised else
             "A steady machine gives a level cloud of points")
            + (f"; {far} of {len(found)} runs lie far off." if far else "."))


def notes(found, flag, alone):
    said = []
    if flag.raised:
        said.append(flag.text[0].upper() + flag.text[1:] + ".")
    elif flag.p is not None:
        said.append(f"No drift beyond the noise (seasonal Kendall test, p = {flag.p:.2g}).")
    said += rows.capped([f"Outlier: {run.folder}, {ratio:.3g} times its configuration's median."
                         for _, run, ratio, out in found if out])
    if max(len(cell.runs) for cell, *_ in found) < stats.LEAST_BOOTSTRAP:
        said.append(f"Fewer than {stats.LEAST_BOOTSTRAP} runs a configuration: too few to tell an "
                    "outlier from noise.")
    return said + rows.noted(("Run once, and so not shown", alone))


def build(results):
    cells = [cell for cell in results.cells
             if len(cell.runs) > 1 and all(run.step_s > 0 for run in cell.runs)]
    if not cells:
        raise NotShown("No configuration was run more than once.")
    found = ordered(cells)
    flag = stats.drift([(cell.name, run.step_s) for cell, run, _, _ in found])
    alone = [cell.label for cell in results.cells if len(cell.runs) == 1]
    return Chart(TITLE, CAPTION, lambda fig: draw(fig, found, flag),
                 table(found), notes(found, flag, alone) + rows.remarks(cells), see(found, flag))
