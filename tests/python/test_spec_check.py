"""What experiments/run refuses before anything runs, as gradwire itself judges it."""

import os
import re
import sys
from unittest import mock

import gwrun
from speccase import BadInput, Case
from ablation import check
from reporting import expect, stats

SMALL = "base:\n  data: synthetic:samples=512,features=16,classes=4\n  layers: 8\n"


class CommandLine(Case):
    """What a user meets: one line and status 2, before anything is made."""

    def test_refusals(self):
        out = os.path.join(os.path.dirname(self.path), "out")
        good = "claim: x\n" + SMALL + "factors: {batch: [32, 64]}"
        for text, more, why in ((good.replace("batch", "bach"), [], ":5: unknown factor 'bach'"),
                                (good.replace("64", "0"), [], ":5: level '0' of 'batch'"),
                                (good.replace("64", "0"), ["--dry-run"], ":5: level '0' of"),
                                (good, ["--only", "bach=32"], "did you mean 'batch'?"),
                                (good, ["--short"], ":1: there is no short:")):
            with self.subTest(text=text, more=more):
                gwrun.write(self.path, text)
                done = gwrun.finished(
                    [sys.executable, os.path.join(gwrun.SOURCE, "experiments", "run"), self.path,
                     "--out", out, "--build", os.environ["BUILD"], *more])
                gwrun.refusal(done, why)
                self.assertFalse(os.path.exists(out))


class Placement(Case):
    def test_as_many_ranks_as_there_are_cpus(self):
        spec = "claim: x\nranks: auto\nfactors: {threads: [1, 2, null, 64], batch: [32]}"
        with mock.patch.object(os, "sched_getaffinity", lambda _: set(range(12))):
            self.assertEqual([cell.ranks for cell in self.read(spec).cells], [12, 6, 12, 1])


class Doubts(Case):
    """What a design can never decide is said before anything runs, in one line."""

    def doubt(self, text, short=False):
        """(its line, what it says); None: no doubt."""
        said = self.read(text, short).doubt
        return said and self.located(said)

    def text(self, expected, blocks, more=""):
        return (f"claim: x\nsource: [A]\nfactors: {{batch: [32, 64], lr: [1, 2]}}\n{blocks}\n{more}"
                f"report:\n  expect:\n    {expected}\n")

    def test_too_few_blocks_or_seeds(self):
        for words, blocks, said in (
                ("batch=64: faster", "repetitions: 3", None), ("batch=64: as accurate", "seeds: [1, 2, 3]", None),
                ("batch=64: faster", "repetitions: 2", "'batch=64: faster' can never be decided: times are compared "
                 "block by block, and there are 2 blocks; give 3 or more, repetitions: 3"),
                ("batch=64: 2 times as fast", "seeds: [7]", "there is 1 block"),
                ("batch=64: as accurate", "repetitions: 9", "accuracies are compared seed by seed, and there is 1 seed"),
                ("batch=64: 'faster, as accurate'", "repetitions: 9", "'batch=64: as accurate' can never"),
                ("batch=64: 'slower, less accurate'", "repetitions: 1", r" \(and 1 more like it\)$")):
            with self.subTest(words=words, blocks=blocks):
                found = self.doubt(self.text(words, blocks))
                self.assertEqual(found is None, said is None)
                if said:
                    self.assertEqual(found[0], 7)
                    self.assertRegex(found[1], said)

    def test_nothing_to_compare_with(self):
        for words, lonely in (("'batch=32,lr=1': faster", True), ("'batch=64,lr=2': faster", False),
                              ("lr=1: faster", False)):
            found = self.doubt(self.text(words, "repetitions: 5"))
            self.assertEqual(found is not None, lonely, words)
            if lonely:
                self.assertIn("these cells are compared with none", found[1])

    def test_claims(self):
        claim = ("claims:\n  - {{claim: c, whose: A, theirs: t, figure: {}, cell: batch=64, against: batch=32, "
                 "confirmed: '> 1'}}\n")
        for figure, blocks, said in (("speedup", "repetitions: 3", None), ("speedup", "seeds: [1, 2]", "2 blocks"),
                                     ("points", "repetitions: 5", "1 seed"), ("test_loss", "seeds: [1, 2]", "2 seeds"),
                                     ("points", "seeds: [1, 2, 3]", None)):
            found = self.doubt(f"claim: x\nsource: [A]\nfactors: {{batch: [32, 64]}}\n{blocks}\n" + claim.format(figure))
            self.assertEqual(found is None, said is None, figure)
            if said:
                self.assertEqual(found[0], 6)
                self.assertRegex(found[1], f"^claims: 'c' can never be decided: .*{said}; give 3 or more")

    def test_the_short_version(self):
        text = self.text("batch=64: faster", "repetitions: 3", "short: {repetitions: 1}\n")
        self.assertIsNone(self.doubt(text))
        self.assertRegex(self.doubt(text, short=True)[1], "^short: expect: 'batch=64: faster' can never")

    def test_as_many_as_the_statistics_need(self):
        self.assertEqual(expect.LEAST, stats.LEAST)

    def test_the_runner_says_it(self):
        text = self.text("batch=64: as accurate", "repetitions: 5")
        gwrun.write(self.path, text.replace("claim: x\n", "claim: x\n" + SMALL))
        done = gwrun.finished([sys.executable, os.path.join(gwrun.SOURCE, "experiments", "run"), self.path, "--dry-run",
                               "--build", os.environ["BUILD"]])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "^experiments/run: .*study.yaml:10: expect: 'batch=64: as accurate' can never be "
                                      "decided: [^\n]*\n$")


