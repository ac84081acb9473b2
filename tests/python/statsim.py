"""Simulated studies: how often the methods of analysis/reporting/stats.py are right.

test_stats.py runs small ones; `/usr/bin/python3 -B tests/python/statsim.py` prints the tables of
docs/analysis.md, which takes some minutes."""

import math
import os
import sys
from functools import cache
from types import SimpleNamespace

import numpy as np
from scipy import special
from scipy import stats as tests

SOURCE = os.environ.get("SOURCE") or os.path.join(os.path.dirname(__file__), "..", "..")
sys.path.insert(0, os.path.join(SOURCE, "analysis"))

from reporting import fits, model, reach, stats, steps, verdicts

KINDS = ("normal", "lognormal", "outliers", "heavy tails")
COUNT = 4000  # studies a figure of the tables: one of 95% is then known to 0.35% (standard error)
SPREAD = 0.02  # standard deviation of the logarithms of a cell's runs, but for outliers and tails


def noise(kind, shape, random):
    """Logarithms of what a run takes, relative to what its cell does."""
    z = random.standard_normal(shape)
    if kind == "normal":  # of the times themselves
        return np.log1p(SPREAD * z)
    if kind == "lognormal":  # skewed visibly: one run in six takes 1.6 times the median
        return 0.5 * z
    if kind == "outliers":  # one run in ten is disturbed and takes 1.35 times as long
        return SPREAD * z + np.where(random.random(shape) < 0.1, 0.3, 0.0)
    if kind == "heavy tails":
        return 0.6 * SPREAD * random.standard_t(3, shape)
    raise ValueError(kind)


@cache
def truth(kind):
    """Median of the figures."""
    if kind != "outliers":
        return 1.0
    return float(np.exp(np.median(noise(kind, 4_000_000, np.random.default_rng(0)))))


def median_coverage(kind, n, count, seed=1):
    """Share of intervals that hold the true median."""
    values = np.exp(noise(kind, (count, n), np.random.default_rng(seed)))
    right = truth(kind)
    intervals = [stats.median_ci(row) for row in values]
    return np.mean([interval.low <= right <= interval.high for interval in intervals])


def ratio_coverage(kind, n, count, paired, seed=1):
    """Share of intervals of a ratio that hold the true one, 1.05."""
    random = np.random.default_rng(seed)
    block = 0.1 * random.standard_normal((count, n)) if paired else 0.0
    values, baseline = (np.exp(block + noise(kind, (count, n), random)) for _ in range(2))
    intervals = [stats.ratio_ci(1.05 * a, b, paired) for a, b in zip(values, baseline)]
    return np.mean([interval.low <= 1.05 <= interval.high for interval in intervals])


def studies(kind, cells, blocks, count, effects=(), paired=True, seed=1):
    """The comparisons of `count` studies: cells with the baseline, all alike but for `effects`
    (ratios of the first ones). Each block is some 10% faster or slower than the others, if `paired`; cells
    differ in how noisy they are."""
    random = np.random.default_rng(seed)
    ratios = np.ones(cells)
    ratios[1:len(effects) + 1] = effects
    for _ in range(count):
        logs = noise(kind, (cells, blocks), random) * np.linspace(1, 2, cells)[:, None]
        if paired:
            logs = logs + 0.1 * random.standard_normal(blocks)
        figures = np.exp(logs) * ratios[:, None]
        groups = {f"cell {i}": dict(enumerate(row)) for i, row in enumerate(figures)}
        baseline = groups.pop("cell 0")
        yield stats.compare({name: (group, baseline) for name, group in groups.items()},
                            paired=paired)


def flagged(*args, **kwargs):
    """Share of studies that say of any cell that it differs."""
    return np.mean([any(one.differs for one in study.values())
                    for study in studies(*args, **kwargs)])


