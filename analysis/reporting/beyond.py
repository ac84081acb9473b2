"""Configurations that are faster than their workers account for, beside the one that they are compared with: the same
work on N times as many workers in less than an N-th of the time."""

from .info import look


def work_of(cell):
    """What a step of the cell's runs does; runs of other work cannot be compared by their workers."""
    infos = [run.info for run in cell.runs]
    found = {(look(info, "options.batch"), info["parameters"], look(info, "data.hash")) for info in infos}
    return found.pop() if len(found) == 1 else None


def workers_of(cell):
    machine = cell.runs[0].info["machine"]
    return machine["ranks"] * machine["threads_per_rank"]


def found(references, cells, compared):
    """[(cell, its speedup, times as many workers)]; references: {name of a cell: the cell that it is compared with};
    compared: {name of a cell: the Comparison with that}, whose interval has to lie beyond the workers."""
    said = []
    for cell in cells:
        other = references.get(cell.name)
        if other is None or work_of(cell) is None or work_of(cell) != work_of(other):
            continue
        times, speedup = workers_of(cell) / workers_of(other), other.step_s / cell.step_s
        comparison = compared[cell.name]
        most = comparison and comparison.interval.high  # of the step times' ratio
        if times > 1 and most is not None and 1 / most > times:
            said.append((cell, speedup, times))
    return said


def batch_of(cell):
    text = str(look(cell.runs[0].info, "options.batch"))
    return int(text) if text.isdecimal() else None


def share_of(other, times, cells):
    """The cell in which one worker does what one of `times` as many does; `other` has one worker. None: there is none."""
    for cell in cells if workers_of(other) == 1 and batch_of(other) else ():
        alike = workers_of(cell) == 1 and cell.runs[0].info["parameters"] == other.runs[0].info["parameters"]
        if alike and batch_of(cell) and abs(batch_of(cell) * times - batch_of(other)) <= times:
            return cell
    return None


def said_of(cell, speedup, times, other, share):
    alone = "" if share is None else (f"; one alone takes {1e3 * other.step_s:.3g} ms for the whole and {1e3 * share.step_s:.3g} ms "
                                      f"for a part, {other.step_s / share.step_s:.3g} times as long")
    return f"{cell.label} ({speedup:.3g} times on {times:g} times the workers{alone})"


def warning(references, cells, compared):
    """A sentence; None: there is none."""
    said = [said_of(cell, speedup, times, references[cell.name], share_of(references[cell.name], times, cells))
            for cell, speedup, times in found(references, cells, compared)]
    return said and (f"Superlinear, faster than the workers account for: {', '.join(said)}. A part of the data may fit "
                     "caches which the whole does not: one rank alone with such a part shows it.") or None
