"""Two results, cell by cell, for `analysis/compare`. Cells match if their levels are equal."""

from __future__ import annotations  # or the classes would load stats

import difflib
from collections import Counter
from dataclasses import dataclass

from . import ends, loose, steps
from .base import BadInput, later

stats, = later(f"{__package__}.stats")

DEFAULT = "step"


@dataclass
class Metric:
    """A figure of a run."""

    title: str
    unit: str
    factor: float  # to the unit
    of: object  # run -> figure, None: absent
    words: tuple = ("higher", "lower")
    lower_is_better: bool = True
    per_seed: bool = False  # runs of one seed repeat each other and count once


def result(key):
    return lambda run: run.info["results"].get(key)


METRICS = {
    "step": Metric("step time", "ms", 1e3, lambda run: run.step_s, ("slower", "faster")),
    "elapsed": Metric("time of the whole run", "s", 1, result("elapsed_s"), ("slower", "faster")),
    "accuracy": Metric("test accuracy", "", 1, result("test_accuracy"), lower_is_better=False,
                       per_seed=True),
    "loss": Metric("test loss", "", 1, result("test_loss"), per_seed=True),
}


def metric_named(name, sides):
    """A metric of METRICS, or of a column of batches.csv that some run has."""
    if name in METRICS:
        return METRICS[name]
    columns = {column for cells in sides for cell in cells.values() for run in cell.runs
               for column, mean in run.means.items() if mean is not None}
    if name in columns:
        seconds = name.endswith("_s")
        return Metric(f"{name}, mean of a step", "ms" if seconds else "", 1e3 if seconds else 1,
                      lambda run: run.means.get(name), ("more", "less"))
    near = difflib.get_close_matches(name, [*METRICS, *columns], 1)
    raise BadInput(f"metric {name}: no run has such a figure"
                   f"{f' (did you mean {near[0]}?)' if near else ''}: must be "
                   f"{', '.join(METRICS)}, or a column of batches.csv")


def key_of(one, cell, alone):
    return None if alone or one.study is None else one.name, frozenset(cell.levels.items())


def cells_of(results, alone):
    """{key: cell}. Studies match by name; two that are `alone` match under any names."""
    return {key_of(one, cell, alone): cell for one in results for cell in one.cells}


def diverged_of(results, alone):
    """Keys, as in cells_of(), of the cells with diverged runs."""
    return {key_of(one, cell, alone) for one in results for cell in one.cells + one.empty
            if any(lost.cell == cell.name for lost in one.ended(ends.DIVERGED))}


def title(key, *cells):
    """The label of the cells, or if both sides call theirs otherwise all levels."""
    study, levels = key
    labels = {cell.label for cell in cells}
    text = labels.pop() if len(labels) == 1 else \
        ", ".join(f"{factor}={level}" for factor, level in sorted(levels)) or "all runs"
    return f"{study}: {text}" if study else text


# ---- what else differs ----

def facts(run):
    """Possible causes of a difference between two runs."""
    info = run.info
    machine, mpi = info["machine"], info["mpi"]
    more = loose.facts(info)
    return {
        "version": info["version"],
        "commit": more["commit"],
        "host names": ", ".join(machine["hosts"]),
        "cpu": machine["cpu"],
        "cores": loose.text(machine["cores_usable"]),
        "oversubscribed": "yes" if machine["oversubscribed"] else "no",
        "kernels": machine.get("gemm", "absent"),
        "MPI": f"{' '.join(mpi['library'].split())}, {mpi['thread_level']}",
        "data": f"{info['data']['source']}, {info['data']['hash']}" if "data" in info else "absent",
        **more,
    }


def said(runs):
    """{fact: its values over the runs, as one text}."""
    values = {}
    for run in runs:
        for name, value in facts(run).items():
            values.setdefault(name, set()).add(value)
    return {name: " or ".join(sorted(some)) for name, some in values.items()}


def differences(pairs):
    """Lines on the facts that differ between both sides of some cell."""
    found = {}
    for a, b in pairs.values():
        left, right = said(a.runs), said(b.runs)
        for name in [*left, *(name for name in right if name not in left)]:
            change = left.get(name, "absent"), right.get(name, "absent")
            if change[0] != change[1]:
                found.setdefault(name, {}).setdefault(change, []).append(a)
    return [f"{name}: {left} -> {right}"
            + (f" ({len(cells)} of {len(pairs)} cells)" if len(cells) < len(pairs) else "")
            for name, changes in found.items() for (left, right), cells in changes.items()]


# ---- figures ----

def in_turn(a, b):
    """Whether the runs are pairs: the n-th of both sides ran before any later one of either."""
    if len(a) != len(b):
        return False
    starts = [[run.info["started_utc"] for run in pair] for pair in zip(a, b)]
    return all(max(now) <= min(then) for now, then in zip(starts, starts[1:]))


