"""Time and bytes to a target against the baseline: runs are made up, so that the truth is known."""

import dataclasses
import math
import unittest
from types import SimpleNamespace

import numpy as np
import statsim
from matplotlib.figure import Figure
from reportcase import StudyCase

from reporting import answer, expect, model, reach, runs, stats, verdicts
from reporting.charts import pays, target

INF = math.inf


def run(seconds, accuracies, seed=1, **more):
    """A run that tests after each of these seconds, having sent 10 bytes in each."""
    epochs = [{"epoch": i, "step": i, "train_s": at, "wire_bytes": 10 * at, "test_accuracy": accuracy,
               "test_loss": 1 - accuracy}
              for i, (at, accuracy) in enumerate(zip(seconds, accuracies), 1)]
    return SimpleNamespace(epochs=epochs, evaluations=[], info={"seed": seed}, **more)


def goal(figure="seconds", column="accuracy", level=0.8):
    return expect.Goal(figure, column, level)


class OneRun(unittest.TestCase):
    def test_first_test_that_has_it(self):
        one = run((1, 2, 3), (0.7, 0.85, 0.75))  # that it falls again does not count
        self.assertEqual(reach.of_run(one, goal()), (2, 1))
        self.assertEqual(reach.of_run(one, goal("bytes")), (20, 10))
        self.assertEqual(reach.of_run(one, goal(column="loss", level=0.31)), (1, 0))
        self.assertEqual(reach.of_run(one, goal(level=0.9)), (INF, 3))
        self.assertIsNone(reach.of_run(run((), ()), goal()))
        untimed = SimpleNamespace(epochs=[{"epoch": 1, "test_accuracy": 0.9}], evaluations=[])
        self.assertIsNone(reach.of_run(untimed, goal()))

    def test_seeds(self):
        """Runs of one seed count once; a diverged one never reaches anything, one that failed says nothing."""
        made = [run((1, 2), (0.7, 0.9), 1), run((2, 4), (0.7, 0.9), 1), run((1, 2), (0.1, 0.2), 2)]
        cell = model.Cell("a", "a", {}, made)
        results = model.Results("x", ".", None, {}, [cell], cell, [], [
            model.Lost(end, "f", name, "why", seed) for end, name, seed in (
                ("diverged", "a", 3), ("failed", "a", 4), ("diverged", "b", 5))])
        self.assertEqual(reach.of_cell(results, cell, goal()), {1: (3, 1.5), 2: (INF, 2), 3: (INF, INF)})


