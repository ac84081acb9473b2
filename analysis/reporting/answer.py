"""What the first screen of a report says: whether the runs support the claim, the main figures of the
configurations, and the pairs that a reader asks for. docs/analysis.md describes the rules."""

import math
from collections import namedtuple

from . import expect, learning, reach, rows, stats, verdicts
from .base import number
from .charts import final_accuracy
from .levels import make_labels
from .model import Table, judged

QUESTION = "Which configuration takes the least time a step?"
MOST = 8  # configurations in the first table

# One thing that a study expects of a configuration: its words, their state, the verdict behind it, and, if it is
# undecided, what more runs would do; "": they would do nothing.
Statement = namedtuple("Statement", "label word state verdict more", defaults=("",))
# Configurations that are compared with one another, quickest first: {name: Comparison with the best}.
Group = namedtuple("Group", "label cells against")


# ---- the verdict ----

def expected(results):
    """[(levels as written, words)]: the spec's, then the reader's, which replace none of them."""
    return [*(results.hints.get("expect") or {}).items(), *results.expect.items()]


def statements(results):
    """The Statements of the study's expectations, those of one expectation together."""
    wanted = expected(results)
    if not wanted:
        return []
    accuracies = final_accuracy.compare(results)
    others = {cell.name for cell in verdicts.references(results).values()}
    found = []
    for text, written in wanted:
        levels = expect.levels_of(text, results.factors)
        if levels is None and results.study and results.study["short"]:
            continue  # levels that only the long version has
        cells = [cell for cell in results.cells + results.empty if levels is not None
                 and levels.items() <= cell.levels.items()]
        judged = [cell for cell in cells if not cell.baseline and cell.name not in others]
        why = ("only what others are compared with is called that" if cells else
               "nothing here is called that")
        for word in expect.words_of(written) or [written]:
            made = [statement(results, cell, word, accuracies.get(cell.name))
                    for cell in judged if expect.words_of(word)]
            found += made or [Statement(text, word, expect.UNDECIDED, why)]
    return list(dict.fromkeys(found))  # spec and reader may say the same


def statement(results, cell, word, accuracy):
    about, family = expect.parse(word), verdicts.family_of(results)
    by_accuracy, unit = about.figure == "accuracy", "pairs of seeds"
    if about.goal:
        comparison = family.of_goal(cell, about.goal)
    elif by_accuracy:
        comparison = accuracy
    else:
        comparison, unit = verdicts.compared(results).get(cell.name), family.family.what
    if comparison is None:
        why = "there is nothing to compare it with" if cell.runs else "it has no finished run"
        return Statement(cell.label, word, expect.UNDECIDED, why)
    interval = final_accuracy.difference(comparison) if by_accuracy else comparison.interval.of(reach.log)
    state = expect.state(word, interval.value, interval.low, interval.high, comparison.differs)
    words = reach.WORDS[about.figure] if about.goal else family.family.words
    text = final_accuracy.verdict(comparison) if by_accuracy else stats.sharp(comparison, words, *expect.bounds(word))
    return Statement(cell.label, word, state, text,
                     outlook(word, comparison, unit) if state == expect.UNDECIDED else "")


def outlook(word, comparison, unit):
    """How many more pairs would decide an undecided word, by what was found so far."""
    found, about = comparison.estimate, expect.parse(word)
    if found.reason:
        few = found.ratio is not None  # else there is something else than too few
        return f"it takes at least {further(stats.LEAST - found.n, unit)} to know the spread" if few else ""
    scale = final_accuracy.POINTS if about.figure == "accuracy" else 1
    level, middle = 1 - comparison.interval.level, found.middle()
    bound = 0.0 if middle is None else expect.bound(word, scale * middle) / scale
    if more := found.more(bound, level, stats.MOST_MORE):
        return (f"{further(more, unit)} would decide it with a chance of {stats.POWER:.0%}, if difference and spread "
                "stay as found")
    near = "zero" if bound == 0 else f"the bound of {about.times:g} times" if about.times else \
        f"the bound of {f'{expect.POINTS:g} point' if about.figure == 'accuracy' else stats.percent(expect.MARGIN)}"
    return f"cannot be decided by {further(stats.MOST_MORE, unit)}: with this spread the difference found is too near {near}"


def further(n, unit):
    """`3 more pairs of runs`, `1 more pair of runs`, `1 more run`."""
    head, *rest = unit.split(" of ")
    return " of ".join([f"{n} more {head.removesuffix('s') if n == 1 else head}", *rest])


# ---- the pairs ----

def groups(results):
    """The Groups: of a study that says within which factors to compare one for each of their levels, and
    one for each kind of step time."""
    ranked = verdicts.groups_of(results)
    against = verdicts.compared(results, {cell.name: cells[0] for cells in ranked for cell in cells[1:]})
    labels = group_labels(results, [cells[0] for cells in ranked])
    return [Group(labels[cells[0].name], cells, against) for cells in ranked if len(cells) > 1]


