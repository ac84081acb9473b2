"""How much of a run is measured: --profile."""

import os
import tempfile
import unittest

import gwrun

SMALL = ("--data", "synthetic:samples=4000,features=64,classes=5", "--layers", "32")

# What a run knows without any probe.
KNOWN = {"rank", "epoch", "step", "samples", "loss", "t_start_s", "wall_s", "logical_bytes"}


class Profile(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def train(self, profile, *words):
        out = os.path.join(self.dir.name, profile)
        run = gwrun.train(2, out, *SMALL, "--steps", 30, "--epochs", 1, "--profile", profile,
                          *words)
        return run, out

    def test_off_measures_walls_alone(self):
        """What is not measured is blank, not 0; and the training is the same."""
        comm = ("--comm", "iallreduce:bucket=4K", "--compress", "topk:ratio=0.1")
        off, out = self.train("off", *comm)
        rows = gwrun.batches(out)
        self.assertEqual(len(rows), 60)
        for row in rows:
            self.assertEqual({name for name, text in row.items() if text}, KNOWN)
            self.assertGreater(float(row["wall_s"]), 0)
        summary = off["results"]["summary"]
        self.assertGreater(summary["wall_s"], 0)
        for key in ("compute_s", "exposed_s", "hidden_s", "codec_s", "wire_bytes"):
            self.assertIsNone(summary[key], key)
        self.assertEqual({text for key, text in summary["phases"].items()}, {None})
        self.assertIsNone(off["results"]["wire_bytes"])
        self.assertEqual(off["sources"]["phases"], "absent")
        with open(os.path.join(out, "epochs.csv"), encoding="utf-8") as file:
            names, epoch = (line.strip().split(",") for line in file)
        self.assertEqual(epoch[names.index("wire_bytes")], "")
        timers, _ = self.train("timers", *comm)
        self.assertEqual(off["results"]["replica_hash"], timers["results"]["replica_hash"])
        self.assertGreater(timers["results"]["wire_bytes"], 0)
        self.assertEqual(timers["options"]["profile"], "timers")

    def test_end_line(self):
        done = gwrun.run(2, "train", *SMALL, "--steps", 5, "--profile", "off")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("its parts were not measured (--profile off)", done.stdout)
        self.assertNotIn("nan", done.stdout)

    def test_trace_needs_timers(self):
        done = gwrun.run(2, "train", *SMALL, "--trace", "--profile", "off", "--out",
                         os.path.join(self.dir.name, "x"))
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("--profile timers", done.stderr)


if __name__ == "__main__":
    unittest.main()