class Pays(unittest.TestCase):
    """The rate of the links below which a method is sooner, of runs that compute and send so much."""

    RATES = (1e8, 3e8, 1e9)

    def results(self, costs, seeds=5, until=0.9):
        """costs: {method: (seconds of computation, megabits)} until the test that has the target; a seed in five is
        5% slower. The test before took a thousandth less."""
        def made(compute, megabits, rate, seed):
            at = (compute + 1e6 * megabits / rate) * (1.05 if seed % 5 == 0 else 1)
            return run((0.999 * at, at), (0.1, until), seed, step_s=1.0, marks=[], block=None, statistic="median", kind="median")

        cells = [model.Cell(f"{method} {rate}", f"{method} {rate}", {"method": method, "rate": f"{rate:g}bit"}, [
            made(*cost, rate, seed) for seed in range(seeds)], (method, rate) == ("base", 1e8))
            for method, cost in costs.items() for rate in self.RATES]
        for cell in cells:
            for one in cell.runs:
                one.info.update(link={"rate_bits_per_s": float(cell.levels["rate"].removesuffix("bit"))},
                                sources={"wire_bytes": "measured"})
        factors = {name: list(dict.fromkeys(cell.levels[name] for cell in cells)) for name in ("method", "rate")}
        return model.Results("x", ".", {"report": {"target_accuracy": 0.8, "compare_within": ["rate"]}}, factors, cells,
                             cells[0], [], [])

    def row(self, chart, name):
        found, = [dict(zip(chart.table.columns, row)) for row in chart.table.rows if row[0] == name]
        return found

    def test_even_where_computation_outweighs_bytes(self):
        """10 s more of computation against 2,000 Mbit less: even at 200 Mbit/s."""
        chart = pays.build(self.results({"base": (20, 2500), "rare": (30, 500), "better": (10, 500),
                                         "worse": (30, 2600), "odd": (19, 2700)}))
        row = self.row(chart, "rare")
        self.assertAlmostEqual(row["even at (Mbit/s)"], 200, delta=1)
        self.assertLess(row["pays up to"], 200)
        self.assertGreater(row["costs from"], 200)
        self.assertEqual(self.row(chart, "better")["verdict"], "pays at all rates from 100mbit to 1gbit")
        self.assertEqual(self.row(chart, "worse")["verdict"], "pays at none from 100mbit to 1gbit")
        self.assertEqual([self.row(chart, "odd")[name] for name in ("pays up to", "costs from")], [None, None])
        self.assertTrue(all(row[1] == "base" for row in chart.table.rows))

    def test_simulated_links(self):
        results = self.results({"base": (20, 2500), "rare": (30, 500)})
        for cell in results.cells:
            for one in cell.runs:
                rate = one.info.pop("link")["rate_bits_per_s"]
                one.info.update(link=None, simulated={"network": {"link": {"bytes_per_s": rate / 8}}})
        self.assertAlmostEqual(self.row(pays.build(results), "rare")["even at (Mbit/s)"], 200, delta=1)

    def test_the_interval_is_fiellers(self):
        """Two rates, differences without a spread of their own lines: the rates at which |mean| = t s / sqrt(n)."""
        x, y = np.array([9.0, 10, 12, 9, 11]), np.array([-1900.0, -2000, -2100, -2300, -1950])
        times = [[[(x[i] + y[i] * u, x[i] + y[i] * u) for u in (1e-2, 1e-3)] for i in range(5)],
                 [[(0, 0)] * 2 for i in range(5)]]
        found = pays.span([100.0, 1000.0], times)
        t = 2.7764451051977987
        c = np.cov(x, y) * t * t / 5
        roots = np.roots([y.mean() ** 2 - c[1, 1], 2 * (x.mean() * y.mean() - c[0, 1]), x.mean() ** 2 - c[0, 0]])
        low, high = sorted(1 / roots)
        self.assertAlmostEqual(found.below() / low, 1, delta=0.005)
        self.assertAlmostEqual(found.above() / high, 1, delta=0.005)

    def test_what_lies_between_two_tests_is_not_known(self):
        """All pairs are apart by one test of many seconds: that is no difference that can be told."""
        sides = [[[(30, 20)] * 2] * 5, [[(20, 10)] * 2] * 5]
        self.assertTrue((pays.span([1.0, 2.0], [side[:2] for side in sides]).signs == 0).all())
        self.assertTrue((pays.span([1.0, 2.0], sides).signs == 1).all())

    def test_what_cannot_be_told(self):
        for seeds, until, words in ((2, 0.9, "2 seeds: at least 3"), (5, 0.5, "do not reach")):
            made = self.results({"base": (20, 2500), "rare": (30, 500)}, seeds, until)
            text = self.row(pays.build(made), "rare")["verdict"]
            self.assertIn(words, text)
            self.assertTrue(text.startswith("cannot be told"))
        for late, words in ((2, "2 of its 5 seeds and 0 of"), (5, "pays at none of these rates")):  # seeds, over 3 links
            results = self.results({"base": (20, 2500), "rare": (30, 500)})
            for cell in results.cells[3:]:
                for one in cell.runs[:late]:
                    one.epochs[1]["test_accuracy"] = 0.2
            self.assertIn(words, self.row(pays.build(results), "rare")["verdict"])
        with self.assertRaises(model.NotShown):
            results.study["report"].pop("target_accuracy")
            pays.build(results)


