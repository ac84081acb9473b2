"""Runs in the order in which they ran: did the machine change under the study?"""

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from reporting import figure, rows, stats
from reporting.model import Chart, NotShown, Table
from reporting.verdicts import started

NAME = "order"
TITLE = "Over the order of the runs"

WIDE_RANGE = 3.0  # largest / least from which on the axis is logarithmic

CAPTION = (
    "Each run's median step over the median of its configuration's runs, in the order of their "
    "starts; shades tell blocks apart. What drifts here drifts for all configurations alike, and "
    "the random order within a block keeps it from favouring one of them. The drift is tested over "
    "the whole study, runs compared with those of their own configuration alone (seasonal Kendall "
    "test). Ringed runs lie farther from the others of their configuration than noise would carry "
    "them; nothing is left out for it.")


def ordered(cells):
    """[(cell, run, ratio to the median of the cell, whether an outlier)] in the order of starts."""
    found = []
    for cell in cells:
        middle = float(np.median([run.step_s for run in cell.runs]))
        flags = stats.outliers([run.step_s for run in cell.runs])
        found += [(cell, run, run.step_s / middle, bool(flag))
                  for run, flag in zip(cell.runs, flags)]
    return sorted(found, key=lambda one: started(one[1]))


def drift_of(found):
    return stats.drift([(cell.name, run.step_s) for cell, run, _, _ in found])


def spans(found):
    """(first, last place) of each stretch of runs of one block."""
    stretches = []
    for i, (_, run, _, _) in enumerate(found):
        if stretches and stretches[-1][0] == run.block:
            stretches[-1][2] = i
        else:
            stretches.append([run.block, i, i])
    return [(first, last) for _, first, last in stretches]


def spread_wide(found):
    return max(ratio for *_, ratio, _ in found) > WIDE_RANGE * min(ratio for *_, ratio, _ in found)


def draw_line(ax, change, ratios):
    """The drift as a line: as steep as the test's slope, through the middle of the runs."""
    places = np.arange(1, len(ratios) + 1)
    slope = np.log1p(change) / (len(ratios) - 1)
    logs = np.log(ratios)
    line = np.exp(np.median(logs - slope * places) + slope * places)
    ax.plot(places, line, color=figure.SERIES[1], linewidth=1.4)


def draw(fig, narrow, found, flag):
    fig.set_size_inches(fig.get_size_inches()[0], 2.7 if narrow else 2.9)
    ax = fig.subplots()
    blocks = spans(found)
    for first, last in blocks[1::2]:
        ax.axvspan(first + 0.5, last + 1.5, facecolor=figure.GRID, alpha=0.5, linewidth=0)
    ratios = np.array([ratio for _, _, ratio, _ in found])
    places = np.arange(1, len(found) + 1)
    ax.axhline(1, color=figure.FAINT, linewidth=1.0)
    ax.plot(places, ratios, linestyle="none", marker="o", color=figure.SERIES[0])
    handles = [Line2D([], [], linestyle="none", marker="o", color=figure.SERIES[0], label="a run")]
    far = np.array([out for _, _, _, out in found])
    if far.any():
        ring = {"linestyle": "none", "marker": "o", "markersize": 9, "markerfacecolor": "none",
                "markeredgecolor": figure.INK}
        ax.plot(places[far], ratios[far], **ring)
        handles.append(Line2D([], [], label="outlier", **ring))
    if flag.raised:
        draw_line(ax, flag.change, ratios)
        handles.append(Line2D([], [], color=figure.SERIES[1], label="drift"))
    if len(blocks) > 1:
        handles.append(Patch(facecolor=figure.GRID, alpha=0.5, linewidth=0,
                             label="every other block"))
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), frameon=False,
              ncol=2 if narrow else 4, borderaxespad=0.2)
    ax.set_xlabel("run, in the order of the starts")
    ax.set_ylabel("median step / median\nof its configuration"
                  + (" (log.)" if spread_wide(found) else ""))
    if spread_wide(found):
        ax.set_yscale("log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(axis="y")


def table(found):
    factor, name = rows.unit([run.step_s for _, run, _, _ in found])
    return Table(["place", "run", "configuration", "block", "started (UTC)",
                  f"median step ({name})", "/ median of its configuration", "outlier"],
                 [[i + 1, run.folder, rows.label(cell), run.block, run.info.get("started_utc"),
                   run.step_s * factor, ratio, "yes" if out else "no"]
                  for i, (cell, run, ratio, out) in enumerate(found)])


def notes(found, flag, alone):
    said = []
    if flag.raised:
        said.append(flag.text[0].upper() + flag.text[1:] + ".")
    elif flag.p is not None:
        said.append("No drift that stands out of the noise (seasonal Kendall test, "
                    f"p = {flag.p:.2g}).")
    said += rows.capped([f"Outlier: {run.folder}, {ratio:.3g} times its configuration's median."
                         for _, run, ratio, out in found if out])
    if max(len(cell.runs) for cell, *_ in found) < stats.LEAST_BOOTSTRAP:
        said.append(f"Fewer than {stats.LEAST_BOOTSTRAP} runs a configuration: too few to tell an "
                    "outlier from noise.")
    if alone:
        said.append("Run once, and so not shown: " + rows.listed(alone) + ".")
    return said


def build(results):
    cells = [cell for cell in results.cells
             if len(cell.runs) > 1 and all(run.step_s > 0 for run in cell.runs)]
    if not cells:
        raise NotShown("No configuration was run more than once.")
    found = ordered(cells)
    flag = drift_of(found)
    alone = [cell.label for cell in results.cells if len(cell.runs) == 1]
    return Chart(NAME, TITLE, CAPTION, lambda fig, narrow: draw(fig, narrow, found, flag),
                 table(found), notes(found, flag, alone) + rows.remarks(cells))
