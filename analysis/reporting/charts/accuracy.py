"""Test accuracy over epochs, time and bytes, the time and bytes to a target, and the losses; of runs that test their loss
alone its curves."""

import numpy

from .. import curves, learning, panels, reach, rows, verdicts
from ..model import Chart, NotShown, Table

TITLE = "Accuracy over epochs, time and bytes"
NEVER = "not reached"


def figures(reach, factor):
    """Median, low and high for the table."""
    if reach.n == 0:
        return [NEVER, None, None]
    value, low, high = learning.summary(reach)
    if value is None or numpy.isinf(value):
        return [None if None in reach.times else NEVER, None, None]
    return [value * factor] + [None if end is None else end * factor for end in (low, high)]


def source_of(cell):
    """Whether the bytes are measured or modelled; None: no run counted any."""
    if all(point[1] is None for run in cell.runs for point in learning.points(run)):
        return None
    return "modelled" if any(map(rows.modelled_bytes, cell.runs)) else "measured"


def modelled(cells):
    """The cells whose bytes are modelled, and not all 0."""
    return [cell for cell in cells if source_of(cell) == "modelled"
            and any(point[1] for run in cell.runs for point in learning.points(run))]


def to_target(cell, target):
    """When the runs reach it; all None: there is no target."""
    if target is None:
        return [None] * 7
    seconds, sent = (learning.reached(cell, target, column) for column in (0, 1))
    return [f"{seconds.n} of {seconds.of}", *figures(seconds, 1), *figures(sent, 1e-6)]


def losses_of(cells):
    """[(title, {name of a cell: figure})] of the columns that any cell has: losses at the last test, medians over the
    runs."""
    test, training, validation = (curves.curves_of(cells, f"{of}_loss") for of in ("test", "train", "validation"))
    found = [("test loss at the end, median", {name: one.figure[-1] for name, one in test.items()}),
             ("least", {name: one.low[-1] for name, one in test.items()}),
             ("most", {name: one.high[-1] for name, one in test.items()}),
             ("training loss there", {name: one.figure[-1] for name, one in training.items() if name in test}),
             ("validation loss there", {name: one.figure[-1] for name, one in validation.items() if name in test}),
             ("best epoch, by validation, median", {cell.name: best for cell in cells
                                                    if (best := cell.middle(learning.best_epoch)) is not None})]
    return [(title, known) for title, known in found if known]


def table_of(results, found, target, lost):
    losses = losses_of(results.cells)
    table = Table(["configuration", "runs", "diverged", "tests", "accuracy at the end, median",
                   "runs at the target", "time to target (s)", "low (s)", "high (s)",
                   "bytes to target (MB)", "low (MB)", "high (MB)", "source of the bytes",
                   *(title for title, _ in losses)], [])
    for cell in results.cells:
        tests = len(found[cell.name].figure) if cell.name in found else 0
        table.rows.append([rows.label(cell), len(cell.runs), lost.get(cell.name, 0), tests, learning.median_final(cell),
                           *to_target(cell, target), source_of(cell), *(known.get(cell.name) for _, known in losses)])
    for name, count in learning.lost_rows(results, lost):
        table.rows.append([name, 0, count, None, None, "diverged", *[None] * (7 + len(losses))])
    return table


def order_of(found, target):
    """Which lines get a colour: those first at the target, then those that end highest; of losses those that end
    lowest."""
    def order(cell):
        if target is None:
            return found[cell.name].figure[-1]
        value = learning.summary(learning.reached(cell, target, 0))[0]
        return numpy.inf if value is None else value, -learning.median_final(cell)
    return order


def see(results, found, target):
    """Who reaches the target first; without a target, who ends at the lowest loss."""
    cells = [cell for cell in results.cells if cell.name in found]
    if target is None:
        low, best = min((found[cell.name].figure[-1], cell.label) for cell in cells)
        return f"No run tested its accuracy; the lowest median loss at the end: {best}, {low:.3g} (no test compares them)."
    times = [(learning.summary(learning.reached(cell, target, 0))[0], cell.label, verdicts.doubt(cell)) for cell in cells]
    known = [pair for pair in times if pair[0] is not None and not numpy.isinf(pair[0])]
    said = f"{len(known)} of {len(cells)} configurations reach {target:.4g}"
    tested = "the ratios to the baseline have a chart" if reach.goals_of(results) else "no test compares these times"
    return said + (f"; the least median time {min(known)[1]}'s, {min(known)[0]:.3g} s{min(known)[2]} ({tested})." if known else ".")


def notes_of(results, found, others, target, lost):
    notes = []
    if others:
        notes.append(f"{len(others)} configurations are drawn without a name; those with one are the baseline and those "
                     f"{'that end lowest' if target is None else 'first at the target'}. The table has all.")
    if lost:
        labels = {cell.name: cell.label for cell in results.cells}
        notes.append("Diverged (the loss was no longer finite), so no line, or fewer runs: "
                     + ", ".join(f"{labels.get(name, name)} ({count})"
                                 for name, count in lost.items()) + ".")
    if not curves.by_bytes(found):
        notes.append("No run sent anything, or none counted what it sent.")
    elif any(not all(curve.sent) for curve in found.values()):
        notes.append("Configurations that send nothing, or did not count it, have no place on the "
                     "axis of bytes.")
    notes += rows.noted(("Bytes modelled, not measured, since MPI does not say what its own "
                         "collectives send", [cell.label for cell in modelled(results.cells)]),
                        of=len(results.cells))
    notes += rows.noted(
        (f"A run did not test its {'loss' if target is None else 'accuracy'} at the end of an epoch, so no line",
         [cell.label for cell in results.cells if cell.name not in found]),
        ("Never at the target", [
            cell.label for cell in results.cells
            if cell.name in found and target is not None and learning.reached(cell, target, 0).n == 0]))
    return notes + rows.repetitions(results.cells) + rows.remarks(results.cells)


def build(results):
    cells, what = results.cells, "accuracy"
    found = curves.curves_of(cells, "test_accuracy")
    target, rule = learning.target_of(results) if found else (None, "")
    if not found:
        what, found = "loss", curves.curves_of(cells, "test_loss")
    if not found:
        raise NotShown("No run finished an epoch, so none tested its accuracy.")
    lost = learning.diverged(results)
    named, others = panels.named([cell for cell in cells if cell.name in found], results.baseline,
                                 order_of(found, target))
    drawing = curves.Drawing(f"test {what}", found, named, others, {cell.name for cell in modelled(cells)},
                             curves.curves_of(cells, f"validation_{what}"), target)
    whole = any(row.get("train_s") is None for run in results.runs for row in run.epochs)
    clock = ("since the first step, including the tests of earlier epochs" if whole else
             "within steps, without tests and what lies between steps")
    caption = (f"{what.capitalize()} on the test samples at each test, measured: median over the runs of a "
               "configuration, at their median epoch, time and bytes; bands are the range of "
               "the runs; dash-dotted, where there are validation samples: that on these. ")
    if target is not None:
        caption += (f"Target: {target:.4g}, {rule}. A run reaches it at a test; "
                    "the median over runs counts those that never do as the longest, and its 95% "
                    "interval is over runs. ")
    return Chart(TITLE, f"{caption}Time is {clock}. Losses in the table are medians over the runs at the last test; that of "
                 "training is the mean up to there.", drawing, table_of(results, found, target, lost),
                 notes_of(results, found, others, target, lost), see(results, found, target))
