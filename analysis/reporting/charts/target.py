"""What each configuration spends until it reaches a target that the study names, against the baseline."""

import math
from dataclasses import replace

from .. import reach, rows, verdicts
from . import baseline
from ..model import Chart, NotShown, Table, judged

TITLE = "To the target, against the baseline"
FAR = 1e12  # stands for an end without bound on the axis
CAPTION = (
    "Time within steps, and bytes sent by all ranks, until the first test that has the target, divided by that of "
    "{reference}: geometric mean over pairs of equal seed, whose runs repeat each other's tests and count once, by "
    "their median. A run reaches it at a test, never between two. One that never does has no figure: of its pair it "
    "is known that the ratio lies beyond that of its last test (if it diverged, beyond all), and where there is such "
    "a run, the verdict is that of a sign test, which counts a pair that may lie on either side for neither, the "
    "interval is by ranks of the bounds, and a dot is the bound of the median. These comparisons and those of step "
    "times are judged together (Holm).")


def compared(results):
    """[(cell, goal, Comparison)]"""
    family = verdicts.family_of(results)
    return [(cell, goal, found) for goal in family.goals for cell in results.cells
            if (found := family.of_goal(cell, goal)) is not None]


def ends(interval):
    """For the table: an end without bound is absent."""
    return [end if rows.known(end) and end > 0 else None for end in (interval.low, interval.high)]


def table_of(results, found):
    family, pairs = verdicts.family_of(results), verdicts.references(results)
    lines = []
    for cell, goal, one in found:
        reached = [f"{sum(math.isfinite(figure) for figure, _ in side.values())} of {len(side)}"
                   for side in family.to[cell.name, goal]]
        lines.append([rows.label(cell), pairs[cell.name].label, reach.named(goal), *reached,
                      judged(one.interval.value, one.interval.value < 1 if one.differs else None), *ends(one.interval),
                      100 * one.interval.level, one.p, one.p_adjusted, one.text])
    return Table(["configuration", "compared with", "figure", "seeds at the target", "of the other", "ratio", "from",
                  "to", "level (%)", "p", "p, Holm", "verdict"], lines)


def drawn(found):
    """[(cell, Comparison)] with ends that an axis can have, each verdict with its target."""
    return [(cell, replace(one, text=f"{baseline.short(one).removeprefix('- ')}, {reach.named(goal)}",
                           interval=one.interval.of(lambda end: min(max(end, 1 / FAR), FAR))))
            for cell, goal, one in found]


def see(found):
    said = [f"{cell.label}: {one.text.partition(' (')[0]}, {reach.named(goal)}"
            for cell, goal, one in found if one.differs]
    states = [one.differs for _, _, one in found]
    rest = [f"{states.count(state)} {words}" for state, words in ((False, "inside the noise"), (None, "not to be told"))
            if state in states]
    return "; ".join([*said[:rows.MOST_NOTES], *rest]) + "."


def build(results):
    found = compared(results)
    if not found:
        raise NotShown("The study names no target (target_accuracy, target_loss, or in a word of expect), or nothing "
                       "is compared with a baseline.")
    visible, left_out = rows.chosen(drawn(found))
    never = rows.noted(("Not reached by a run, so signs are tested", [
        f"{cell.label}, {reach.named(goal)}" for cell, goal, one in found if isinstance(one.estimate, reach.Bounded)]))
    within = results.hints.get("compare_within")
    reference = results.baseline.label if not within else f"the configuration with the same {' and '.join(within)}"
    return Chart(TITLE, CAPTION.format(reference=reference), lambda fig: baseline.draw(
        fig, visible, ("more", "less"), "spent until the target"), table_of(results, found),
                 never + left_out + rows.remarks(results.cells), see(found))
