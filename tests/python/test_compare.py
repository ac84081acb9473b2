"""analysis/compare: exit status and text for real runs, alike and slowed down, and for runs whose
figures are made up so that the answer is known."""

import io
import os
import runpy
import shutil
import sys
import tempfile
from unittest import mock

import gwrun
from reportcase import ReportCase

from reporting import model, runs, sidebyside

SCRIPT = os.path.join(gwrun.SOURCE, "analysis", "compare")
TRAIN = ["--data", "synthetic:samples=2000,features=100,classes=4,seed=1", "--layers", "64",
         "--batch", 100, "--steps", 40, "--overhead", 0, "--ceilings", "off"]


def compare(*words):
    return gwrun.script(SCRIPT, *map(str, words))


def derive(run, folder, second, figures, change=lambda info: None):
    """The same run as `folder`, started in that second of a day; `figures`: columns that all its rows have."""
    if folder != run:
        shutil.copytree(run, folder)
    info = gwrun.run_json(run)
    info["started_utc"] = f"2024-01-01T00:{second // 60:02}:{second % 60:02}Z"
    info["results"]["summary"].update(wall_s=figures["wall_s"], interrupted=0)
    del info["results"]["summary"]["halves"]  # a busy machine's disagree
    change(info)
    gwrun.write(os.path.join(folder, "run.json"), info)
    gwrun.write_rows(os.path.join(folder, "batches.csv"), [{**row, **figures} for row in gwrun.batches(run)])


class RealRuns(gwrun.Shared):
    """A, B and a slower C, five runs each, in turn: real folders, but with step times made up, so that
    nothing depends on how busy the machine is."""
    STEP, DELAY = 1e-3, 5e-3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        second = 0
        for seed in range(1, 6):
            for batch in (100, 50):
                run = cls.path("A", f"{batch}-{seed}")
                gwrun.train(1, run, *TRAIN, "--batch", batch, "--seed", seed)
                step = cls.STEP * (1 + 0.02 * seed)  # as a machine that slows down
                for side, took, delay in (("B", step * (1 + 0.01 * (-1) ** seed), 0),
                                          ("C", step, cls.DELAY), ("A", step, 0)):
                    second += 1
                    cls.derive(run, cls.path(side, f"{batch}-{seed}"), second,
                               took, delay)

    @staticmethod
    def derive(run, folder, second, took, delay):
        """Its steps took so long, and the delay."""
        def change(info):
            if delay > 0:
                info["options"]["inject-skew"] = f"0:{delay:g}"
            info["results"]["summary"]["phases"]["data_s"] = 0.1 * took + delay
        derive(run, folder, second, {"wall_s": took + delay, "data_s": 0.1 * took + delay}, change)

    def compare(self, a, b, *words):
        return compare(*(self.path(side) for side in (a, b)), *words)

    def test_alike(self):
        said = gwrun.quiet(self.compare("A", "B", "--threshold", "50%"))
        self.assertIn("same machine, MPI, commit and options", said)
        self.assertIn("no regression of more than 50% in 2 cells", said)
        self.assertIn("pairs of runs, which both sides took in turn", said)

    def test_slower(self):
        done = self.compare("A", "C", "--threshold", "50%")
        self.assertEqual((done.returncode, done.stderr), (1, ""), done.stdout)
        self.assertEqual(done.stdout.count("REGRESSION"), 2, done.stdout)
        self.assertIn("differs: inject-skew: none -> 0:", done.stdout)
        self.assertEqual(self.compare("C", "A").returncode, 0)  # an improvement

    def test_accuracy_is_untouched(self):
        said = gwrun.well(self.compare("A", "C", "--metric", "accuracy"))
        self.assertEqual(said.count("equal in all 5 pairs of seeds"), 2, said)

    def test_column(self):
        done = self.compare("A", "C", "--metric", "data_s", "--threshold", "50%")
        self.assertEqual(done.returncode, 1, done.stdout)  # the delay is taken there
        self.assertIn("x more", done.stdout)

    def test_single_runs(self):
        said = gwrun.well(self.compare("A/100-1", "C/100-1"))
        self.assertIn("cannot be told: 1 pair", said)
        self.assertIn("Too few for any verdict", said)


class Studies(ReportCase):
    """Two versions of one study."""

    def test_a_cell_that_diverges(self):
        sides = [self.study(os.path.join(side, "demo"), blocks=3) for side in "AB"]
        for block in range(3):
            self.record(f"B/demo/b{block:02d}-s1/comm=iallreduce", state="diverged")
        done = compare(*sides, "--threshold", "900%")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("REGRESSION: diverges in B: iallreduce:algo=sra", done.stdout)
        self.assertIn("1 regression of more than 900% in 2 cells", done.stdout)
        self.assertRegex(done.stdout, "(?m)^allreduce ")
        gwrun.well(compare(*reversed(sides), "--threshold", "900%"))


