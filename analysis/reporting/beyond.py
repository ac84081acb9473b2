"""Configurations that are faster than their workers account for, beside the one that they are compared with: the same
work on N times as many workers in less than an N-th of the time."""

from reporting.info import look


def work_of(cell):
    """What a step of the cell's runs does; runs of other work cannot be compared by their workers."""
    infos = [run.info for run in cell.runs]
    found = {(look(info, "options.batch"), info["parameters"], look(info, "data.hash")) for info in infos}
    return found.pop() if len(found) == 1 else None


def workers_of(cell):
    machine = cell.runs[0].info["machine"]
    return machine["ranks"] * machine["threads_per_rank"]


def found(references, cells):
    """[(cell, its speedup, times as many workers)]; references: {name of a cell: the cell that it is compared with}."""
    said = []
    for cell in cells:
        other = references.get(cell.name)
        if other is None or work_of(cell) is None or work_of(cell) != work_of(other):
            continue
        times, speedup = workers_of(cell) / workers_of(other), other.step_s / cell.step_s
        if times > 1 and speedup > times:
            said.append((cell, speedup, times))
    return said


def warning(references, cells):
    """A sentence; None: there is none."""
    said = [f"{cell.label} ({speedup:.3g} times on {times:g} times the workers)"
            for cell, speedup, times in found(references, cells)]
    return said and (f"Superlinear, faster than the workers account for: {', '.join(said)}. A part of the data may fit "
                     "caches which the whole does not: one rank alone with such a part would show it.") or None
