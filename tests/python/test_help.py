"""Help is where a user looks for it, and fits the terminal; what cannot be written is an error."""

import os
import subprocess
import unittest

import gwrun


class Help(unittest.TestCase):
    def same(self, *ways):
        first, *others = [gwrun.run(0, *words) for words in ways]
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        for words, other in zip(ways[1:], others):
            self.assertEqual((other.returncode, other.stdout), (0, first.stdout), words)
        return first.stdout

    def test_ways(self):
        self.assertIn("usage: gradwire COMMAND", self.same(["--help"], ["-h"], ["help"], []))
        self.assertIn("--checkpoint-every", self.same(["train", "--help"], ["train", "-h"],
                                                      ["help", "train"]))
        self.assertIn("--sizes", self.same(["bench", "overlap", "--help"], ["help", "bench", "overlap"]))
        self.assertIn("RUN", self.same(["show", "--help"], ["help", "show"]))
        self.same(["--version"], ["version"])

    def test_width(self):
        for columns in (80, 120):
            lines = gwrun.run(0, "help", "train", env={**os.environ, "COLUMNS": str(columns)}).stdout.split("\n")
            options = [line for line in lines if line.startswith("  ")]
            self.assertLessEqual(max(map(len, options)), columns)
            self.assertGreater(max(map(len, options)), columns - 20)
        self.assertIn("Measurement:", lines)

    def test_full_disk(self):
        for words in (["help"], ["list"], ["train", "--help"], ["doctor"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([gwrun.GRADWIRE, *words], stdout=full, stderr=subprocess.PIPE,
                                      text=True, check=False, timeout=60)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), words)
            self.assertIn("disk full", done.stderr)
