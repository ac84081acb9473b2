"""What a run's end says beside its loss: precision, recall and F1, the time of the test, resident memory,
and the best epoch by validation, whose model --save-model best keeps."""

import csv
import html
import json
import os
import re
import shutil
import unittest

import gwrun
from reportcase import call

DATA = ("--data", "synthetic:samples=900,features=12,classes=5,seed=3,test=0.2")
TASK = (*DATA, "--layers", "14,10", "--batch", 30, "--ceilings", "off", "--overhead", 0)
SCORES = ("precision", "recall", "f1")
PHASES = ("setup", "training", "evaluation")
# The validation loss rises again before the end.
BEST = (*TASK, "--validation", 0.3, "--save-model", "best", "--lr", 0.8, "--epochs", 5, "--profile", "timers")
STEPS_PER_EPOCH = 17


def epochs(out):
    return gwrun.rows(out, "epochs.csv")


def by_hand(out):
    """The best epoch of epochs.csv."""
    return min(epochs(out), key=lambda row: float(row["validation_loss"]))


class Results(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runs = {}
        for name, ranks, words in (("alone", 1, ()), ("two", 2, ("--profile", "off")),
                                   ("mesh", 4, ("--mesh", "pipe=2,tensor=2"))):
            out = cls.path(name)
            cls.runs[name] = out, gwrun.train(ranks, out, *TASK, "--epochs", 3, *words)["results"]

    def begin(self, name, ranks, *words):
        out = self.path(name)
        gwrun.train(ranks, out, *BEST, *words)
        return out

    # ---- scores and times ----

    def test_scores_are_those_of_eval(self):
        """One definition, on one rank, several, and over a mesh."""
        for out, results in self.runs.values():
            done = gwrun.ok(1, "eval", "--model", out, *DATA)
            macro = re.search(r"^macro +([\d.]+) +([\d.]+) +([\d.]+) ", done.stdout, re.MULTILINE)
            self.assertEqual(macro.groups(), tuple(f"{results[key]:.4f}" for key in SCORES))
            self.assertIn(f"accuracy {results['test_accuracy']:.4f}", done.stdout)

    def test_time_of_the_test(self):
        for name, (out, results) in self.runs.items():
            last = epochs(out)[-1]
            self.assertAlmostEqual(float(last["test_s"]), results["test_s"], delta=1e-8)
            self.assertAlmostEqual(results["test_samples_per_s"] * results["test_s"], 180, places=3)
            forward = results["test_forward_s"]
            if name == "mesh":  # stages wait for each other: not told apart
                self.assertIsNone(forward)
            else:
                self.assertTrue(0 < forward < results["test_s"])
        self.assertIsNone(self.runs["two"][1]["best"])  # no validation set

    # ---- memory ----

    def test_memory(self):
        """Whatever the profile: of each rank and phase, the largest, and a sum that has what a node's
        ranks share once."""
        for out, results in self.runs.values():
            self.assertIn("VmHWM", gwrun.run_json(out)["sources"]["peak_bytes"])
            ranks = results["ranks"]
            for one in ranks:
                peaks = [one["peak_bytes"][phase] for phase in PHASES]
                self.assertGreater(min(peaks), 1 << 20)
                self.assertEqual(one["peak_bytes"]["total"], max(peaks))
            for phase in (*PHASES, "total"):
                peaks = [one["peak_bytes"][phase] for one in ranks]
                shared = [one["shared_bytes"][phase] for one in ranks]
                self.assertEqual(results["peak_bytes"][phase], max(peaks))
                self.assertEqual(results["peak_sum_bytes"][phase],
                                 sum(peaks) - sum(shared) + max(shared))

    @unittest.skipIf(gwrun.cached("GW_SANITIZE"), "a sanitizer keeps memory that was freed")
    def test_data_is_one_copy_a_node(self):
        images = 400000 * 60
        run = gwrun.train(2, self.path("large"), "--data", "synthetic:samples=400000,features=60,test=0.01",
                          "--layers", 8, "--steps", 20, "--batch", 20000, "--ceilings", "off",
                          "--overhead", 0, "--profile", "off")["results"]
        shared = [one["shared_bytes"]["training"] for one in run["ranks"]]
        own = [one["peak_bytes"]["training"] for one in run["ranks"]]
        self.assertGreater(max(shared), 0.95 * images)
        self.assertLess(run["peak_sum_bytes"]["training"], sum(own) - min(shared) + 1)
        self.assertLess(max(own) - max(shared), images)  # no copy of it is a rank's own

    # ---- the best epoch ----

    def test_best_epoch(self):
        """The model of the epoch with the least validation loss, not that of the last: as a run that
        ends there leaves it. Over a mesh, and where replicas differ between their averages, too."""
        for name, *words in (("pipe", "--mesh", "pipe=2"),
                             ("local", "--comm", "local:period=5", "--lr", 1.2)):
            out, short = self.begin(name, 2, *words), self.path(f"short-{name}")
            best = gwrun.run_json(out)["results"]["best"]
            row = by_hand(out)
            self.assertLess(best["epoch"], 5, "the last is the best: this test shows nothing")
            self.assertEqual(best["epoch"], int(row["epoch"]))
            for key in ("validation_loss", "validation_accuracy", "test_accuracy"):
                self.assertAlmostEqual(best[key], float(row[key]), places=7)
            run = gwrun.train(2, short, *BEST, *words, "--save-model", "on", "--epochs", best["epoch"])
            self.assertEqual(run["results"]["best"], best)
            self.assertEqual(gwrun.model(out), gwrun.model(short))

    def test_resumed_to_the_same_best(self):
        """Interrupted before and after the best epoch; here, in another folder, and on other ranks."""
        whole = self.begin("whole", 1)
        best = int(by_hand(whole)["epoch"])
        self.assertTrue(1 < best < 5)
        here, there = self.path("here"), self.path("there")
        every = ("--checkpoint-every", 1000)
        for steps in (best * STEPS_PER_EPOCH - 5, best * STEPS_PER_EPOCH + 5):
            shutil.rmtree(here, ignore_errors=True)
            gwrun.train(1, here, *BEST, *every, "--steps", steps)
            for out, words in ((there, ("--resume", here)), (here, ("--resume", "auto"))):
                shutil.rmtree(there, ignore_errors=True)
                gwrun.ok(1, "train", "--out", out, *BEST, *words)
                self.assertEqual(gwrun.model(out), gwrun.model(whole))
                self.assertEqual(by_hand(out)["replica_hash"], by_hand(whole)["replica_hash"])
        done = gwrun.ok(2, "train", "--out", self.path("two-ranks"), *BEST, "--resume",
                        os.path.join(here, "model.ckpt.d", f"step-{steps:012d}"), "--epochs", best + 1)
        self.assertIn(f"model.gw is that of epoch {best}: ", done.stdout)
        self.assertEqual(gwrun.model(self.path("two-ranks")), gwrun.model(whole))

    def test_a_best_that_was_not_kept(self):
        """Begun without --save-model best: said, and with --resume-strict refused."""
        out = self.begin("unkept", 1, "--save-model", "on", "--checkpoint-every", 1000, "--epochs", 3)
        gwrun.refusal(gwrun.run(1, "train", "--out", out, *BEST, "--resume", "auto", "--resume-strict"),
                      "no model of an epoch before")
        done = gwrun.ok(1, "train", "--out", out, *BEST, "--resume", "auto")
        self.assertIn("the best is one from here on", done.stdout)

    def test_refused(self):
        for words, says in ((("--validation", 0), "--save-model best needs --validation"),
                            ((), "--save-model best needs --out")):
            gwrun.refusal(gwrun.run(2, "train", *BEST, *words), says)

    # ---- shown ----

    def test_shown(self):
        out, results = self.runs["mesh"]
        text = gwrun.run(1, "show", out).stdout
        self.assertIn(f"macro precision {results['precision']:.4f}, recall", text)
        self.assertRegex(text, r"resident memory: a rank at most [\d.]+ MiB \(setup [\d.]+ MiB, training "
                         r"[\d.]+ MiB, evaluation [\d.]+ MiB\); all ranks [\d.]+ MiB")
        shown = json.loads(gwrun.run(1, "show", "--json", out).stdout)["runs"][0]
        for key in (*SCORES, "test_s", "best", "peak_bytes", "peak_sum_bytes"):
            self.assertEqual(shown[key], results[key])
        best = self.begin("shown", 1)
        row = by_hand(best)
        self.assertIn(f"best epoch: {row['epoch']}, with the least validation loss, "
                      f"{float(row['validation_loss']):.4f}", gwrun.run(1, "show", best).stdout)
        table = call("table", "--all", out, best).stdout
        self.assertRegex(table, r"precision +recall +F1 +best epoch +memory +all ranks")
        few = call("table", out, best).stdout
        self.assertNotIn("recall", few)

    def test_marks(self):
        """Runs whose figures are unlike those of others, wherever they are shown."""
        out = self.path("marked", "odd")
        shutil.copytree(self.runs["two"][0], out)
        path = os.path.join(out, "run.json")
        run = gwrun.read_json(path)
        run.update(simulated={"engine": "an engine", "network": {}})
        gwrun.write(path, run)
        said = "no rank ran, all figures are a model's (an engine)"
        self.assertIn(f"SIMULATED: {said}", gwrun.run(1, "show", out).stdout)
        table = call("table", out).stdout
        self.assertIn("odd #", table)
        self.assertIn(f"#: simulated: {said}", table)
        rows = list(csv.DictReader(call("export", out).stdout.splitlines()))
        self.assertIn(f"simulated: {said}", rows[0]["marks"])
        self.assertEqual(call("report", self.path("marked"), draws=[]).returncode, 0)
        page = gwrun.read(self.path("marked", "report.html"))
        self.assertIn(f"Simulated: {html.escape(said)}: 1 of 1 runs", page)
        self.assertIn("2 x 1 (simulated)", page)

    def test_exported(self):
        out, results = self.runs["two"]
        row = list(csv.DictReader(call("export", out).stdout.splitlines()))[0]
        for key in (*SCORES, "test_s"):
            self.assertAlmostEqual(float(row[key]), results[key], places=6)
        self.assertEqual(int(row["peak_sum_bytes.total"]), results["peak_sum_bytes"]["total"])
        self.assertEqual(row["best.epoch"], "")

    def test_report(self):
        """Training, validation and test in one chart, and memory in another."""
        folder = self.path("reported")
        for name, words in (("plain", ()), ("slow", ("--lr", "0.05"))):
            shutil.copytree(self.begin(f"r-{name}", 1, *words), os.path.join(folder, name))
        gwrun.well(call("report", folder, "--plots", self.path("plots")))
        plots = {name: gwrun.read(self.path("plots", f"{name}.svg"))
                 for name in ("accuracy", "memory")}
        self.assertIn(">validation</text>", plots["accuracy"])
        for phase in PHASES:
            self.assertIn(f">{phase}</text>", plots["memory"])
        page = gwrun.read(folder, "report.html").replace("\u00ad", "")  # titles have soft hyphens
        for column in ("macro precision, recall, F1", "test, its forward passes (ms)",
                       "training loss there", "validation loss there", "best epoch, by validation, median", "at most, all ranks (MiB)"):
            self.assertIn(f">{column}<", page)
