"""A study in sentences: each configuration against the baseline, and warnings about the runs."""

from operator import attrgetter
from statistics import median

from reporting import beyond, stats, steps
from reporting.info import MARK_BUSY, busy

STEP_S = attrgetter("step_s")


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
    kinds = {steps.statistic(run.info) for run in cell.runs + other.runs}
    return f"step times of two kinds ({', '.join(f'a {kind}' for kind in sorted(kinds))})" \
        if len(kinds) > 1 else None


def compared(results, value=STEP_S, units=blocks_of, pairs=None):
    """({name of a cell: Comparison of a figure with its reference's}, whether figures of one unit,
    a block or a seed, were paired). All cells of a study are one family. `pairs`: {name of a cell:
    the one to compare with} instead of the references."""
    pairs = references(results) if pairs is None else pairs
    groups = {cell.name: units(cell) for cell in results.cells}
    paired = None not in groups.values()
    if not paired:
        groups = {cell.name: {i: [run] for i, run in enumerate(cell.runs)}
                  for cell in results.cells}
    known = {name: middles(group, value) for name, group in groups.items()}
    sides = {name: (known[name], known[other.name]) for name, other in pairs.items()}
    what = "seeds" if units is seeds_of else "runs"
    by_name = {cell.name: cell for cell in results.cells}
    reasons = {name: reason for name, other in pairs.items()
               if value is STEP_S and (reason := two_kinds(by_name[name], other))}
    return stats.compare(sides, paired, what, reasons), paired


def of_study(results):
    """{name of a cell: Comparison of step times}."""
    return compared(results)[0]


NAMED = ("oversubscribed", "paced", "replayed", "naive backend")  # marks that stand beside a name


def named(cell):
    said = [mark.partition(":")[0] for mark in cell.marks if mark.startswith(NAMED)]
    return cell.label + (f" ({', '.join(said)})" if said else "")


def sentences(results):
    """[(label, its step time against its reference's)] in the order of the cells."""
    found, pairs = of_study(results), references(results)
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
    ended = {}
    for what, runs in (("diverged", results.diverged), ("failed", results.failed)):
        for _, cell, _ in runs:
            ended.setdefault(cell, []).append(what)
    names = [cell.label + "".join(f", {ended[cell.name].count(what)} {what}" for what in
                                  dict.fromkeys(ended.get(cell.name, ())))
             for cell in results.empty]
    return f"Without a finished run, and so in no chart of times: {'; '.join(names)}."


def warnings(results):
    """Reasons to doubt the figures of a study, one sentence each."""
    runs = results.runs
    # Without a study, commit and processor are factors like any other.
    said = [] if results.study is None else [
        lost(results),
        beyond.warning(references(results), results.cells),
        several(results, "commits", lambda info: info["commit"] or "unknown"),
        several(results, "kinds of processor", lambda info: info["machine"]["cpu"])]
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
    drifting = [run.folder for run in runs if stats.drift_within(run.walls).raised]
    if drifting:
        said.append(f"Step times drift within {len(drifting)} of {len(runs)} runs: "
                    f"{', '.join(drifting[:5])}{', ...' if len(drifting) > 5 else ''}.")
    odd = [run.folder for cell in results.cells
           for run, out in zip(cell.runs, stats.outliers([run.step_s for run in cell.runs])) if out]
    if odd:
        said.append(f"Far from the other runs of their configuration, but kept: {', '.join(odd)}.")
    return [text for text in said if text]
