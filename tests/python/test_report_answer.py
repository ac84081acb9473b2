"""What the first screen of a report says: verdict, main figures, pairs. Step times and accuracies are set,
so that the truth is known."""

import dataclasses
import math
import unittest
from unittest import mock

import gwrun
from reportcase import ReportCase, call, of_kind

from reporting import answer, curves, expect, learning, page, runs, stats, steps, verdicts
from reporting.charts import time_stack
from reporting.info import MARK_BUSY
from reporting.model import JudgedText


class Words(unittest.TestCase):
    def test_states(self):
        yes, no, open_ = expect.SUPPORTED, expect.REFUTED, expect.UNDECIDED
        for word, low, high, differs, state in (
                ("faster", .7, .8, True, yes), ("faster", 1.2, 1.3, True, no),
                ("faster", .9, 1.2, False, open_), ("faster", .99, 1.01, False, no),
                ("slower", 1.2, 1.3, True, yes), ("slower", .7, .8, True, no),
                ("not faster", .99, 1.2, False, yes), ("not faster", .7, .8, True, no),
                ("not faster", .9, 1.2, False, open_), ("not faster", 1.2, 1.3, True, yes),
                ("not slower", .98, 1.02, False, yes), ("not slower", 1.1, 1.3, True, no),
                # Significant, but within the margin: never both, nor neither if all of it is within.
                ("faster", .985, .995, True, no), ("not faster", .985, .995, True, yes),
                ("faster", .96, .99, True, open_), ("not faster", .96, .99, True, open_),
                ("faster", .94, .99, True, yes), ("not faster", .94, .99, True, no),
                ("1.8 times as fast", .5, .55, True, yes), ("1.8 times as fast", .56, .7, True, no),
                ("1.8 times as fast", .5, .6, True, open_)):
            with self.subTest(word=word, low=low, high=high):
                ends = math.log(low), math.log(high)
                self.assertEqual(expect.state(word, sum(ends) / 2, *ends, differs), state)
        for word, low, high, differs, state in (
                ("as accurate", -.5, .4, False, yes), ("as accurate", -3, -2, True, no),
                ("as accurate", -3, 2, False, open_), ("less accurate", -3, -2, True, yes),
                ("more accurate", -.2, .4, False, no), ("as accurate", -.6, -.2, True, yes),
                ("less accurate", -.6, -.2, True, no), ("less accurate", -1.2, -.2, True, open_)):
            with self.subTest(word=word, low=low, high=high):
                self.assertEqual(expect.state(word, (low + high) / 2, low, high, differs), state)
        self.assertEqual(expect.state("faster", -.1, None, None, None), open_)

    def test_levels_may_hold_commas(self):
        factors = {"case": ["deep, 1 Gbit/s", "deep"], "mode": ["lazy", "lazy, priority"]}
        for text, levels in (("case=deep, 1 Gbit/s,mode=lazy, priority",
                              {"case": "deep, 1 Gbit/s", "mode": "lazy, priority"}),
                             ("case=deep, mode=lazy", {"case": "deep", "mode": "lazy"}),
                             ("mode=eager", None), ("case=deep,mode", None), ("mode=lazy,mode=lazy", None),
                ("mode=lazy,case=deep,mode=lazy, priority", None)):
            self.assertEqual(expect.levels_of(text, factors), levels)
        self.assertEqual(expect.words_of("slower, as  accurate"), ["slower", "as accurate"])
        self.assertIsNone(expect.words_of("slower, quick"))

    def test_one_statement_that_does_not_hold_decides(self):
        self.assertEqual(expect.overall(["supported", "undecided", "refuted"]), "refuted")
        self.assertEqual(expect.overall(["supported", "undecided"]), "undecided")
        self.assertEqual(expect.overall(["supported"]), "supported")


