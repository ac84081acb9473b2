"""The programs of examples/: each on several ranks, with a result that is known or that one rank has."""

import os
import re
import unittest

import gwrun
from gwrun import MPIEXEC, SOURCE

FOLDER = os.path.join(os.environ["BUILD"], "examples")
SMALL = ("--steps 60 --batch 12 --context 16 --width 32 --layers 2 --heads 2 --warmup 10 --test 30 "
         "--rate 0.003").split()
TESTED = re.compile(r"^step (\d+): test ([\d.]+) nats", re.MULTILINE)


def call(ranks, program, *words, status=0):
    """What a program of examples/ says: its standard output, or its errors if it is to fail."""
    done = gwrun.finished([MPIEXEC, "-n", str(ranks), os.path.join(FOLDER, program), *words])
    if done.returncode != status:
        raise AssertionError(f"{program} {words}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stderr if status else done.stdout


class LeastSquares(unittest.TestCase):
    def test_finds_the_solution(self):
        for ranks in (1, 2, 3):
            said = call(ranks, "least_squares")
            self.assertLess(float(said.split()[-1]), 0.01, said)
            self.assertIn(f"{ranks} ranks:", said)

    def test_is_the_page_of_the_header(self):
        """But for its messages: what both do with gradwire."""
        calls = []
        for path in ("examples/least_squares.c", "include/gradwire.h"):
            text = re.sub(r"^ \*  ?", "", gwrun.read(SOURCE, path), flags=re.MULTILINE)
            text = text[text.index("int main(void)"):]
            text = text[:text.index("gradwire_close(g)")]
            calls.append([re.sub(r"[\s{]", "", line) for line in text.splitlines() if "gradwire" in line])
        self.assertEqual(calls[0], calls[1])


class Gpt(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.path("text")
        text = gwrun.read(SOURCE, "LICENSE").encode("ascii", "ignore")
        gwrun.write(cls.text, text[:12000])
        cls.alone = cls.curve(1)

    @classmethod
    def curve(cls, ranks, *words):
        """Test losses of the small configuration."""
        said = call(ranks, "gpt", "--text", cls.text, *SMALL, "--", *words)
        return [float(loss) for _, loss in TESTED.findall(said)]

    def test_gradients_are_those_of_differences(self):
        self.assertIn("28 tensors, 0 wrong", call(1, "gpt_check"))

    def test_loss_falls(self):
        self.assertEqual(len(self.alone), 2)
        self.assertLess(self.alone[0], 3.6)  # ln of some 60 characters, 4.1, to begin with
        self.assertLess(self.alone[1], self.alone[0] - 0.05)

    def test_ranks_train_as_one(self):
        for ranks, words in ((2, "--comm iallreduce"), (3, "--comm sharded"), (2, "--comm ps")):
            for here, there in zip(self.curve(ranks, *words.split()), self.alone):
                self.assertAlmostEqual(here, there, delta=1e-3, msg=f"{ranks} {words}")

    def test_lazy_is_eager_to_the_bit(self):
        for words in (["--comm", "iallreduce:bucket=4K"], ["--comm", "delayed"], ["--comm", "ps"]):
            self.assertEqual(self.curve(2, *words, "--update", "lazy"), self.curve(2, *words), words)
        for here, there in zip(self.curve(2, "--comm", "sharded", "--update", "lazy"), self.alone):
            self.assertAlmostEqual(here, there, delta=1e-3)  # other shards, and so another order of sums

    def test_lazy_updates_in_the_next_forward_pass(self):
        """The first batch updates nothing; the last one's update is in no batch."""
        folder = self.path("lazy")
        self.curve(2, "--comm", "iallreduce", "--update", "lazy", "--out", folder, "--overwrite")
        updates = [float(row["update_s"]) for row in gwrun.batches(folder) if row["rank"] == "0"]
        after_validation = (0, 30)
        self.assertEqual([i for i, s in enumerate(updates) if s == 0], list(after_validation))

    def test_a_codec_changes_little_but_something(self):
        curve = self.curve(2, "--compress", "qsgd:bits=8")
        self.assertNotEqual(curve, self.alone)
        self.assertAlmostEqual(curve[-1], self.alone[-1], delta=0.05)

    def test_gradients_travel_under_the_backward_pass(self):
        """A layer's are on their way while others are computed, which takes some time in each batch."""
        folder = self.path("run")
        self.curve(2, "--comm", "iallreduce:bucket=4K", "--out", folder)
        rows = gwrun.batches(folder)
        self.assertEqual(len(rows), 2 * 60)
        self.assertTrue(all(float(row["inflight_s"]) > 0 for row in rows))
        self.assertTrue(all(float(row["forward_s"]) > 0 < float(row["backward_s"]) for row in rows))

    def test_bad_input(self):
        """One line, whatever the number of ranks."""
        for words, wanted in (
                (["--text", "/no/such"], "gpt: --text /no/such: No such file or directory"),
                ([], "gpt: --text FILE is missing"), (["--text", self.text, "--heads", "3"], "--width 128"),
                (["--text", self.text, "--steps", "1e3"], "--steps 1e3: must be a number"),
                (["--text", self.text, "--", "--comm", "nope"], "unknown strategy 'nope'"),
                (["--text", self.text, "--batch", "1"], "fewer sequences than ranks")):
            said = call(2, "gpt", *words, status=2)
            lines = [line for line in said.splitlines() if line.startswith("gpt: ")]
            self.assertEqual(len(lines), 1, said)
            self.assertIn(wanted, lines[0])
