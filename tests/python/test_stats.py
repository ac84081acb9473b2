"""Statistics of repeated runs against known answers: examples by hand, and simulated studies whose
truth is known. Seeds are fixed, so nothing here depends on chance or on the machine."""

import math
import unittest

import numpy as np
import statsim
from reporting import stats
from reporting.base import number

E = math.e


def against(groups, baseline, *words):
    """One family against one baseline."""
    return stats.judge({name: stats.log_ratio(*stats.matched(group, baseline, True), True)
                        for name, group in groups.items()}, "pairs of runs", *words)


class ByHand(unittest.TestCase):
    def test_median(self):
        # Resampled medians are runs of the five; the least of all is the median of 5.8% of the
        # resamples (sum over k = 3..5 of C(5,k) 0.2^k 0.8^(5-k)), more than any tail: the ends are
        # the range.
        interval = stats.median_ci([9.0, 1.0, 4.0, 2.0, 5.0])
        self.assertEqual((interval.value, interval.low, interval.high), (4.0, 1.0, 9.0))
        self.assertEqual((interval.n, interval.method), (5, "bootstrap"))

    def test_paired_ratio(self):
        # Log ratios 0.02, 0.04, 0.06: mean 0.04, deviation 0.02, error 0.02 / sqrt(3) = 0.011547.
        # t with 2 degrees at 97.5% is 4.30265: half the interval is 0.049683. The block's own level
        # (1, 3, 10) must not matter.
        level = [1.0, 3.0, 10.0]
        values = [a * E**d for a, d in zip(level, (0.02, 0.04, 0.06))]
        interval = stats.ratio_ci(values, level, paired=True)
        self.assertAlmostEqual(interval.value, E**0.04, 12)
        self.assertAlmostEqual(interval.low, E**(0.04 - 0.049683), 5)
        self.assertAlmostEqual(interval.high, E**(0.04 + 0.049683), 5)
        # With 2 degrees of freedom p = 1 - t / sqrt(2 + t^2); t = 0.04 / 0.011547 = sqrt(12).
        groups = {"x": dict(enumerate(values))}
        one = against(groups, dict(enumerate(level)))["x"]
        self.assertAlmostEqual(one.p, 1 - math.sqrt(12 / 14), 12)
        self.assertEqual((one.differs, one.n), (False, 3))
        self.assertTrue(one.text.startswith("inside the noise (a difference below "))

    def test_unpaired_ratio(self):
        # Logarithms 0.1, 0.2, 0.3 and 0.0, 0.1, 0.2: both variances 0.01, error sqrt(0.02 / 3),
        # 4 degrees of freedom, whose t at 97.5% is 2.77645.
        values, baseline = ([E**x for x in logs] for logs in ((0.1, 0.2, 0.3), (0.2, 0.0, 0.1)))
        interval = stats.ratio_ci(values, baseline, paired=False)
        half = 2.77645 * math.sqrt(0.02 / 3)
        self.assertAlmostEqual(interval.value, E**0.1, 12)
        self.assertAlmostEqual(interval.low, E**(0.1 - half), 5)
        self.assertAlmostEqual(interval.high, E**(0.1 + half), 5)

    def test_holm(self):
        # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, never falling: 0.02, 0.03, 0.06, 0.06.
        # 0.03 is above 0.05 / 2, so it and all above it are judged at that level.
        adjusted, levels = stats.holm([0.01, 0.04, 0.03, 0.005])
        np.testing.assert_allclose(adjusted, [0.03, 0.06, 0.06, 0.02])
        np.testing.assert_allclose(levels, [0.05 / 3, 0.025, 0.025, 0.0125])

    def test_verdict_texts(self):
        logs = np.array([-0.01, 0.0, 0.01, 0.005, -0.005])  # mean 0, deviation 0.0079
        baseline = dict.fromkeys(range(5), 1.0)

        def verdict(ratio, words=("slower", "faster")):
            groups = {"x": dict(enumerate(ratio * np.exp(logs)))}
            return against(groups, baseline, words)["x"].text

        # Half the interval is 2.77645 * 0.0079057 / sqrt(5) = 0.0098160.
        self.assertEqual(verdict(1.05), "5.0% slower (4.0..6.0%)")
        self.assertEqual(verdict(0.95), "5.0% faster (4.1..5.9%)")
        self.assertEqual(verdict(4.0, ("more", "less")), "4x more (3.96..4.04x)")
        self.assertEqual(verdict(0.25, ("more", "less")), "4x less (3.96..4.04x)")
        # 5 pairs see 1.682 deviations with a chance of 80% (noncentral t): 1.682 * 0.0079057.
        self.assertEqual(verdict(1.0), "inside the noise (a difference below 1.3% cannot be seen "
                                       "with 5 pairs of runs)")

    def test_runs_that_do_not_repeat_are_called_that(self):
        baseline = dict.fromkeys(range(3), 1.0)
        for logs, said in (((-2, 0, 2), "(the runs do not repeat, a ratio of two varies by 7.39x: no difference can be seen "
                                        "with 3 pairs of runs)"),
                           ((-.3, 0, .3), "(a difference below 2.66x cannot be seen with 3 pairs of runs)")):
            self.assertEqual(against({"x": dict(enumerate(np.exp(logs)))}, baseline)["x"].text, f"inside the noise {said}")

    def test_figures_have_the_digits_that_decide(self):
        """A printed figure lies on the same side of each bound as the figure itself."""
        for value, bounds, text in ((1.1396, (), "1.14"), (1.1396, (1.14,), "1.1396"), (1.14, (1.14,), "1.14"),
                                    (12345.6, (12346.0,), "12,345.6"), (0.99996, (1.0, 2.0), "0.99996"), (0.0, (0.0,), "0")):
            self.assertEqual(number(value, *bounds), text)
        faster = stats.Interval(0.5, 0.48, 0.50004, 5, "")
        self.assertEqual(stats.difference(faster, ("slower", "faster")), "2x faster (2..2.08x)")
        self.assertEqual(stats.difference(faster, ("slower", "faster"), 0.5), "2x faster (1.9998..2.08x)")
        self.assertEqual(stats.difference(stats.Interval(1.6, 1.0004, 2.5, 5, ""), ("slower", "faster")),
                         "1.6x slower (1.0004..2.5x)")
        self.assertEqual(stats.difference(stats.Interval(1.02, 1.00004, 1.04, 5, ""), ("slower", "faster")),
                         "2.0% slower (0.004..4.0%)")