class Answer(ReportCase):
    def results(self, factor, target=0.8):
        """A study whose second configuration takes `factor` times as long a step."""
        found, = runs.read_results(self.study(f"by{factor}", blocks=5))
        for cell in found.cells:
            for i, run in enumerate(cell.runs):
                noise = 1 + 0.001 * ((i * 7) % 5 - 2)
                run.step_s = 1e-3 * (1 if cell.baseline else factor * noise)
                run.info["seed"], run.marks = i, []  # not the marks of a busy machine
                run.epochs = [{"epoch": 1, "step": 30, "train_s": 0.5, "wire_bytes": 2e6,
                               "test_accuracy": 0.7},
                              {"epoch": 2, "step": 60, "train_s": 1.0, "wire_bytes": 4e6,
                               "test_accuracy": 0.9}]
        found.study["report"] = {"target_accuracy": target}
        return found

    def test_table(self):
        made = answer.table(self.results(0.5))
        base, other = made.rows
        self.assertEqual(made.columns[:4],
                         ["configuration", "step (ms)", "speedup (interval)", "final accuracy"])
        self.assertEqual((base[1:4], base[4]), ([1.0, "1 (reference)", 0.9], "1"))
        self.assertRegex(other[2], r"^2 \((1\.99|2)\.\.2(\.01)?\)$")
        self.assertIsInstance(other[2], JudgedText)
        self.assertTrue(other[2].better)
        self.assertFalse(answer.table(self.results(1.5)).rows[1][2].better)
        self.assertNotIsInstance(answer.table(self.results(1.0)).rows[1][2], JudgedText)
        self.assertEqual(answer.table(self.results(1.1, 0.95)).rows[0][4:], ["not reached"] * 2)
        found = self.results(1.2)
        found.cells[0].runs[0].epochs.pop()  # never at the target, so there is no interval
        self.assertEqual(answer.table(found).rows[0][4], "1, 4 of 5 runs")

    def test_pairs(self):
        found = self.results(2.0)
        third = type(found.cells[0])("third", "third", {"comm": "third"}, [
            dataclasses.replace(run, step_s=3e-3) for run in found.cells[0].runs])
        found.cells.append(third)
        (best, last), = map(answer.pair_sentences, answer.groups(found))
        self.assertEqual((best[0], last[0]), ("allreduce", "third"))
        self.assertRegex(best[1], r"^the least measured time a step, 1 ms; the second, iallreduce:algo=sra: "
                         r"2x slower \(.*\), 5 pairs of runs\.$")
        self.assertRegex(last[1], r"^against allreduce: 3x slower")
        found.cells[0].runs[0].marks = [MARK_BUSY]
        ((_, text), *_), = map(answer.pair_sentences, answer.groups(found))
        self.assertIn("a step, 1 ms (not to be trusted: busy machine); the second", text)
        found.cells[0].runs[0].marks = []
        # The mean of a simulated run is no shorter step than a steady mean.
        third.runs = [dataclasses.replace(run, step_s=5e-4, info=of_kind(run.info, steps.SIMULATED))
                      for run in third.runs]
        (best,), = map(answer.pair_sentences, answer.groups(found))
        self.assertEqual(best[0], "allreduce")
        self.assertRegex(best[1], "^the least measured time a step of runs whose step time is a steady mean, 1 ms;")

    def test_verdict(self):
        found = self.results(0.5)
        self.assertIn("? undecided</span>The study states no expectation", page.verdict_of(found))
        for word, badge in (("faster", "\u2713 supported"), ("slower", "\u2717 refuted")):
            found.expect = {"comm=iallreduce:algo=sra": word}
            text = page.verdict_of(found)
            self.assertIn(badge, text)
            self.assertIn("2x faster (", text)  # with its interval
        found.expect = {"comm=iallreduce:algo=sra": "faster, as accurate", "comm=ring": "slower"}
        self.assertEqual([one.state for one in answer.statements(found)],
                         ["supported", "supported", "undecided"])
        self.assertIn("Of 3 tested statements 2 supported, 0 refuted, 1 undecided;", page.verdict_of(found))

    def test_a_sentence_that_holds_of_many_is_said_once(self):
        found = self.results(0.5)
        for cell in found.cells:
            del cell.runs[2:]
        found.expect = {"comm=iallreduce:algo=sra": "faster, not slower, 3 times as fast"}
        text = page.verdict_of(found)
        self.assertIn("Of 3 tested statements 0 supported, 0 refuted, 3 undecided;", text)
        self.assertEqual((text.count("cannot be told: 2 pairs"), text.count("expected ")), (1, 3))

    def test_a_reader_replaces_no_expectation(self):
        found, levels = self.results(0.5), "comm=iallreduce:algo=sra"
        found.study["report"]["expect"] = {levels: "slower"}
        found.expect = {levels: "faster, slower"}
        self.assertEqual([(one.word, one.state) for one in answer.statements(found)],
                         [("slower", "refuted"), ("faster", "supported")])
        folder = self.study(blocks=2)
        call("report", folder, *("--expect", f"{levels}: not slower") * 2,
             "--expect", f"{levels}: 2 times as fast", draws=[])
        text = gwrun.read(self.path("demo", "report.html"))
        self.assertEqual([text.count(f"expected {word}") for word in ("not slower", "2 times as fast")],
                         [1, 1])

    def test_references_are_not_judged(self):
        found = self.results(0.5)
        found.factors = {**found.factors, "ranks": ["2", "4"]}
        found.study["report"]["compare_within"] = ["ranks"]
        for cell in list(found.cells):
            cell.levels = {**cell.levels, "ranks": "2"}
            found.cells.append(type(cell)(f"{cell.name},4", f"{cell.label}, 4",
                                          {**cell.levels, "ranks": "4"}, cell.runs))
        for levels, states in (("ranks=4", ["supported"]), ("ranks=2", ["supported"]),
                               ("comm=allreduce,ranks=4", ["undecided"]),
                               ("comm=allreduce", ["undecided"])):
            with self.subTest(levels=levels):
                found.expect = {levels: "faster"}
                said = answer.statements(found)
                self.assertEqual([one.state for one in said], states)
                if states == ["undecided"]:
                    self.assertEqual(said[0].verdict, "only what others are compared with is called that")

    def test_simulated_and_steady_means_are_not_compared(self):
        folder = self.study(blocks=3)
        for block in range(3):
            gwrun.change(f"{folder}/b{block:02d}-s1/comm=iallreduce",
                         lambda info: info.update(of_kind(info, steps.SIMULATED)))
        found, = runs.read_results(folder)
        said = "cannot be told: step times of two kinds (a simulated mean, a steady mean)"
        comparison, = verdicts.compared(found).values()
        self.assertEqual((comparison.text, comparison.p, comparison.differs), (said, None, None))
        found.expect = {"comm=iallreduce:algo=sra": "faster"}
        self.assertEqual([(one.state, one.verdict) for one in answer.statements(found)],
                         [("undecided", said)])
        text, (drawn,) = page.render([found], "demo")
        self.assertIn(said, text)
        self.assertEqual(drawn.errors, [])

    def test_an_interval_without_end_is_none(self):
        found = self.results(0.5)
        for run, power in zip(found.cells[1].runs, (-16, 16, -12, 14, -16)):
            run.step_s = 10.0 ** power
        found.cells[1].runs[3:] = []
        found.expect = {"comm=iallreduce:algo=sra": "faster"}
        with mock.patch.object(stats, "ALPHA", 1e-4):  # as of very many configurations
            self.assertEqual([one.state for one in answer.statements(found)], ["undecided"])
            self.assertIn("the interval leaves", answer.statements(found)[0].verdict)
            self.assertNotIn("(", answer.table(found).rows[1][2])
            self.assertEqual(page.render([found], "demo")[1][0].errors, [])

    def test_runs_of_no_study_answer_a_question(self):
        self.copy("a")
        self.copy("b", "iallreduce")
        found, = runs.read_results(self.dir)
        self.assertIn(answer.QUESTION, page.verdict_of(found))
        self.assertEqual(sum(row[2] == "1 (reference)" for row in answer.table(found).rows), 1)

    def test_curves_have_the_evaluations(self):
        found = self.results(2.0)
        cell = found.cells[0]
        for run in cell.runs:
            for row in run.epochs:
                row["train_loss"] = 1 / row["epoch"]
            run.evaluations = [{"epoch": 1 + step // 31, "step": step, "train_s": step / 60,
                                "wire_bytes": 1e5 * step, "test_accuracy": 0.4 + 0.01 * step}
                               for step in (15, 30, 45, 50)]
        curve = curves.curve_of(cell, "test_accuracy")
        self.assertEqual((curve.epochs, curve.low), ([0.5, 1, 1.5, 50 / 30], curve.high))
        self.assertEqual(list(zip(curve.seconds, curve.sent, curve.figure)),
                         learning.points(cell.runs[0]))
        self.assertEqual(curves.curve_of(cell, "train_loss").figure, [1, 0.5])
        self.assertEqual(curves.curve_of(found.cells[1], "test_accuracy").epochs, [1, 2])

    def test_many_configurations_keep_the_references(self):
        found = self.results(2.0)
        found.cells += [type(cell)(f"{cell.name}{i}", f"{cell.label} {i}", {"comm": f"{cell.name}{i}"},
                                   cell.runs) for i in range(8) for cell in found.cells[:2]]
        shown = answer.first_rows(found)
        self.assertEqual(len(shown), answer.MOST)
        self.assertIn(0, shown)

    def test_untold_parts_have_their_reason(self):
        found = self.results(2.0)
        for run in found.runs:
            run.means = {name: 1e-3 if name in ("wall_s", "forward_s") else 0.0 for name in run.means
                         if not name.startswith(("core_", "memory_"))}
            run.info["sources"]["memory_s"] = "absent: no ceilings"
        said = [note for note in time_stack.build(found).notes if note.startswith("Untold")]
        self.assertTrue(any("100% of the bar" in note and "no ceilings" in note for note in said), said)
