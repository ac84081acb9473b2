"""Evaluations between steps: at the steps asked for, of settled replicas, and outside every batch."""

import os
from types import SimpleNamespace

import gwrun
from reporting import learning, runs

SMALL = ["--data", "synthetic:samples=600,features=20,classes=4,test=0.2", "--layers", "12,8",
         "--batch", 20, "--epochs", 2, "--ceilings", "off", "--profile", "timers"]  # 24 steps each
LAYERS = 3
EVERY = ["--eval-every", 7]
DUE = [7, 14, 21, 24, 28, 35, 42, 48]  # the ends of epochs among them
LATER = [9, 15, 21, 24, 30, 36, 42, 48]  # where replicas agree after every third step
STRATEGIES = {
    "eager": (["--comm", "allreduce"], DUE),
    "lazy": (["--comm", "iallreduce:bucket=256", "--compress", "qsgd:bits=4", "--update", "lazy"], DUE),
    "delayed": (["--comm", "delayed"], DUE),
    "local": (["--comm", "local:period=3"], LATER),
    # The first epoch ends while an exchange is under way: its turn, at step 28, is taken there.
    "outer": (["--comm", "diloco:period=7,tau=4,alpha=0"], [7, 14, 21, 24, 35, 42, 48]),
}


def rows(out, name, *without):
    return [{key: value for key, value in row.items() if key not in without} for row in gwrun.rows(out, name)]


def sums(out, *columns):
    return [sum(int(row[column]) for row in gwrun.batches(out)) for column in columns]


class EvalEvery(gwrun.Case):

    def train(self, name, *words):
        out = self.path(name)
        gwrun.train(2, out, *SMALL, *words)
        return out

    def check_training(self, name, words):
        """It is the same with and without evaluations."""
        without, out = self.train(f"{name}-without", *words), self.path(name)
        self.assertFalse(os.path.exists(os.path.join(without, "evaluations.csv")))
        times = ("elapsed_s", "train_s", "test_s")
        self.assertEqual(rows(out, "epochs.csv", *times), rows(without, "epochs.csv", *times))
        kept = ("rank", "step", "loss", "collectives")
        if name != "lazy":  # whose last messages the next batch sends, unless it is settled
            kept += ("wire_bytes", "messages", "logical_bytes")
        one, other = ([[row[key] for key in kept] for row in gwrun.batches(folder)]
                      for folder in (out, without))
        self.assertEqual(one, other)
        self.assertEqual(*(sums(folder, "wire_bytes", "messages") for folder in (out, without)))

    def check_figures(self, name, words, due):
        """They are those of a run that ends there."""
        out = self.path(name)
        first, *_ = tested = rows(out, "evaluations.csv")
        end, = rows(self.train(f"{name}-end", *words, "--steps", due[0]), "epochs.csv")
        for key in ("epoch", "step", "test_loss", "test_accuracy", "wire_bytes"):
            self.assertEqual(first[key], end[key])
        for row in rows(out, "epochs.csv"):
            self.assertIn({key: row[key] for key in first}, tested)
        seconds = [float(row["wall_s"]) for row in gwrun.batches(out) if row["rank"] == "0"]
        for row in tested:  # the time of batches alone
            self.assertAlmostEqual(float(row["train_s"]), sum(seconds[:int(row["step"])]), delta=1e-5)

    def test_time_to_accuracy(self):
        """It is that of the first evaluation that has the accuracy."""
        out = self.train("run", *EVERY)
        tested = rows(out, "evaluations.csv")
        run = runs.read_run(runs.Found(out, "run", None))
        target = float(tested[1]["test_accuracy"])
        first = next(row for row in tested if float(row["test_accuracy"]) >= target)
        self.assertLess(int(first["step"]), 24)  # within the first epoch
        reached = learning.reached(SimpleNamespace(runs=[run]), target, 0)
        self.assertEqual(reached.times, [float(first["train_s"])])

    def check_resumed(self, name, words, half):
        out = self.train(f"{name}-{half}", *words, *EVERY, "--checkpoint-every", 1000, "--steps", half)
        self.train(f"{name}-{half}", *words, *EVERY, "--resume", "auto")
        whole, resumed = (rows(folder, "evaluations.csv", "train_s") for folder in (self.path(name), out))
        self.assertEqual(resumed, whole)

    def test_strategies(self):
        for name, (words, due) in STRATEGIES.items():
            with self.subTest(strategy=name):
                out = self.train(name, *words, *EVERY)
                self.assertEqual([int(row["step"]) for row in rows(out, "evaluations.csv")], due)
                self.check_training(name, words)
                self.check_figures(name, words, due)

    def settled(self, name, *words):
        """Steps after which no update is pending, by the trace of rank 0."""
        out = self.train(name, "--comm", "local:period=3", "--update", "lazy", "--trace", *words)
        mine = [event for event in gwrun.read_json(out, "trace.json")["traceEvents"]
                if event["ph"] == "X" and event["pid"] == 0]
        updates = [event["ts"] for event in mine if event["name"] == "update"]
        found = set()
        for event in mine:
            if event["cat"] == "batch" and "step" in event.get("args", {}):
                done = sum(at < event["ts"] + event["dur"] for at in updates)
                found |= {event["args"]["step"]} if done == LAYERS * event["args"]["step"] else set()
        return found

    def test_settled(self):
        """Only steps that are evaluated or compared: not those that wait for agreement."""
        without = self.settled("without")
        self.assertIn(48, without)
        self.assertEqual(self.settled("evaluated", *EVERY), without | set(LATER))
        self.assertEqual(self.settled("compared", "--verify-every", 7), without | {9, 18, 24, 33, 42})

    def test_resumed(self):
        """At the end of an epoch, at a step that is due, and at one that waited for agreement."""
        for name, halves in (("lazy", (24, 28)), ("local", (28, 30))):
            words, _ = STRATEGIES[name]
            self.train(name, *words, *EVERY)
            for half in halves:
                with self.subTest(strategy=name, half=half):
                    self.check_resumed(name, words, half)

    def test_refused(self):
        out = self.path("run")
        for words, said in ((["--comm", "gossip", "--out", out], "--comm gossip agree only at the end"),
                            (["--comm", "diloco:fragments=2", "--out", out], "--comm diloco agree only"),
                            (["--comm", "diloco:period=5,tau=2", "--out", out], "--comm diloco agree only"),
                            ([], "--out")):
            gwrun.refusal(gwrun.run(1, "train", *SMALL, *EVERY, *words), said, "--eval-every")
