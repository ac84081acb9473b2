#!/usr/bin/env python3
r"""`gradwire replay` against the training that it stands for: ResNet-18 under gradwire's hook.

  compare_replay.py
  compare_replay.py --testbed default

A round trains under DistributedDataParallel with each exchange in turn (ddp_rank.py), each step beside
one under no_sync(), and takes a profile and the gradients of the same model on the same two ranks.
Then `gradwire replay --compute spin` plays the profile with each exchange and these gradients. Its
--speed makes the computation as long as the round's steps under no_sync(), for machines change
their pace between two runs; the column "profile" has the profile's own step. What is played without
an exchange (IDLE) tells how long spinning really takes: the kernel's clock, whose time the
profile has, takes of it, too.

Exposed communication is a step less the same computation alone: its neighbour under no_sync(), and in
the replay what is played without an exchange. Both so contain what the kernel's work for messages takes of
a core that computes; exposed_s in the run's folder, a step less its computing phases, does not. What
DistributedDataParallel itself costs, with a hook that exchanges nothing, is subtracted: column "unexchanged".
The table has medians over the rounds, and the last lines judge them: a step within 10%, exposed
communication within 15% or 5 ms, and the same order of any two exchanges whose real steps are 10% apart.

By an interpreter with PyTorch 2.1; gradwire's library as GRADWIRE_LIBRARY or in build/release."""

import argparse
import collections
import csv
import itertools
import json
import os
import statistics
import sys
import tempfile

import compare_ddp
from compare_ddp import BATCH, environment, slowest
from compare_torch import (
    add_common,
    find_link,
    find_torch,
    link_of,
    machine_facts,
    median_step,
    mpi,
    named_words,
    need,
    positive,
    report,
    run,
    spread,
)

SIDES = {False: ["shm=--comm allreduce:algo=shm", "sra=--comm allreduce:algo=sra"],
         True: ["sra=--comm allreduce:algo=sra", "ring=--comm allreduce:algo=ring"]}
SIDES = {link: sides + ["overlapped=--comm iallreduce:algo=sra",
                        "qsgd8=--comm iallreduce:algo=sra --compress qsgd:bits=8",
                        "topk 1%=--comm sparse --compress topk:ratio=0.01",
                        "powersgd=--comm powersgd:rank=2"] for link, sides in SIDES.items()}
NONE = "no exchange"
IDLE = ["--comm", "local:period=1000000"]
STEP, EXPOSED, EXPOSED_S = 0.10, 0.15, 0.005  # what a replay may differ by


