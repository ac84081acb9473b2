"""What experiments/run refuses before anything runs, as gradwire itself judges it."""

import os
import re
import subprocess
import sys
import unittest

import gwrun
from speccase import BadInput, Case
from ablation import check

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
                with open(self.path, "w", encoding="utf-8") as file:
                    file.write(text)
                done = subprocess.run(
                    [sys.executable, os.path.join(gwrun.SOURCE, "experiments", "run"), self.path,
                     "--out", out, "--build", os.environ["BUILD"], *more], text=True,
                    capture_output=True, timeout=300, check=False)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(why, done.stderr)
                self.assertFalse(os.path.exists(out))


class Checking(Case):
    """What gradwire itself refuses, with the line of the level."""

    def check(self, text, short=False):
        study = self.read(text, short)
        check.cells(study, study.cells, lambda ranks: [
            gwrun.MPIEXEC, "-n", str(ranks), gwrun.GRADWIRE])

    def fault(self, text):
        with self.assertRaises(BadInput) as caught:
            self.check(text)
        found = re.fullmatch(rf"{re.escape(self.path)}:(\d+): ([^\n]+)", str(caught.exception))
        self.assertTrue(found, str(caught.exception))
        marked = [i + 1 for i, line in enumerate(text.split("\n")) if "<<" in line]
        self.assertEqual([int(found[1])], marked, found[2])
        return found[2]

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
        with open(log, encoding="utf-8") as file:
            self.assertEqual(sorted(file.read().splitlines()),
                             [f"train --check --quiet --lr {lr} --out run" for lr in (1, 2)])

    def test_program_that_fails_otherwise(self):
        text = "claim: x\nfactors:\n  lr: [1, 2]  # <<\n"
        study = self.read(text)
        for start, why in ((["/no/mpiexec"], "/no/mpiexec: cannot be run"),
                           (["false"], "ended with status 1"),
                           (["sh", "-c", "echo one >&2; echo two >&2; exit 3"], "two")):
            with self.assertRaisesRegex(BadInput, f"{re.escape(self.path)}:3: every cell: .*{why}"):
                check.cells(study, study.cells, lambda ranks: start)


if __name__ == "__main__":
    unittest.main()
