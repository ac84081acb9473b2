"""Laws of scaling, fitted to repeated runs on 1, 2, 4, ... workers.

Amdahl (G. M. Amdahl, AFIPS 1967), the same work on P workers: S(P) = 1 / (f + (1 - f) / P), f the
share of the time on 1 worker that does not scale. Gustafson (J. L. Gustafson, Communications of
the ACM 1988), P times the work on P workers: S(P) = P - f (P - 1), f the share on P workers.
Both have one parameter and are fitted by least squares of relative residuals, since the noise of
times is relative. Each fit has a closed form, so the bootstrap does thousands at once. With
a single number of workers above 1 any law fits exactly (the serial fraction of A. H. Karp and H. P. Flatt,
Communications of the ACM 1990), so none is fitted."""

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from . import stats

RESAMPLES = 4000


class NotFitted(Exception):
    """Why there is no fit: one sentence."""


@dataclass(frozen=True)
class Fit:
    """The best fit of a law to the speedups."""

    law: str  # "Amdahl" or "Gustafson"
    serial: stats.Interval  # f; below 0: faster than linear, which the law excludes
    points: dict  # workers -> speedup of the medians, of the fitted ones
    misfit: float  # largest relative distance of a point from the law
    text: str

    def speedup(self, workers):
        """By the law, for a number or an array of workers."""
        return LAWS[self.law][0](self.serial.value, np.asarray(workers, dtype=float))


LAWS = {  # law: (S(f, P), the slope in f of the residual 1 - E - f slope, for E(P) = S(P) / P)
    # law's time / measured time - 1 = E - 1 + f E (P - 1)
    "Amdahl": (lambda f, workers: 1 / (f + (1 - f) / workers),
               lambda efficiency, workers: efficiency * (workers - 1)),
    # law's speedup / P - E = 1 - E - f (1 - 1/P)
    "Gustafson": (lambda f, workers: workers - f * (workers - 1),
                  lambda efficiency, workers: 1 - 1 / workers)}


def _serial(law, efficiency, workers):
    """f of efficiencies E(P) along the last axis."""
    slope = LAWS[law][1](efficiency, workers)
    return ((1 - efficiency) * slope).sum(axis=-1) / (slope * slope).sum(axis=-1)


def _chosen(seconds, oversubscribed):
    """{workers: figures} that a fit may use: where workers take turns on the cores, that is not a
    serial part."""
    known = {int(workers): stats.numbers(runs) for workers, runs in sorted(seconds.items())}
    left_out = {workers for workers in oversubscribed if len(known.get(workers, ()))}
    used = {workers: runs for workers, runs in known.items() if len(runs) and workers not in left_out}
    if 1 not in used:
        raise NotFitted("No runs on 1 worker, the reference of speedups"
                        + (" (they are oversubscribed)." if 1 in left_out else "."))
    if len(used) < 3:
        raise NotFitted(f"{'No' if len(used) == 1 else 'One'} number of workers above 1"
                        f"{', without the oversubscribed ones' if left_out else ''}: a law takes two.")
    return used


@lru_cache(maxsize=8)
def _draws(counts):
    """The indices of the resamples of this many runs each."""
    random = np.random.default_rng(1)
    return [random.integers(0, n, (RESAMPLES, n)) for n in counts]


def _resampled(groups):
    """Medians of resamples of each group of runs."""
    for runs, drawn in zip(groups, _draws(tuple(map(len, groups)))):
        ranked, n = np.sort(runs[drawn], axis=1), len(runs)
        yield (ranked[:, (n - 1) // 2] + ranked[:, n // 2]) / 2


def fit(law, seconds, oversubscribed=()):
    """The Fit to {workers: seconds of each run}; raises NotFitted.

    The interval is over repetitions: runs of each number of workers are drawn anew, including those
    on 1 worker, which all speedups share."""
    used = _chosen(seconds, oversubscribed)
    workers = np.array([count for count in used if count > 1], dtype=float)
    # Strong scaling: E = T(1) / (P T(P)). Weak: each worker has its own work, so E = T(1) / T(P).
    shares = workers if law == "Amdahl" else np.ones(len(workers))
    medians = np.array([np.median(used[count]) for count in workers])
    efficiency = np.median(used[1]) / medians / shares
    value = float(_serial(law, efficiency, workers))
    n = min(map(len, used.values()))
    serial = stats.Interval(value, None, None, n, "none", stats.too_few(n, "runs"))
    if n >= stats.LEAST:
        first, *others = _resampled([used[1], *(used[count] for count in workers)])
        freedom = sum(len(runs) - 1 for runs in used.values())
        low, high = stats.percentiles(_serial(law, first[:, None] / np.stack(others, axis=1) / shares,
                                              workers), n, freedom)
        serial = stats.Interval(value, float(low), float(high), n, "bootstrap")
    points = dict(zip(map(int, workers), map(float, efficiency * workers)))
    misfit = float(np.max(np.abs(efficiency * workers / LAWS[law][0](value, workers) - 1)))
    return Fit(law, serial, points, misfit, _text(law, serial, misfit))


def _text(law, serial, misfit):
    ends = "" if serial.low is None else \
        f" ({stats.percent(serial.low)[:-1]}..{stats.percent(serial.high)})"
    text = (f"{law}: serial fraction {stats.percent(serial.value)}{ends}; the points lie within "
            f"{stats.percent(misfit)} of the law")
    if serial.value < 0:
        text += "; below 0: faster than linear, which the law excludes"
    if serial.value > 1:
        text += "; above 100%: slower than 1 worker, which the law excludes"
    return text


amdahl = partial(fit, "Amdahl")  # strong scaling: the same work on more workers
gustafson = partial(fit, "Gustafson")  # weak scaling: work that grows with the workers
