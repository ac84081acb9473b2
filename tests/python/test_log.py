"""--log: metrics of a run while it goes on, as JSON lines, and who reads them."""

import json
import os
import subprocess
import sys
import time
import unittest

import gwrun
from test_contributing import blocks
from test_replay import PROFILE

PYTHON = os.environ.get("TORCH_PYTHON", sys.executable)
SMALL = ["--data", "synthetic:samples=1200,features=16,classes=4", "--layers", "16", "--batch", 40, "--epochs", 2,
         "--ceilings", "off", "--overhead", 0, "--quiet"]
EPOCH = 25  # steps of one
SUMS = {"step/wall_s": ["wall_s"], "step/compute_s": ["forward_s", "backward_s", "recompute_s", "update_s"],
        "step/exposed_s": ["mpi_post_s", "mpi_poll_s", "mpi_wait_s"], "step/codec_s": ["encode_s", "decode_s"],
        "step/hidden_s": ["inflight_s"], "step/wire_bytes": ["wire_bytes"]}
ACCUMULATE = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1]).Reload()
print(json.dumps({tag: [[one.step, one.value] for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}))
"""


def has(*modules):
    done = subprocess.run([PYTHON, "-c", f"import {', '.join(modules)}"], capture_output=True, check=False)
    return done.returncode == 0


class Log(gwrun.Case):
    def lines(self, path):
        return [json.loads(line) for line in gwrun.read(path).splitlines()]

    def mine(self, out):
        """Rank 0's rows, their texts as numbers."""
        return [{name: float(text) if text else None for name, text in row.items() if name != "source"}
                for row in gwrun.batches(out) if row["rank"] == "0"]

    def same(self, metrics, rows):
        """A line holds the means of these rows."""
        self.assertEqual(set(metrics), {"train/loss", *SUMS})
        for name, columns in SUMS.items():
            mean = sum(row[column] for row in rows for column in columns) / len(rows)
            self.assertAlmostEqual(metrics[name], mean, delta=1e-6 * abs(mean) + 1e-12, msg=name)
        loss = sum(row["loss"] * row["samples"] for row in rows) / sum(row["samples"] for row in rows)
        self.assertAlmostEqual(metrics["train/loss"], loss, delta=1e-6 * loss)

    def test_lines_are_the_rows(self):
        """Each step of rank 0, and each epoch as in epochs.csv."""
        path = self.path("run.jsonl")
        gwrun.ok(2, "train", *SMALL, "--compress", "qsgd", "--log", f"json:{path}", "--out", self.out)
        first, *lines, last = self.lines(path)
        self.assertEqual((first["event"], first["schema"], first["ranks"], first["resumes"]), ("begin", 1, 2, False))
        self.assertEqual(first["options"], gwrun.run_json(self.out)["options"])
        self.assertEqual((last["event"], last["status"]), ("end", "complete"))
        steps = [line for line in lines if line["event"] == "step"]
        rows = self.mine(self.out)
        self.assertEqual([(line["epoch"], line["step"]) for line in steps], [(row["epoch"], row["step"]) for row in rows])
        for line, row in zip(steps, rows):
            self.same(line["metrics"], [row])
        epochs = [line for line in lines if line["event"] == "epoch"]
        for line, row in zip(epochs, gwrun.rows(self.out, "epochs.csv"), strict=True):
            self.assertEqual(line["step"], int(row["step"]))
            wanted = {f"epoch/{name}": float(text) for name, text in row.items()
                      if text and name not in ("epoch", "step", "replica_hash")}
            self.assertEqual(set(line["metrics"]), set(wanted))
            for name, value in wanted.items():
                self.assertAlmostEqual(line["metrics"][name], value, delta=1e-8 * abs(value))

    def test_means_of_several_steps(self):
        """Fewer at the end of an epoch, which comes after them."""
        path = self.path("run.jsonl")
        gwrun.ok(2, "train", *SMALL, "--log", f"json:{path}", "--log-every", 7, "--out", self.out)
        rows, at = self.mine(self.out), 0
        steps = [line for line in self.lines(path) if line["event"] == "step"]
        ends = [*range(7, EPOCH, 7), EPOCH, *range(EPOCH + 7, 2 * EPOCH, 7), 2 * EPOCH]
        self.assertEqual([line["step"] for line in steps], ends)
        for line in steps:
            self.same(line["metrics"], rows[at:line["step"]])
            at = line["step"]

    def test_what_is_not_measured_is_left_out(self):
        path = self.path("run.jsonl")
        gwrun.ok(1, "train", *SMALL, "--profile", "off", "--log", f"json:{path}")
        self.assertEqual(set(self.lines(path)[1]["metrics"]), {"train/loss", "step/wall_s"})

    def test_while_the_run_goes_on(self):
        """A line is there long before the end."""
        path = self.path("run.jsonl")
        words = [*SMALL, "--epochs", 1000000, "--log", f"json:{path}", "--log-every", 100]
        with subprocess.Popen(gwrun.command(2, "train", *words), stderr=subprocess.PIPE) as run:
            try:
                until = time.monotonic() + gwrun.HANG_S
                while not (os.path.exists(path) and '"event":"step"' in gwrun.read(path)):
                    self.assertIsNone(run.poll())
                    self.assertLess(time.monotonic(), until)
                    time.sleep(0.05)
                self.assertIsNone(run.poll())
            finally:
                run.kill()
        self.assertNotIn('"event":"end"', gwrun.read(path))

    def test_a_run_that_fails(self):
        path = self.path("run.jsonl")
        done = gwrun.run(2, "train", *SMALL, "--activation", "relu", "--layers", "64,64,64", "--lr", "1e6", "--log", f"json:{path}")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(self.lines(path)[-1]["status"], "failed")

    def test_a_run_that_resumes(self):
        """Its lines follow those of the first start; a run that begins anew replaces them."""
        path = self.path("run.jsonl")
        for words in (["--steps", 30], ["--resume", "auto"]):
            gwrun.ok(2, "train", *SMALL, "--checkpoint-every", 10, "--out", self.out, "--log", f"json:{path}", *words)
        begins = [line for line in self.lines(path) if line["event"] == "begin"]
        self.assertEqual([(line["resumes"], line["step"]) for line in begins], [(False, 0), (True, 30)])
        self.assertEqual([line["step"] for line in self.lines(path) if line["event"] == "step"], list(range(1, 2 * EPOCH + 1)))
        gwrun.ok(2, "train", *SMALL, "--steps", 5, "--log", f"json:{path}")
        self.assertEqual(len([line for line in self.lines(path) if line["event"] == "begin"]), 1)

    def test_a_program_of_the_library(self):
        path = self.path("run.jsonl")
        gwrun.write(self.path("tiny.json"), PROFILE)
        gwrun.ok(2, "replay", self.path("tiny.json"), "--steps", 6, "--speed", 1000, "--log", f"json:{path}", "--out",
                 self.out)
        first, *lines, last = self.lines(path)
        self.assertEqual((first["event"], last["status"]), ("begin", "complete"))
        rows = self.mine(self.out)
        self.assertEqual([line["step"] for line in lines if line["event"] == "step"], [row["step"] for row in rows])
        self.assertAlmostEqual(lines[0]["metrics"]["step/wall_s"], rows[0]["wall_s"], delta=1e-8)

    def test_refusals(self):
        """One line, on any number of ranks, before anything runs; what is there stays."""
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        kept = self.path("kept.jsonl")
        gwrun.write(kept, "kept\n")
        gwrun.ok(1, "train", *SMALL, "--steps", 1, "--out", self.out)
        for words, said in ((["--log", "csv:a"], "--log csv:a: must be json:FILE"),
                            (["--log", "json:"], "must be json:FILE"),
                            (["--log", "tensorboard:a"], "`gradwire tensorboard FILE DIR` writes event files"),
                            (["--log", f"json:{self.path('no', 'a')}"], "No such file or directory"),
                            (["--log", f"json:{self.dir}"], "Is a directory"),
                            (["--log", f"json:{pipe}"], "no regular file: name one, and follow it by tail -F"),
                            (["--log-every", 3], "--log-every needs --log"),
                            (["--log", f"json:{kept}", "--out", self.out], "holds a run already"),
                            (["--log", f"json:{self.path('new')}", "--out", self.out], "holds a run already")):
            for ranks in 1, 2:
                self.assertIn(said, gwrun.refusal(gwrun.run(ranks, "train", *SMALL, *words)))
        self.assertEqual(gwrun.read(kept), "kept\n")
        self.assertFalse(os.path.exists(self.path("new")))
        gwrun.ok(2, "train", *SMALL, "--check", "--log", f"json:{kept}")
        self.assertEqual(gwrun.read(kept), "kept\n")


@unittest.skipUnless(has("tensorboard"), f"{PYTHON} has no tensorboard")
class TensorBoard(gwrun.Case):
    """Event files as TensorBoard reads them."""

    def scalars(self, folder):
        """{tag: [(step, value)]}."""
        told = json.loads(gwrun.well(gwrun.finished([PYTHON, "-c", ACCUMULATE, folder])))
        return {tag: list(map(tuple, found)) for tag, found in told.items()}

    def same(self, found, path):
        wanted = {}
        for line in map(json.loads, gwrun.read(path).splitlines()):
            for name, value in line.get("metrics", {}).items():
                wanted.setdefault(name, []).append((line["step"], value))
        self.assertEqual(set(found), set(wanted))
        for name, pairs in wanted.items():
            self.assertEqual([step for step, _ in found[name]], [step for step, _ in pairs])
            for (_, value), (_, single) in zip(pairs, found[name]):
                self.assertAlmostEqual(value, single, delta=1e-6 * abs(value))

    TOOL = (PYTHON, "-B", os.path.join(gwrun.SOURCE, "analysis", "tensorboard"))

    def test_following_a_run(self):
        path, folder = self.write("run.jsonl", ""), self.path("events")
        with subprocess.Popen([*self.TOOL, path, folder]) as following:
            gwrun.ok(2, "train", *SMALL, "--log", f"json:{path}")
            self.assertEqual(following.wait(gwrun.HANG_S), 0)
        self.same(self.scalars(folder), path)

    def test_a_run_that_resumed(self):
        """Without its last line, as if it were killed."""
        path, folder = self.path("run.jsonl"), self.path("events")
        for words in (["--steps", 30], ["--resume", "auto"]):
            gwrun.ok(2, "train", *SMALL, "--checkpoint-every", 10, "--out", self.out, "--log", f"json:{path}", *words)
        gwrun.write(path, "".join(gwrun.read(path).splitlines(keepends=True)[:-1]))
        gwrun.quiet(gwrun.finished([*self.TOOL, "--once", path, folder]))
        self.same(self.scalars(folder), path)

    def test_refusals(self):
        other = self.write("other", '{"event": "begin"}\n')
        for path, folder, said in ((self.path("none"), "a", "No such file"), (other, "a", "is no line of --log: the line lacks time"),
                                   (other, f"{other}/a", "Not a directory")):
            gwrun.refusal(gwrun.finished([*self.TOOL, path, folder], cwd=self.dir), said)


class Recipes(gwrun.Case):
    """The programs of docs/notebook.md, fed by a real run."""

    def feed(self, name, **more):
        path = self.path("run.jsonl")
        gwrun.ok(2, "train", *SMALL, "--log", f"json:{path}")
        recipe, = [text for text in blocks("notebook.md", "python") if f"import json, sys, {name}" in text]
        self.assertLessEqual(len(recipe.splitlines()), 11)
        with open(path, encoding="utf-8") as lines:
            done = subprocess.run([PYTHON, "-c", recipe], stdin=lines, cwd=self.dir, env={**os.environ, **more}, text=True,
                                  capture_output=True, check=False, timeout=gwrun.HANG_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout + done.stderr

    @unittest.skipUnless(has("wandb"), f"{PYTHON} has no wandb")
    def test_wandb(self):
        self.feed("wandb", WANDB_MODE="offline", WANDB_DIR=self.dir)
        run, = [name for name in os.listdir(self.path("wandb")) if name.startswith("offline-run-")]
        kept, = [name for name in os.listdir(self.path("wandb", run)) if name.endswith(".wandb")]
        with open(self.path("wandb", run, kept), "rb") as file:
            self.assertIn(b"epoch/test_accuracy", file.read())

    @unittest.skipUnless(has("mlflow"), f"{PYTHON} has no mlflow")
    def test_mlflow(self):
        self.feed("mlflow", MLFLOW_TRACKING_URI=f"file:{self.path('mlruns')}", MLFLOW_ALLOW_FILE_STORE="true")
        kept = [os.path.join(folder, name) for folder, _, names in os.walk(self.path("mlruns")) for name in names
                if name == "test_accuracy"]
        self.assertEqual([line.split()[2] for line in gwrun.read(*kept).splitlines()], [str(EPOCH), str(2 * EPOCH)])