class Checking(Case):
    """What gradwire itself refuses, with the line of the level."""

    def check(self, text, short=False):
        study = self.read(text, short)
        check.cells(study, study.cells, lambda ranks: [
            gwrun.MPIEXEC, "-n", str(ranks), gwrun.GRADWIRE])

    def fault(self, text):
        with self.assertRaises(BadInput) as caught:
            self.check(text)
        return self.marked(text, self.located(str(caught.exception)))

    def test_good(self):
        self.check("claim: x\n" + SMALL + "factors: {ranks: [1, 2], trace: [true, false]}")

    def test_one_level(self):
        said = self.fault("claim: x\n" + SMALL + "factors:\n  ranks: [1, 2]\n  batch:\n    - 32\n"
                          "    - 0  # <<\n")
        self.assertIn("level '0' of 'batch': batch=0: must be a whole number", said)
        self.assertIn("(1 more cell is refused)", said)
        said = self.fault("claim: x\n" + SMALL + "factors:\n  how:\n    a: --lr 0.1\n"
                          "    b: --lr 0.1 --comm iallreduc  # <<\n")
        self.assertIn("level 'b' of 'how': unknown strategy 'iallreduc': did you mean", said)

    def test_no_cell_passes(self):
        said = self.fault("claim: x\n" + SMALL + "  lr: -1  # <<\nfactors: {batch: [32, 64]}\n")
        self.assertIn("every cell: lr=-1", said)
        said = self.fault("claim: x\n" + SMALL + "factors:\n  batch: [32]\n"
                          "  comm: [nothing]  # <<\n")
        self.assertIn("level 'nothing' of 'comm': unknown strategy", said)

    def test_combination(self):
        said = self.fault("claim: x\n" + SMALL + "factors:\n  lr: [0.1, 0.2]\n  comm:\n    - ps\n"
                          "    - powersgd\n  compress:\n    - none\n    - fp16  # <<\n")
        self.assertIn("comm=powersgd with compress=fp16: strategy powersgd", said)
        self.assertIn("leave it out by skip: [{comm: powersgd, compress: fp16}]", said)
        self.check("claim: x\n" + SMALL + "factors:\n  comm: [ps, powersgd]\n"
                   "  compress: [none, fp16]\nskip: [{comm: powersgd, compress: fp16}]")

    def test_ranks_matter(self):
        said = self.fault("claim: x\n" + SMALL + "factors:\n  ranks: [1, 2]\n  comm:\n"
                          "    plain: ps\n    own: 'ps:dedicated=1'  # <<\n")
        self.assertIn("ranks=1 with comm=own", said)

    def test_list(self):
        said = self.fault("claim: x\n" + SMALL + "factors: {comm: [ps, powersgd], compress: [none, "
                          "fp16]}\ndesign: list\ncells:\n  - {comm: powersgd}\n"
                          "  - {compress: fp16}\n  - {comm: powersgd, compress: fp16}  # <<\n")
        self.assertIn("take the cell out", said)

    def test_each_command_once(self):
        """Cells that differ in environment, seed or testbed alone are one question."""
        log = os.path.join(os.path.dirname(self.path), "log")
        study = self.read("claim: x\nseeds: [1, 2]\nfactors: {env.A: [b, c], rate: [none, 1gbit], "
                          "lr: [1, 2]}")
        told = []
        check.cells(study, study.cells, lambda ranks: [
            "sh", "-c", 'echo "$@" >> "$0"', log], tell=told.append)
        self.assertEqual(told, ["checking 0/2", "checking 1/2", "checking 2/2", ""])
        self.assertEqual(sorted(gwrun.read(log).splitlines()),
                         [f"train --check --quiet --lr {lr} --out run" for lr in (1, 2)])

    def test_program_that_fails_otherwise(self):
        text = "claim: x\nfactors:\n  lr: [1, 2]  # <<\n"
        study = self.read(text)
        for start, why in ((["/no/mpiexec"], "/no/mpiexec: cannot be run"),
                           (["false"], "ended with status 1"),
                           (["sh", "-c", "echo one >&2; echo two >&2; exit 3"], "two")):
            with self.assertRaisesRegex(BadInput, f"{re.escape(self.path)}:3: every cell: .*{why}"):
                check.cells(study, study.cells, lambda ranks: start)