def group_labels(results, firsts):
    """{name of a group's first cell: its levels of the factors to compare within, or where kinds of step
    time differ its kind; "" of one group}."""
    if len({cell.kind for cell in results.cells}) > 1:
        return {cell.name: f"runs whose step time is a {cell.kind}" for cell in firsts}
    within = {name: results.factors[name] for name in results.hints.get("compare_within") or ()
              if name in results.factors}
    if len(firsts) < 2 or not within:
        return {cell.name: "" for cell in firsts}
    return make_labels({cell.name: {name: cell.levels.get(name, "") for name in within}
                        for cell in firsts}, within)


def pair_sentences(group):
    """[(label, text)]: the best, beside the second best; then each other one against the best."""
    best, second, *others = group.cells
    return [(best.label, "the least measured time a step" + (f" of {group.label}" if group.label else "")
             + f", {best.step_s * 1e3:.4g} ms{verdicts.doubt(best)}; the second, {verdicts.named(second)}: "
             + verdicts.sentence(group.against[second.name]))] + [
        (verdicts.named(cell), f"against {best.label}: "
         + verdicts.sentence(group.against[cell.name])) for cell in others]


# ---- the table ----

def figure(interval, factor=1.0, *bounds):
    """`1.42 (1.38..1.46)`, in digits that tell it from the bounds; without an interval, or one of a single value,
    `1.42`."""
    value, *ends = (None if part is None else number(part * factor, *bounds)
                    for part in (interval.value, interval.low, interval.high))
    alone = ends[0] is None or interval.low == interval.high
    return value if alone else f"{value} ({ends[0]}..{ends[1]})"


def speedup(cell, of, compared):
    """The text of the column, coloured where the difference is significant."""
    if cell.name not in compared:
        return "1 (reference)" if cell in of.values() or not of else None
    found = compared[cell.name]
    ratio = found.interval
    if ratio.value is None:
        return None
    turned = ratio.of(lambda value: 1 / value)
    turned = stats.Interval(turned.value, turned.high, turned.low, turned.n, turned.method)
    return judged(figure(turned, 1.0, 1.0), ratio.value < 1 if found.differs else None)


def to_target(cell, target, column, factor):
    """The text of a column of time or bytes to the target."""
    if target is None or not any(map(learning.points, cell.runs)):
        return None
    reach = learning.reached(cell, target, column)
    if reach.n == 0:
        return "not reached"
    value, low, high = learning.summary(reach)
    if value is None or math.isinf(value):
        return None if None in reach.times else f"{reach.n} of {reach.of} runs reach it"
    modelled = column == 1 and value > 0 and any(map(rows.modelled_bytes, cell.runs))
    why = f", {reach.n} of {reach.of} runs" if reach.n < reach.of else ""  # why there is no interval
    return "~ " * modelled + figure(stats.Interval(value, low, high, reach.n, ""), factor) + why


def accuracy(cell, compared):
    value = learning.median_final(cell)
    found = compared.get(cell.name)
    told = found is not None and found.differs
    return judged(value, found.interval.value > 1 if told else None)


def table(results):
    """The Table of all configurations: at most six columns, those without any figure left out."""
    of, found = verdicts.over(results), learning.target_of(results)
    compared = verdicts.compared(results, of)
    accuracies = final_accuracy.compare(results) if results.baseline is not None else {}
    target = found[0] if found else None
    factor, unit = rows.bytes_unit([run.info["results"]["wire_bytes"] for run in results.runs])
    columns = ["configuration", "step (ms)", "speedup (interval)", "final accuracy",
               "time to target (s)", f"bytes to target ({unit})"]
    lines = [[("* " if cell.marks else "") + cell.label, cell.step_s * 1e3,
             speedup(cell, of, compared), accuracy(cell, accuracies),
             to_target(cell, target, 0, 1.0), to_target(cell, target, 1, factor)]
            for cell in results.cells]
    kept = [i for i in range(len(columns)) if i < 3 or any(line[i] is not None for line in lines)]
    return Table([columns[i] for i in kept], [[line[i] for i in kept] for line in lines])


def first_rows(results):
    """Places of the configurations for the first screen, at most MOST: of each group its reference and
    the quickest, then the others in turns."""
    if len(results.cells) <= MOST:
        return list(range(len(results.cells)))
    of, ranked = verdicts.over(results), [group.cells for group in groups(results)]
    wanted = [verdicts.reference_of(results).name]
    for cells in ranked:
        wanted += [of.get(cells[0].name, cells[0]).name, cells[0].name]
    for turn in range(max(map(len, ranked), default=0)):
        wanted += [cells[turn].name for cells in ranked if turn < len(cells)]
    chosen = set(list(dict.fromkeys(wanted))[:MOST])
    return [i for i, cell in enumerate(results.cells) if cell.name in chosen]
