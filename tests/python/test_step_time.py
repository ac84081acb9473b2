"""The step time: of one run folder all commands tell the same figure, which is what
docs/measurement.md defines, and its parts add up to it."""

import csv
import io
import json
import os
import re
import shutil
import tempfile

import gwrun
from identities import blocks_of, defined, kept, mean

from reporting import failed, runs, summary

BASE = ["--data", "synthetic:samples=4000,features=32,classes=4", "--layers", "32", "--batch", 40,
       "--ceilings", "off", "--overhead", 0, "--papi-group", "none", "--comm"]
RUN = [*BASE, "local:period=4"]
PHASES = ("data_s", "forward_s", "backward_s", "recompute_s", "update_s", "encode_s", "decode_s",
          "mpi_post_s", "mpi_poll_s", "mpi_wait_s", "checkpoint_s", "other_s")


def tool(*words):
    return gwrun.ok(1, *words).stdout


class StepTime(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.said = {}
        cls.train("whole", "--steps", 190)
        cls.train("resumed", "--steps", 60, "--checkpoint-every", 4)
        cls.train("resumed", "--steps", 120, "--checkpoint-every", 4, "--resume", "auto")

    @classmethod
    def train(cls, name, *words):
        done = gwrun.run(2, "train", "--out", cls.path(name), *RUN, *words)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        cls.said[name] = done.stdout

    def shown(self, name):
        return json.loads(tool("show", "--json", self.path(name)))["runs"][0]

    def row(self, name):
        """Of the report's summary.csv, of a folder with this run alone."""
        with tempfile.TemporaryDirectory() as top:
            shutil.copytree(self.path(name), os.path.join(top, name))
            return next(csv.DictReader(io.StringIO(summary.text(runs.read_results(top)))))

    def near(self, text, value, factor=1.0, digits=1):
        self.assertAlmostEqual(float(text), value * factor, delta=0.51 * 10 ** -digits)

    def told(self, name, step_s, statistic):
        """Every command tells this figure of the run."""
        shown = self.shown(name)
        self.assertEqual((shown["step_s"], shown["statistic"]), (step_s, statistic))
        text = tool("show", self.path(name))
        value, unit = re.search(r"(?m)^step +([\d.]+) (us|ms) ", text).groups()
        factor, digits = (1e6, 1) if unit == "us" else (1e3, 2)
        self.near(value, step_s, factor, digits)
        self.assertIn(f"{statistic} of {shown['steps']} steps", text)
        lines = tool("table", self.path(name)).splitlines()
        self.near(re.search(r" (\d+\.\d+) ", lines[3])[1], step_s, 1e3, 3)
        self.assertEqual("(median)" in lines[3], statistic == "median")
        row = self.row(name)
        self.assertEqual(row["statistic"], statistic)
        self.assertAlmostEqual(float(row["step_s"]), step_s, delta=1e-8 * step_s)
        text = tool("compare", self.path(name), self.path(name))
        self.assertIn(f" {step_s * 1e3:.4g} ", text)
        self.assertTrue(text.startswith(f"step time ({statistic}): A = "), text)

    def test_one_figure(self):
        for name in ("whole", "resumed"):
            found = gwrun.run_json(self.path(name))["results"]["summary"]
            self.assertEqual((found["statistic"], found["period"]), ("steady mean", 4))
            self.as_defined(found, name, 4, True)
            said = re.search(r"step ([\d.]+) us \(steady mean of (\d+) in whole periods of 4\)", self.said[name])
            self.near(said[1], found["wall_s"], 1e6)
            self.assertEqual(int(said[2]), found["batches"])
            self.told(name, found["wall_s"], "steady mean")
            self.assertAlmostEqual(float(self.row(name)["wire_bytes"]), found["wire_bytes"], delta=0.01)

    def as_defined(self, found, name, period, trims):
        """Steps, seconds and bytes are of the same steps: times their number, they are the sums over these."""
        steps, means = defined(self.path(name), period, trims)
        self.assertEqual(found["counted"], len(steps))
        for column, value in means.items():
            known = found["phases"] if column in PHASES else found
            self.assertAlmostEqual(known[column], value, delta=1e-7 * max(means["wall_s"], value))
        rows = [row for step in steps for row in step]
        ranks = len(rows) // len(steps)
        self.assertAlmostEqual(found["wire_bytes"] * len(steps) * ranks,
                               sum(int(row["wire_bytes"]) for row in rows), delta=0.5)

    def test_whole_periods(self):
        """Of every strategy whose steps differ the step counts whole periods; of work that never repeats, all steps."""
        for comm, more, period, statistic in (
                ("diloco:period=10,fragments=2,tau=1", (), 10, "steady mean"),
                ("diloco:period=30", (), 30, "plain mean"),
                ("noloco:period=7", (), 7, "steady mean"),
                ("oktopk:every=6,boundaries=4", (), 12, "steady mean"),
                ("zerooneadam:freeze=2,double=2,local=2", ("--compress", "onebit"), 2, "steady mean"),
                ("onebitadam:freeze=5", ("--compress", "onebit"), 1, "steady mean"),
                ("onebitadam:freeze=40", ("--compress", "onebit"), 1, "plain mean"),
                ("sparse", ("--compress", "topk:warmup=60"), 1, "plain mean"),
                ("local:period=8", ("--compress", "topk:warmup=2"), 8, "plain mean"),
                ("allreduce", ("--compress", "qsgd", "--compress-stats", 5), 5, "steady mean"),
                ("allreduce", ("--checkpoint-every", 20), 20, "steady mean"),
                ("local:period=8", ("--checkpoint-every", 20), 8, "plain mean"),
                ("allreduce", ("--inject-skew", "1:exp:mean=10us"), 1, "plain mean")):
            with self.subTest(comm=comm, more=more):
                self.train("one", *BASE, comm, *more, "--steps", 100, "--overwrite")
                found = gwrun.run_json(self.path("one"))["results"]["summary"]
                self.assertEqual((found["statistic"], found["period"]), (statistic, period))
                self.as_defined(found, "one", period, statistic == "steady mean")

    def test_no_whole_period(self):
        """There is no step time then: it is absent everywhere, and the report says why it leaves the run out."""
        self.train("none", *BASE, "local:period=50", "--steps", 40)
        found = gwrun.run_json(self.path("none"))["results"]["summary"]
        self.assertEqual((found["statistic"], found["wall_s"], found["counted"]), ("absent", None, 0))
        self.assertIn("step absent: the exchange repeats after 50 steps, the run has 30", self.said["none"])
        gwrun.refusal(gwrun.run(1, "show", self.path("none")), "no step time: the exchange repeats after 50")
        self.assertIn("absent", tool("table", self.path("none")).splitlines()[3])
        with tempfile.TemporaryDirectory() as top:
            for name in ("none", "whole"):
                shutil.copytree(self.path(name), os.path.join(top, name))
            lines = failed.lines(runs.read_results(top)[0], [])
            self.assertEqual(lines[failed.FAILED], [])  # the run itself succeeded
            self.assertIn("1 folder left out: run.json: no step time", lines[failed.OTHERWISE][0])

    def test_what_it_stands_for(self):
        """The spread of the steps, the share of interrupted ones, and halves of the blocks: by hand from
        batches.csv, in run.json and in the last lines."""
        for name in ("whole", "resumed"):
            blocks, found = blocks_of(self.path(name), 4), gwrun.run_json(self.path(name))["results"]["summary"]
            steps = sum(blocks_of(self.path(name), 1), [])
            walls = sorted(mean([step], "wall_s") for step in steps)
            said = re.search(r"\nits steps: ([\d.]+) to ([\d.]+) us \(10th to 90th percentile\); in ([\d.]+)% of them "
                             r"a rank was interrupted\n", self.said[name])
            for key, share, text in (("p10_s", 0.1, said[1]), ("p90_s", 0.9, said[2])):
                by_hand = walls[int(share * len(walls))]
                self.assertAlmostEqual(found["spread"][key], by_hand, delta=0.006 * by_hand)
                self.near(text, found["spread"][key], 1e6)
            share = sum(any(row["interrupted"] == "1" for row in step) for step in steps) / len(steps)
            self.assertAlmostEqual(found["interrupted"], share, delta=1e-6)
            self.near(said[3], share, 100)
            halves = {"odd_s": blocks[::2], "even_s": blocks[1::2], "first_s": blocks[:len(blocks) // 2],
                      "last_s": blocks[len(blocks) // 2:]}
            by_hand = {key: mean(kept(some), "wall_s") for key, some in halves.items()}
            for key, value in by_hand.items():
                self.assertAlmostEqual(found["halves"][key], value, delta=1e-7 * value)
            apart = max(abs(by_hand["odd_s"] - by_hand["even_s"]), abs(by_hand["first_s"] - by_hand["last_s"]))
            self.assertAlmostEqual(found["halves"]["apart"], apart / found["wall_s"], delta=1e-6)
            self.assertEqual(found["halves"]["warned"], found["halves"]["apart"] > 0.1)
            self.assertEqual("warning: the step time is unsettled" in self.said[name], found["halves"]["warned"])
            self.assertEqual(self.shown(name)["halves"], found["halves"])

    def test_parts_add_up(self):
        for name in ("whole", "resumed"):
            shown = self.shown(name)
            parts = [seconds for seconds in shown["parts"].values() if seconds is not None]
            self.assertAlmostEqual(sum(parts) + shown["rest_s"], shown["step_s"],
                                   delta=1e-6 * shown["step_s"])
            self.assertEqual(shown["rest_s"], 0)
            row = {key: float(text or 0) for key, text in self.row(name).items()
                   if key in PHASES or key == "wall_mean_s"}
            self.assertAlmostEqual(sum(row[phase] for phase in PHASES), row["wall_mean_s"],
                                   delta=1e-6 * row["wall_mean_s"])
            line = next(line for line in self.said[name].splitlines() if line.startswith("step "))
            outer = re.sub(r"\([^)]*\)", "", line.partition(": ")[2].partition(";")[0])
            printed = sum(map(float, re.findall(r"[\d.]+", outer)))
            self.assertAlmostEqual(printed, shown["step_s"] * 1e6, delta=0.5)