class TooLittle(unittest.TestCase):
    """No figure where there is none to be had, and a reason."""

    def test_few_runs(self):
        for n in (0, 1, 2):
            interval = stats.median_ci([1.0, 2.0][:n])
            self.assertEqual((interval.low, interval.high, interval.n), (None, None, n))
            self.assertTrue(interval.reason)
        self.assertIsNone(stats.median_ci([]).value)
        self.assertEqual(stats.median_ci([1.0, 2.0]).value, 1.5)
        self.assertIn("2 pairs", stats.ratio_ci([1.0, 2.0], [1.0, 1.0]).reason)

    def test_absent_figures_are_not_zero(self):
        interval = stats.median_ci([3.0, None, 1.0, float("nan"), 2.0])
        self.assertEqual((interval.value, interval.n), (2.0, 3))
        groups = {"x": {0: 2.0, 1: None, 2: 2.0, 3: 2.0, 4: 2.0}, "y": {0: None}}
        baseline = {0: 1.0, 1: 1.0, 2: None, 3: 1.0, 4: 1.0, 5: 1.0}
        both = against(groups, baseline)
        self.assertEqual((both["x"].n, both["x"].interval.value), (3, 2.0))
        self.assertIsNone(both["y"].differs)
        self.assertIsNone(both["y"].interval.value)
        self.assertIn("cannot be told", both["y"].text)

    def test_a_cell_that_cannot_be_tested_costs_the_others_nothing(self):
        random = np.random.default_rng(1)
        baseline = dict(enumerate(np.exp(0.01 * random.standard_normal(5))))
        group = dict(enumerate(1.03 * np.exp(0.01 * random.standard_normal(5))))
        alone = against({"x": group}, baseline)["x"]
        beside = against({"x": group, "y": {0: 1.0}}, baseline)["x"]
        self.assertEqual(alone, beside)

    def test_runs_of_one_seed(self):
        figures = stats.by_seed([(2, 0.9), (1, 0.8), (1, 0.8), (2, None), (1, 0.8), (3, None)])
        self.assertEqual(figures, {1: 0.8, 2: 0.9})
        self.assertIsNone(stats.median_ci(figures.values()).low)  # 2 seeds, not 6 runs

    def test_zero_has_no_ratio(self):
        one = against({"x": dict.fromkeys(range(5), 0.0)}, dict.fromkeys(range(5), 1.0))["x"]
        self.assertIsNone(one.differs)
        self.assertIn("above 0", one.text)

    def test_an_end_beyond_numbers_is_no_interval(self):
        for mean, error in ((0.0, 1e3), (-800.0, 0.1), (800.0, 0.1), (-720.0, 0.1)):
            with self.subTest(mean=mean):
                one, other = stats.judge({"x": stats.LogRatio(mean, error, 4, 5, "t"),
                                          "y": stats.LogRatio(0.1, 0.001, 4, 5, "t")}, "runs").values()
                self.assertEqual((one.interval.low, one.interval.high, one.p, one.differs),
                                 (None, None, None, None))
                self.assertEqual(one.interval.value, 1.0 if mean == 0 else None)
                self.assertIn("cannot be told: the interval leaves", one.text)
                self.assertTrue(other.differs)

    def test_equal_counts(self):
        """Bytes do not scatter: the same is equal, anything else differs."""
        baseline = dict.fromkeys(range(5), 941096.0)
        groups = {"same": dict(baseline), "half": {b: v / 2 for b, v in baseline.items()}}
        both = against(groups, baseline, ("more", "less"))
        self.assertEqual(both["same"].text, "equal in all 5 pairs of runs")
        self.assertIs(both["same"].differs, False)
        self.assertIs(both["half"].differs, True)
        for n in (3, 5):
            interval = stats.median_ci([941096.0] * n)
            self.assertAlmostEqual(interval.low / 941096, 1, 12)
            self.assertLessEqual(interval.low, interval.value)
            self.assertLessEqual(interval.value, interval.high)


