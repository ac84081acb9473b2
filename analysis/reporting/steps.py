"""What the steps of a run took: medians over the clean steps after warm-up, out of batches.csv, as
docs/measurement.md defines its columns. It needs only Python's own library, so `gradwire show` starts at
once.

Figures are means over the ranks, of "wall" the longest; seconds, and bytes for "wire". NaN: absent."""

import math
import random
from array import array
from statistics import median

from reporting.shape import Bad, open_regular
from tool import plain

MOST_COLUMNS = 500  # hardware counters have a column each
LINE = 1 << 16
KEYS = ("rank", "step", "wall_s")
DRAWN = 1 << 16  # steps that are kept; of a longer run, a random sample of this size
NAN = math.nan

FIGURES = {  # in the order of figures_of()
    name: i for i, name in enumerate((
        "wall", "data", "compute", "products", "core_ctr", "memory_ctr", "core_least", "memory_least",
        "either", "codec", "codec_memory_ctr", "codec_memory_twin", "exposed", "waiting", "transfer",
        "mpi_rest", "checkpoint", "other", "inflight", "wire"))}
WALL, EXPOSED = FIGURES["wall"], FIGURES["exposed"]
COLUMNS = (*KEYS, "clean", "data_s", "forward_s", "backward_s", "update_s", "core_ctr_s", "memory_ctr_s",
           "core_twin_s", "memory_twin_s", "core_model_lo_s", "memory_model_lo_s", "encode_s", "decode_s",
           "memory_codec_ctr_s", "memory_codec_twin_s", "mpi_post_s", "mpi_poll_s", "mpi_wait_s",
           "wait_skew_s", "transfer_s", "checkpoint_s", "other_s", "inflight_s", "wire_bytes")


def columns_of(file, needed=KEYS):
    """The titles of an open batches.csv."""
    line = file.readline(LINE)
    if not line.endswith(b"\n"):
        raise Bad("batches.csv, line 1: ends early: half-written, or not a table" if line else
                  "batches.csv: empty: no titles, no rows")
    names = line.decode("utf-8", "replace").rstrip("\r\n").split(",")
    lacking = [name for name in needed if name not in names]
    if lacking or len(set(names)) < len(names) or len(names) > MOST_COLUMNS:
        raise Bad(f"batches.csv: no column {lacking[0]}" if lacking
                  else "batches.csv: a column twice, or too many")
    return names


def rows_of(file, columns=COLUMNS, needed=KEYS):
    """(number of the line, {column: number}) of each row. NaN: blank, or the file has no such column."""
    titles = columns_of(file, needed)
    places = [(name, titles.index(name)) for name in columns if name in titles]
    absent = dict.fromkeys(columns, NAN)
    at = 1
    while line := file.readline(LINE):
        at += 1
        fields = line.split(b",")
        if not line.endswith(b"\n"):
            raise Bad(f"batches.csv, line {at}: ends early: half-written, or not a run's table")
        if len(fields) != len(titles):
            raise Bad(f"batches.csv, line {at}: {len(fields)} fields under {len(titles)} columns")
        fields[-1] = fields[-1].rstrip()
        row = absent.copy()
        for name, i in places:
            if fields[i]:
                row[name] = number_of(fields[i], name, at)
        yield at, row


def number_of(text, name, at):
    try:
        value = float(text)
    except ValueError:
        value = NAN
    if not math.isfinite(value):
        text = plain(text[:40].decode("utf-8", "replace"))
        raise Bad(f"batches.csv, line {at}, {name}: '{text}' is not a number")
    return value


def either(a, b):
    """The sum of two parts, one per source; an absent part counts as 0. NaN: both are absent."""
    return b if math.isnan(a) else a if math.isnan(b) else a + b


def figures_of(row):
    """What a row says of the step."""
    products = row["forward_s"] + row["backward_s"]
    compute = products + row["update_s"]
    mpi = row["mpi_post_s"] + row["mpi_poll_s"] + row["mpi_wait_s"]
    core = either(row["core_twin_s"], row["core_model_lo_s"])
    memory = either(row["memory_twin_s"], row["memory_model_lo_s"])
    return (row["wall_s"], row["data_s"], compute, products, row["core_ctr_s"], row["memory_ctr_s"],
            core, memory, compute - core - memory, row["encode_s"] + row["decode_s"],
            row["memory_codec_ctr_s"], row["memory_codec_twin_s"], mpi, row["wait_skew_s"],
            row["transfer_s"], mpi - row["wait_skew_s"] - row["transfer_s"], row["checkpoint_s"],
            row["other_s"], row["inflight_s"], row["wire_bytes"])


