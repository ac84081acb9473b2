"""Loss on the test samples over epochs, time and bytes."""

from .. import curves, learning, panels, rows
from . import accuracy
from ..model import Chart, NotShown, Table

TITLE = "Loss over epochs, time and bytes"

CAPTION = (
    "Loss on the test samples at each test, measured: median over the runs of a configuration, at "
    "their median epoch, time and bytes; bands are the range of the runs. Dotted: the mean loss of "
    "training up to there; dash-dotted: the loss on the validation samples. Time is that of the chart of "
    "accuracy.")


def table_of(cells, found, beside):
    table = Table(["configuration", "runs", "tests", "test loss at the end, median", "least", "most",
                   *(f"{what} loss there" for what in beside), "best epoch, by validation, median"], [])
    for cell in cells:
        curve, others = found.get(cell.name), [curves.get(cell.name) for curves in beside.values()]
        table.rows.append([rows.label(cell), len(cell.runs)] + (
            [len(curve.figure), curve.figure[-1], curve.low[-1], curve.high[-1]] if curve
            else [0, None, None, None]) + [other.figure[-1] if other else None for other in others]
            + [cell.middle(learning.best_epoch)])
    return table


def see(cells, found):
    ends = [(found[cell.name].figure[-1], cell.label) for cell in cells if cell.name in found]
    (low, best), (high, worst) = min(ends), max(ends)
    return (f"The lowest median at the end: {best}, {low:.3g}; the highest: {worst}, {high:.3g} (no test compares them)."
            if len(ends) > 1 else f"At the end it is {low:.3g}.")


def build(results):
    cells = results.cells
    found = curves.curves_of(cells, "test_loss")
    beside = {"training": curves.curves_of(cells, "train_loss"),
              "validation": curves.curves_of(cells, "validation_loss")}
    if not found:
        raise NotShown("No run finished an epoch, so none tested its loss.")
    drawn = [cell for cell in cells if cell.name in found]
    named, others = panels.named(drawn, results.baseline, lambda cell: found[cell.name].figure[-1])
    dashed = {cell.name for cell in accuracy.modelled(cells)}
    drawing = curves.Drawing("loss", found, named, others, dashed, beside)
    notes = [f"{len(others)} configurations are drawn without a name; those with one are the baseline "
             "and those that end lowest. The table has all."] if others else []
    notes += rows.noted(("A run never tested its loss, so no line",
                         [cell.label for cell in cells if cell.name not in found]))
    return Chart(TITLE, CAPTION, drawing, table_of(cells, found, beside),
                 notes + rows.repetitions(cells) + rows.remarks(cells), see(drawn, found))
