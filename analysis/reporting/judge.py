"""Judges the claims of a study by its runs."""

import math
from dataclasses import dataclass, replace

from . import claims, stats, verdicts
from .info import SIMULATED, look, repeats_exactly
from .shape import is_number
from .summary import SUMS

# What a sum is made of; memory_most_s: the upper bound of the time that computation waits for memory.
SUMS = {**SUMS, "memory_most_s": ("memory_twin_s", "memory_model_hi_s")}
MEANS = {part for name in claims.COLUMNS for part in SUMS.get(name, (name,))}  # columns of batches.csv
UNSHARED = "simulated ranks of one machine share neither caches nor memory bandwidth"
ARITHMETIC = "arithmetic: options decide these bytes, no run of theirs differs"
OVERSUBSCRIBED = "oversubscribed"
ALONE = "by itself; among all pairs of the study the difference is inside the noise"
SAME = 1e-9  # relative: figures of runs.csv have nine digits


@dataclass(frozen=True)
class Facts:
    """Of a cell, beside its figures; None: not known."""

    marks: frozenset
    ranks: float | None = None
    threads: float | None = None
    nodes: float | None = None
    cores: int | None = None  # of the machine

    @property
    def workers(self):
        return None if None in (self.ranks, self.threads) else self.ranks * self.threads

    @property
    def unshared(self):
        """Whether its ranks are simulated as if each of a machine had caches and memory of its own."""
        return any(mark.startswith(f"{SIMULATED}: ") for mark in self.marks) and \
            None not in (self.ranks, self.nodes) and self.ranks > self.nodes


def times_workers(claim, facts):
    """How many times as many workers the claim's cell has as the one it is against; None: not more, or not known."""
    if len(facts) != 2 or None in (facts[0].workers, facts[1].workers):
        return None
    times = facts[0].workers / facts[1].workers
    return times if times > 1 else None


def speedup_of(claim, value, workers):
    """The figure as a speedup; None: it is none."""
    name = claims.parts_of(claim["figure"])[0]
    if value is None or workers is None or not (name in ("speedup", "efficiency") or name in claims.TIMES):
        return None
    return value if name == "speedup" else value * workers if name == "efficiency" else 1 / value


@dataclass(frozen=True)
class Alone:
    """What one rank alone takes for the whole and for a rank's share of it, and the Interval of the ratio."""

    whole_s: float
    share_s: float
    ratio: object

    def text(self, *bounds):
        whole, share = (f"{1e3 * seconds:.3g} ms" for seconds in (self.whole_s, self.share_s))
        value, low, high = (end if end is None else claims.number(end, *bounds)
                            for end in (self.ratio.value, self.ratio.low, self.ratio.high))
        return (f"one rank alone takes {whole} for the whole and {share} for the share, "
                f"{value}{f' ({low}..{high})' if low else ''} times as long")

    def columns(self):
        return {"whole_s": self.whole_s, "share_s": self.share_s, "alone": self.ratio.value,
                "alone_low": self.ratio.low, "alone_high": self.ratio.high}


def superlinear(speeds, workers, alone):
    """Why a speedup, whose interval is given, is above what its workers account for; "": that is not shown."""
    if None in speeds or min(speeds) <= workers:
        return ""
    head = f"faster than {workers:g} times as many workers account for: "
    if alone is None:
        return head + "no run of the share on one rank was kept, which would show why"
    explained = alone.ratio.low is not None and alone.ratio.low > workers
    return head + ("the share fits the caches: " if explained else "not explained by the share's size: ") + alone.text(workers)


def is_arithmetic(claim, interval):
    """Whether the figure is of bytes or messages, and the same in all runs: it tests no run."""
    return set(claims.parts_of(claim["figure"])) <= {*claims.BYTES, "messages", "collectives"} and \
        interval.high - interval.low <= SAME * abs(interval.value)