class Steps:
    """The medians of `file`, an open batches.csv: rows of `ranks` ranks (up to step `since` of other
    numbers, too) in order of step, then rank."""

    def __init__(self, file, ranks, since, warmup):
        self.ranks, self.since, self.leave = ranks, since, warmup
        self.others = 0  # steps taken by another number of ranks, before the run was resumed: left out
        self.warmup = self.steps = self.clean = 0  # left out; after them; and of these the clean ones
        self.judged = False  # the file says which rows are clean; if not, all count
        self.own = [0.0] * ranks  # what each rank had to do itself, over the steps that count
        self.counted, self.kept, self.chance = 0, [], random.Random(DRAWN)
        for ranks_there, figures, clean in self.read(file):
            if ranks_there != ranks:
                self.others += 1
            elif self.warmup < self.leave:
                self.warmup += 1
            else:
                self.add(figures, clean)
        self.drawn = len(self.kept)
        self.contaminated = self.clean == 0  # no step was clean: the medians are over all of them
        self.median = {name: self.median_of(i) for name, i in FIGURES.items()}

    def read(self, file):
        """(ranks, a tuple of figures for each rank, whether all are clean) of each step."""
        count, figures, clean, step = 0, [], True, NAN
        for at, row in rows_of(file):
            free = step <= self.since
            if count and (count == self.ranks or free) and row["rank"] == 0:
                yield count, figures, clean
                count, figures, clean = 0, [], True
            if count == 0:
                step = row["step"]
                free = False
            if row["rank"] != count or row["step"] != step or math.isnan(row["wall_s"]) or \
                    count == self.ranks and not free:
                raise Bad(f"batches.csv, line {at}: not the row of rank {count % self.ranks}, step "
                          f"{step:.0f}, with a wall_s: of another run, or damaged")
            if count < self.ranks:
                figures.append(figures_of(row))
                clean = clean and row["clean"] != 0  # blank: nobody knows, so it counts
                self.judged |= not math.isnan(row["clean"])
            count += 1
        if 0 < count < self.ranks and not step <= self.since:
            raise Bad(f"batches.csv: ends after rank {count - 1} of {self.ranks} in step {step:.0f}: "
                      "half-written")
        if count:
            yield count, figures, clean

    def add(self, figures, clean):
        """Contaminated steps count only until the first clean one."""
        self.steps += 1
        if clean and self.clean == 0:
            self.counted, self.kept, self.own = 0, [], [0.0] * self.ranks
        self.clean += clean
        if not clean and self.clean:
            return
        step = array("d", (sum(values) / self.ranks for values in zip(*figures)))
        step[WALL] = max(values[WALL] for values in figures)
        self.keep(step)
        self.counted += 1
        for i, values in enumerate(figures):
            self.own[i] += values[WALL] - values[EXPOSED]

    def keep(self, step):
        """Algorithm R (Vitter, "Random sampling with a reservoir", ACM TOMS 11, 1985): each step that
        counts is among those kept with the same probability."""
        if len(self.kept) < DRAWN:
            self.kept.append(step)
        elif (slot := self.chance.randrange(self.counted + 1)) < DRAWN:
            self.kept[slot] = step

    def median_of(self, i):
        known = [step[i] for step in self.kept if not math.isnan(step[i])]
        return median(known) if known else NAN

    def slowest(self):
        """(rank that had most to do itself, how long, the mean of all ranks) by means over the steps;
        None: not known, or all alone."""
        if self.ranks == 1 or not self.counted or math.isnan(self.own[0]):
            return None
        own = [total / self.counted for total in self.own]
        return own.index(max(own)), max(own), sum(own) / self.ranks


# Parts of a step, which stack up to it, in the order of a bar.
PARTS = ("data", "core", "core_or_memory", "memory", "codec", "waiting", "transfer", "mpi", "checkpoint",
         "other")


def parts_of(median):
    """({part: median; NaN: absent, or another part includes it}, the source of core and memory).
    Counters cover all of computation, twins and model some kernels each: they are never mixed."""
    parts, split = dict.fromkeys(PARTS, NAN), None
    parts.update({name: median[name] for name in ("data", "codec", "checkpoint", "other")},
                 core_or_memory=median["compute"], mpi=median["exposed"])
    if not math.isnan(median["memory_ctr"]):
        split = "ctr"
        parts.update(core=median["core_ctr"], memory=median["memory_ctr"], core_or_memory=NAN)
    elif not math.isnan(median["either"]):
        split = "twin+model"
        parts.update(core=median["core_least"], memory=median["memory_least"],
                     core_or_memory=median["either"])
    if not math.isnan(median["mpi_rest"]):
        parts.update(waiting=median["waiting"], transfer=median["transfer"], mpi=median["mpi_rest"])
    return parts, split


def read_steps(path, ranks, since, warmup):
    with open_regular(path, links=True) as file:
        steps = Steps(file, ranks, since, warmup)
    if steps.steps == 0:
        raise Bad(f"batches.csv: no step after the {steps.warmup} of warm-up")
    return steps
