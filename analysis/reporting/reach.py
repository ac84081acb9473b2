"""Time and bytes to a target, run by run and pair by pair. A run reaches it at the first of its tests that has it,
never between two. One that never does has no figure: it is only known to lie above that of its last test, or, if it
diverged, above any. docs/analysis.md describes the rules."""

import math
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy import special

from . import ends, expect, learning, stats
from .base import number
from .info import look

WORDS = {"seconds": ("later", "sooner"), "bytes": ("more bytes", "fewer bytes")}
PLACE = {"seconds": 1, "bytes": 2}  # in a point of learning.curve()
NEVER = math.inf, math.inf


def named(goal):
    """`time to accuracy 0.85`."""
    return f"{'time' if goal.figure == 'seconds' else 'bytes'} to {goal.column} {goal.target:g}"


def goals_of(results):
    """The targets that the study or its reader names, and no other: one that is set by the figures tests nothing."""
    named = [(column, results.hints[f"target_{column}"]) for column in ("accuracy", "loss")
             if f"target_{column}" in results.hints]
    found = [expect.Goal(figure, column, float(target)) for column, target in named for figure in PLACE]
    written = [*(results.hints.get("expect") or {}).values(), *results.expect.values()]
    found += [expect.parse(word).goal for words in written for word in expect.words_of(words) or ()]
    return list(dict.fromkeys(goal for goal in found if goal))


def of_run(run, goal):
    """(figure, what the run is known to have spent without reaching the target: by the test before) of a run; the
    figure is infinite if it never did. None: not measured."""
    points = [(point[PLACE[goal.figure]], point[3]) for point in learning.curve(run, f"test_{goal.column}")]
    if not points or any(spent is None for spent, _ in points):
        return None
    before = 0
    for spent, figure in points:
        if figure >= goal.target if goal.column == "accuracy" else figure <= goal.target:
            return spent, before
        before = spent
    return math.inf, before


def modelled(runs):
    """Whether bytes are, of any of these runs."""
    return any(str(look(run.info, "sources.wire_bytes")).startswith("modelled") for run in runs)


def of_cell(results, cell, goal):
    """{seed: medians of both}: the tests of runs of one seed repeat each other."""
    found = {}
    for run in cell.runs:
        if (reached := of_run(run, goal)) is not None:
            found.setdefault(run.info["seed"], []).append(reached)
    for lost in results.ended(ends.DIVERGED):
        if lost.cell == cell.name and lost.seed is not None:
            found.setdefault(lost.seed, []).append(NEVER)
    return {seed: tuple(map(median, zip(*runs))) for seed, runs in found.items()}


def log(value):
    return -math.inf if value == 0 else math.log(value)


def exp(figure):
    return math.exp(figure) if figure <= stats.MOST_LOG else math.inf


def bounds(one, other):
    """The least and the most that the logarithm of a pair's ratio can be."""
    (figure, spent), (its, its_spent) = one, other
    low = -math.inf if math.isinf(its) else log((figure if math.isfinite(figure) else spent) / its)
    high = math.inf if math.isinf(figure) else log(figure / (its if math.isfinite(its) else its_spent))
    return low, high


@dataclass(frozen=True)
class Bounded:
    """Pairs' log ratios of which some are known to lie between two bounds alone: stands for a stats.LogRatio. The test
    is that of signs, which counts a pair whose bounds lie on both sides of 1 for neither, and the interval that of the
    median by ranks of the bounds; both hold whatever lies between."""

    pairs: tuple  # of (low, high)
    reason = ""

    @property
    def n(self):
        return len(self.pairs)

    def middle(self):
        """Of what the median of the logarithms can be that nearest to 0; None: it may lie on either side."""
        low, high = (median(side) for side in zip(*self.pairs))
        return low if low > 0 or low == high else high if high < 0 else None

    def beyond(self, bound):
        """How many pairs are surely below the bound, and above it."""
        return sum(high < bound for _, high in self.pairs), sum(low > bound for low, _ in self.pairs)

    def chance(self, most, n):
        """Of as many of n pairs on one side, whichever, where none is likelier."""
        return min(1.0, 2 * float(special.bdtr(n - most, n, 0.5)))

    def p(self):
        return self.chance(max(self.beyond(0)), self.n)

    def interval(self, level):
        lows, highs = map(sorted, zip(*self.pairs))
        cut = sum(self.chance(self.n - k, self.n) <= 1 - level for k in range((self.n + 1) // 2))
        if cut == 0:
            return stats.Interval(None, None, None, self.n, "none", f"{self.n} pairs are too few for a test of signs, "
                                  "which it takes where a run does not reach the target", level)
        near = self.middle()
        return stats.Interval(None if near is None else exp(near), exp(lows[cut - 1]), exp(highs[-cut]), self.n,
                              "ranks of pairs, some known by a bound", "", level)

    def least(self, level):
        """Signs say nothing of a size."""

    def more(self, bound, level, most):
        """As of a LogRatio, if the share of pairs on one side of the bound stays."""
        part = max(self.beyond(bound)) / self.n
        for n in range(self.n + 1, self.n + most + 1):
            if self.chance(math.floor(part * n), n) <= level:
                return n - self.n
        return None

    def verdict(self, differs, interval, level, words, what):
        below, above = self.beyond(0)
        if not differs:
            return f"inside the noise of a sign test ({words[1]} in {below} of {self.n} {what}, {words[0]} in {above})"
        times = max(interval.value, 1 / interval.value) if 0 < interval.value < math.inf else math.inf
        size = f"; in the middle {number(times)} times or more" if times < math.inf else ""
        return f"{words[below > above]} in {max(below, above)} of {self.n} {what} (sign test{size})"


def estimate(one, other):
    """What stands for the ratio of {seed: (figure, spent)} of two cells."""
    pairs = [(one[seed], other[seed]) for seed in one if seed in other]
    figures = [figure for pair in pairs for figure, _ in pair]
    if not pairs:
        return stats.LogRatio(reason="it was not measured on both sides")
    if min(spent if math.isinf(figure) else figure for pair in pairs for figure, spent in pair) <= 0:
        return stats.LogRatio(n=len(pairs), reason="a ratio needs figures above 0")
    if math.inf not in figures:
        # As if a run reached it anywhere between two tests: else pairs that are all apart by one test have no spread.
        steps = [1 - before / figure for pair in pairs for figure, before in pair]
        return stats.log_ratio(*(np.array([pair[side][0] for pair in pairs]) for side in (0, 1)), True, "seeds",
                               math.sqrt(sum(step ** 2 for step in steps) / len(pairs) / 12))
    if all(math.inf in (a, b) and a == b for (a, _), (b, _) in pairs):
        return stats.LogRatio(n=len(pairs), reason="the ratio is undefined: neither ever reaches it")
    return Bounded(tuple(bounds(*pair) for pair in pairs))


def counted(sides):
    """`it was not reached with 2 of 5 seeds, against 0 of 5`; "": all reached it."""
    never = [sum(math.isinf(figure) for figure, _ in side.values()) for side in sides]
    if not any(never):
        return ""
    return f"; not reached with {never[0]} of {len(sides[0])} seeds, against {never[1]} of {len(sides[1])}"
