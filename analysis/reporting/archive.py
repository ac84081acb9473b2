"""An OTF2 archive of one run, for Vampir, Score-P's tools and others that read it (docs/analysis.md, "OTF2"). The
package otf2 writes it.

Of a run with trace.json: its slices as regions, a location each track; each exchange as a region in a location of
its schedule. Else of batches.csv: its phases, laid one after another, since it has their sums alone."""

import math
import os
import shutil
import sys

from .csvrows import rows_of
from .info import look, read_info, text, unlike
from .shape import Bad
from .timeline import get, nanoseconds, opened, read_trace
from .base import BadInput

PHASES = ("data", "forward", "backward", "recompute", "update", "encode", "mpi_post", "mpi_poll", "mpi_wait", "decode",
          "checkpoint", "other")
MAIN = "computation"  # the track of a rank's batches and phases
REDUCES = ("allreduce", "iallreduce")  # strategies whose exchanges are allreduces, all of them
PER_S = 10**9
NO_ROOT = 2**32 - 1  # OTF2_UNDEFINED_UINT32


def package():
    """The package otf2; BadInput: this interpreter has none."""
    try:
        import otf2
    except ImportError as error:
        raise BadInput(f"OTF2 takes the module otf2, which {sys.executable} cannot import ({' '.join(str(error).split())})"
                       ": install it (Debian's python3-otf2, or the otf2 of PyPI for another interpreter)") from error
    return otf2


class Track:
    """Enter and leave records of a location, whose slices come in order of their begin, and nest."""

    def __init__(self, writer):
        self.writer, self.open, self.now, self.leaves = writer, [], 0, {}

    def advance(self, at, within=None):
        """Leaves what has ended at `at`, but a slice of the category `within` that ends right then."""
        while self.open and (self.open[-1][0] < at or self.open[-1][0] == at and self.open[-1][2] != within):
            end, region, _ = self.open.pop()
            self.writer.leave(end, region)
        self.now = max(self.now, at)

    def slice(self, at, end, region, category, attributes=None):
        self.advance(at, "batch" if category == "phase" and end == at else None)
        self.writer.enter(at, region, attributes)
        self.open.append((end, region, category))

    def latest(self):
        """When all of its slices so far have ended."""
        return max(self.now, self.open[0][0] if self.open else 0)

    def close(self):
        self.advance(math.inf)


class Archive:
    """What is being written."""

    def __init__(self, otf2, trace, info):
        self.otf2, self.trace, self.define = otf2, trace, trace.definitions
        self.ranks, self.tracks, self.counts, self.open = {}, {}, {}, {}
        root = self.define.system_tree_node(", ".join(("gradwire run", *(name for name, _ in unlike(info)))),
                                            class_name="machine")
        hosts = look(info, "machine.hosts") or ["host"]
        nodes = {host: self.define.system_tree_node(host, class_name="node", parent=root) for host in hosts}
        many = look(info, "machine.ranks")
        for rank in range(many if isinstance(many, int) else 0):
            self.ranks[rank] = self.define.location_group(
                f"rank {rank}", system_tree_parent=nodes[hosts[rank] if len(hosts) == many else hosts[0]])
        mains = [self.location(rank, MAIN) for rank in self.ranks]
        kinds = otf2.GroupType
        self.define.group("ranks", kinds.COMM_LOCATIONS, otf2.Paradigm.MPI, members=mains)
        self.world = self.define.comm("all ranks", self.define.group(
            "all ranks", kinds.COMM_GROUP, otf2.Paradigm.MPI, members=mains))
        self.reduces = text(info, "comm.strategy") in REDUCES and not look(info, "mesh")
        self.wire = self.define.metric("wire bytes", "handed to MPI from here to the batch's end",
                                       otf2.MetricType.OTHER, otf2.MetricMode.ABSOLUTE_NEXT, otf2.Type.UINT64,
                                       unit="bytes")
        self.figure = {key: self.define.attribute(key, f"{key} of the slice", kind) for key, kind in (
            ("step", otf2.Type.INT64), ("bytes", otf2.Type.UINT64), ("run", otf2.Type.INT64),
            ("dimension", otf2.Type.STRING), ("microbatch", otf2.Type.INT64), ("chunk", otf2.Type.INT64))}

    def location(self, rank, name):
        return self.define.location(name, group=self.ranks[rank])

    def track(self, rank, name):
        if (rank, name) not in self.tracks:
            if rank not in self.ranks:
                raise Bad(f"trace.json: rank {rank} is not one of run.json's {len(self.ranks)}")
            self.tracks[rank, name] = Track(self.trace.event_writer_from_location(self.location(rank, name)))
        return self.tracks[rank, name]

    def region(self, name, category):
        return self.define.region(name, description=category)

    def attributes(self, args):
        kept = {self.figure[key]: value for key, value in (args or {}).items() if key in self.figure}
        return kept or None

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def slice(self, rank, track, at, end, name, category, args=None):
        # A step's batches have one region, whose attribute tells the step: profilers sum by region.
        self.track(rank, track).slice(at, end, self.region("batch" if category == "batch" else name, category), category,
                                      self.attributes(args))
        self.count(category)

    def bytes_of_batch(self, rank, at, value):
        track = self.track(rank, MAIN)
        track.advance(at, "batch")
        track.writer.metric(at, self.wire, int(value))

    def close(self):
        for track in self.tracks.values():
            track.close()