class Pairs(unittest.TestCase):
    def test_bounds(self):
        for one, other, low, high in (
                ((2, 2), (1, 1), 2, 2), ((INF, 6), (2, 2), 3, INF), ((2, 2), (INF, 6), 0, 1 / 3),
                ((INF, 6), (INF, 6), 0, INF), ((INF, INF), (2, 2), INF, INF), ((8, 8), (INF, 4), 0, 2)):
            np.testing.assert_allclose([math.exp(end) for end in reach.bounds(one, other)], (low, high))

    def test_all_reached_is_a_paired_ratio(self):
        sides = [{seed: (figure, figure) for seed, figure in enumerate(side)} for side in ((1, 2, 3, 5), (2, 3, 7, 9))]
        self.assertEqual(reach.estimate(*sides), stats.log_ratio(*(np.array([figure for figure, _ in side.values()])
                                                                   for side in sides), True, "seeds"))

    def test_pairs_that_are_one_test_apart(self):
        """Three such pairs are no rare thing where nothing differs, and have no spread: they show no difference."""
        for before in (1, 3, 9):
            one, other = {i: (before, before - 1) for i in range(5)}, {i: (before + 1, before) for i in range(5)}
            for n, told in ((3, False), (5, True)):
                made = reach.estimate(other, {i: one[i] for i in range(n)})
                self.assertEqual(made.p() <= stats.ALPHA, told, (before, n, made))
        self.assertEqual(reach.estimate(one, one).p(), 1.0)

    def test_what_has_no_ratio(self):
        never, known = {1: (INF, 3)}, {1: (2, 2)}
        self.assertIn("neither ever reaches it", reach.estimate(never, never).reason)
        self.assertIn("not measured on both sides", reach.estimate(known, {2: (2, 2)}).reason)
        self.assertIn("above 0", reach.estimate({1: (0, 0)}, known).reason)

    def test_signs_by_hand(self):
        """8 pairs, of which 7 are surely below 1 and one may be on either side: 2 (8 + 1) / 2**8."""
        made = reach.Bounded(((-INF, -0.1),) * 4 + ((-0.3, -0.3),) * 3 + ((-INF, INF),))
        self.assertAlmostEqual(made.p(), 2 * 9 / 256)
        interval = made.interval(1 - 18 / 256)
        self.assertEqual((interval.low, interval.high), (0, math.exp(-0.1)))
        self.assertIn("8 pairs are too few", made.interval(0.9999).reason)
        self.assertEqual(made.more(0, 0.05, 9), 4)  # 9 of 11: p = 0.065; 10 of 12: 0.039
        self.assertIsNone(reach.Bounded(((-INF, -1), (1, INF))).more(0, 0.05, 50))

    def test_test_and_interval_agree(self):
        random = np.random.default_rng(1)
        for _ in range(300):
            ends = np.sort(random.standard_normal((random.integers(3, 15), 2)) - random.random(), axis=1)
            made, level = reach.Bounded(tuple(map(tuple, ends))), random.choice([0.05, 0.01, 0.2])
            interval = made.interval(1 - level)
            outside = interval.low is not None and not interval.low <= 1 <= interval.high
            self.assertEqual(made.p() <= level, outside, made)

    def test_no_more_false_than_5_percent(self):
        """With runs that do not reach the target, whatever share of them."""
        for budget in (0.95, 1.05, 1.2):
            for blocks in (6, 12):
                self.assertLessEqual(statsim.bounded(blocks, 300, budget), 0.05 + 2.33 * math.sqrt(0.05 * 0.95 / 300), (budget, blocks))


class Words(unittest.TestCase):
    def test_words(self):
        for text, word in (
                ("sooner to accuracy 0.85", ("seconds", -1, False, None, goal(level=0.85))),
                ("not more bytes to loss .4", ("bytes", 1, True, None, goal("bytes", "loss", 0.4))),
                ("1.2 times as soon to accuracy 0.85", ("seconds", -1, False, 1.2, goal(level=0.85))),
                ("4 times as few bytes to loss 2", ("bytes", -1, False, 4.0, goal("bytes", "loss", 2.0)))):
            self.assertEqual(expect.parse(text), expect.Word(*word))
        for text in ("sooner", "faster to accuracy 0.8", "sooner to accuracy 85", "sooner to accuracy 0",
                     "sooner to accuracy", "2 times as fast to loss 1", "2 times as soon", "as accurate to loss 1",
                     "sooner to accuracy .", "sooner to f1 0.8"):
            self.assertIsNone(expect.words_of(text), text)

    def test_bound(self):
        """What has to be excluded: nothing at all if the value is beyond the margin, else the margin."""
        for text, value, found in (
                ("sooner to loss 1", -0.1, 0), ("sooner to loss 1", -0.01, -math.log1p(0.03)),
                ("not later to loss 1", 0.5, 0), ("as accurate", 0.2, -1), ("2 times as fast", 0.1, -math.log(2))):
            self.assertAlmostEqual(expect.bound(text, value), found)


