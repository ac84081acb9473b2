"""The experiment runner: every cell once, gone on with after an interruption, nothing dropped."""

import csv
import os
import subprocess
import sys
import tempfile
import unittest

import gwrun

RUN = os.path.join(gwrun.SOURCE, "experiments", "run")
SPEC = """
claim: a test
ranks: 2
seeds: [1, 2]
base: --data synthetic:samples=512,features=16,classes=4 --layers 8 --batch 32
factors:
  codec: {none: --compress none, qsgd: --compress qsgd, typo: --compress qsdg}
  rate: {small: --lr 0.05 --epochs 1, absurd: --lr 1000 --weight-decay 0.9 --epochs 3}
skip:
  - {codec: qsgd, rate: absurd}
"""


class Experiments(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = os.path.join(self.folder.name, "out")

    def tearDown(self):
        self.folder.cleanup()

    def run_spec(self, text, *words):
        path = os.path.join(self.folder.name, "spec.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return subprocess.run([sys.executable, "-B", RUN, path, "--out", self.out, "--build",
                               os.environ["BUILD"], *words], capture_output=True, text=True,
                              timeout=300, check=False)

    def rows(self):
        with open(os.path.join(self.out, "runs.csv"), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_every_cell_once(self):
        done = self.run_spec(SPEC)
        self.assertEqual(done.returncode, 1, done.stderr)  # the typo's runs fail and are reported
        rows = {(r["codec"], r["rate"], r["seed"]): r for r in self.rows()}
        self.assertEqual(len(rows), len(self.rows()))
        self.assertEqual(len(rows), 2 * 5)
        for (codec, rate, _), row in rows.items():
            if codec == "typo":
                self.assertEqual((row["status"], row["accuracy"]), ("2", ""))
            elif rate == "absurd":
                self.assertEqual((row["status"], row["accuracy"]), ("1", "diverged"))
            else:
                self.assertTrue(0 <= float(row["accuracy"]) <= 1)
                self.assertGreater(int(row["wire_bytes"]), 0)
        self.assertIn("2 of 2 diverge", done.stdout)
        self.assertIn("did you mean 'qsgd'", done.stdout)

        # One run is lost: only that one is made again, with the same result.
        lost = os.path.join(self.out, "qsgd-small-seed2", "outcome.json")
        before = self.rows()
        os.unlink(lost)
        again = self.run_spec(SPEC)
        self.assertEqual([line.split()[1] for line in again.stdout.splitlines() if "/10 " in line],
                         ["qsgd-small-seed2:"])
        timeless = [[{k: v for k, v in r.items() if k != "seconds"} for r in rows]
                    for rows in (before, self.rows())]
        self.assertEqual(*timeless)

    def test_bad_specs(self):
        for text, why in (("claims: x", "unknown key 'claims'"), ("- 1", "must be a mapping"),
                          ("factors: [a]", "factors: must map"), ("factors: {a: {}}", "factors"),
                          ("factors: {a: {b: c}}\nseeds: 3", "seeds"),
                          ("factors: {a: {b: c}}\nskip: [{a: d}]", "no level 'd'"),
                          ("factors: {", "spec.yaml")):
            with self.subTest(text=text):
                done = self.run_spec(text)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(why, done.stderr)
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