def pages(cells, blocks, count, paired=True, noisiest=1.0, spread=SPREAD, effect=0.0, seed=1):
    """`count` studies as a page has them. The last cell takes `effect` longer than the others, all of which are
    alike; the noise of a cell grows from `spread` at the first, the baseline, to `noisiest` times that."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        logs = spread * np.linspace(1, noisiest, cells)[:, None] * random.standard_normal((cells, blocks))
        logs += 0.1 * random.standard_normal(blocks) * paired
        logs[-1] += np.log1p(effect)
        runs = [[SimpleNamespace(step_s=float(step_s), block=block if paired else None,
                                 statistic=steps.STEADY, kind=steps.STEADY, info={})
                 for block, step_s in enumerate(row)] for row in np.exp(logs)]
        made = [model.Cell(f"cell {i}", f"cell {i}", {"cell": str(i)}, row, i == 0)
                for i, row in enumerate(runs)]
        yield model.Results("study", ".", None, {}, made, made[0], [], [])


def told_by_one(results):
    """{pair of cells that a page says to differ}: the family of all pairs."""
    judged = verdicts.family_of(results).family.judged
    return {frozenset(pair) for pair, (adjusted, _) in judged.items() if adjusted <= stats.ALPHA}


def told_by_two(results):
    """As it was: all cells against the baseline are one family, all against the best another."""
    found = set()
    for other in (results.baseline, min(results.cells, key=lambda cell: cell.step_s)):
        sides = {cell.name: tuple({run.block or i: run.step_s for i, run in enumerate(one.runs)}
                                  for one in (cell, other)) for cell in results.cells if cell is not other}
        judged = stats.compare(sides, paired=results.cells[0].runs[0].block is not None)
        found |= {frozenset((name, other.name)) for name, one in judged.items() if one.differs}
    return found


def told(how, *args, effect=0.0, **kwargs):
    """Share of pages on which any pair is said to differ; with an effect: the pair that does, of the last
    cell and the baseline."""
    pair = frozenset(("cell 0", f"cell {args[0] - 1}"))
    return np.mean([pair in how(one) if effect else bool(how(one))
                    for one in pages(*args, effect=effect, **kwargs)])


def joint_coverage(kind, cells, blocks, count):
    """Share of studies all of whose intervals hold the true ratio; half the cells differ by 5%."""
    effects = [1.05] * (cells // 2)
    right = dict(zip((f"cell {i}" for i in range(1, cells)), effects + [1.0] * cells))
    return np.mean([all(one.interval.low <= right[name] <= one.interval.high
                        for name, one in study.items())
                    for study in studies(kind, cells, blocks, count, effects)])


def power(kind, blocks, difference, spread, count, family=1, seed=1):
    """How often a difference is seen beside `family` - 1 cells that do not differ; `spread`: of one
    run's logarithm."""
    random = np.random.default_rng(seed)
    scale = spread / (SPREAD if kind == "normal" else noise(kind, 1_000_000, random).std())
    seen = 0
    for _ in range(count):
        logs = scale * noise(kind, (family + 1, blocks), random)
        logs[1] += np.log1p(difference)
        baseline, *groups = (dict(enumerate(np.exp(row))) for row in logs)
        seen += stats.compare({i: (group, baseline) for i, group in enumerate(groups)})[0].differs
    return seen / count


def bounded(blocks, count, budget, seed=1):
    """Share of studies of two equal cells that say a difference. A run that takes more than `budget` does not reach its
    target."""
    random = np.random.default_rng(seed)
    told = 0
    for _ in range(count):
        logs = noise("normal", (2, blocks), random) + 0.1 * random.standard_normal(blocks)
        sides = [{i: (figure, figure) if figure <= budget else (math.inf, budget) for i, figure in enumerate(row)}
                 for row in np.exp(logs)]
        told += stats.judge({0: reach.estimate(*sides)}, "seeds")[0].differs is True
    return told / count


def drift_flagged(kind, cells, blocks, count, block_effect=0.0, rise=0.0, seed=1):
    """Share of studies with a flag; `rise`: relative, from the first run to the last."""
    random = np.random.default_rng(seed)
    raised = 0
    for _ in range(count):
        logs = noise(kind, (blocks, cells), random)
        logs += block_effect * random.standard_normal((blocks, 1))
        order = random.permuted(np.tile(np.arange(cells), (blocks, 1)), axis=1).ravel()
        figures = np.exp(np.take_along_axis(logs, order.reshape(blocks, cells), axis=1).ravel())
        figures *= np.linspace(1, 1 + rise, len(figures))
        raised += stats.drift(list(zip(order, figures))).raised
    return raised / count


def walls(steps, correlation, random):
    """Steps of a run that resemble their neighbours: autoregressive noise of 5%."""
    shocks = 0.05 * np.sqrt(1 - correlation**2) * random.standard_normal(steps + 200)
    series = np.zeros(steps + 200)
    for i in range(1, len(series)):
        series[i] = correlation * series[i - 1] + shocks[i]
    return np.exp(series[200:])


def serial_coverage(law, serial, n, workers, count, seed=1):
    """Share of intervals of the serial fraction that hold it; runs have SPREAD."""
    random = np.random.default_rng(seed)
    held = 0
    for _ in range(count):
        seconds = {p: (1 if law == "Amdahl" else p) / fits.LAWS[law][0](serial, p)
                   * np.exp(SPREAD * random.standard_normal(n)) for p in workers}
        interval = fits.fit(law, seconds).serial
        held += interval.low <= serial <= interval.high
    return held / count


# ---- tests that might have been taken for paired comparisons: p of each row of log ratios ----

def t_test(logs):
    return tests.ttest_1samp(logs, 0, axis=1).pvalue


def trimmed_t(logs):
    """Yuen's, without a fifth at either end."""
    n = logs.shape[1]
    cut = n // 5
    kept = np.sort(logs, axis=1)[:, cut:n - cut]
    # Winsorised: what is cut off counts as its inner neighbour.
    wide = np.concatenate([kept[:, :1]] * cut + [kept] + [kept[:, -1:]] * cut, axis=1)
    error = wide.std(axis=1, ddof=1) / ((1 - 2 * cut / n) * np.sqrt(n))
    return 2 * special.stdtr(n - 2 * cut - 1, -np.abs(kept.mean(axis=1)) / error)


