"""A study's comparisons, in figures and in sentences, and warnings about its runs.

All comparisons of step times, and of time and bytes to a target that the study names, are one family,
`family_of(results)`. A table, a sentence, a chart or a file that sets two configurations side by side quotes
it, and makes no test of its own: so a pair has one verdict. docs/analysis.md has the method."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from statistics import median

from . import beyond, ends, reach, stats, steps
from .info import MARK_BUSY, busy


def references(results):
    """{name of a cell: the cell that it is compared with}: the baseline, or, if the study says
    within which factors to compare, the cell with the same levels of these and the baseline's of
    all others. Cells without such a counterpart are missing."""
    if results.baseline is None:
        return {}
    within = results.hints.get("compare_within") or []
    found = {}
    for cell in results.cells:
        own = {name: cell.levels[name] for name in within if name in cell.levels}
        wanted = {**results.baseline.levels, **own}
        other = next((one for one in results.cells if one.levels == wanted), None)
        if other is not None and other is not cell:
            found[cell.name] = other
    return found


def blocks_of(cell):
    """{block: runs}; None if several runs have the same block or none, so that nothing is
    paired."""
    blocks = {run.block: [run] for run in cell.runs}
    return blocks if len(blocks) == len(cell.runs) and None not in blocks else None


def seeds_of(cell):
    """{seed: runs}: a figure that follows from the seed alone counts once per seed."""
    found = {}
    for run in cell.runs:
        found.setdefault(run.info["seed"], []).append(run)
    return found


def middles(groups, value):
    """{block or seed: median of its runs' figures}, without those that have none."""
    known = {unit: [figure for figure in map(value, runs) if figure is not None]
             for unit, runs in groups.items()}
    return {unit: median(figures) for unit, figures in known.items() if figures}


def two_kinds(cell, other):
    """Why step times of two cells are not to be compared; None: they are of one kind."""
    kinds = {steps.kind(run.info) for run in cell.runs + other.runs}
    return f"step times of two kinds ({', '.join(f'a {kind}' for kind in sorted(kinds))})" \
        if len(kinds) > 1 else None


def by_seed(results, value):
    """{name of a cell: Comparison, seed by seed, of a figure with its reference's}: a family of its own."""
    known = {cell.name: middles(seeds_of(cell), value) for cell in results.cells}
    return stats.compare({name: (known[name], known[other.name])
                          for name, other in references(results).items()}, what="seeds")


# ---- the family ----

def reference_of(results):
    """The cell that speedups are over: the baseline; of runs without one the first to start."""
    if results.baseline is not None or not results.cells:
        return results.baseline
    return min(results.cells, key=lambda cell: min(map(started, cell.runs)))


def over(results):
    """{name: the cell that its speedup is over}."""
    if results.baseline is not None:
        return references(results)
    first = reference_of(results)
    return {cell.name: first for cell in results.cells if cell is not first}


def groups_of(results):
    """Lists of the cells that may be set side by side, quickest first: those with one reference, whose step
    times are of one kind."""
    of, members = over(results), {}
    for cell in results.cells:
        key = of.get(cell.name, cell).name, cell.kind or cell.name
        members.setdefault(key, []).append(cell)
    return [sorted(cells, key=lambda cell: cell.step_s) for cells in members.values()]


class Pairs:
    """All pairs of each group, and what each cell spends until a target against its reference, judged together, so
    that a verdict holds whichever pair is looked at, that with the best of the same runs, too."""

    def __init__(self, results):
        blocks = {cell.name: blocks_of(cell) for cell in results.cells}
        self.paired = None not in blocks.values()
        figures = {cell.name: {block if self.paired else i: run.step_s for i, (block, run) in
                               enumerate((run.block, run) for run in cell.runs)}
                   for cell in results.cells}
        estimates = {
            (one.name, other.name): stats.log_ratio(
                *stats.matched(figures[one.name], figures[other.name], self.paired), self.paired)
            for cells in groups_of(results) for one, other in combinations(cells, 2)}
        self.goals = reach.goals_of(results)
        self.modelled = bool(self.goals) and reach.modelled(results.runs)
        self.reached = {(cell.name, goal): reach.of_cell(results, cell, goal)
                        for goal in self.goals for cell in results.cells}
        self.to = {(name, goal): (self.reached[name, goal], self.reached[other.name, goal])
                   for goal in self.goals for name, other in references(results).items()}
        estimates.update({key: reach.estimate(*sides) for key, sides in self.to.items()})
        planned = {pair for name, other in references(results).items()
                   for pair in ((name, other.name), (other.name, name))}.union(self.to)
        self.family = stats.Family(estimates, "pairs of runs" if self.paired else "runs", planned=planned)

    def of(self, cell, other):
        """The Comparison of a cell's step time with another's; None: they are of two groups."""
        if reason := two_kinds(cell, other):
            return stats.judge({0: stats.LogRatio(reason=reason)}, "runs")[0]
        for pair, turned in (((cell.name, other.name), False), ((other.name, cell.name), True)):
            if pair in self.family.estimates:
                return self.family.of(pair, turned)
        return None

    def of_goal(self, cell, goal):
        """The Comparison of what a cell spends until a goal with its reference's; None: it has none."""
        key = cell.name, goal
        if key not in self.to:
            return None
        found = self.family.of(key, words=reach.WORDS[goal.figure], what="pairs of seeds")
        modelled = " (bytes modelled)" if goal.figure == "bytes" and self.modelled else ""
        return replace(found, text=found.text + reach.counted(self.to[key]) + modelled)


def family_of(results):
    """The Pairs of the study as it is now."""
    goals = reach.goals_of(results)
    state = [results.hints.get("compare_within"), results.baseline and results.baseline.name, goals, list(results.lost)]
    state += [(cell.name, dict(cell.levels), [
        (run.step_s, run.block, run.statistic, *([run.epochs, run.evaluations] if goals else [])) for run in cell.runs])
              for cell in results.cells]
    if results.judged is None or results.judged[0] != state:
        results.judged = state, Pairs(results)
    return results.judged[1]


def compared(results, pairs=None):
    """{name of a cell: Comparison of its step time with its reference's}. `pairs`: {name of a cell: the one
    to compare with} instead of the references."""
    family, by_name = family_of(results), {cell.name: cell for cell in results.cells}
    pairs = references(results) if pairs is None else pairs
    return {name: family.of(by_name[name], other) for name, other in pairs.items()}


def differs(results, pairs):
    """[whether the step times of each pair of cells differ; None: it cannot be told, or nothing compares them]."""
    found = [family_of(results).of(*pair) for pair in pairs]
    return [comparison and comparison.differs for comparison in found]


def standing(results, best, others):
    """In words how the least of some step times stands to the others."""
    found = differs(results, [(cell, best) for cell in others])
    said = [f"{found.count(state)} {words}" for state, words in (
        (True, "longer"), (False, "inside the noise"), (None, "not to be told")) if state in found]
    return f" (of {len(found)} others {', '.join(said)})" if said else ""


NAMED = ("oversubscribed", "replayed", "simulated")  # marks that stand beside a name


def named(cell):
    said = [mark.partition(":")[0] for mark in cell.marks if mark.startswith(NAMED)]
    return cell.label + (f" ({', '.join(said)})" if said else "")


DOUBTED = ("busy machine", "unsettled step time")  # marks of times that are not to be trusted


def doubt(cell):
    """What stands beside a time of the cell that a sentence calls the least; "" if it may be believed."""
    why = [mark.partition(":")[0] for mark in cell.marks if mark.startswith(DOUBTED)]
    return f" (not to be trusted: {', '.join(why)})" if why else ""


def sentences(results):
    """[(label, its step time against its reference's)] in the order of the cells."""
    found, pairs = compared(results), references(results)
    many = len({id(other) for other in pairs.values()}) > 1
    return [(named(cell) + (f", against {named(pairs[cell.name])}" if many else ""),
             sentence(found[cell.name])) for cell in results.cells if cell.name in found]


def sentence(comparison):
    if not comparison.differs:  # the text has the number of runs already
        return f"{comparison.text}."
    paired = "paired" in comparison.interval.method
    return f"{comparison.text}, {comparison.n} {'pairs of ' if paired else ''}runs."


def several(results, what, read):
    """A warning if the compared runs come from more than one `what`; None: one."""
    found = sorted({read(run.info) for run in results.runs})
    if len(found) < 2:
        return None
    return f"The runs come from {len(found)} {what}: {', '.join(found)}."


def started(run):
    """A key that sorts runs by time; those of one second by their place in the plan."""
    planned = (run.experiment or {}).get("planned")
    return run.info["started_utc"], planned if planned is not None else 0


def lost(results):
    """A warning about configurations without any figure; None: all have some."""
    if not results.empty:
        return None
    ended = {cell.name: Counter(one.end for one in results.lost if one.cell == cell.name)
             for cell in results.empty}
    names = [cell.label + "".join(f", {ended[cell.name][end]} {end}" for end in ends.LOST if ended[cell.name][end])
             for cell in results.empty]
    return f"Without a finished run, and so in no chart of times: {'; '.join(names)}."


def at_edge(study):
    """{level of the tuned factor: a mark} of options that trials chose at an end of their grid, where a wider one may
    have a better."""
    found, tune, rows = {}, (study or {}).get("tune"), (study or {}).get("tuned")
    for name in tune["options"] if tune and rows else ():
        try:
            values = sorted({float(row[name]) for row in rows})
        except ValueError:  # words have no ends
            continue
        ends_of = (values[0], values[-1]) if len(values) > 2 else ()
        found.update({row[tune["factor"]]: f"tuned to the end of its grid: {name} {row[name]} of {values[0]:g} to {values[-1]:g}"
                      for row in rows if row["chosen"] == "1" and float(row[name]) in ends_of})
    return found


def warnings(results):
    """Reasons to doubt the figures of a study, one sentence each."""
    runs = results.runs
    # Without a study, commit and processor are factors like any other.
    said = [] if results.study is None else [
        lost(results), several(results, "kinds of processor", lambda info: info["machine"]["cpu"])]
    if results.study is not None and results.kept is None:
        said[1:1] = [beyond.warning(references(results), results.cells, compared(results)),
                     several(results, "commits", lambda info: info["commit"] or "unknown")]
    said += [f"{level}: {mark}." for level, mark in at_edge(results.study).items()]
    for mark in sorted({mark for run in runs for mark in run.marks}):
        labels = [cell.label for cell in results.cells if mark in cell.marks]
        which = "all configurations" if len(labels) == len(results.cells) else ", ".join(labels)
        count = sum(mark in run.marks for run in runs)
        figures = next((f"; {words}" for run in runs if mark == MARK_BUSY and (words := busy(run.info))), "")
        said.append(f"{mark[0].upper()}{mark[1:]}: {count} of {len(runs)} runs ({which}{figures}).")
    if results.study is not None:
        ordered = sorted(runs, key=started)
        text = stats.drift([(run.cell, run.step_s) for run in ordered]).text
        said.append(f"{text[0].upper()}{text[1:]}." if text else None)
    drifting = [run.folder for run in runs if run.walls is not None and stats.drift_within(run.walls).raised]
    if drifting:
        said.append(f"Step times drift within {len(drifting)} of {len(runs)} runs: "
                    f"{', '.join(drifting[:5])}{', ...' if len(drifting) > 5 else ''}.")
    odd = [run.folder for cell in results.cells
           for run, out in zip(cell.runs, stats.outliers([run.step_s for run in cell.runs])) if out]
    if odd:
        said.append(f"Far from the other runs of their configuration, but kept: {', '.join(odd)}.")
    return [text for text in said if text]
