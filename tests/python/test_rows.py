"""The row files of a run that is resumed from a checkpoint, and who may use its folder."""

import glob
import json
import os
import re
import shutil

import gwrun
from test_mesh_resume import put_manifest

RUN = ["--data", "synthetic:samples=600,features=8,classes=3,seed=1", "--layers", "6", "--batch", 20,
       "--ceilings", "off", "--overhead", 0, "--papi-group", "none", "--checkpoint-every", 6]


def steps_and_ranks(out):
    return [(int(row["step"]), int(row["rank"])) for row in gwrun.batches(out)]


def both(first, last, ranks):
    return [(step, rank) for step in range(first, last + 1) for rank in range(ranks)]


class Rows(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.first = cls.path("first")
        gwrun.train(2, cls.first, *RUN, "--steps", 12)

    def copy(self, name):
        out = self.path(name)
        shutil.copytree(self.first, out)
        return out

    def refused(self, out, *words):
        return gwrun.refusal(gwrun.run(1, "train", "--out", out, *words))

    def show(self, out):
        done = gwrun.clean(1, "show", out)
        return done.stdout

    def test_other_ranks(self):
        """A complete run is continued on one rank; then from a middle step, with later rows cut off;
        then on two ranks again, whose summary covers their own steps."""
        out = self.copy("other")
        run = gwrun.train(1, out, *RUN, "--steps", 18, "--resume", "auto")
        self.assertEqual(steps_and_ranks(out), both(1, 12, 2) + both(13, 18, 1))
        self.assertEqual(run["resumed"]["from_ranks"], 2)
        self.assertEqual(run["resumed"]["steps_not_in_summary"], 12)
        self.assertEqual(run["results"]["summary"]["batches"], 6)
        self.assertEqual(run["results"]["steps"], 18)
        self.assertIn("RESUMED 1 time, last after step 12 of 2 ranks; 12 steps of other",
                      self.show(out))
        shown = json.loads(gwrun.run(1, "show", "--json", out).stdout)["runs"][0]
        self.assertEqual((shown["resumed"]["step"], shown["steps_of_other_ranks"]), (12, 12))
        middle = os.path.join(out, "model.ckpt.d", "step-000000000012")
        run = gwrun.train(2, out, *RUN, "--steps", 24, "--resume", middle)
        self.assertEqual(steps_and_ranks(out), both(1, 24, 2))
        self.assertEqual(run["resumed"]["steps_not_in_summary"], 0)
        self.assertEqual(run["results"]["summary"]["batches"], 14)
        self.assertEqual([one["step"] for one in run["interruptions"]], [12, 12])
        self.assertIn("14 steps after 10 of warm-up", self.show(out))

    def test_other_folder(self):
        """The rows up to the checkpoint are copied; if they are missing, that is reported."""
        out = self.path("elsewhere")
        before = sorted(os.listdir(self.first))
        run = gwrun.train(2, out, *RUN, "--steps", 18, "--resume", self.first)
        self.assertEqual(steps_and_ranks(out), both(1, 18, 2))
        self.assertEqual(run["resumed"]["dropped"], [])
        self.assertEqual(sorted(os.listdir(self.first)), before)
        alone = self.path("alone")
        shutil.copytree(os.path.join(self.first, "model.ckpt.d"),
                        os.path.join(alone, "model.ckpt.d"))
        self.assertIn("--resume-strict: ", self.refused(self.path("strict"), *RUN,
                                                        "--resume", alone, "--resume-strict"))
        out = self.path("bare")
        run = gwrun.train(2, out, *RUN, "--steps", 18, "--resume", alone)
        self.assertEqual(steps_and_ranks(out), both(13, 18, 2))
        self.assertEqual(len(run["resumed"]["dropped"]), 1)
        self.assertEqual(run["resumed"]["steps_not_in_summary"], 12)
        self.assertIn("6 steps after 0 of warm-up", self.show(out))
        gwrun.train(2, out, *RUN, "--steps", 24, "--resume", "auto")  # rows that begin at 13
        self.assertEqual(steps_and_ranks(out), both(13, 24, 2))

    def test_strict_comes_first(self):
        """If --resume-strict refuses, the files that --overwrite would replace are still there."""
        out, alone = self.copy("version"), self.path("checkpoint")
        shutil.copytree(os.path.join(self.first, "model.ckpt.d"), alone)
        before = gwrun.contents(out)
        self.assertIn("--resume-strict: ", self.refused(out, *RUN, "--resume", alone, "--overwrite",
                                                        "--resume-strict"))
        self.assertEqual(gwrun.contents(out), before)

    def test_rows_that_one_start_has_no_use_for(self):
        """Its checkpoints know of them all the same."""
        out, stats = self.path("stats"), ["--compress", "onebit",
                                                            "--compress-stats", 5]
        words = [*RUN[:-2], "--checkpoint-every", 10, "--epochs", 4]  # of 30 steps
        gwrun.train(1, out, *words, *stats, "--steps", 30)
        gwrun.train(1, out, *words, *stats[:2], "--steps", 60, "--resume", "auto")
        gwrun.train(1, out, *words, *stats, "--steps", 120, "--resume", "auto")
        epochs = {line.split(",")[0] for line in gwrun.read(out, "codec.csv").splitlines()[1:]}
        self.assertEqual(epochs, {"1", "3", "4"})

    def test_rows_that_cannot_go_on(self):
        """Nothing of the run is lost by that."""
        out = self.copy("columns")
        words = [*RUN, "--steps", 18, "--resume", "auto"]
        path = os.path.join(out, "batches.csv")
        rows = gwrun.read(path)

        def write(text):
            gwrun.write(path, text)

        before = gwrun.contents(out)
        write(rows.replace("interrupted\n", "interrupted,cycles\n", 1))
        self.assertIn("its columns are not those of this run", self.refused(out, *words))
        write(rows[:-1])
        self.assertIn("too short", self.refused(out, *words))
        os.remove(path)
        self.assertIn("batches.csv.part: No such file", self.refused(out, *words))
        write(rows)
        self.assertEqual(gwrun.contents(out), before)
        write(rows + "what a killed one has")
        gwrun.train(2, out, *words)
        self.assertEqual(steps_and_ranks(out), both(1, 18, 2))

    def test_rows_of_another_version(self):
        out = self.copy("another")
        path = os.path.join(out, "batches.csv")
        rows = gwrun.read(path)
        gwrun.write(path, rows.replace(",interrupted\n", ",interruptee\n", 1))
        for manifest in glob.glob(os.path.join(out, "model.ckpt.d", "*", "manifest")):
            text, n = re.subn('"gradwire": *"[^"]*"', '"gradwire": "0.0.9 (abc)"', gwrun.read(manifest))
            self.assertEqual(n, 1)
            put_manifest(os.path.dirname(manifest), text)
        self.assertIn("gradwire 0.0.9 (abc) wrote it, whose columns are not those of this version: resume "
                      "with that one", self.refused(out, *RUN, "--steps", 18, "--resume", "auto"))

    def test_who_may_have_the_folder(self):
        out = self.copy("taken")
        anew = [*RUN, "--steps", 6]
        self.assertIn("holds a run already (run.json)", self.refused(out, *anew))
        for name in set(os.listdir(out)) - {"model.ckpt.d", "batches.csv"}:
            os.remove(os.path.join(out, name))
        os.rename(os.path.join(out, "batches.csv"), os.path.join(out, "batches.csv.part"))
        self.assertIn("interrupted (model.ckpt.d)", self.refused(out, *anew))
        damaged = os.path.join(out, "model.ckpt.d")
        for name in os.listdir(damaged):
            os.remove(os.path.join(damaged, name, "manifest"))
        self.assertIn("all checkpoints", self.refused(out, *anew, "--resume", "auto"))
        shutil.rmtree(damaged)
        self.assertIn("interrupted (batches.csv.part)", self.refused(out, *anew))
        gwrun.write(os.path.join(out, "interruptions.jsonl"), '{"event":"ended","attempt":1}\n{"event":"en')
        run = gwrun.train(1, out, *anew, "--resume", "auto")  # killed before its first checkpoint
        self.assertEqual([one["event"] for one in run["interruptions"]],
                         ["ended", "unreadable", "resumed"])
        self.assertIsNone(run["resumed"])
        self.assertEqual(steps_and_ranks(out), both(1, 6, 1))
        shutil.rmtree(damaged)
        self.assertIn("without a checkpoint", self.refused(out, *anew, "--resume", "auto"))
        shutil.copytree(os.path.join(self.first, "model.ckpt.d"), damaged)
        run = gwrun.train(1, out, *anew, "--overwrite")
        self.assertEqual(run["interruptions"], [])
        self.assertEqual(sorted(os.listdir(damaged)), ["step-000000000006"])
