"""Judges the claims of a study: by its runs, or by the summary.csv that was kept of them."""

import math
from dataclasses import replace

import numpy as np
from scipy import special

from reporting import claims, stats, verdicts
from reporting.info import look
from reporting.model import IN_TURN, took_turns
from reporting.shape import is_number
from reporting.summary import SUMS

# What a sum is made of; memory_most_s: the upper bound of the time that computation waits for memory.
SUMS = {**SUMS, "memory_most_s": ("memory_twin_s", "memory_model_hi_s")}
KEPT = "judged from kept figures"


def holds_anyway(claim, marks):
    """Whether what took turns could only have been faster, and is fast enough: paced ranks that exchange in turn are
    late, never early."""
    return claims.parts_of(claim["figure"])[0] in ("speedup", "efficiency") and \
        claims.span_of(claim["confirmed"]).high is None and IN_TURN in marks[0] and not any(map(took_turns, marks[1:]))


def judged(claim, study, interval, marks, machine, why=""):
    """The row of a claim, by the Interval of its figure and the marks of each cell behind it."""
    low, high = interval.low, interval.high
    known = interval.value is not None and low is not None
    verdict = claims.verdict(claim, low, high) if known else claims.UNDECIDED
    fast = verdict == claims.CONFIRMED and holds_anyway(claim, marks)
    if not known:
        why = interval.reason
    elif claims.is_of_time(claim["figure"]) and any(map(took_turns, marks)) and not fast:
        turns = IN_TURN if any(IN_TURN in one for one in marks) else "oversubscribed"
        verdict, why = claims.UNDECIDED, "; ".join(filter(None, (turns, why)))
    return claims.row_of(claim, study, ours=interval.value, low=low, high=high, verdict=verdict, why=why,
                         marks="; ".join(sorted(set().union(*marks))), **machine)


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
    lost = [cell.label for cell in cells if not cell.runs]
    machine = machine_of([run for cell in cells for run in cell.runs]) if len(lost) < len(cells) else {}
    marks = [set(cell.marks) | ({"short version"} if study["short"] else set()) for cell in cells]
    interval = without(f"no finished run of {', '.join(lost)}") if lost else interval_of(
        claim, cells[0], cells[1] if len(cells) > 1 else None, cells[2:])
    return judged(claim, results.name, interval, marks, machine)


def of_results(results):
    """The rows of a study's claims."""
    return [by_runs(results, claim) for claim in (results.study or {}).get("claims", [])]


# ---- by kept figures ----

OTHER_NAMES = {"wall_s": "wall_mean_s"}


def read(row, name):
    """A number of summary.csv; None: blank, or the file has no such column."""
    text = row.get(OTHER_NAMES.get(name, name)) or ""
    try:
        return float(text)
    except ValueError:
        return None


def kept(row, name):
    """A column as an Interval, if its ends were kept."""
    value = read(row, name)
    if value is None:
        return without(f"{name} was not kept")
    head = name.removesuffix("_s")
    ends = [read(row, f"{name}_{end}" if name == head else f"{head}_{end}_s") for end in ("low", "high")]
    if None in ends:
        return stats.Interval(value, None, None, 0, "none", "kept without an interval")
    return stats.Interval(value, *ends, 0, "kept")


def combined(up, down, change=np.divide):
    """One Interval by another, whose runs are not known: by their ends, so that it holds both with 90%."""
    lacking = next((one for one in (up, down) if one.low is None), None)
    if lacking:
        value = None if None in (up.value, down.value) else float(change(up.value, down.value))
        return stats.Interval(value, None, None, 0, "none", lacking.reason)
    return stats.Interval(*(float(change(a, b)) for a, b in (
        (up.value, down.value), (up.low, down.high), (up.high, down.low))), 0, "ends")


def turned(interval):
    found = interval.of(lambda value: 1 / value)
    return replace(found, low=found.high, high=found.low)


def told_ratio(row, pairs):
    """The kept Interval of a ratio, whose level is that of its family, at stats.LEVEL: both are t intervals of
    so many pairs' logarithms."""
    value, low, high, level = (read(row, f"ratio{end}") for end in ("", "_low", "_high", "_level"))
    edge = special.stdtrit(pairs - 1, [(1 + stats.LEVEL) / 2, (1 + level) / 2])
    low, high = (value * (end / value) ** (edge[0] / edge[1]) for end in (low, high))
    return stats.Interval(value, low, high, pairs, "kept")


def kept_ratio(names, row, other):
    """(Interval of a figure against another row's, what it rests on)."""
    if names == ["points"]:
        found = combined(kept(row, "test_accuracy"), kept(other, "test_accuracy"), np.subtract)
        return found.of(lambda value: 100 * value), "by the ends of both intervals"
    by_step = names[0] in ("step_s", *claims.OF_TWO)
    told = next((one for one, of in ((row, other), (other, row)) if by_step
                 and one.get("compared_with") == of["cell"] and one["runs"] == of["runs"]
                 and read(one, "ratio_low") is not None), None)
    if told:
        found, why = told_ratio(told, int(told["runs"])), ""
        found = found if told is row else turned(found)
    else:
        name = "step_s" if by_step else names[0]
        found, why = combined(kept(row, name), kept(other, name)), "by the ends of both intervals"
    if names[0] in ("speedup", "efficiency"):
        found = turned(found) if found.low is not None else found.of(lambda value: 1 / value)
    if names == ["efficiency"]:
        own, others = (read(one, "ranks") * read(one, "threads") for one in (row, other))
        found = found.of(lambda value: value * others / own)
    return found, why


def kept_interval(claim, rows):
    names = claims.parts_of(claim["figure"])
    if len(rows) == 1:
        figures = [kept(rows[0], name) for name in names]
        return (figures[0] if len(names) == 1 else combined(*figures)), ""
    found, why = kept_ratio(names, *rows[:2])
    if len(rows) > 2:
        found, why = combined(found, kept_ratio(names, *rows[2:])[0]), "by the ends of both intervals"
    return found, why


def by_kept(claim, table):
    """The row of a claim by the rows of summary.csv as {column: text}."""
    study = table[0]["study"]
    if claims.UNTESTABLE in claim:
        return claims.untested(claim, study)
    levels = [{key.removeprefix("level."): value for key, value in row.items() if key.startswith("level.")}
              for row in table]
    factors = {name: list(dict.fromkeys(one[name] for one in levels)) for name in levels[0]}
    baseline = next((one for one, row in zip(levels, table) if row["baseline"] == "1"), levels[0])
    try:
        first, second, pair = claims.cells_of(claim, factors, baseline)
        wanted = [one for one in (first, second, *(pair or ())) if one is not None]
        rows = [table[levels.index(one)] for one in wanted]
    except (LookupError, ValueError):
        return claims.untested(claim, study) | {"why": "the kept study has no such cell"}
    interval, how = kept_interval(claim, rows)
    machine = {"date": rows[0].get("date"),
               "machine": f"{rows[0]['cpu']}, {rows[0]['cores']} cores" if rows[0].get("cpu") else None}
    return judged(claim, study, interval, [set(filter(None, row["marks"].split("; "))) for row in rows],
                  machine, f"{KEPT}: {how}" if how else KEPT)