# ---- what a run has ----

class OfTrace:
    """The events of trace.json. Its codec track is left out: the phases have the same slices."""

    def __init__(self, archive):
        self.archive, self.names, self.begun, self.requests = archive, {}, {}, 0

    def event(self, event, line):
        kind, rank, at = get(event, "ph", str), get(event, "pid", int), nanoseconds(event, "ts")
        name, category, args = get(event, "name", str), get(event, "cat", str), get(event, "args", dict)
        if kind == "M":
            if name == "thread_name":
                self.names[rank, event.get("tid")] = get(args, "name", str)
            return
        if None in (rank, at, name):
            raise Bad(f"trace.json, line {line}: no rank, time or name: gradwire trace-check tells more")
        if kind == "X" and category != "codec":
            lasts, track = nanoseconds(event, "dur"), self.names.get((rank, event.get("tid")))
            if None in (lasts, track, category):
                raise Bad(f"trace.json, line {line}: a slice without duration, track or category")
            self.archive.slice(rank, track, at, at + lasts, name, category, args)
        elif kind == "C" and name == "wire" and get(args, "bytes", (int, float)) is not None:
            self.archive.bytes_of_batch(rank, at, args["bytes"])
        elif kind in ("b", "e"):
            self.exchange(kind == "b", rank, at, name, (rank, get(event, "id", str)), args, line)

    def exchange(self, begins, rank, at, name, key, args, line):
        """A schedule's runs follow each other, so each has a location; those of different schedules overlap."""
        archive, lane = self.archive, get(args, "lane", int)
        if begins:
            track = archive.track(rank, f"exchange, lane {lane}, schedule {get(args, 'schedule', int)}")
            self.requests += 1
            self.begun[key] = track, self.requests, get(args, "bytes", int) or 0
            track.advance(at)
            track.writer.enter(at, archive.region(name, "exchange"), archive.attributes(args))
        elif key not in self.begun:
            raise Bad(f"trace.json, line {line}: an exchange ends without having begun")
        else:
            track, request, size = self.begun.pop(key)
            track.writer.leave(at, archive.region(name, "exchange"))
            archive.count("exchange")
        if archive.reduces:
            main = archive.track(rank, MAIN)
            main.advance(at, "batch")
            if begins:
                main.writer.non_blocking_collective_request(at, self.requests)
            else:
                main.writer.non_blocking_collective_complete(
                    at, archive.otf2.CollectiveOp.ALLREDUCE, archive.world, NO_ROOT, size, size, request)