class Studies(StudyCase):
    def made(self, reached, lost=(), words="sooner to accuracy 0.8, 1.5 times as soon to accuracy 0.8"):
        """A study of 8 seeds; reached: when the second configuration has the target. The first has it at 4."""
        found, = runs.read_results(self.real_study)
        for cell in found.cells:
            cell.runs = [dataclasses.replace(
                cell.runs[0], block=str(i), marks=[], info={**cell.runs[0].info, "seed": i}, epochs=run(range(1, 11), [
                    0.9 if at >= (4 if cell.baseline else when) else 0.5 for at in range(1, 11)]).epochs)
                for i, when in enumerate(reached)]
            if not cell.baseline:
                cell.runs = [one for i, one in enumerate(cell.runs) if i not in lost]
                found.lost = [model.Lost("diverged", "f", cell.name, "", seed) for seed in lost]
        found.study["report"] = {"expect": {"comm=iallreduce:algo=sra": words}}
        return found

    def test_verdicts(self):
        yes, no, open_ = expect.SUPPORTED, expect.REFUTED, expect.UNDECIDED
        for reached, lost, states in (
                ([2] * 8, (), [yes, yes]), ([3, 3, 3, 3, 3, 3, 2, 3], (), [yes, open_]), ([4] * 8, (), [no, no]),
                ([99] * 8, (), [no, no]), ([2, 9] * 4, (), [open_, open_]), ([8] * 8, (0, 1), [no, no]),
                ([2] * 7 + [99], (), [open_, open_]), ([2] * 8, (0, 1, 2), [open_, open_])):
            with self.subTest(reached=reached, lost=lost):
                self.assertEqual([one.state for one in answer.statements(self.made(reached, lost))], states)

    def test_one_that_never_reaches_is_told(self):
        found = self.made([99] * 8)
        first, second = answer.statements(found)
        self.assertIn("later in 8 of 8 pairs of seeds (sign test; in the middle 2.5 times or more); not reached with 8 "
                      "of 8 seeds, against 0 of 8", first.verdict)
        row, = target.build(found).table.rows
        self.assertEqual(row[2:5] + row[6:8], ["time to accuracy 0.8", "0 of 8", "8 of 8", 2.5, None])
        neither = self.made([99] * 8, words="sooner to accuracy 0.95")
        self.assertIn("undefined: neither ever reaches it; not reached with 8 of 8",
                      answer.statements(neither)[0].verdict)
        self.assertEqual(answer.statements(neither)[0].more, "")

    def test_one_family(self):
        """Targets are judged together with step times, and only those that somebody named."""
        found = self.made([2] * 8, words="faster")
        alone = verdicts.family_of(found)
        self.assertEqual((len(alone.family.judged), alone.goals), (1, []))
        found.study["report"]["target_accuracy"] = 0.8
        found.expect = {"comm=iallreduce:algo=sra": "fewer bytes to accuracy 0.8, sooner to loss 0.2"}
        family = verdicts.family_of(found)
        self.assertEqual(family.goals, [goal(), goal("bytes"), goal(column="loss", level=0.2)])
        self.assertEqual(len(family.family.judged), 4)
        cell = found.cells[1]
        adjusted = stats.holm([family.family.estimates[name].p() for name in family.family.judged])[0]
        np.testing.assert_allclose([one for one, _ in family.family.judged.values()], adjusted)
        self.assertEqual(target.build(found).table.rows[1][-1], family.of_goal(cell, goal("bytes")).text)

    def test_chart_is_drawn(self):
        for reached, lost in (([2, 3] * 4, ()), ([99] * 8, ()), ([2] * 5 + [99] * 3, (0,))):
            chart = target.build(self.made(reached, lost))
            chart.draw(Figure((8, 3)))


class Forecast(unittest.TestCase):
    def test_more_pairs_decide(self):
        """With as many further pairs as said the difference is found with a chance of 80%, in simulated studies."""
        random = np.random.default_rng(2)
        for mean, spread in ((0.05, 0.06), (0.02, 0.05)):
            made = stats.LogRatio(mean, spread / math.sqrt(5), 4, 5, "t")
            n = 5 + made.more(0, 0.05, 200)
            logs = mean + spread * random.standard_normal((2000, n))
            errors = logs.std(axis=1, ddof=1) / math.sqrt(n)
            found = np.mean([stats.LogRatio(row, error, n - 1, n, "t").p() <= 0.05
                             for row, error in zip(logs.mean(axis=1), errors)])
            self.assertAlmostEqual(found, 0.8, delta=0.05)
            self.assertIsNone(made.more(0, 0.05, n - 6))

    def test_what_cannot_be_decided(self):
        made = stats.LogRatio(-0.0295, 0.01, 4, 5, "t")  # a hair from 3%
        self.assertIsNone(made.more(expect.bound("faster", made.mean), 0.05, stats.MOST_MORE))
        self.assertEqual([answer.further(n, "pairs of seeds") for n in (1, 2)],
                         ["1 more pair of seeds", "2 more pairs of seeds"])