def replay(words, speed, options, folder):
    """The slowest rank's median step, and what of it were phases that compute: seconds."""
    out = os.path.join(folder, "run")
    run([*mpi(options.ranks, options), options.gradwire, "replay", os.path.join(folder, "profile.json"),
         "--gradients", os.path.join(folder, "gradients.bin"), "--compute", "spin", "--speed", f"{speed:.4f}",
         "--bucket-mb", str(options.bucket_mb),
         "--steps", str(options.steps + options.warmup), "--quiet", "--overwrite", "--out", out, *words])
    wall, computing = collections.defaultdict(float), collections.defaultdict(float)
    with open(os.path.join(out, "batches.csv"), newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            step = int(row["step"])
            wall[step] = max(wall[step], float(row["wall_s"]))
            computing[step] = max(computing[step],
                                  sum(float(row[key]) for key in ("forward_s", "backward_s", "update_s")))
    return [median_step([of[step] for step in sorted(of)], options.warmup) for of in (wall, computing)]


def exposed(ranks):
    return statistics.median(a - b for a, b in zip(*(slowest(ranks, key) for key in ("step_s", "alone_s"))))


def profiled(folder):
    with open(os.path.join(folder, "profile.json"), encoding="utf-8") as file:
        content = json.load(file)
    return content["optimizer_s"] + sum(row["forward_s"] + row["backward_s"] for row in content["tensors"])


def measure(options, env):
    """{side: {figure: [seconds, an entry a round]}}"""
    found = {name: collections.defaultdict(list) for name, _ in options.ours}
    for turn in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            # which leaves profile.json and gradients.bin
            trained = compare_ddp.run(options, env, "--rounds", 1, "--profile", folder)[0]
            alone = {name: statistics.median(slowest(ranks, "alone_s")) for name, ranks in trained.items()}
            unexchanged = exposed(trained[NONE])
            profile = profiled(folder)
            idle = statistics.median(alone.values())
            longer = replay(IDLE, profile / idle, options, folder)[1] / idle
            for name, words in options.ours:
                played, _ = replay(words, longer * profile / alone[name], options, folder)
                step = statistics.median(slowest(trained[name], "step_s"))
                for key, value in (("step", step), ("alone", alone[name]), ("profile", profile),
                                   ("replayed step", played), ("unexchanged", unexchanged),
                                   ("exposed", exposed(trained[name]) - unexchanged),
                                   ("replayed exposed", played - alone[name])):
                    found[name][key].append(value)
        print(f"round {turn + 1}/{options.rounds} replayed", file=sys.stderr, flush=True)
    return found


def table(found):
    columns = ("alone", "profile", "unexchanged", "step", "replayed step", "exposed", "replayed exposed")
    lines = [f"{'milliseconds':12}" + "".join(f"  {name:>23}" for name in ("no_sync", *columns[1:]))]
    for side, of in found.items():
        lines.append(f"{side:12}" + "".join(f"  {spread([v * 1e3 for v in of[key]], '.1f'):>23}"
                                            for key in columns))
    return lines


def verdicts(found):
    middle = {side: {key: statistics.median(values) for key, values in of.items()}
              for side, of in found.items()}
    lines = []
    for side, of in middle.items():
        step = of["replayed step"] / of["step"] - 1
        exposed = of["replayed exposed"] - of["exposed"]
        held = abs(exposed) <= max(EXPOSED_S, EXPOSED * abs(of["exposed"]))
        lines.append(f"{side:12}  step {100 * step:+.1f}%: {'holds' if abs(step) <= STEP else 'fails'};  "
                     f"exposed {1e3 * exposed:+.1f} ms ({100 * exposed / of['exposed']:+.0f}%): "
                     f"{'holds' if held else 'fails'}")
    apart = [(a, b) for a, b in itertools.permutations(middle, 2)
             if middle[b]["step"] > (1 + STEP) * middle[a]["step"]]
    turned = [f"{a} before {b}" for a, b in apart
              if middle[a]["replayed step"] >= middle[b]["replayed step"]]
    lines.append(f"order of {len(apart)} pairs 10% apart: "
                 + (f"fails: {', '.join(turned)}" if turned else "holds"))
    return lines


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_common(parser)
    parser.set_defaults(rounds=5)
    parser.add_argument("--ours", type=named_words, action="append", metavar="NAME=WORDS",
                        help="an exchange: the words of gradwire.torch.hook; may be repeated [six]")
    parser.add_argument("--batch", type=int, default=BATCH["resnet18"], help="of a rank [16]")
    parser.add_argument("--bucket-mb", type=float, default=4, help="bucket_cap_mb of both sides [4]")
    parser.add_argument("--steps", type=positive, default=8, help="timed steps of a side and round [8]")
    parser.add_argument("--warmup", type=int, default=3, help="steps before these [3]")
    parser.add_argument("--out", help="write the results to OUT.txt and OUT.json")
    options = parser.parse_args()
    find_link(options)
    options.model = "resnet18"
    options.ours = options.ours or [named_words(text) for text in SIDES[bool(options.testbed)]]
    options.sides = [(name, "gradwire", " ".join(words)) for name, words in options.ours] + [(NONE, "none", "")]
    return options


def main():
    need("numpy", "torch")
    options = parse()
    env = environment(options)
    facts = {**machine_facts(), "pytorch": find_torch(env), "model": options.model,
             "batch of a rank": options.batch, "link": link_of(options),
             "sides": {name: " ".join(words) for name, words in options.ours},
             "steps": options.steps, "warmup": options.warmup, "rounds": options.rounds}
    found = measure(options, env)
    report(options.out, facts, [*table(found), "", *verdicts(found), "", "Medians over the rounds (least..most)."],
           {"facts": facts, "seconds": found})


if __name__ == "__main__":
    main()
