"""What can be said of a study in sentences: each configuration against the baseline, and what to
know of the runs before believing any of it."""

from reporting import stats


def blocks_of(cell):
    """{block: median step}; None: its runs cannot be told apart by their blocks."""
    blocks = [run.block for run in cell.runs]
    if None in blocks or len(set(blocks)) < len(blocks):
        return None
    return {run.block: run.step_s for run in cell.runs}


def compared(cells, baseline):
    """({name of a cell: Comparison}, whether runs of the same block were paired); the baseline is
    not among them. All cells of a study are one family."""
    groups = {cell.name: blocks_of(cell) for cell in [*cells, baseline]}
    paired = None not in groups.values()
    if not paired:
        groups = {cell.name: {i: run.step_s for i, run in enumerate(cell.runs)}
                  for cell in [*cells, baseline]}
    base = groups.pop(baseline.name)
    return stats.compare_with_baseline(groups, base, paired=paired), paired


def of_study(results):
    """{name of a cell: Comparison}; empty where there is nothing to compare with."""
    if results.baseline is None:
        return {}
    return compared([cell for cell in results.cells if cell is not results.baseline],
                    results.baseline)[0]


def sentences(results):
    """[(label, what its step time is against the baseline's)] in the order of the cells."""
    found = of_study(results)
    return [(cell.label, sentence(found[cell.name])) for cell in results.cells
            if cell.name in found]


def sentence(comparison):
    if not comparison.differs:  # the text has the number of runs already
        return f"{comparison.text}."
    paired = "paired" in comparison.interval.method
    return f"{comparison.text}, {comparison.n} {'pairs of ' if paired else ''}runs."


def runs_of(results):
    return [run for cell in results.cells for run in cell.runs]


def several(results, what, read):
    """A warning where runs that are compared come from more than one `what`; None: one."""
    found = sorted({read(run.info) for run in runs_of(results)})
    if len(found) < 2:
        return None
    return f"The runs come from {len(found)} {what}: {', '.join(found)}."


def warnings(results):
    """What makes the figures of a study less than they seem, a sentence each."""
    runs = runs_of(results)
    # Where no study says what varies, commit and processor are factors like any other.
    said = [] if results.study is None else [
        several(results, "commits", lambda info: info["commit"] or "unknown"),
        several(results, "kinds of processor", lambda info: info["machine"]["cpu"])]
    for mark in sorted({mark for run in runs for mark in run.marks}):
        labels = [cell.label for cell in results.cells if any(mark in r.marks for r in cell.runs)]
        which = "all configurations" if len(labels) == len(results.cells) else ", ".join(labels)
        count = sum(mark in run.marks for run in runs)
        said.append(f"{mark[0].upper()}{mark[1:]}: {count} of {len(runs)} runs ({which}).")
    if results.study is not None:
        ordered = sorted(runs, key=lambda run: run.experiment["planned"])
        text = stats.drift([(run.cell, run.step_s) for run in ordered]).text
        said.append(f"{text[0].upper()}{text[1:]}." if text else None)
    drifting = [run.folder for run in runs if stats.drift_within(run.walls).raised]
    if drifting:
        said.append(f"Step times drift within {len(drifting)} of {len(runs)} runs: "
                    f"{', '.join(drifting[:5])}{', ...' if len(drifting) > 5 else ''}.")
    odd = [run.folder for cell in results.cells
           for run, out in zip(cell.runs, stats.outliers([run.step_s for run in cell.runs])) if out]
    if odd:
        said.append(f"Far from the other runs of their configuration, and kept: {', '.join(odd)}.")
    return [text for text in said if text]
