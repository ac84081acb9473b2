#!/usr/bin/env python3
r"""Exposed communication of DistributedDataParallel: Gloo and PyTorch's hooks against gradwire's hook.

  compare_ddp.py --model resnet18
  compare_ddp.py --model gpt2 --testbed default --ours 'exact=--comm iallreduce:algo=sra'

Two ranks of one thread train ResNet-18 (47 MB, images of 32x32) or GPT-2 (498 MB). All sides take
turns within one job (ddp_rank.py), each step beside one under no_sync(): a step less its neighbour
without exchange is what communication costs. A round's figure is the median over its steps of the
slowest rank. With --testbed NAME the ranks run on that testbed's hosts. The table has the median
over the rounds and, in brackets, the least and the most; ratios are formed within a round.

By an interpreter with PyTorch; gradwire's library as GRADWIRE_LIBRARY or in build/release."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from compare_torch import (
    HERE,
    ROOT,
    fail,
    find_link,
    find_torch,
    link_of,
    machine_facts,
    mpi,
    named_words,
    need,
    positive,
    report,
    spread,
    torch_environment,
)

PEERS = [("Gloo", "gloo", ""), ("no exchange", "none", ""), ("fp16 hook", "fp16", ""),
         ("PowerSGD-2 hook", "powersgd2", "")]
OURS = {False: ["exact="],
        True: ["exact=", "qsgd8=--comm iallreduce:algo=sra --compress qsgd:bits=8",
               "topk 1%=--comm sparse --compress topk:ratio=0.01"]}
BATCH = {"resnet18": 16, "gpt2": 1, "tiny": 4}  # of a rank
EARLY = 3  # steps whose losses are compared
# glibc gives large tensors back to the kernel, which clears their pages again in each step: a third of
# GPT-2's step under no_sync(), and by chance more. All sides keep their memory.
KEEP_MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184"


def environment(options):
    env = torch_environment()
    env.pop("GRADWIRE", None)
    env.setdefault("GRADWIRE_LIBRARY", os.path.join(ROOT, "build/release/libgradwire.so"))
    env.setdefault("GLIBC_TUNABLES", KEEP_MEMORY)
    if options.link:
        env["GLOO_SOCKET_IFNAME"] = options.link["interface"]
    return env


def run(options, env, *more):
    """What ddp_rank.py measured: [{side: [a rank's, ..]}, ..], an entry a round."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        words = [*mpi(options.ranks, options), sys.executable, os.path.join(HERE, "ddp_rank.py"),
                 "--model", options.model, "--sides", json.dumps(options.sides), "--batch",
                 options.batch, "--bucket-mb", options.bucket_mb, "--steps", options.steps,
                 "--warmup", options.warmup, "--out", out, *more]
        done = subprocess.run(list(map(str, words)), env=env, check=False, timeout=3600)
        if done.returncode != 0:
            fail(f"ddp_rank.py ended with status {done.returncode}")
        with open(out, encoding="utf-8") as file:
            return json.load(file)


def slowest(ranks, key):
    return [max(step) for step in zip(*(rank[key] for rank in ranks))]


def figures(rounds):
    """{side: {"step": .., "alone": .., "exposed": .., "hook": ..}}, each a list of a figure a round."""
    found = {}
    for of_round in rounds:
        for side, ranks in of_round.items():
            step, alone = slowest(ranks, "step_s"), slowest(ranks, "alone_s")
            now = found.setdefault(side, {key: [] for key in ("step", "alone", "exposed", "hook")})
            now["step"].append(statistics.median(step))
            now["alone"].append(statistics.median(alone))
            now["exposed"].append(statistics.median(a - b for a, b in zip(step, alone)))
            if "hook_s" in ranks[0]:
                now["hook"].append(max(rank["hook_s"] for rank in ranks))
    return found


def apart(rounds):
    """{side: the greatest relative difference of its early losses from the first side's}"""
    losses = {side: [loss for rank in ranks for loss in rank["loss"][:EARLY]]
              for side, ranks in rounds[0].items()}
    first = next(iter(losses.values()))
    return {side: max(abs(a / b - 1) for a, b in zip(mine, first)) for side, mine in losses.items()}


def table(found, differences):
    head = f"{'':18}  {'loss':>6}  {'step (ms)':>26}  {'no_sync (ms)':>26}  {'exposed (ms)':>26}"
    lines = [head + "  of Gloo's           hook (% of step)"]
    for side, of in found.items():
        cells = [spread([v * 1e3 for v in of[key]], ".1f") for key in ("step", "alone", "exposed")]
        ratio = (spread([a / b for a, b in zip(of["exposed"], found["Gloo"]["exposed"])], ".3f")
                 if "Gloo" in found else "")
        hook = (f"{100 * statistics.median(h / s for h, s in zip(of['hook'], of['step'])):.2f}"
                if of["hook"] else "")
        lines.append(f"{side:18}  {differences[side]:>6.0e}  " + "  ".join(f"{c:>26}" for c in cells)
                     + f"  {ratio:20}  {hook}".rstrip())
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=BATCH, default="resnet18")
    parser.add_argument("--testbed", metavar="NAME", help="run on this testbed's hosts")
    parser.add_argument("--ranks", type=int, help="[one per host of the testbed, else 2]")
    parser.add_argument("--ours", type=named_words, action="append", metavar="NAME=WORDS",
                        help="a side: the words of gradwire.torch.hook; may be repeated")
    parser.add_argument("--peers", default="gloo,fp16,powersgd2",
                        help="of PyTorch; none: what DistributedDataParallel costs without an exchange [%(default)s]")
    parser.add_argument("--batch", type=int, help="of a rank")
    parser.add_argument("--length", type=int, default=64, help="tokens of a sample of gpt2")
    parser.add_argument("--bucket-mb", type=float, default=4, help="bucket_cap_mb of gradwire's sides")
    parser.add_argument("--steps", type=positive, default=10, help="timed steps of a side and round")
    parser.add_argument("--warmup", type=int, default=3, help="steps before these")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--mpiexec", default=os.path.join(ROOT, "build/release/mpiexec"))
    parser.add_argument("--out", help="write the results to OUT.txt and OUT.json")
    options = parser.parse_args()
    find_link(options)
    options.batch = options.batch or BATCH[options.model]
    ours = options.ours or [named_words(text) for text in OURS[bool(options.testbed)]]
    options.sides = [side for side in PEERS if side[1] in options.peers.split(",")]
    options.sides += [(name, "gradwire", " ".join(words)) for name, words in ours]
    return options


def main():
    need("numpy", "torch")
    options = parse()
    env = environment(options)
    rounds = run(options, env, "--length", options.length, "--rounds", options.rounds)
    facts = {**machine_facts(), "pytorch": find_torch(env), "model": options.model,
             "batch of a rank": options.batch, "link": link_of(options), "bucket_cap_mb of gradwire": options.bucket_mb,
             "sides": {name: rounds[0][name][0].get("exchange", kind) for name, kind, _ in options.sides},
             "steps": options.steps, "warmup": options.warmup, "rounds": options.rounds}
    if options.model == "gpt2":
        facts["tokens of a sample"] = options.length
    report(options.out, facts, [
        table(figures(rounds), apart(rounds)), "",
        "Median over the rounds (least..most); loss: the greatest relative difference from the "
        f"first side's in the first {EARLY} steps; hook: Python's part of it, the library aside."],
        {"facts": facts, "rounds": rounds})


if __name__ == "__main__":
    main()