def signed_rank(logs):
    return tests.wilcoxon(logs, axis=1, method="exact").pvalue


def bootstrap_t(logs, resamples=999):
    random, n = np.random.default_rng(1), logs.shape[1]
    mean, error = logs.mean(axis=1), logs.std(axis=1, ddof=1)
    beyond = np.zeros(len(logs))
    for _ in range(resamples):
        drawn = np.take_along_axis(logs, random.integers(0, n, logs.shape), axis=1)
        apart, scale = np.abs(drawn.mean(axis=1) - mean), drawn.std(axis=1, ddof=1)
        beyond += apart * error >= np.abs(mean) * scale  # without spread: beyond any edge
    return (beyond + 1) / (resamples + 1)


def candidates(test, level, difference, count=COUNT):
    """Share of cells found to differ, by kind of noise, for 5 and for 10 runs."""
    random = np.random.default_rng(1)
    return [np.mean(test(noise(kind, (count, n), random) - noise(kind, (count, n), random)
                         + np.log1p(difference)) <= level)
            for n in (5, 10) for kind in ("normal", "outliers", "heavy tails")]


def table(title, columns, rows):
    print(f"\n{title}\n\n| {' | '.join(map(str, columns))} |\n|{'---|' * len(columns)}")
    for name, figures in rows:
        print(f"| {name} | " + " | ".join(f"{100 * figure:.1f}" for figure in figures) + " |",
              flush=True)


def main():
    few = (3, 4, 5, 6, 7, 8, 10, 15, 20)
    table("Coverage of the median's interval, %", ["runs", *few],
          ((kind, [median_coverage(kind, n, COUNT) for n in few]) for kind in KINDS))
    for paired in (True, False):
        table(f"Coverage of a ratio's interval, %; paired: {paired}", ["runs", *few],
              ((kind, [ratio_coverage(kind, n, COUNT, paired) for n in few]) for kind in KINDS))
    for level, difference in ((0.05, 0), (0.05, 0.05), (0.05 / 7, 0), (0.05 / 7, 0.05)):
        table(f"Found by candidate tests, %: level {level:.3g}, difference {difference:.0%}",
              ["", *(f"{n}, {kind}" for n in (5, 10)
                     for kind in ("normal", "outliers", "heavy tails"))],
              ((test.__name__, candidates(test, level, difference))
               for test in (t_test, trimmed_t, signed_rank, bootstrap_t)))
    few = (3, 5, 7, 10)
    for paired in (True, False):
        table(f"Studies of 8 equal cells that flag any, %; paired: {paired}", ["runs", *few],
              ((kind, [flagged(kind, 8, n, COUNT, paired=paired) for n in few])
               for kind in KINDS))
    table("Studies of 8 cells all of whose intervals hold, %; 4 differ by 5%", ["runs", *few],
          ((kind, [joint_coverage(kind, 8, n, COUNT) for n in few]) for kind in KINDS))
    for effect, spread, noisiest in ((0, SPREAD, 1), (0, SPREAD, 5), (0.1, 0.05, 1)):
        for paired in (True, False):
            table(f"Pages, %: two families, one; paired: {paired}, noisiest cell {noisiest} times, "
                  f"difference {effect:.0%} at {spread:.0%}", ["cells", *(f"{n} runs" for n in (3, 5, 10) for _ in "12")],
                  ((cells, [told(how, cells, n, COUNT // 2, paired, noisiest, spread, effect=effect)
                            for n in (3, 5, 10) for how in (told_by_two, told_by_one)])
                   for cells in (2, 3, 5, 8, 12)))
    for family in (1, 7):
        table(f"Power for 5%, %; runs' spread 1.5%, {family} compared", ["runs", *few],
              ((kind, [power(kind, n, 0.05, 0.015, COUNT, family) for n in few])
               for kind in KINDS))
        print("| predicted at least 80 for |", " | ".join(
            f"{100 * stats.mdd(0.015 * 2**0.5, n, stats.ALPHA / family):.1f}" for n in few), "|")
    table("Studies flagged for drift, %: 8 cells", ["", *few],
          ((name, [drift_flagged("normal", 8, n, COUNT, *how) for n in few])
           for name, how in (("none", (0, 0)), ("blocks differ by 2%", (0.02, 0)),
                             ("rise by 5%", (0, 0.05)))))
    for law in fits.LAWS:
        table(f"{law}: coverage of f = 0.08, %", ["runs", *few],
              ((f"{workers} workers", [serial_coverage(law, 0.08, n, workers, COUNT // 2) for n in few])
               for workers in ((1, 2, 4), (1, 2, 4, 8))))


if __name__ == "__main__":
    main()
