"""Laws of scaling, fitted to repeated runs on 1, 2, 4, ... workers.

Amdahl (G. M. Amdahl, AFIPS 1967), the same work on P workers: S(P) = 1 / (f + (1 - f) / P), f the
share of the time on 1 worker that does not scale. Gustafson (J. L. Gustafson, Communications of
the ACM 1988), P times the work on P workers: S(P) = P - f (P - 1), f the share on P workers.
Both have one parameter and are fitted by least squares of relative residuals, since the noise of
times is relative. Each has a closed form, so that the bootstrap fits thousands of times at once.
One number of workers above 1 is met exactly by some f: the serial fraction then is that of A. H.
Karp and H. P. Flatt (Communications of the ACM 1990), which measures and cannot test the law."""

from dataclasses import dataclass

import numpy as np

from reporting import stats

RESAMPLES = 4000
OVERSUBSCRIBED = "oversubscribed: its workers take turns on the cores, which is no serial part"


class NotFitted(Exception):
    """Why there is no fit: one sentence."""


@dataclass(frozen=True)
class Fit:
    """A law that describes the speedups as well as it can."""

    law: str  # "Amdahl" or "Gustafson"
    serial: stats.Interval  # f; below 0: faster than linear, which the law does not know
    points: dict  # workers -> speedup of the medians, of those that were fitted
    left_out: dict  # workers -> why
    misfit: float | None  # largest relative distance of a point from the law; None: a single point
    text: str

    def speedup(self, workers):
        """Of the law, for a number or an array of workers."""
        return LAWS[self.law][0](self.serial.value, np.asarray(workers, dtype=float))


def _amdahl(f, workers):
    return 1 / (f + (1 - f) / workers)


def _amdahl_slope(efficiency, workers):
    # law's time / measured time - 1 = E - 1 + f E (P - 1): linear in f
    return 1 - efficiency, efficiency * (workers - 1)


def _gustafson(f, workers):
    return workers - f * (workers - 1)


def _gustafson_slope(efficiency, workers):
    # law's speedup / P - E = 1 - E - f (1 - 1/P)
    return 1 - efficiency, 1 - 1 / workers


LAWS = {"Amdahl": (_amdahl, _amdahl_slope), "Gustafson": (_gustafson, _gustafson_slope)}


def _serial(law, efficiency, workers):
    """f of efficiencies E(P) along the last axis."""
    lost, slope = LAWS[law][1](efficiency, workers)
    return (lost * slope).sum(axis=-1) / (slope * slope).sum(axis=-1)


def _chosen(seconds, oversubscribed):
    """({workers: figures} that a fit may use, {workers: why not})."""
    known = {int(workers): stats.numbers(runs) for workers, runs in seconds.items()}
    known = {workers: runs for workers, runs in sorted(known.items()) if len(runs)}
    left_out = {workers: OVERSUBSCRIBED for workers in known if workers in oversubscribed}
    used = {workers: runs for workers, runs in known.items() if workers not in left_out}
    if 1 not in used:
        raise NotFitted("No runs on 1 worker, which speedups are relative to"
                        + (" (they are oversubscribed)." if 1 in left_out else "."))
    if len(used) < 2:
        raise NotFitted("No number of workers above 1"
                        f"{', without the oversubscribed ones' if left_out else ''}.")
    return used, left_out


def _resampled(runs, random):
    """Medians of resamples of some runs."""
    return np.median(random.choice(runs, (RESAMPLES, len(runs))), axis=1)


def fit(law, seconds, oversubscribed=()):
    """Fit of {workers: seconds of a step, or of all, in each run}; or NotFitted.

    The interval is over repetitions: runs of each number of workers are drawn anew, those on 1
    worker, which all speedups share, included."""
    used, left_out = _chosen(seconds, set(oversubscribed))
    workers = np.array([count for count in used if count > 1], dtype=float)
    # Strong scaling: E = T(1) / (P T(P)). Weak: each worker has its own work, so E = T(1) / T(P).
    shares = workers if law == "Amdahl" else np.ones(len(workers))
    medians = np.array([np.median(used[count]) for count in workers])
    efficiency = np.median(used[1]) / medians / shares
    value = float(_serial(law, efficiency, workers))
    n = min(map(len, used.values()))
    serial = stats.Interval(value, None, None, n, "none", stats.too_few(n, "runs"))
    if n >= stats.LEAST:
        random = np.random.default_rng(1)
        first = _resampled(used[1], random)[:, None]
        others = np.stack([_resampled(used[count], random) for count in workers], axis=1)
        freedom = sum(len(runs) - 1 for runs in used.values())
        low, high = stats.percentiles(_serial(law, first / others / shares, workers), n, freedom)
        serial = stats.Interval(value, float(low), float(high), n, "bootstrap")
    points = dict(zip(map(int, workers), map(float, efficiency * workers)))
    misfit = None
    if len(workers) > 1:
        misfit = float(np.max(np.abs(efficiency * workers / LAWS[law][0](value, workers) - 1)))
    return Fit(law, serial, points, left_out, misfit, _text(law, serial, misfit))


def _text(law, serial, misfit):
    ends = "" if serial.low is None else \
        f" ({stats.percent(serial.low)[:-1]}..{stats.percent(serial.high)})"
    text = f"{law}: serial fraction {stats.percent(serial.value)}{ends}; "
    if misfit is None:
        text += "one number of workers above 1 gives it, and cannot test the law"
    else:
        text += f"the points lie within {stats.percent(misfit)} of the law"
    if serial.value < 0:
        text += "; below 0: faster than linear, which the law does not know"
    if serial.value > 1:
        text += "; above 100%: slower than 1 worker, which the law does not know"
    return text


def amdahl(seconds, oversubscribed=()):
    """Strong scaling: fit() of the same work on more workers."""
    return fit("Amdahl", seconds, oversubscribed)


def gustafson(seconds, oversubscribed=()):
    """Weak scaling: fit() of work that grows with the workers."""
    return fit("Gustafson", seconds, oversubscribed)
