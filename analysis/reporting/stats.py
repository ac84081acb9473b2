"""The statistics of repeated runs. docs/analysis.md describes the methods and the simulations behind
them.

The unit is a run with one figure, such as its step time. Steps of one run are not independent, so no
interval is over them. Random numbers have fixed seeds."""

import bisect
import math
import sys
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np
from scipy import special

from .base import number, telling

LEVEL = 0.95  # of intervals
ALPHA = 0.05  # chance of any false positive in a family of comparisons
PLANNED = 0.80  # of ALPHA, for the comparisons that a study was made for
POWER = 0.80  # chance of detecting a difference of the size that verdicts state
LEAST = 3  # runs for an interval or a test: with fewer the spread is unknown
MOST_MORE = 200  # further pairs: a comparison that takes more counts as one that cannot be decided
LEAST_BOOTSTRAP = 5  # runs for a bootstrap: the range of fewer covers the median too rarely
RESAMPLES = 10000
DRIFT_RUNS = 0.01  # p below which a trend over the order of the runs is flagged
DRIFT_STEPS = 0.001, 0.02  # the same within a run, and the least change
PIECES = 10  # of a third of a run
VAST = 99  # a relative difference that nothing here has
FACTOR = 1.5  # larger ratios are written as factors
MOST_LOG = math.log(sys.float_info.max)  # of a ratio that is a number, and its inverse too
OUTLIER = 0.01  # chance that any of a cell's runs is flagged although the noise is normal


@dataclass(frozen=True)
class Interval:
    """A figure; low and high are None where `reason` says why there is no interval."""

    value: float | None
    low: float | None
    high: float | None
    n: int  # runs, or pairs of runs
    method: str
    reason: str = ""
    level: float = LEVEL

    def of(self, change):
        """The same with change(figure) for the value and both ends."""
        return replace(self, **{end: None if getattr(self, end) is None else
                                change(getattr(self, end)) for end in ("value", "low", "high")})


@dataclass(frozen=True)
class Comparison:
    """A group of runs against the baseline; interval and verdict always agree."""

    interval: Interval  # ratio value / baseline
    p: float | None  # None: no test
    p_adjusted: float | None  # over the family (Holm): significant if at most ALPHA
    differs: bool | None  # None: unknown
    mdd: float | None  # relative difference detected with a chance of POWER; 0.03: 3%
    n: int
    text: str  # the verdict
    estimate: object  # LogRatio, or what stands for one


def numbers(values):
    """The finite figures as an array; None: absent."""
    array = np.array(list(values), dtype=float)
    return array[np.isfinite(array)]


def _known(figure):
    return figure is not None and math.isfinite(figure)


def by_seed(figures):
    """{seed: median} of [(seed, figure)]: runs of one seed repeat a figure that follows from the
    seed, such as the accuracy, to the last digit."""
    seeds = {}
    for seed, figure in figures:
        if _known(figure):
            seeds.setdefault(seed, []).append(figure)
    return {seed: float(np.median(values)) for seed, values in sorted(seeds.items())}


