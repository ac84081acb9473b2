"""The specs that come with gradwire: complete, as their heads say, and startable."""

import glob
import os
import re
import unittest

import gwrun

EXPERIMENTS = os.path.join(gwrun.SOURCE, "experiments")
from ablation import check, spec, tune

PATHS = sorted(glob.glob(os.path.join(EXPERIMENTS, "*.yaml")) +
               glob.glob(os.path.join(EXPERIMENTS, "reports", "*.yaml")))
REPORTS = {"A", "B", "C", "D", "E"}  # whose claims these are: see experiments/README.md
PAPERS = {"DiLoCo", "Streaming DiLoCo", "SparseLoCo", "MuLoCo", "NoLoCo", "GRACE", "Agarwal", "EF21", "1-bit Adam",
          "DeMo", "Dion", "LoCo", "Ok-topk", "Swing", "Bine", "ZeRO++", "Local SGD", "SGP"}  # as heads cite them
ACCURACY = {"codec_accuracy"}  # its seeds are few, for what it compares differs by points
COUNTS = re.compile(r"^# (\d+) runs, .+; --short: (\d+) runs, .+\.$", re.MULTILINE)


def name_of(path):
    return os.path.splitext(os.path.basename(path))[0]


def head(text):
    return "".join(re.match(r"(#[^\n]*\n)*", text)[0])


def start(study):
    """The checks are of options, not of speed: two ranks see what more would, and four, of which a
    mesh can have two dimensions."""
    meshes = any("--mesh" in cell.words for cell in study.cells)
    return lambda ranks: gwrun.command(min(ranks, 4 if meshes else 2))


class Shipped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.studies = {name_of(path): [spec.read_spec(path, short, gwrun.GRADWIRE)
                                       for short in (False, True)] for path in PATHS}

    def each(self):
        for name, (full, short) in self.studies.items():
            with self.subTest(spec=name):
                yield name, full, short

    def test_each_says_what_it_tests(self):
        for name, full, _ in self.each():
            self.assertLessEqual(set(full.source), REPORTS | PAPERS)
            self.assertRegex(full.text, "(?m)^baseline:")
            if name != "quick":
                self.assertTrue(full.source)
                self.assertTrue(full.claims)
                self.assertRegex(head(full.text), r"(?s)\n# Claims?\. .*\bConfirmed\b")

    def test_heads_count_the_runs(self):
        for _, full, short in self.each():
            said = COUNTS.search(head(full.text))
            self.assertTrue(said, "the head must end in: # N runs, TIME; --short: N runs, TIME.")
            self.assertEqual([int(number) for number in said.groups()],
                             [len(spec.plan(study)) for study in (full, short)])

    def test_enough_blocks_for_an_interval(self):
        for name, full, _ in self.each():
            exact = all(cell.exact for cell in full.cells)
            self.assertGreaterEqual(len(full.blocks), 1 if exact else 3 if name in ACCURACY else 5)

    def test_each_statement_can_be_decided(self):
        for _, full, _ in self.each():
            self.assertIsNone(full.doubt)

    def test_a_run_that_hangs_is_ended(self):
        for _, full, short in self.each():
            self.assertTrue(full.timeout_s and short.timeout_s)

    def test_each_report_is_tested(self):
        self.assertEqual({letter for full, _ in self.studies.values() for letter in full.source},
                         REPORTS | PAPERS)

    def test_the_readme_names_each(self):
        named = set(re.findall(r"\]\((?:reports/)?(\w+)\.yaml\)", gwrun.read(EXPERIMENTS, "README.md")))
        self.assertEqual(named, set(self.studies))

    def test_short_cells_start(self):
        for _, _, short in self.each():
            short = tune.unchosen(short)
            check.cells(short, short.cells, start(short), gwrun.SOURCE)  # or BadInput says which cannot