def by_start(cell):
    return sorted(cell.runs, key=lambda run: run.info["started_utc"])


def figures_of(metric, pairs):
    """({key: figures of A, of B}, whether those of equal index are pairs)."""
    if metric.per_seed:
        sides = {key: tuple(stats.by_seed((run.info["seed"], metric.of(run)) for run in cell.runs)
                            for cell in pair) for key, pair in pairs.items()}
        figures = {key: tuple(list(side.values()) for side in both) for key, both in sides.items()}
        return figures, all(a.keys() == b.keys() for a, b in sides.values())
    runs = {key: tuple(map(by_start, pair)) for key, pair in pairs.items()}
    figures = {key: tuple([metric.of(run) for run in side] for side in both)
               for key, both in runs.items()}
    return figures, all(in_turn(*both) for both in runs.values()) and \
        all(None not in side for both in figures.values() for side in both)


@dataclass
class Row:
    """One cell on both sides."""

    title: str
    a: stats.Interval
    b: stats.Interval
    comparison: stats.Comparison
    regressed: bool
    marks: list


@dataclass
class Both:
    """All that is printed."""

    metric: Metric
    rows: list
    differences: list
    only: tuple  # titles of the cells that one side alone has
    failed: tuple  # lines on each side's runs without figures
    ended: list  # how the runs of each side ended, where some have no figures
    lost: list  # titles of the cells that finish in A and diverge in B
    paired: bool


def worse(metric, comparison, threshold):
    """Whether the comparison shows a change for the worse beyond the threshold."""
    if not comparison.differs:
        return False
    ratio = comparison.interval.value
    return ratio > 1 + threshold if metric.lower_is_better else ratio < 1 - threshold


def modelled(name, run):
    return "_model_" in name or "_twin_" in name or \
        run.info["sources"].get(name, "").startswith("modelled")


def marks(name, runs):
    """The marks of a figure of some runs."""
    found = {mark for run in runs for mark in run.marks}
    if any(modelled(name, run) for run in runs):
        found.add("modelled, not measured")
    return sorted(found)


def compare(results_a, results_b, name, threshold):
    """Both sides matched and judged; BadInput if nothing matches."""
    alone = all(sum(bool(one.study or one.cells) for one in side) == 1
                for side in (results_a, results_b))
    a, b = (cells_of(results, alone) for results in (results_a, results_b))
    keys = [key for key in a if key in b]
    if not keys:
        raise BadInput("no cell is in both: A has "
                       f"{title(next(iter(a)))}; B has {title(next(iter(b)))}")
    metric = metric_named(name, (a, b))
    pairs = {key: (a[key], b[key]) for key in keys}
    if metric not in (METRICS[key] for key in ("elapsed", "accuracy", "loss")):
        steps.refuse_two_kinds(run.info for both in pairs.values() for cell in both for run in cell.runs)
    figures, paired = figures_of(metric, pairs)
    if not any(value is not None for sides in figures.values() for side in sides for value in side):
        raise BadInput(f"metric {name}: no run has this figure")
    unit = "seeds" if metric.per_seed else "runs"
    verdicts = stats.judge({key: stats.log_ratio(*map(stats.numbers, reversed(sides)), paired, unit)
                            for key, sides in figures.items()},
                           f"pairs of {unit}" if paired else unit, metric.words)
    rows = [Row(title(key, *pairs[key]), *map(stats.median_ci, figures[key]), verdicts[key],
                worse(metric, verdicts[key], threshold),
                marks(name, a[key].runs + b[key].runs)) for key in keys]
    return Both(metric, rows, differences(pairs),
                tuple([title(key, side[key]) for key in side if key not in other]
                      for side, other in ((a, b), (b, a))),
                tuple([failure for one in side for failure in troubles(one)]
                      for side in (results_a, results_b)),
                ended_of(results_a, results_b),
                [title(key, a[key]) for key in a
                 if key not in b and key in diverged_of(results_b, alone)], paired)


def ended_of(*sides):
    """A line for each side of which some runs have no figures."""
    counts = [sum((one.counts for one in side), Counter()) for side in sides]
    return [f"{side}: {ends.counted(count)}" for side, count in zip("AB", counts)
            if any(end != ends.DONE for end in count)]


def troubles(results):
    """Lines on the runs without figures."""
    lines = [f"{one.folder}: {one.end}: {one.why}" for one in results.lost]
    lines += [f"{folder}: {ends.LEFT_OUT}: {why}" for folder, why in results.left_out]
    return lines + [f"{folder}: {ends.NOT_RUN}" for folder in results.missing]
