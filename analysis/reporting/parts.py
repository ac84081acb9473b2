"""The parts of a run's step time: means over the ranks and the steps that it is of, since means of
exclusive phases add up to it and medians do not.

Computation is divided by the best source of the run, never by two at once (docs/measurement.md,
"Memory-bound"). Twins and model give an interval: at least core, at least memory, and what may be either."""

import math
from dataclasses import dataclass

from . import steps

# Key, title, colour in figure.PART, in the order of drawing.
PARTS = [
    ("core", "core", "computation"),
    ("either", "core or memory-bound, untold", "computation"),
    ("compute", "computation, undivided", "computation"),
    ("memory", "memory-bound", "memory"),
    ("waiting", "waiting for the last rank", "waiting"),
    ("exposed", "exposed communication", "exposed"),
    ("codec", "codec", "codec"),
    ("data", "data", "other"),
    ("checkpoint", "checkpoint", "other"),
    ("other", "other", "other"),
    ("undivided", "step, undivided", "other"),
]

DIVISION = {"core": "core", "either": "core_or_memory", "memory": "memory"}  # names in steps.py
COUNTERS, MODEL = "counters", "twins and model (modelled)"


@dataclass
class Parts:
    seconds: dict  # of the known parts
    source: str | None  # of the division of computation; None: undivided
    hidden: float | None = None  # within computation: a message was in flight; None: not measured

    def total(self):
        return sum(self.seconds.values())


def of_rows(run, *columns):
    """The sum of the columns' means over all rows, with blank rows as 0; None: all are blank."""
    known = [run.means[column] * run.present.get(column, 1.0) for column in columns
             if run.means.get(column) is not None]
    return sum(known) if known else None


def divide(run, compute):
    """Computation as {part: seconds}, and the source of the division: by run.json, as `gradwire show`
    has it."""
    time = steps.StepTime(run.info)
    known = {part: time.parts[key] for part, key in DIVISION.items()
             if time.split is not None and not math.isnan(time.parts[key])}
    whole = sum(known.values())
    if whole <= 0:
        return {"compute": compute}, None
    source = COUNTERS if time.split == "ctr" else MODEL
    return {part: compute * seconds / whole for part, seconds in known.items()}, source


def parts_of(run):
    """The Parts of a run's step time: they add up to it, to the digits printed."""
    mean = run.means.get
    phases = [[run.means.get(f"{name}_s") for name in names]
              for names in
              (("forward", "backward", "recompute", "update"), ("mpi_post", "mpi_poll", "mpi_wait"),
               ("encode", "decode"))]
    if any(None in values for values in phases):
        return Parts({"undivided": mean("wall_s")}, None)
    compute, mpi, codec = map(sum, phases)
    seconds, source = divide(run, compute)
    waiting = of_rows(run, "wait_skew_s")
    if waiting is not None:
        seconds["waiting"] = waiting
    seconds["exposed"] = mpi - (waiting or 0.0)
    seconds["codec"] = codec
    for key in ("data", "checkpoint", "other"):
        if mean(key + "_s") is not None:
            seconds[key] = mean(key + "_s")
    return Parts(seconds, source, mean("inflight_s"))


def middle_of(runs, value):
    """The run with the median value(run); of an even number the middle two. The mean of `value`
    over them is its median over the runs, and parts averaged over them still add up."""
    ordered = sorted(runs, key=value)
    half = len(ordered) // 2
    return ordered[half:half + 1] if len(ordered) % 2 else ordered[half - 1:half + 1]


def undivided(parts):
    """The parts with computation in one piece."""
    inner = ("core", "either", "memory", "compute")
    compute = sum(parts.seconds.get(key, 0.0) for key in inner)
    rest = {key: value for key, value in parts.seconds.items() if key not in inner}
    return Parts({"compute": compute, **rest}, None, parts.hidden)


def parts_of_cell(runs):
    """Parts of the run with the median step, of an even number the mean of the middle two."""
    found = [parts_of(run) for run in middle_of(runs, lambda run: run.means["wall_s"])]
    if len({frozenset(parts.seconds) for parts in found}) > 1:
        if any("undivided" in parts.seconds for parts in found):
            whole = sum(parts.total() for parts in found) / len(found)
            return Parts({"undivided": whole}, None)
        found = [undivided(parts) for parts in found]
    keys = {key for parts in found for key in parts.seconds}
    mean = {key: sum(parts.seconds.get(key, 0.0) for parts in found) / len(found) for key in keys}
    hidden = [parts.hidden for parts in found]
    return Parts(mean, found[0].source, None if None in hidden else sum(hidden) / len(hidden))