def judged(claim, study, interval, facts, machine, why="", alone=None):
    """The row of a claim, by the Interval of its figure, the Facts of each cell behind it, and what one rank alone
    does."""
    low, high = interval.low, interval.high
    known = interval.value is not None and low is not None
    verdict = claims.verdict(claim, low, high) if known else claims.UNDECIDED
    timed, turns = claims.is_of_time(claim["figure"]), [one for one in facts if OVERSUBSCRIBED in one.marks]
    workers = times_workers(claim, facts)
    beyond = superlinear([speedup_of(claim, end, workers) for end in (low, high)], workers, alone)
    said = [beyond or (alone.text() if alone else ""), UNSHARED if timed and any(one.unshared for one in facts) else "",
            ARITHMETIC if known and is_arithmetic(claim, interval) else ""]
    if not known:
        why = interval.reason
    elif timed and turns:
        verdict = claims.not_here(min((one.cores for one in turns if one.cores), default=None))
        said = [OVERSUBSCRIBED]
    elif beyond and verdict == claims.CONFIRMED:
        verdict = claims.SUPERLINEAR
    marks = sorted(set().union(*(one.marks for one in facts)))
    return claims.row_of(claim, study, ours=interval.value, low=low, high=high, verdict=verdict,
                         why="; ".join(filter(None, (*said, why))), marks="; ".join(marks), **machine,
                         workers=workers, **(alone.columns() if alone else {}))


def without(reason):
    return stats.Interval(None, None, None, 0, "none", reason)


# ---- by runs ----

def column_of(run, name):
    """A figure of a run; None: not measured."""
    if name == "step_s":
        return run.step_s
    columns = [run.means.get(part) for part in SUMS.get(name, (name,))]
    if None not in columns:
        return sum(columns)
    value = look(run.info, f"results.{'wire_bytes' if name == 'run_wire_bytes' else name}")
    return float(value) if is_number(value) else None


def value_of(names):
    """figure(run): its column, or the share of one in another."""
    def figure(run):
        values = [column_of(run, name) for name in names]
        return None if None in values or values[-1] == 0 and len(values) > 1 else values[0] / (
            values[1] if len(values) > 1 else 1)
    return figure


def product(cells, figure, units):
    """{block or seed: product of the cells' figures}, of those that all have."""
    found = [verdicts.middles(units(cell), figure) for cell in cells]
    return {unit: math.prod(one[unit] for one in found)
            for unit in found[0] if all(unit in one for one in found)}


def ratio(up, down, figure, units=verdicts.blocks_of):
    """Interval of the product of the figures of `up` over that of `down`, block by block."""
    sides = product(up, figure, units), product(down, figure, units)
    pairs = stats.matched(*sides, True)
    return stats.log_ratio(*pairs, True, "seeds" if units is verdicts.seeds_of else "runs").interval(
        stats.LEVEL)


def workers(cell):
    machine = cell.runs[0].info["machine"]
    return machine["ranks"] * machine["threads_per_rank"]


def alone(names, cell):
    """Interval of a figure of one cell."""
    figure = value_of(names)
    if names[0] in claims.OF_SEED:
        return stats.median_ci(stats.by_seed((run.info["seed"], figure(run)) for run in cell.runs).values())
    found = stats.median_ci([math.nan if figure(run) is None else figure(run) for run in cell.runs])
    return found if found.n else without("no run has this figure")


def costs(cells):
    """{block: by what share the first cell's step is longer than the second's}; with two more, over their share."""
    found = [verdicts.middles(verdicts.blocks_of(cell), value_of(["step_s"])) for cell in cells]
    shares = [{block: slow[block] / plain[block] - 1 for block in slow if block in plain}
              for slow, plain in zip(found[::2], found[1::2])]
    return shares[0] if len(shares) == 1 else {
        block: share / shares[1][block] for block, share in shares[0].items() if shares[1].get(block)}