def of_batches(archive, path):
    columns = ("rank", "step", "t_start_s", "wall_s", "wire_bytes", *(phase + "_s" for phase in PHASES))
    with opened(path, "rb") as file:
        for line, row in rows_of(file, columns):
            rank, at, wall = row["rank"], row["t_start_s"], row["wall_s"]
            if rank not in archive.ranks:
                raise Bad(f"batches.csv, line {line}: rank {rank:.0f} is not one of run.json's {len(archive.ranks)}")
            if math.isnan(at):
                raise Bad(f"batches.csv, line {line}: no t_start_s: the run does not tell when a batch began")
            rank, args = int(rank), {"step": int(row["step"])}
            begin = max(round(at * PER_S), archive.track(rank, MAIN).latest())
            end = begin + round(wall * PER_S)
            archive.slice(rank, MAIN, begin, end, "batch", "batch", args)
            if not math.isnan(row["wire_bytes"]):
                archive.bytes_of_batch(rank, begin, row["wire_bytes"])
            so_far = 0.0
            for phase in PHASES:
                if row[phase + "_s"] > 0:  # NaN: not measured
                    first, so_far = so_far, so_far + row[phase + "_s"]
                    archive.slice(rank, MAIN, *(min(begin + round(x * PER_S), end) for x in (first, so_far)), phase,
                                  "phase")


# ---- the archive ----

def properties_of(folder, info, traced, other):
    found = {
        "SOURCE": "trace.json" if traced else "batches.csv",
        "PHASES": "as they happened" if traced else "sums of a batch, laid one after another",
        "EXCHANGES": "from arrival to end" if traced else "none: run again with --trace",
        "MESSAGES": "none: a run's folder counts them (matrix.csv), and has no time of one",
        "DROPPED": str(sum(sum(counts) for key, counts in other.items()
                           if key.startswith("dropped_") and isinstance(counts, list))) if traced else "0",
        "SCHEDULED_BY": f"{text(info, 'comm.strategy')} over {text(info, 'comm.algorithm')}, codec {text(info, 'comm.codec')}",
        "MARKS": "; ".join(f"{name}: {words}" for name, words in unlike(info)) or "none",
        "COMMAND": text(info, "command"), "FOLDER": os.path.abspath(folder)}
    return {f"GRADWIRE::{name}": value for name, value in found.items()}


def fill(otf2, trace, folder, info):
    """What it counted."""
    import _otf2
    archive, other, path = Archive(otf2, trace, info), {}, os.path.join(folder, "trace.json")
    traced = os.path.lexists(path)
    if traced:
        with opened(path) as file:
            other = read_trace(path, file, OfTrace(archive).event)
    else:
        of_batches(archive, os.path.join(folder, "batches.csv"))
    archive.close()
    trace.creator = f"gradwire {text(info, 'version')}"
    trace.description = text(info, "command")
    for name, value in properties_of(folder, info, traced, other).items():
        _otf2.Archive_SetProperty(trace.handle, name, value, False)
    return "trace.json" if traced else "batches.csv", archive.counts


def write(folder, out):
    """Writes the archive OUT/traces.otf2 of the run in `folder`, whole or not at all; returns one line about it."""
    otf2 = package()
    info, new = read_info(folder), f"{out}.new"
    for path in (out, new):
        if os.path.lexists(path):
            raise BadInput(f"{path}: exists: name a folder that is to be made by --otf2")
    try:
        os.mkdir(new)
        with otf2.writer.open(new, timer_resolution=PER_S) as trace:
            source, counts = fill(otf2, trace, folder, info)
        os.rename(new, out)
    except OSError as error:
        raise BadInput(f"{new}: {error.strerror}: name another place by --otf2") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return (f"{os.path.join(out, 'traces.otf2')}: of {source}: "
            + (", ".join(f"{n} {what}" for what, n in sorted(counts.items())) or "no event"))
