"""examples/plain_loops: all forms of its loops train alike on any number of ranks and threads, and its run folder is
read like that of any other client of the library."""

import gzip
import os

import gwrun
import identities
from test_examples import call
from test_tiny_dnn import write_images

FORMS = ("sample", "batch", "blocked", "simd", "blas")
BATCHES = 13  # of an epoch; the last one is short
REPORT, SHOW, TABLE = (os.path.join(gwrun.SOURCE, "analysis", name) for name in ("report", "show", "table"))


class PlainLoops(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, count in (("train", 250), ("t10k", 100)):
            write_images(cls.dir, name, count)
        for name in os.listdir(cls.dir):
            gwrun.write(cls.path(f"{name}.gz"), gzip.compress(gwrun.read_bytes(cls.dir, name)))
        cls.losses = cls.train("alone", 1)

    @classmethod
    def train(cls, name, ranks, *words):
        """The losses of its batches."""
        call(ranks, "plain_loops", "--data", cls.dir, "--layers", "20,12", "--batch", "20", "--lr", "0.2",
             "--epochs", "2", *words, "--out", cls.path("runs", name), "--overwrite")
        return gwrun.losses(cls.path("runs", name))

    def check_alike(self, ranks, *words):
        with self.subTest(ranks=ranks, words=words):
            self.assertLess(gwrun.apart(self.train("other", ranks, *words), self.losses), 1e-4)

    def test_trains(self):
        self.assertEqual(len(self.losses), 2 * BATCHES)
        self.assertLess(sum(self.losses[-5:]), 0.6 * sum(self.losses[:5]))
        results = gwrun.run_json(self.path("runs", "alone"))["results"]
        self.assertLess(results["test_loss"], self.losses[0])
        self.assertGreater(results["test_accuracy"], 0.5)

    def test_forms_train_alike(self):
        for form in FORMS:
            self.check_alike(1, "--loops", form, "--sum", "reduction")
            self.check_alike(2, "--loops", form, "--threads", "2", "--schedule", "dynamic")

    def test_exchanges_train_alike(self):
        for comm in ("allreduce:algo=native", "ps:algo=native", "sharded"):
            for ranks in (1, 2, 3):
                self.check_alike(ranks, "--loops", "blas", "--sum", "reduction", "--threads", "2", "--comm", comm)

    def test_other_networks(self):
        """Sigmoids with log loss, as the trainer computes it; no hidden layer; images that come several times over."""
        told = {}
        for words in (("--activation", "sigmoid", "--output", "sigmoid"), ("--layers", "")):
            losses = self.train("other", 2, *words)
            self.assertLess(losses[-1], 0.9 * losses[0])
            told[words] = losses[0]
        self.assertAlmostEqual(told["--activation", "sigmoid", "--output", "sigmoid"], 10 * 0.693, delta=2)
        self.assertEqual(len(self.train("other", 1, "--limit", "50", "--replicate", "3", "--epochs", "1")), 8)

    def test_its_folder(self):
        self.train("two", 2, "--comm", "ps:algo=native", "--threads", "1")
        out = self.path("runs", "two")
        run = gwrun.run_json(out)
        self.assertEqual((run["program"], run["comm"]["strategy"]), ("library", "ps"))
        parameters = 785 * 20 + 21 * 12 + 13 * 10
        self.assertEqual(run["parameters"], parameters)
        identities.leaves(self, out, False)
        for row in gwrun.batches(out):
            self.assertEqual(int(row["logical_bytes"]), 4 * parameters)
            for phase in ("data_s", "forward_s", "backward_s", "update_s"):
                self.assertGreater(float(row[phase]), 0, phase)
        self.assertEqual(len(gwrun.rows(out, "epochs.csv")), 2)
        for script, word in ((SHOW, "ps over native"), (TABLE, "two ")):
            self.assertIn(word, gwrun.well(gwrun.script(script, out)))

    def test_its_speedup(self):
        """Of runs on 1 and 2 ranks, whose options do not say how many samples a step has."""
        for ranks in (1, 2):
            self.train(os.path.join("scaling", str(ranks)), ranks, "--comm", "allreduce:algo=native")
        gwrun.well(gwrun.script(REPORT, self.path("runs", "scaling"), "--tables", self.path("tables")))
        rows = gwrun.rows(self.path("tables"), "scaling.csv")
        self.assertEqual(len(rows), 2)
        self.assertGreater(float(rows[-1]["speedup"]), 0)

    def test_refusals(self):
        for words, wanted in (
                (["--loops", "best"], "--loops best: must be sample|batch|blocked|simd|blas"),
                (["--batch", "0"], "--batch 0: must be a number"), (["--epochs", "1.5"], "--epochs 1.5: must be"),
                (["--lr", "fast"], "--lr fast: must be a number"), (["--layers", "5,,6"], "--layers 5,,6"),
                (["--layers", "1,2,3,4,5,6,7,8"], "at most 7"),
                (["--data", "/no/such"], "/no/such/train-images-idx3-ubyte.gz"),
                (["--comm", "nope"], "unknown strategy 'nope'"), (["--nope"], "unknown option 'nope'"),
                (["--ceilings", "off"], "an option of gradwire train")):
            for ranks in (1, 2):
                with self.subTest(words=words, ranks=ranks):
                    said = call(ranks, "plain_loops", "--data", self.dir, *words, status=2)
                    lines = [line for line in said.splitlines() if line.startswith("plain_loops: ")]
                    self.assertEqual(len(lines), 1, said)
                    self.assertIn(wanted, lines[0])