def interval_of(claim, cell, against, than):
    """The Interval of a claim's figure, of cells."""
    names = claims.parts_of(claim["figure"])
    if against is None:
        return alone(names, cell)
    if names == ["points"]:
        def exponential(run):  # differences of accuracies, as in charts/final_accuracy.py
            accuracy = column_of(run, "test_accuracy")
            return None if accuracy is None else math.exp(accuracy)
        return ratio([cell], [against], exponential, verdicts.seeds_of).of(lambda v: 100 * math.log(v))
    if names == ["cost"]:
        return stats.mean_ci(costs([cell, against, *than]).values())
    up, down = [cell, *than[1:]], [against, *than[:1]]
    if names[0] not in ("speedup", "efficiency"):
        units = verdicts.seeds_of if names[0] in claims.OF_SEED else verdicts.blocks_of
        return ratio(up, down, value_of(names), units)
    share = 1.0
    if names == ["efficiency"]:
        share = math.prod(map(workers, down)) / math.prod(map(workers, up))
    return ratio(down, up, value_of(["step_s"])).of(lambda value: value * share)


def machine_of(runs):
    """When and where."""
    dates = sorted({run.info["started_utc"][:10] for run in runs})
    where = {f"{run.info['machine']['cpu']}, {run.info['machine']['cores_usable']} cores" for run in runs}
    return {"date": "..".join(dict.fromkeys((dates[0], dates[-1]))), "machine": " / ".join(sorted(where))}


def facts_of(cell, study):
    tuned = verdicts.at_edge(study).get(cell.levels.get((study.get("tune") or {}).get("factor")))
    marks = frozenset(filter(None, (*cell.marks, "short version" if study["short"] else None, tuned)))
    if not cell.runs:
        return Facts(marks)
    machine = cell.runs[0].info["machine"]
    return Facts(marks, machine["ranks"], machine["threads_per_rank"], machine["nodes"], machine["cores_usable"])


def share_alone(share, whole):
    """What one rank alone takes for its share, and for the whole; None: there are no such runs."""
    if share is None or not share.runs or not whole.runs or workers(share) != 1 or workers(whole) != 1:
        return None
    return Alone(whole.step_s, share.step_s, ratio([whole], [share], value_of(["step_s"])))


def only_alone(claim, row, results, cells):
    """Whether the row shows a difference of a pair's step times which the study's comparison of the pair does not."""
    if len(cells) != 2 or claim["figure"] not in ("speedup", "step_s") or row["verdict"] not in (
            claims.CONFIRMED, claims.DIFFERS, claims.SUPERLINEAR) or claims.span_of(claim["confirmed"]).holds(1, 1):
        return False
    comparison = verdicts.family_of(results).of(*cells)
    return comparison is not None and comparison.differs is False


def by_runs(results, claim):
    """The row of one claim."""
    if claims.UNTESTABLE in claim:
        return claims.untested(claim, results.name)
    study = results.study
    baseline = next((one["levels"] for one in study["cells"] if one["id"] == study["baseline"]), {})
    known = {frozenset(cell.levels.items()): cell for cell in results.cells + results.empty}
    try:
        first, second, pair = claims.cells_of(claim, results.factors, baseline)
        wanted = [levels for levels in (first, second, *(pair or ())) if levels is not None]
        cells = [known[frozenset(levels.items())] for levels in wanted]
    except LookupError:
        return claims.untested(claim, results.name) | {
            "why": f"the {'short version' if study['short'] else 'study'} has no such cell"}
    share = claims.share_of(claim, results.factors, baseline)
    alone = share and share_alone(known.get(frozenset(share.items())), cells[1])
    lost = [cell.label for cell in cells if not cell.runs]
    machine = machine_of([run for cell in cells for run in cell.runs]) if len(lost) < len(cells) else {}
    interval = without(f"no finished run of {', '.join(lost)}") if lost else interval_of(
        claim, cells[0], cells[1] if len(cells) > 1 else None, cells[2:])
    if interval.value is not None and interval.low is None and all(
            repeats_exactly(run.marks) for cell in cells for run in cell.runs):
        interval = replace(interval, low=interval.value, high=interval.value, method="repeats exactly", reason="")
    row = judged(claim, results.name, interval, [facts_of(cell, study) for cell in cells], machine, alone=alone)
    if only_alone(claim, row, results, cells):
        row["why"] = "; ".join(filter(None, (row["why"], ALONE)))
    return row


def of_results(results):
    """The rows of a study's claims."""
    return [by_runs(results, claim) for claim in (results.study or {}).get("claims", [])]