@cache
def _middles(n):
    """The indices of the two middle values in each resample of n sorted values."""
    drawn = np.sort(np.random.default_rng(n).integers(0, n, (RESAMPLES, n)), axis=1)
    return drawn[:, (n - 1) // 2], drawn[:, n // 2]


def percentiles(resampled, n, freedom):
    """Ends of the bootstrap interval of a figure's resampled values; `freedom`: of its spread. The tails
    are expanded (Hesterberg, The American Statistician 2015), since resamples vary less than samples
    and a few values say little about their spread."""
    edge = special.stdtrit(freedom, (1 + LEVEL) / 2)
    tail = special.ndtr(-np.sqrt(n / (n - 1)) * edge)
    return np.quantile(resampled, [tail, 1 - tail], method="inverted_cdf")


def median_ci(values):
    """Interval of the median over runs."""
    values = np.sort(numbers(values))
    n = len(values)
    if n == 0:
        return Interval(None, None, None, 0, "none", "no run has this figure")
    median = float(values[(n - 1) // 2] + values[n // 2]) / 2
    if n < LEAST:
        return Interval(median, None, None, n, "none", too_few(n, "runs"))
    if n < LEAST_BOOTSTRAP:
        positive = values[0] > 0
        low, high = _t_interval(np.log(values) if positive else values, LEVEL)
        if positive:
            low, high = np.exp((low, high))
        # Despite rounding, the interval of equal values must include their median.
        return Interval(median, float(min(low, median)), float(max(high, median)), n,
                        "t interval" + (" of logarithms" if positive else ""))
    first, second = _middles(n)
    low, high = percentiles((values[first] + values[second]) / 2, n, n - 1)
    return Interval(median, float(low), float(high), n, "bootstrap")


def mean_ci(values):
    """Interval of the mean of figures of pairs of runs."""
    values = numbers(values)
    if len(values) < LEAST:
        value = float(values.mean()) if len(values) else None
        return Interval(value, None, None, len(values), "none", too_few(len(values), "pairs"))
    low, high = _t_interval(values, LEVEL)
    return Interval(float(values.mean()), float(low), float(high), len(values), "t interval")


def too_few(n, what):
    return f"{n} {what if n != 1 else what[:-1]}: at least {LEAST} are needed to know the spread"


def _t_interval(values, level):
    n = len(values)
    half = special.stdtrit(n - 1, (1 + level) / 2) * values.std(ddof=1) / np.sqrt(n)
    return values.mean() - half, values.mean() + half


@lru_cache(maxsize=1024)
def _edge(freedom, chance):
    """Quantile of Student's t."""
    return float(special.stdtrit(freedom, chance))


@dataclass(frozen=True)
class LogRatio:
    """Difference of logarithms: mean, standard error, degrees of freedom; or why there is none."""

    mean: float = 0.0
    error: float = 0.0
    freedom: float = 0.0
    n: int = 0
    method: str = ""
    reason: str = ""
    ratio: float | None = None  # where there is a point, but no interval

    def turned(self):
        """The same of the inverse ratio."""
        return replace(self, mean=0.0 - self.mean, ratio=self.ratio and 1 / self.ratio)

    def p(self):
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return float(2 * special.stdtr(self.freedom, -abs(self.mean) / self.error))

    def interval(self, level):
        if self.reason:
            return Interval(self.ratio, None, None, self.n, "none", self.reason, level)
        half = self.error and -_edge(self.freedom, (1 - level) / 2) * self.error
        ends = [math.exp(log) if abs(log) <= MOST_LOG else None
                for log in (self.mean, self.mean - half, self.mean + half)]
        if None in ends:
            return Interval(ends[0], None, None, self.n, "none",
                            "the interval leaves the range of numbers", level)
        return Interval(*ends, self.n, self.method, "", level)

    def middle(self):
        """The logarithm of the ratio."""
        return self.mean

    def least(self, level):
        """The relative difference that is detected with a chance of POWER."""
        return float(np.expm1(min(_noncentrality(round(self.freedom, 2), level) * self.error, MOST_LOG)))

    def more(self, bound, level, most):
        """How many further pairs tell the logarithm from `bound` with a chance of POWER, if it and the spread are
        those found so far; None: more than `most`."""
        def enough(more):
            n = self.n + more
            return _noncentrality(float(n - 1), level) * self.error * math.sqrt(self.n / n) <= abs(self.mean - bound)
        at = bisect.bisect_left(range(1, most + 1), True, key=enough)
        return at + 1 if at < most else None

    def verdict(self, differs, interval, level, words, what):
        if interval.low == interval.high == 1:
            return f"equal in all {self.n} {what}"
        if differs:
            return difference(interval, words)
        least = self.least(level)
        apart = math.expm1(min(self.error * math.sqrt(self.n), MOST_LOG))
        why = f"the runs do not repeat, a ratio of two varies by {size(apart)}: " if apart >= FACTOR - 1 else ""
        seen = f"a difference below {size(least)} cannot" if least < VAST else "no difference can"
        return f"inside the noise ({why}{seen} be seen with {self.n} {what})"


def log_ratio(values, baseline, paired, what="runs", coarse=0.0):
    """LogRatio of two arrays, whose elements are pairs of `what` if paired; `coarse`: the least spread of pairs that are
    not all equal, by how finely the figures are known."""
    found = _log_ratio(values, baseline, paired, what)
    if found.mean != 0 and not found.reason:
        found = replace(found, error=max(found.error, coarse / math.sqrt(found.n)))
    return found


def _log_ratio(values, baseline, paired, what):
    n = len(values) if paired else min(len(values), len(baseline))
    if n == 0:
        return LogRatio(reason=f"no pairs of {what}" if paired else f"no {what} on one side")
    if min(values.min(), baseline.min()) <= 0:
        return LogRatio(n=n, reason="a ratio needs figures above 0")
    a, b = np.log(values), np.log(baseline)
    mean = _but_rounding(_mean(a - b) if paired else _mean(a) - _mean(b))
    if n < LEAST:
        return LogRatio(n=n, reason=too_few(n, "pairs" if paired else what), ratio=np.exp(mean))
    if paired:
        spread = _spread(a - b)
        return LogRatio(mean, spread / np.sqrt(n), n - 1, n, "paired t interval of log ratios")
    parts = _spread(a) ** 2 / len(a), _spread(b) ** 2 / len(b)
    total = sum(parts)
    freedom = n - 1.0
    if total > 0:  # Welch (Biometrika 1947): the sides may have different noise
        freedom = total**2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    return LogRatio(mean, float(np.sqrt(total)), freedom, n, "Welch's t interval of logarithms")


def _mean(logs):
    return float(np.add.reduce(logs)) / len(logs)  # .mean() and .std() take four times as long on a few


def _spread(logs):
    apart = logs - _mean(logs)
    return _but_rounding(math.sqrt(apart @ apart / (len(logs) - 1)))


def _but_rounding(log):
    """0 if only rounding differs, as between counts of bytes."""
    return float(log) if abs(log) > 1e-12 else 0.0


def ratio_ci(values, baseline_values, paired=True):
    """Interval of the ratio value / baseline (geometric mean). `paired`: figures of equal index are
    of the same block; a pair with an absent figure is left out."""
    sides = [dict(enumerate(side)) for side in (values, baseline_values)]
    return log_ratio(*matched(*sides, paired), paired).interval(LEVEL)


def holm(p_values, weights=None):
    """(adjusted p, the level at which each is judged), of S. Holm, Scand. J. Statist. 1979, with his
    weights: a comparison's share of ALPHA, here 1 each if None.

    In the order of p / weight each is judged at its share among those that are left, until the first
    that fails; all others fail beside it. So an interval of 1 - level excludes ratio 1 if and only if
    the comparison is significant: verdict and interval are one statement."""
    p_values = np.asarray(p_values, dtype=float)
    weights = np.ones(len(p_values)) if weights is None else np.asarray(weights, dtype=float)
    order = np.argsort(p_values / weights, kind="stable")
    ranked, left = (p_values / weights)[order], np.cumsum(weights[order][::-1])[::-1]
    failed = np.flatnonzero(ranked > ALPHA / left)
    adjusted, levels = np.empty(len(order)), np.empty(len(order))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(ranked * left))
    levels[order] = ALPHA * weights[order] / np.maximum(left, left[failed[0]] if len(failed) else 0)
    return adjusted, levels


@lru_cache(maxsize=1024)
def _spreads(freedom):
    """Of samples with these degrees of freedom, relative to the true one: 4000 equally likely ones."""
    chances = (np.arange(4000) + 0.5) / 4000
    return np.sqrt(2 * special.gammaincinv(freedom / 2, chances) / freedom)


@lru_cache(maxsize=4096)
def _noncentrality(freedom, level):
    """The standard errors of a difference that is detected with a chance of POWER.

    For a given spread, t beyond the edge is the event of a normal deviate; its chance is averaged
    over the spreads. (scipy's noncentral t is NaN in the far tail.)"""
    from scipy import optimize  # this and stats are slow to load, and few figures need them
    edges = -special.stdtrit(freedom, level / 2) * _spreads(freedom)
    return optimize.brentq(lambda delta: special.ndtr(delta - edges).mean() - POWER,
                           0, edges[-1] + 5)


def mdd(spread, n, level=ALPHA):
    """The relative difference that n pairs whose log ratios have this standard deviation detect
    with a chance of POWER, at a significance level."""
    return float(np.expm1(_noncentrality(float(n - 1), float(level)) * spread / np.sqrt(n)))


def compare(sides, paired=True, what="runs", reasons=()):
    """{name: Comparison} of {name: (group, reference)}, each {block: figure}, as one family: the
    chance of any false positive is at most ALPHA. If paired, blocks that one side lacks are left
    out. `what`: runs or seeds. `reasons`: {name: why its figures are not to be compared}."""
    estimates = {name: LogRatio(reason=reasons[name]) if name in reasons else
                 log_ratio(*matched(*both, paired), paired, what)
                 for name, both in sides.items()}
    return judge(estimates, f"pairs of {what}" if paired else what)


def matched(group, reference, paired):
    """Both sides' figures as arrays; if paired, of the blocks that both have."""
    if paired:
        shared = [block for block, figure in group.items()
                  if _known(figure) and _known(reference.get(block))]
        return tuple(np.array([side[block] for block in shared], dtype=float)
                     for side in (group, reference))
    return numbers(group.values()), numbers(reference.values())


class Family:
    """Estimates {name: LogRatio} that are judged together: the chance of any false positive is at most
    ALPHA. `planned`: names of the comparisons that a study was made for; they get PLANNED of it, all
    others the rest. `words`: for figures above and below the reference."""

    def __init__(self, estimates, what, words=("slower", "faster"), planned=()):
        self.estimates, self.what, self.words = estimates, what, words
        tested = [name for name, estimate in estimates.items() if not estimate.reason]
        first = [name in planned for name in tested]
        both = 0 < sum(first) < len(first)
        weights = [(PLANNED / sum(first) if mine else (1 - PLANNED) / (len(first) - sum(first)))
                   if both else 1.0 for mine in first]
        judged = holm([estimates[name].p() for name in tested], weights)
        self.judged = dict(zip(tested, zip(*judged)))

    def of(self, name, turned=False, words=None, what=None):
        """The Comparison; `turned`: of the inverse ratio, with the same verdict. `words`, `what`: its own."""
        estimate = self.estimates[name].turned() if turned else self.estimates[name]
        return _comparison(estimate, *self.judged.get(name, (None, ALPHA)), words or self.words, what or self.what)


def judge(estimates, what, words=("slower", "faster")):
    """{name: Comparison} of a family of estimates."""
    family = Family(estimates, what, words)
    return {name: family.of(name) for name in estimates}


def _comparison(estimate, adjusted, level, words, what):
    interval = estimate.interval(1 - level)
    if interval.reason:
        return Comparison(interval, None, None, None, None, estimate.n, f"cannot be told: {interval.reason}", estimate)
    p = estimate.p()
    differs = bool(p <= level)
    return Comparison(interval, p, float(adjusted), differs, estimate.least(level), estimate.n,
                      estimate.verdict(differs, interval, level, words, what), estimate)


def percent(fraction, *bounds):
    """Two significant digits: 0.0312 is 3.1%, 0.312 is 31%; more where a bound asks for them."""
    value = 100 * fraction
    far = abs(value)
    digits = 0 if far >= 9.95 else 1 if far >= 0.995 or far == 0 else 2
    return telling(value, [100 * bound for bound in bounds], lambda more: f"{value:.{digits + more}f}") + "%"


def size(relative):
    """A relative difference as text: 3.1%, or 2.1x if it is large."""
    return percent(relative) if 1 + relative < FACTOR else f"{number(1 + relative)}x"


def difference(interval, words, *bounds):
    """A ratio as `5.1% slower (2.0..8.3%)`, a large one as `2.1x slower (1.9..2.3x)`; `bounds`: ratios other than 1
    on which its verdict depends."""
    value, low, high = interval.value, interval.low, interval.high
    word = words[0] if value >= 1 else words[1]
    bounds = [1.0, *(bound for bound in bounds if (bound >= 1) == (value >= 1))]
    if 1 / FACTOR < value < FACTOR:
        low, high = sorted((abs(low - 1), abs(high - 1)))
        value, low, high = (percent(part, *(abs(bound - 1) for bound in bounds)) for part in (abs(value - 1), low, high))
        return f"{value} {word} ({low[:-1]}..{high})"
    if value < 1:
        value, low, high, bounds = 1 / value, 1 / high, 1 / low, [1 / bound for bound in bounds]
    value, low, high = (number(part, *bounds) for part in (value, low, high))
    return f"{value}x {word} ({low}..{high}x)"


def sharp(comparison, words, *bounds):
    """Its text, in digits that tell its figures from these ratios, too."""
    if not comparison.differs or comparison.interval.value is None:
        return comparison.text
    return comparison.text.replace(*(difference(comparison.interval, words, *some) for some in ((), bounds)))


@dataclass(frozen=True)
class Flag:
    """A warning about figures, which excludes none."""

    change: float | None = None  # relative; 0.04: 4% more at the end than at the beginning
    p: float | None = None
    text: str = ""  # empty if not raised

    @property
    def raised(self):
        return bool(self.text)


def drift(runs):
    """The Flag for a trend of [(cell, figure)] over the order of the runs.

    Seasonal Kendall test and slope (Hirsch, Slack and Smith, Water Resources Research 1982) with
    cells as seasons: runs are compared only with runs of their own cell."""
    cells = {}
    for order, (cell, value) in enumerate(runs):
        if value is not None and np.isfinite(value) and value > 0:
            cells.setdefault(cell, []).append((order, np.log(value)))
    signs, variance, slopes = 0.0, 0.0, []
    for points in cells.values():
        order, logs = np.array(points).T
        first, second = np.triu_indices(len(order), 1)
        rises = logs[second] - logs[first]
        signs += np.sign(rises).sum()
        variance += len(order) * (len(order) - 1) * (2 * len(order) + 5) / 18
        slopes.append(rises / (order[second] - order[first]))
    if variance == 0:
        return Flag()
    z = max(0.0, abs(signs) - 1) / np.sqrt(variance)
    p = float(2 * special.ndtr(-z))
    change = float(np.expm1(np.median(np.concatenate(slopes)) * (len(runs) - 1)))
    text = ""
    if p <= DRIFT_RUNS:
        text = (f"drift: from the first run to the last the figures became {percent(abs(change))} "
                f"{'larger' if change > 0 else 'smaller'} (seasonal Kendall test, p = {p:.1g})")
    return Flag(change, p, text)


def drift_within(walls):
    """The Flag for a difference between the first and the last third of a run's steps. Neighbouring
    steps are correlated, so the medians of PIECES pieces represent each third."""
    walls = numbers(walls)
    third = len(walls) // 3 // PIECES * PIECES
    first, last = walls[:third], walls[-third:]
    if third < 3 * PIECES or np.median(first) <= 0:
        return Flag()
    change = float(np.median(last) / np.median(first) - 1)
    from scipy import stats
    medians = [np.median(part.reshape(PIECES, -1), axis=1) for part in (first, last)]
    p = float(stats.mannwhitneyu(*medians, method="asymptotic").pvalue)
    text = ""
    if p <= DRIFT_STEPS[0] and abs(change) >= DRIFT_STEPS[1]:
        text = (f"drift: steps of the last third take {percent(abs(change))} "
                f"{'longer' if change > 0 else 'shorter'} than those of the first")
    return Flag(change, p, text)


@cache
def fence(n):
    """The distance from the median, in MADs times 1.4826 (the standard deviation of normal noise),
    that any of n normal values exceeds with a chance of OUTLIER."""
    noise = np.random.default_rng(n).standard_normal((RESAMPLES, n))
    apart = np.abs(noise - np.median(noise, axis=1)[:, None])
    return float(np.quantile(apart.max(axis=1) / np.median(apart, axis=1) / 1.4826, 1 - OUTLIER))


def outliers(values):
    """For each figure whether it lies beyond the fence; None counts as inside, and so do fewer than
    LEAST_BOOTSTRAP figures."""
    array, known = np.array(list(values), dtype=float), numbers(values)
    if len(known) < LEAST_BOOTSTRAP:
        return np.zeros(len(array), dtype=bool)
    median = np.median(known)
    scale = 1.4826 * np.median(np.abs(known - median))
    # If most figures are equal (counts), a tiny difference does not make an outlier.
    least = max(fence(len(known)) * scale, 1e-9 * abs(median))
    return np.abs(array - median) > least