class KnownRuns(gwrun.Shared):
    """A real run, copied with step times of its own."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.path("model")
        gwrun.train(1, cls.model, *TRAIN)

    def setUp(self):
        self.root = tempfile.mkdtemp(dir=self.dir)

    def run_folder(self, name, wall, second, change=lambda info: None):
        """A run whose steps all take `wall`, started in the given second."""
        derive(self.model, os.path.join(self.root, name), second, {"wall_s": wall}, change)

    def side(self, name, walls, change=lambda info: None, start=0, every=10):
        for i, wall in enumerate(walls):
            self.run_folder(f"{name}/{i}", wall, start + i * every, change)

    def compare(self, *words):
        return compare(os.path.join(self.root, "A"), os.path.join(self.root, "B"), *words)

    WALLS = (1.00e-3, 1.01e-3, 0.99e-3, 1.02e-3, 0.98e-3)

    def test_unpaired_by_hand(self):
        """ln of 1, 1.01, 0.99, 1.02, 0.98 has deviation 0.015816 on both sides: error 0.010003 of
        the difference, 8 degrees of freedom, t 2.30600, half an interval 0.023067 around ln 1.1."""
        self.side("A", self.WALLS)
        self.side("B", [1.1 * wall for wall in reversed(self.WALLS)], start=100)
        done = self.compare()
        self.assertEqual((done.returncode, done.stderr), (1, ""), done.stdout)
        self.assertIn("10% slower (7.5..13%): REGRESSION", done.stdout)
        self.assertIn("1.1 (1.075..1.126)", done.stdout)
        self.assertIn("1 (0.98..1.02)", done.stdout)  # the median of A and its interval, the range
        self.assertIn("not paired", done.stdout)
        self.assertEqual(self.compare("--threshold", "11%").returncode, 0)

    def test_paired_where_in_turn(self):
        """Both sides drift by 2% a run: only pairs tell 1% apart."""
        walls = [1.02**i * 1e-3 for i in range(5)]
        slower = [1.01 * wall * (1 + 1e-4 * (-1) ** i) for i, wall in enumerate(walls)]
        self.side("A", walls)
        self.side("B", slower, start=5)
        done = self.compare("--threshold", "0.5%")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("1.0% slower", done.stdout)
        for i, wall in enumerate(slower):  # the same runs, but all of them later
            os.rename(os.path.join(self.root, f"B/{i}"), os.path.join(self.root, f"early-{i}"))
            self.run_folder(f"B/{i}", wall, 100 + i)
        self.assertIn("inside the noise", gwrun.well(self.compare("--threshold", "0.5%")))

    def test_lower_accuracy(self):
        def accuracy(value, seed):
            def change(info):
                info["results"]["test_accuracy"] = value
                info["seed"] = seed
            return change

        for i in range(4):
            self.run_folder(f"A/{i}", 1e-3, i, accuracy(0.9 + 0.01 * i, i))
            # The pairs are of equal seed, whatever the order.
            self.run_folder(f"B/{i}", 1e-3, 20 - i, accuracy(0.8 + 0.01 * i, i))
        done = self.compare("--metric", "accuracy")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("11% lower (11..11%)", done.stdout)
        self.assertEqual(self.compare("--metric", "accuracy", "--threshold", "15%").returncode, 0)
        self.assertEqual(self.compare("--metric", "step").returncode, 0)

    def test_repeated_seeds_are_no_sample(self):
        """Five runs of one seed end alike, to the last digit, and so say nothing of other seeds."""
        for i in range(5):
            self.run_folder(f"A/{i}", 1e-3, i)
            self.run_folder(f"B/{i}", 1e-3, 10 + i,
                            lambda info: info["results"].update(test_accuracy=0.1))
        self.assertIn("cannot be told: 1 pair", gwrun.well(self.compare("--metric", "accuracy")))

    def test_what_differs_is_said(self):
        def elsewhere(info):
            info["machine"].update(cpu="Another CPU", oversubscribed=True, hosts=["b"])
            info["mpi"]["library"] = "Open MPI 5"
            info["commit"] = "0123abc"
            info["options"]["lr"] = 0.2

        self.side("A", self.WALLS)
        self.side("B", self.WALLS, elsewhere, start=100)
        said = gwrun.well(self.compare())
        for words in ("cpu: ", "-> Another CPU", "oversubscribed: no -> yes", "-> Open MPI 5",
                      "-> 0123abc", "lr: 0.1 -> 0.2", "host names: "):
            self.assertIn(words, said)
        self.assertIn("all runs *", said)
        self.assertIn("*: oversubscribed", said)

    def test_cells_of_one_side(self):
        def batch(value):
            return lambda info: info["options"].update(batch=value)

        for side, sizes in (("A", (10, 20)), ("B", (20, 30))):
            for size in sizes:
                self.side(f"{side}/{size}", self.WALLS[:3], batch(size))
        os.makedirs(os.path.join(self.root, "B", "torn"))
        gwrun.write(os.path.join(self.root, "B", "torn", "run.json"), gwrun.read(self.model, "run.json")[:100])
        lines = [line.strip() for line in gwrun.well(self.compare("--markdown")).splitlines()]
        self.assertEqual(lines[2], "B: 6 done, 1 left out")
        self.assertIn("only in A: 10", lines)
        self.assertIn("only in B: 30", lines)
        self.assertIn("|---|---|---|---|---|---|", lines)
        self.assertEqual([line.split("|")[1].strip() for line in lines if line.startswith("| 2")], ["20"])
        self.assertTrue(any(line.startswith("without figures in B: torn: left out: run.json: not valid")
                            for line in lines), lines)

    def test_many_cells(self):
        """20 cells without a difference: Holm keeps what single tests would flag from failing."""
        def cell(value):
            return lambda info: info["options"].update(batch=value)

        # 4% apart, with a spread of 1.6% on both sides: p = 0.004, above 0.05 / 20.
        for i in range(20):
            self.side(f"A/{i}", self.WALLS, cell(i + 1))
            ratio = 1.04 if i == 7 else 1
            self.side(f"B/{i}", [ratio * wall for wall in reversed(self.WALLS)], cell(i + 1), 100)
        self.assertIn("no regression of more than 1% in 20 cells", gwrun.well(self.compare("--threshold", "1%")))

    def test_a_study_beside_a_stray_link_is_compared_whatever_its_name(self):
        self.side("A", self.WALLS)
        self.side("B", self.WALLS, start=100)
        sides = [runs.read_results(os.path.join(self.root, name)) for name in "AB"]
        for name, side in zip("ab", sides):
            side[0].name, side[0].study = name, {"cells": []}
        sides[1].append(model.Results("rest", ".", None, {}, [], None, [("x", "a link")], []))
        both = sidebyside.compare(*sides, "step", 0.05)
        self.assertEqual((len(both.rows), both.only), (1, ([], [])))
        self.assertEqual(both.failed[1], ["x: left out: a link"])

    def test_modelled_columns_are_marked(self):
        self.side("A", self.WALLS[:1])
        run, = runs.read_results(os.path.join(self.root, "A"))[0].cells[0].runs
        run.marks, run.info["sources"]["wire_bytes"] = [], "modelled: what is optimal"
        modelled = ["modelled, not measured"]
        for name, marks in (("memory_twin_s", modelled), ("core_model_hi_s", modelled),
                            ("wire_bytes", modelled), ("memory_ctr_s", []), ("step", [])):
            self.assertEqual(sidebyside.marks(name, [run]), marks, name)

    def refused(self, words, *arguments):
        gwrun.refusal(compare(*arguments), words)

    def test_bad_input(self):
        self.side("A", self.WALLS[:3])
        good, empty = os.path.join(self.root, "A"), os.path.join(self.root, "empty")
        os.mkdir(empty)
        self.refused("No such file", good, os.path.join(self.root, "nothing"))
        self.refused("no finished run", good, empty)
        self.refused("Not a directory", good, os.path.join(good, "0", "run.json"))
        self.refused("required: B", good)
        self.refused("did you mean accuracy?", good, good, "--metric", "acuracy")
        self.refused("mpi_wait_s", good, good, "--metric", "mpi_wait")
        self.refused("must be a percentage", good, good, "--threshold", "0.05")
        self.refused("must be a percentage", good, good, "--threshold", "nan%")
        self.refused("unrecognized", good, good, "--thresold", "5%")

    def test_a_fault_is_no_regression(self):
        """1 would stop a change that is innocent."""
        words, errors = [SCRIPT, "a", "b"], io.StringIO()
        with mock.patch.object(sys, "argv", words), mock.patch.object(sys, "stderr", errors), \
                mock.patch.object(sidebyside, "compare", side_effect=KeyError("odd")), \
                mock.patch.object(runs, "read_results", return_value=[mock.Mock(cells=[1])]), \
                self.assertRaises(SystemExit) as ended:
            runpy.run_path(SCRIPT, run_name="__main__")
        self.assertEqual((ended.exception.code, "odd" in errors.getvalue()), (3, True))

    def test_nothing_in_common(self):
        for side, sizes in (("A", (10, 20)), ("B", (30, 40))):
            for size in sizes:
                self.side(f"{side}/{size}", self.WALLS[:3],
                          lambda info: info["options"].update(batch=size))
        self.refused("no cell is in both", os.path.join(self.root, "A"),
                     os.path.join(self.root, "B"))
