"""The step time of a run and its parts: `gradwire train` computes them once and writes them to run.json.
show, table, compare and the report read them here, so a run has one figure everywhere.
docs/measurement.md, "Step time", defines it. It needs Python's own library only.

Seconds, and bytes for "wire". NaN: absent."""

import math

from .info import look, number, text
from .base import BadInput

STEADY = "steady mean"
PLAIN = "plain mean"  # too few periods to leave out disturbances, or work that never repeats
ABSENT = "absent"  # not one whole period
NO_TIME = "no step time"
SIMULATED = "simulated mean"
NOTE_PLAIN = f"""\
{PLAIN}: of all steps after warm-up, in whole periods of the exchange: there are
too few periods to leave out those that were disturbed."""
NOTE_SIMULATED = f"""\
{SIMULATED}: over all ranks, without the first step; computation is the
profile's, and exposed communication all else (docs/simulate.md)."""
NAN = math.nan

# Parts of a step, which stack up to it, in the order of a bar.
PARTS = ("data", "core", "core_or_memory", "memory", "codec", "waiting", "transfer", "mpi", "checkpoint",
         "other")
DIMENSIONS = ("data", "pipe", "tensor")  # of a mesh
SOURCES = ("ctr", "twin", "model_lo", "model_hi")
# Columns of batches.csv: what the summary calls them.
COLUMNS = {"wall_s": "wall_s", "wait_skew_s": "waiting_s", "transfer_s": "transfer_s",
           "inflight_s": "hidden_s", "wire_bytes": "wire_bytes", "logical_bytes": "logical_bytes",
           **{f"core_{source}_s": f"memory_s.core_{source}_s" for source in SOURCES},
           **{f"memory_{source}_s": f"memory_s.{source}_s" for source in SOURCES},
           **{f"memory_codec_{source}_s": f"memory_s.codec_{source}_s" for source in SOURCES[:2]},
           **{f"{phase}_s": f"phases.{phase}_s" for phase in (
               "data", "forward", "backward", "recompute", "update", "encode", "decode", "mpi_post",
               "mpi_poll", "mpi_wait", "checkpoint", "other")},
           **{f"{dim}_{column}_s": f"dimensions.{dim}.{name}_s" for dim in DIMENSIONS
              for column, name in (("comm", "comm"), ("skew", "waiting"))},
           **{f"{dim}_{what}": f"dimensions.{dim}.{what}" for dim in DIMENSIONS for what in ("bytes", "messages")}}


def statistic(info):
    """What the run's step time is: STEADY, PLAIN, ABSENT or SIMULATED."""
    return text(info, "results.summary.statistic", STEADY)


def kind(info):
    """The step time's kind: only times of one kind are compared. Both means of measured steps are one kind."""
    return {PLAIN: STEADY}.get(found := statistic(info), found)


def absent(info):
    """Why the run has no step time; None: it has one."""
    if statistic(info) != ABSENT:
        return None
    period, count = (look(info, f"results.summary.{name}") for name in ("period", "batches"))
    return f"run.json: {NO_TIME}: the exchange repeats after {period} steps, and the run has {count} after warm-up"


def figure(info, name):
    return number(info, f"results.summary.{name}")


def means_of(info):
    """{column of batches.csv: its mean over the steps that the step time is of}."""
    found = {column: figure(info, name) for column, name in COLUMNS.items()}
    return {column: value for column, value in found.items() if not math.isnan(value)}


def interrupted(info):
    """Share of the steps in which some rank was interrupted; None: not known."""
    share = figure(info, "interrupted")
    return None if math.isnan(share) else share


def division_of(info):
    """({"core", "core_or_memory", "memory"}, the source) of computation; None: undivided."""
    found = look(info, "results.summary.division")
    if not isinstance(found, dict):
        return None
    return {part: number(found, part + "_s") for part in ("core", "core_or_memory", "memory")}, text(found, "source")


def dimensions_of(info):
    """{dimension of more than one rank: its figures of a step}, with "ranks", "comm_s", "waiting_s", "bytes"
    and "messages" of a rank; {}: the run has no mesh."""
    found = {dim: {key: figure(info, f"dimensions.{dim}.{key}")
                   for key in ("ranks", "comm_s", "waiting_s", "bytes", "messages")}
             for dim in DIMENSIONS}
    return {dim: figures for dim, figures in found.items() if figures["ranks"] > 1}


class StepTime:
    """What run.json says of a run's step."""

    def __init__(self, info):
        self.statistic, self.interrupted = statistic(info), interrupted(info)
        self.counted = figure(info, "counted")
        self.step_s, self.compute_s, self.exposed_s, self.hidden_s, self.wire_bytes = (
            figure(info, name) for name in
            ("wall_s", "compute_s", "exposed_s", "hidden_s", "wire_bytes"))
        self.products_s = figure(info, "phases.forward_s") + figure(info, "phases.backward_s")
        self.codec_memory_ctr_s, self.codec_memory_twin_s = (
            figure(info, f"memory_s.codec_{source}_s") for source in ("ctr", "twin"))
        self.recompute_s, self.bubble_s = figure(info, "phases.recompute_s"), figure(info, "bubble_s")
        self.dimensions = dimensions_of(info)
        self.parts, self.split = dict.fromkeys(PARTS, NAN), None
        self.parts.update({name: figure(info, f"phases.{name}_s")
                           for name in ("data", "checkpoint", "other")},
                          core_or_memory=self.compute_s, codec=figure(info, "codec_s"),
                          mpi=self.exposed_s)
        if (division := division_of(info)) is not None:
            self.parts.update(division[0])
            self.split = division[1]
        waiting, transfer = figure(info, "waiting_s"), figure(info, "transfer_s")
        if not math.isnan(waiting + transfer):
            self.parts.update(waiting=waiting, transfer=transfer,
                              mpi=self.exposed_s - waiting - transfer)

    def steps_of(self, batches):
        """Of so many steps after warm-up those that the statistic is of."""
        return int(self.counted) if self.statistic == PLAIN else batches

    @property
    def rest_s(self):
        """The step less its parts: of a steady mean 0, up to the printed digits; NaN: without parts."""
        known = [seconds for seconds in self.parts.values() if not math.isnan(seconds)]
        rest = self.step_s - sum(known) if known else NAN
        return 0.0 if abs(rest) <= 1e-6 * self.step_s else rest


def refuse_two_kinds(infos):
    """BadInput: a simulated run would be set beside a measured one."""
    found = {kind(info) for info in infos}
    if len(found) > 1:
        raise BadInput(f"step times of two kinds: {' and '.join(sorted(found))}: compare --metric elapsed")