class Simulated(unittest.TestCase):
    """Studies of 8 cells in 5 blocks, whose blocks differ by 10%."""

    def test_equal_cells(self):
        """An A/A study flags something in at most 5 of 100."""
        for kind in statsim.KINDS:
            for paired in (True, False):
                with self.subTest(kind=kind, paired=paired):
                    self.assertLessEqual(statsim.flagged(kind, 8, 5, 1000, paired=paired), 0.05)

    def test_that_the_correction_is_needed(self):
        """Without it the same studies would flag too often: the test above can fail."""
        raised = [any(one.p <= stats.ALPHA for one in study.values())
                  for study in statsim.studies("normal", 8, 5, 1000)]
        self.assertGreater(np.mean(raised), 0.1)

    def test_verdict_and_interval_agree(self):
        told = 0
        for study in statsim.studies("normal", 8, 5, 300, effects=(1.05, 1.1, 0.93)):
            for one in study.values():
                inside = one.interval.low <= 1 <= one.interval.high
                self.assertEqual(one.differs, not inside)
                self.assertEqual(one.differs, one.p_adjusted <= stats.ALPHA)
                self.assertEqual(one.differs, "noise" not in one.text)
                told += one.differs
        self.assertGreater(told, 100)

    def test_power(self):
        """A true 5% is found as often as stated: in 80%, where mdd() says that 5% can be seen."""
        for n in (3, 5, 10):
            with self.subTest(runs=n):
                # mdd() grows with the spread: the one at which it is 5%, by its own inverse.
                spread = np.log1p(0.05) / np.log1p(stats.mdd(1.0, n))
                self.assertAlmostEqual(stats.mdd(spread, n), 0.05, 12)
                seen = statsim.power("normal", n, 0.05, spread / math.sqrt(2), 2000)
                self.assertAlmostEqual(seen, stats.POWER, delta=0.025)

    def test_power_in_a_family(self):
        """Beside 6 others it takes less noise; Holm finds no less than its first level does."""
        level = stats.ALPHA / 7
        spread = np.log1p(0.05) / np.log1p(stats.mdd(1.0, 5, level))
        seen = statsim.power("normal", 5, 0.05, spread / math.sqrt(2), 1000, family=7)
        self.assertGreaterEqual(seen, stats.POWER - 0.025)
        self.assertLessEqual(seen, stats.POWER + 0.05)

    def test_coverage(self):
        for kind in statsim.KINDS:
            for n, least in ((3, 0.93), (5, 0.925), (7, 0.94), (10, 0.94)):
                with self.subTest(kind=kind, runs=n):
                    self.assertGreaterEqual(statsim.median_coverage(kind, n, 500), least)
                    for paired in (True, False):
                        self.assertGreaterEqual(statsim.ratio_coverage(kind, n, 500, paired), 0.93)

    def test_that_a_plain_bootstrap_covers_too_little(self):
        """Why percentiles are expanded: at 7 runs the usual 2.5% and 97.5% hold 88% of medians."""
        values = np.exp(statsim.noise("normal", (500, 7), np.random.default_rng(1)))
        drawn = np.sort(np.random.default_rng(2).integers(0, 7, (2000, 7)), axis=1)[:, 3]
        low, high = np.quantile(np.sort(values)[:, drawn], [0.025, 0.975], axis=1,
                                method="inverted_cdf")
        self.assertLess(np.mean((low <= 1) & (1 <= high)), 0.9)


