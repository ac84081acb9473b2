"""What the mean step of a run consists of. Means of exclusive phases add up to the mean wall,
medians do not: so parts are means, over all ranks and all steps after the warm-up.

Computation is divided by the best source of the run, never by two at once (docs/measurement.md,
"Memory-bound"). Counters give a share, which is applied to all of computation: batches in which
other events had their turn are like those counted. Twins and model give an interval: what is core
at least, what is memory at least, and what may be either; steps without an interval are either."""

# Key, title, colour in figure.PART; parts of one bar in the order in which they are drawn.
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

COUNTERS, MODEL = "counters", "twins and model (modelled)"


class Parts:
    """Seconds of each part, `source` of the division of computation (None: undivided)."""

    def __init__(self, seconds, source):
        self.seconds = seconds  # key -> seconds; a part that is not known is not in it
        self.source = source

    def total(self):
        return sum(self.seconds.values())


def add(*values):
    """Their sum; None as soon as one is."""
    return None if None in values else sum(values)


def of_rows(run, column):
    """The mean over all rows of a column whose blank rows count as 0; None: blank throughout."""
    value = run.means.get(column)
    return None if value is None else value * run.present.get(column, 1.0)


def either_source(run, first, second):
    """Twins and model know a part of computation each; None if neither knows its own."""
    known = [value for value in (of_rows(run, first), of_rows(run, second)) if value is not None]
    return sum(known) if known else None


def divide(run, compute):
    """Computation as {part: seconds}, and by which source."""
    core, memory = run.means.get("core_ctr_s"), run.means.get("memory_ctr_s")
    if core is not None and memory is not None and core + memory > 0:
        share = memory / (core + memory)
        return {"core": compute * (1 - share), "memory": compute * share}, COUNTERS
    core = either_source(run, "core_twin_s", "core_model_lo_s")
    memory = either_source(run, "memory_twin_s", "memory_model_lo_s")
    if core is None or memory is None:
        return {"compute": compute}, None
    return {"core": core, "either": compute - core - memory, "memory": memory}, MODEL


def parts_of(run):
    """The Parts of a run's mean step: they add up to its mean wall, to the digits printed."""
    mean = run.means.get
    compute = add(mean("forward_s"), mean("backward_s"), mean("update_s"))
    mpi = add(mean("mpi_post_s"), mean("mpi_poll_s"), mean("mpi_wait_s"))
    codec = add(mean("encode_s"), mean("decode_s"))
    if None in (compute, mpi, codec):
        return Parts({"undivided": mean("wall_s")}, None)
    seconds, source = divide(run, compute)
    waiting = of_rows(run, "wait_skew_s")
    if waiting is not None:
        seconds["waiting"] = waiting
    seconds["exposed"] = mpi - (waiting or 0.0)
    seconds["codec"] = codec
    for key in ("data", "checkpoint", "other"):
        if mean(key + "_s") is not None:
            seconds[key] = mean(key + "_s")
    return Parts(seconds, source)


def middle_of(runs, value):
    """The run in the middle by value(run); of an even number the two there. What is averaged over
    them adds up, and `value` averaged over them is its median over the runs."""
    ordered = sorted(runs, key=value)
    half = len(ordered) // 2
    return ordered[half:half + 1] if len(ordered) % 2 else ordered[half - 1:half + 1]


def undivided(parts):
    """The same with computation in one piece."""
    inner = ("core", "either", "memory", "compute")
    compute = sum(parts.seconds.get(key, 0.0) for key in inner)
    rest = {key: value for key, value in parts.seconds.items() if key not in inner}
    return Parts({"compute": compute, **rest}, None)


def parts_of_cell(runs):
    """Parts of the run in the middle by its mean wall, of an even number the mean of both."""
    found = [parts_of(run) for run in middle_of(runs, lambda run: run.means["wall_s"])]
    if len({frozenset(parts.seconds) for parts in found}) > 1:
        if any("undivided" in parts.seconds for parts in found):
            whole = sum(parts.total() for parts in found) / len(found)
            return Parts({"undivided": whole}, None)
        found = [undivided(parts) for parts in found]
    keys = {key for parts in found for key in parts.seconds}
    mean = {key: sum(parts.seconds.get(key, 0.0) for parts in found) / len(found) for key in keys}
    return Parts(mean, found[0].source)
