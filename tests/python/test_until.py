"""--until-decided: studies that grow, how their tests hold over all looks, and that they can be resumed."""

import json
import math
import os
import shutil
import unittest
from types import SimpleNamespace

import gwrun
import numpy as np
import speccase
import statsim
from test_experiments import TRAIN, Study, read

from ablation import until
from reporting import expect, kept, looks, runs, stats
from tool import BadInput

COUNT = 400
EDGE = 0.05 + 2.33 * math.sqrt(0.05 * 0.95 / COUNT)  # of a share of 5%, but for one case in a hundred


class Looks(unittest.TestCase):
    def test_at_most_5_percent_over_all_looks(self):
        """With a look after each block; tests that do not know of the others say far more, so this test can fail."""
        for kind, most, cells in (("normal", 5, 2), ("normal", 20, 2), ("heavy tails", 10, 2), ("outliers", 20, 2),
                                  ("normal", 12, 4)):
            with self.subTest(kind=kind, most=most, cells=cells):
                self.assertLessEqual(statsim.grown(kind, most, COUNT, cells=cells)[0], EDGE)
        self.assertGreater(statsim.grown("normal", 20, COUNT, looked=False)[0], 2 * EDGE)

    def test_a_difference_ends_it_early(self):
        """5%, where runs spread by 2%: in about half of the blocks."""
        told, blocks = statsim.grown("normal", 20, 200, 1.05)
        self.assertGreater(told, 0.95)
        self.assertLess(blocks, 13)

    def test_level_and_p_are_inverse(self):
        for share in (0.15, 0.5, 1.0):
            for level in (0.05, 0.001):
                self.assertAlmostEqual(looks.p_of(looks.level_of(level, share), share), level)
        self.assertAlmostEqual(looks.level_of(0.05, 1.0), 0.025)  # half: the reflection principle
        self.assertEqual((looks.level_of(0.05, None), looks.p_of(0.05, None)), (0.05, 0.05))
        self.assertEqual([looks.p_of(p, 0.1) for p in (0.0, 5e-324)], [0.0, 5e-324])
        same = stats.LogRatio(-0.7, 0.0, 2, 3, "t", share=0.003)  # whose level here is no number any more
        self.assertEqual((same.interval(0.99).high, same.p()), (math.exp(-0.7), 0.0))

    def test_verdict_and_interval_agree(self):
        random = np.random.default_rng(3)
        for n in (3, 4, 8, 20):
            for _ in range(50):
                logs = random.normal(random.choice([0, 0.05, 0.3]), 0.05, n)
                one = stats.compare({0: (dict(enumerate(np.exp(logs))), dict.fromkeys(range(n), 1.0))}, most=20)[0]
                if one.differs is not None:
                    self.assertEqual(one.differs, not one.interval.low <= 1 <= one.interval.high)

    def test_most(self):
        """Each block that comes has a seed of its own; repetitions of a seed count once."""
        study = {"until": {"most": 10, "ended": None}, "blocks": [{"seed": seed} for seed in (1, 2, 1, 2)]}
        self.assertEqual((looks.most_of(study), looks.most_of(study, True)), (10, 8))
        self.assertIsNone(looks.most_of({"blocks": []}))

    def test_kept_runs_tell_it(self):
        marked = [SimpleNamespace(marks=["busy", *looks.marks_of({"until": {"most": 12}})], block=str(i),
                                  info={"seed": 1}) for i in (0, 1)]
        self.assertEqual(looks.most_of(looks.kept(marked), True), 11)
        self.assertEqual(looks.kept([SimpleNamespace(marks=["busy"])]), {})
        rows = [{"study": "x", "cell": f"c{i % 2}", "state": "done", "baseline": str(1 - i % 2), "block": str(i // 2),
                 "seed": "1", "started_utc": "", "cpu": "", "cores": "2", "ranks": "1", "threads": "1", "nodes": "1",
                 "marks": marked[0].marks[1], "step_s": str(1 + i % 2 + 0.01 * (i % 3)), "level.a": str(i % 2)}
                for i in range(8)]
        self.assertEqual(kept.results_of(rows).study["until"]["most"], 12)


class Plans(speccase.Case):
    SPEC = "claim: x\nseeds: [3, 1]\nrepetitions: 2\nfactors: {batch: [32, 64]}\nreport: {expect: {batch=64: faster}}\n"

    def test_blocks_that_come(self):
        study = self.read(self.SPEC)
        grown = until.extended(study, 7)
        self.assertEqual(grown.blocks, [*study.blocks, (1, 2), (1, 4), (1, 5)])

    def test_declared(self):
        study, old = self.read(self.SPEC), {"until": {"most": 9}, "blocks": [{}] * 6}
        self.assertEqual(until.planned(study, 0, None, "out")[1], until.MOST)
        self.assertEqual(until.planned(study, None, None, "out"), (study, None))
        few = self.read(self.SPEC.replace("repetitions: 2\n", ""))
        self.assertEqual(len(until.planned(few, 0, None, "out")[0].blocks), expect.LEAST)
        for wanted in (None, 0, 9):
            grown, most = until.planned(study, wanted, old, "out")
            self.assertEqual((len(grown.blocks), most), (6, 9))
        for wanted, before, why in ((8, old, "was begun with --most 9"),
                                    (0, {"blocks": [{}] * 4}, "before its first run"),
                                    (4, None, "begins with 4 blocks")):
            with self.assertRaises(BadInput) as caught:
                until.planned(study, wanted, before, "out")
            self.assertIn(why, str(caught.exception))
        with self.assertRaises(BadInput) as caught:
            until.planned(self.read("claim: x\nfactors: {batch: [32, 64]}"), 0, None, "out")
        self.assertIn("has no expect:", str(caught.exception))
        short = self.read(self.SPEC + "short: {factors: {batch: [32, 16]}}\n", True)
        with self.assertRaisesRegex(BadInput, "has no expect: that could be decided of the levels that short: has"):
            until.planned(short, 0, None, "out")

    def test_when_it_ends(self):
        def one(state, more="3 more pairs"):
            return SimpleNamespace(state=state, more=more)
        yes, open_, hopeless = one(expect.SUPPORTED, ""), one(expect.UNDECIDED), one(expect.UNDECIDED, "")
        for said, blocks, spent, undecided, why in (
                ([yes, yes], 3, 1, 0, "every expectation is decided"), ([yes, open_], 3, 1, 1, None),
                ([open_, open_], 9, 1, 2, "the declared 9 blocks are used up"),
                ([yes, hopeless], 3, 1, 1, "by no number of runs"),
                ([open_], 3, 46, 1, "budget of 60 s ends"), ([open_], 3, 44, 1, None)):
            found = until.Watch(9, 60 if spent > 1 else None, lambda said=said: said).ended(blocks, spent)
            self.assertEqual(found[0], undecided)
            self.assertIn(why, found[1]) if why else self.assertIsNone(found[1])


class Grows(Study):
    # The second configuration never learns, so it never reaches what the first does: signs of 4 pairs decide nothing.
    SPEC = f"""
claim: a test
base: {TRAIN} --epochs 3
factors: {{lr: [0.1, 0.000000001]}}
report: {{expect: {{lr=0.000000001: later to accuracy 0.6}}}}
"""

    def test_grows_and_resumes(self):
        self.write(self.SPEC)
        words = ("--until-decided", "--most", "4")
        done = self.call(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("after 3 of at most 4 blocks: 1 statement undecided\n", done.stdout)
        self.assertIn("after 4 of at most 4 blocks: 1 statement undecided; the declared 4 blocks are used up",
                      done.stdout)
        study = json.loads(read(os.path.join(self.out, "study.json")))
        self.assertEqual([block["seed"] for block in study["blocks"]], [1, 2, 3, 4])
        self.assertEqual(study["until"], {"most": 4, "ended": "the declared 4 blocks are used up"})
        self.assertEqual(self.starts(), self.planned())
        found, = runs.read_results(self.out)
        self.assertTrue(all(looks.marks_of(found.study)[0] in run.marks for run in found.runs))
        shutil.rmtree(os.path.join(self.out, self.planned()[-1]))  # as if it had been interrupted
        again = self.call("--resume", *words)
        self.assertEqual((again.returncode, self.starts()[-1], len(self.starts())), (0, self.planned()[-1], 9))
        for wrong, why in ((("--most", "5"), "was begun with --most 4"), (("--only", "lr=0.1"), "omit --only")):
            gwrun.refusal(self.call("--resume", "--until-decided", *wrong), why)
        gwrun.refusal(self.call("--budget", "5s"), "give both")

    def test_one_that_was_planned_does_not_grow_later(self):
        self.write(self.SPEC)
        dry = self.call("--until-decided", "--dry-run")
        self.assertIn("then block by block until the expectations are decided, at most 20 in all", dry.stdout)
        self.assertFalse(os.path.exists(self.out))
        gwrun.refusal(self.call("--until-decided", "--budget", "soon"), "a time from 1 s on")
