"""Runs that are killed and resumed. They must equal an undisturbed run in the last parameters, to the
bit, and in rows and losses."""

import os
import random
import re
import signal
import time

import faultcase
import gwrun

# What a run carries from step to step besides its parameters: residuals, stale sums, factors,
# moments, replicas that differ. --momentum gives the optimizer some, too.
CASES = {
    "topk": "--comm allreduce --compress topk:ratio=0.05 --error-feedback on",
    "onebit": "--comm iallreduce --compress onebit",
    "dgc": "--comm sparse --compress topk:ratio=0.05 --error-feedback dgc",
    "randomk": "--comm iallreduce --compress randomk:ratio=0.1 --lr 0.02",
    "delayed": "--comm delayed --compress qsgd:bits=4",
    "local": "--comm local:period=5",
    "local-momentum": "--comm local:period=7,momentum=1 --compress topk:ratio=0.1",
    "gossip": "--comm gossip",
    "powersgd": "--comm powersgd:rank=2",
    "dion": "--comm dion:rank=2 --momentum 0",
    "sharded": "--comm sharded --compress bf16",
    "ps": "--comm ps --compress qsgd:bits=8",
    "dedicated": "--comm ps:dedicated=1 --compress ternary",
    "lazy": "--comm iallreduce:order=priority,algo=sra --update lazy --compress int8sum",
    "stages": "--mesh pipe={ranks} --microbatches 4 --timetable zb --compress-activations qsgd:bits=8",
    "best": "--comm iallreduce --validation 0.2 --save-model best",
    "shards": "--mesh tensor={ranks} --compress-deltas qsgd:bits=8",
}

MODEL = ["--data", "synthetic:samples=2500,features=24", "--layers", "48,32", "--batch", 48,
         "--lr", 0.05, "--momentum", 0.9, "--epochs", 1000, "--seed", 11, "--ceilings", "off",
         "--overhead", 0, "--papi-group", "none", "--inject-skew", "1:1ms"]


def words(case, ranks, steps, every, model=None):
    """Options of a run of CASES[case], with a checkpoint every so many steps."""
    return [*(model or MODEL), "--steps", steps, "--checkpoint-every", every,
            *CASES[case].format(ranks=ranks).split()]


def outcome(out):
    """What two runs of the same options must have in common, by name."""
    found = {"model.gw": gwrun.read_bytes(out, "model.gw")}
    run = gwrun.run_json(out)["results"]
    found.update({name: run[name] for name in ("replica_hash", "steps", "stopped_by",
                                               "test_accuracy", "train_loss", "best")})
    rows = [(int(row["rank"]), int(row["step"]), row["epoch"], row["loss"])
            for row in gwrun.batches(out)]
    found["batches.csv"] = sorted(rows)
    found["epochs.csv"] = faultcase.columns(out, "epochs.csv",
                                            ("epoch", "step", "train_loss", "test_accuracy",
                                             "replica_hash"))
    return found


def differences(got, wanted):
    """Names of what differs, each with both, cut short."""
    return [f"{name}: {got[name]!s:.60} instead of {wanted[name]!s:.60}" for name in wanted
            if got[name] != wanted[name]]


def complete(out):
    """Steps of the checkpoints that are complete by their names."""
    folder = os.path.join(out, "model.ckpt.d")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))


def writing(out):
    """Whether a checkpoint is being written."""
    folder = os.path.join(out, "model.ckpt.d")
    return os.path.isdir(folder) and any(name.endswith(".tmp") for name in os.listdir(folder))


class Victim:
    """A run that is killed and resumed, and what was seen of it."""

    def __init__(self, ranks, out, options, draw):
        self.ranks = ranks
        self.out = out
        self.options = options
        self.draw = draw  # a random.Random
        self.kills = 0
        self.halfway = 0  # kills that left a checkpoint half written
        self.resumed = []  # the steps that the starts went on from; 0: the beginning
        self.faults = []  # a line each
        self.there = []  # complete checkpoints when it was started last

    def start(self):
        self.there = complete(self.out)
        return faultcase.Started(self.ranks, "--out", self.out, "--resume", "auto", *self.options,
                                 log=self.out + ".log")

    def kill_after(self, seconds):
        """Start, and kill after so long. False: it was over before."""
        with self.start() as run:
            run.wait_at_most(seconds)
            return self.kill(run)

    def kill_trained(self):
        """Start, and kill after some more checkpoints. False: the run had ended before."""
        with self.start() as run:
            for _ in range(self.draw.randrange(1, 4)):
                before = complete(self.out)
                faultcase.await_true(lambda: run.over() or complete(self.out) != before)
            return self.kill(run)

    def kill_writing(self):
        """Start, and kill while a checkpoint is being written, not always the first one. False: the run
        had ended before."""
        with self.start() as run:
            for _ in range(self.draw.randrange(1, 6)):
                faultcase.await_true(lambda: run.over() or not writing(self.out), pause=0.0002)
                faultcase.await_true(lambda: run.over() or writing(self.out), pause=0.0002)
            time.sleep(self.draw.uniform(0, 0.004))
            return self.kill(run)

    def finish(self):
        """Start, and let it end."""
        with self.start() as run:
            if run.status() != 0:
                self.faults.append(f"ended with {run.process.returncode}")
            self.look_at(run)

    def kill(self, run):
        """Kill a random rank by SIGKILL; the launcher then ends the others. False: too late."""
        pids = sorted(faultcase.ranks_of(run.process.pid).values())
        over = not pids or run.over()
        if not over:
            try:
                os.kill(self.draw.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                over = True
        over |= run.status() == 0
        self.kills += not over
        self.halfway += not over and writing(self.out)
        self.look_at(run)
        return not over

    def look_at(self, run):
        """The step at which a start resumed; it must be that of the newest checkpoint."""
        text = run.text()
        went_on = re.search(r"^resume: \S*/step-(\d+)\b", text, re.MULTILINE)
        if went_on or "no checkpoint in" in text:
            step = int(went_on.group(1)) if went_on else 0
            self.resumed.append(step)
            if step != (self.there or [0])[-1]:
                self.faults.append(f"went on from step {step} of {self.there}")
        self.faults += [line for line in text.splitlines() if line.startswith("gradwire:")] + gwrun.warnings(text)


def draw(seed, *names):
    """Separate random numbers for each part of a campaign, so that a single part can be repeated."""
    return random.Random(":".join(map(str, (seed, *names))))