class Drift(unittest.TestCase):
    def test_slope(self):
        # 3 cells at levels of their own, each figure 1% above the one before in the order of the
        # runs: 11 steps of ln 1.01.
        runs = [("abc"[i % 3], (1, 5, 20)[i % 3] * 1.01**i) for i in range(12)]
        flag = stats.drift(runs)
        self.assertTrue(flag.raised)
        self.assertAlmostEqual(flag.change, 1.01**11 - 1, 12)
        self.assertIn("12% larger", flag.text)

    def test_cells_that_differ_are_no_drift(self):
        self.assertFalse(stats.drift([(cell, float(cell + 1)) for cell in range(30)]).raised)
        self.assertEqual(stats.drift([]).text, "")
        self.assertIsNone(stats.drift([("a", 1.0), ("b", None)]).p)

    def test_alarms(self):
        self.assertLessEqual(statsim.drift_flagged("normal", 8, 5, 1000), 0.015)
        self.assertGreater(statsim.drift_flagged("normal", 8, 5, 200, rise=0.1), 0.9)

    def test_within_a_run(self):
        random = np.random.default_rng(1)
        still = [stats.drift_within(statsim.walls(600, 0.5, random)).raised for _ in range(200)]
        self.assertLessEqual(np.mean(still), 0.02)
        rising = statsim.walls(600, 0.5, random) * np.linspace(1, 1.2, 600)
        flag = stats.drift_within(rising)
        self.assertTrue(flag.raised)
        # First and last third: means at 1/6 and 5/6 of a rise of 20%.
        self.assertAlmostEqual(flag.change, (1 + 0.2 * 5 / 6) / (1 + 0.2 / 6) - 1, delta=0.03)
        self.assertIn("longer", flag.text)
        self.assertFalse(stats.drift_within([1.0] * 20).raised)


class Outliers(unittest.TestCase):
    def test_known(self):
        # Median 1.00, distances 0.02, 0.01, 0, 0.01, 1: their median 0.01, so MAD 0.014826; the one
        # at 2 is 67 of them away. The fence for 5 is some 18: the rest is inside.
        found = stats.outliers([0.98, 1.01, 1.0, 0.99, 2.0, None])
        self.assertEqual(found.tolist(), [False, False, False, False, True, False])
        self.assertFalse(stats.outliers([1.0, 1.0, 1.0, 9.0]).any())  # 4 do not tell

    def test_alarms(self):
        for n in (5, 10):
            noise = 1 + 0.02 * np.random.default_rng(3).standard_normal((3000, n))
            raised = np.mean([stats.outliers(row).any() for row in noise])
            self.assertAlmostEqual(raised, stats.OUTLIER, delta=0.006)

    def test_nothing_is_removed(self):
        values = [1.0, 1.01, 0.99, 1.0, 1.02, 5.0]
        self.assertTrue(stats.outliers(values).any())
        interval = stats.median_ci(values)
        self.assertEqual((interval.n, interval.high), (6, 5.0))
