#!/usr/bin/env python3
r"""`gradwire simulate` against the testbed: allreduces, whole steps of a profile, and steps over meshes.

  compare_simulated.py --hosts 4
  compare_simulated.py --hosts 2 --profile profiles/resnet18.json --rates 1gbit
  compare_simulated.py --hosts 4 --meshes --rates 100mbit --repeats 8

Brings a testbed of its own up at each rate, one rank a host. The simulated link is the same at each rate, and
not fitted: GOODPUT of the rate, which is a TCP segment's share of its frame (1448 of 1514 bytes),
LATENCY, OVERHEAD and CODING below. Allreduces are those of `gradwire bench allreduce`, whose median counts;
steps are `gradwire replay --compute sleep` of the slowest rank, median without the first two. Meshes are
`gradwire train --pace`, simulated with what each run measured of its own stages' arithmetic, means over ranks;
bytes must be equal. The bounds are those of the design: 5% at 2 hosts, 10% at more. A row beyond it says so, and the program still ends
with status 0.
"""

import argparse
import collections
import csv
import datetime
import json
import math
import os
import statistics
import subprocess
import tempfile

from compare_torch import ROOT, TESTBED, bench, fail, machine_facts, median_step, mpi, positive, report, run

GOODPUT, LATENCY, OVERHEAD, CODING_NS = 1448 / 1514, "40us", "5us", "0.5"
ALGORITHMS = "ring,halving,doubling,sra,swing,bine"
WARMUP = 2
CONFIGURATIONS = {
    "ring": "--comm allreduce:algo=ring",
    "halving in buckets": "--comm iallreduce:algo=halving",
    "bf16 in buckets": "--comm iallreduce:algo=halving --compress bf16",
    "8 bits in buckets": "--comm iallreduce:algo=sra --compress qsgd:bits=8",
    "shards": "--comm sharded:algo=ring",
    "lazy shards, bf16": "--comm sharded:algo=halving --compress bf16 --update lazy",
}
MESHES = {f"{mesh} {timetable} {micros}": f"--mesh {mesh} --microbatches {micros} --timetable {timetable}"
          for mesh, micros, timetable in (
              ("data=2,pipe=2", 4, "1f1b"), ("data=2,pipe=2", 4, "zb"), ("pipe=4", 8, "gpipe"),
              ("pipe=4", 8, "1f1b:eager=1"), ("pipe=4", 8, "interleaved"))}
MESHES |= {mesh: f"--mesh {mesh} --tensor-algo ring{more}" for mesh, more in (
    ("tensor=4", ""), ("data=2,tensor=2", " --tensor-chunks 4"),
    ("pipe=2,tensor=2", " --microbatches 4 --timetable 1f1b"))}
WIDTH, CLASSES, LAYERS, PACE = 768, 10, 8, 60


def simulate(options, bits, words, figure="step_s"):
    """Seconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "simulated.json")
        run([options.gradwire, "simulate", "--ranks", str(options.hosts), "--link",
             f"{GOODPUT * bits:.0f}bit,{LATENCY},{OVERHEAD}", "--coding-ns", CODING_NS, "--json", out, *words])
        with open(out, encoding="utf-8") as file:
            return json.load(file)[figure]


def allreduces(options, bits):
    """(what, measured, simulated) of each algorithm and size: seconds."""
    for row in bench([*mpi(options.hosts, options), options.gradwire], "allreduce", "--sizes", options.sizes,
                     "--algos", ALGORITHMS, "--repeats", options.repeats):
        if row["algorithm"] != "native":
            yield (f"{row['algorithm']} {row['bytes']:>9}", row["median_s"],
                   simulate(options, bits, ["--bytes", str(row["bytes"]), "--steps", "1", "--comm",
                                            f"allreduce:algo={row['algorithm']}"]))


def median_of(out, column, of_ranks):
    """Of a run's steps without the first ones."""
    steps = collections.defaultdict(list)
    with open(os.path.join(out, "batches.csv"), newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            steps[int(row["step"])].append(float(row[column]))
    return median_step([of_ranks(steps[step]) for step in sorted(steps)], WARMUP)


def steps(options, bits):
    for what, text in CONFIGURATIONS.items():
        words = text.split() + ["--bucket-mb", "25"]
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run")
            run([*mpi(options.hosts, options), options.gradwire, "replay", options.profile, "--quiet", "--out", out,
                 "--steps", str(options.repeats + WARMUP), *words])
            measured = median_of(out, "wall_s", max)
        yield what, measured, simulate(options, bits, ["--profile", options.profile, *words])


def paced_profile(paced, mesh):
    """The times that each stage's tensor ranks, paced, had for its layers, of each as much as it has weights; cut as the
    run was."""
    full = max(share["batch"] for share in paced["measured"])
    shares = [share for share in paced["measured"] if share["batch"] == full]
    layers = []
    for i in range(LAYERS):
        outputs = WIDTH if i + 1 < LAYERS else CLASSES
        bias = {"name": f"bias{i}", "shape": [outputs], "group": i, "shard": 0, "std": 1, "forward_s": 0, "backward_s": 0}
        weights = {**bias, "name": f"layer{i}", "shape": [WIDTH, outputs], "shard": 1 - i % 2}
        weights.update({"forward_sum": outputs} if i % 2 else {"backward_sum": WIDTH} if i else {})
        layers.append((weights, bias))
    held = collections.defaultdict(list)
    for i, n in enumerate(mesh["layers"]):
        run_of = layers[sum(mesh["layers"][:i]):][:n]
        run_of[-1][1]["activation"] = WIDTH
        held[i % mesh["pipe"]] += [weights for weights, _ in run_of]
    for stage, own in held.items():
        for layer in own:
            part = paced["factor"] * math.prod(layer["shape"]) / sum(math.prod(other["shape"]) for other in own)
            layer.update({key: part * sum(share[key] for share in shares if share["stage"] == stage)
                          for key in ("forward_s", "backward_s")})
    return {"schema": 1, "model": "a paced run", "source": "paced in run.json", "device": "cpu", "machine": "this one",
            "date": datetime.date.today().isoformat(), "torch": None, "threads": 1, "batch": full,
            "tensors": [tensor for layer in layers for tensor in layer],
            "optimizer_s": paced["factor"] * sum(share["update_s"] for share in shares)}


def meshes(options, bits):
    for what, text in MESHES.items():
        words = [*text.split(), "--comm", "allreduce:algo=ring"]
        with tempfile.TemporaryDirectory() as folder:
            out, profile = (os.path.join(folder, name) for name in ("run", "profile.json"))
            run([*mpi(options.hosts, options), options.gradwire, "train", "--quiet", "--out", out, *words, "--layers",
                 ",".join([str(WIDTH)] * (LAYERS - 1)), "--data",
                 f"synthetic:samples=6400,features={WIDTH},classes={CLASSES}", "--steps", str(options.repeats + WARMUP),
                 "--pace", str(PACE), "--ceilings", "off"])
            with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
                found = json.load(file)
            with open(profile, "w", encoding="utf-8") as file:
                json.dump(paced_profile(found["paced"], found["mesh"]), file)
            words, real = ["--profile", profile, *words], found["results"]["summary"]
            if simulate(options, bits, words, "wire_bytes") != real["wire_bytes"]:
                fail(f"{what}: a rank sends {real['wire_bytes']:.0f} bytes a step, and not as many simulated")
            yield what, median_of(out, "wall_s", statistics.fmean), simulate(options, bits, words)
            if found["mesh"]["pipe"] > 1:
                bubble = median_of(out, "pipe_skew_s", statistics.fmean)
                yield "  its bubble", bubble, simulate(options, bits, words, "bubble_s")


def measure(options):
    """[rate, what, measured s, simulated s]"""
    found = []
    for rate in options.rates.split(","):
        run([TESTBED, "up", "--name", options.testbed, "--hosts", str(options.hosts), "--rate", rate])
        try:
            bits = json.loads(run([TESTBED, "status", "--json", "--name", options.testbed]))["rate_bits_per_s"]
            pairs = meshes if options.meshes else steps if options.profile else allreduces
            found += [(rate, *row) for row in pairs(options, bits)]
        finally:
            subprocess.run([TESTBED, "down", "--name", options.testbed], check=False, capture_output=True)
    return found


def table(found, bound):
    lines = [f"{'rate':9}  {'what':24}  {'measured ms':>11}  {'simulated ms':>12}  {'simulated / measured':>20}"]
    beyond = 0
    for rate, what, measured, simulated in found:
        far = abs(simulated / measured - 1) > bound
        beyond += far
        lines.append(f"{rate:9}  {what:24}  {1e3 * measured:11.2f}  {1e3 * simulated:12.2f}  "
                     f"{simulated / measured:20.3f}{'  beyond the bound' if far else ''}")
    return [*lines, "", f"{beyond} of {len(found)} beyond {100 * bound:.0f}%."]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gradwire", default=os.path.join(ROOT, "build/release/gradwire"))
    parser.add_argument("--hosts", type=int, default=2, help="of the testbed, a rank each [2]")
    parser.add_argument("--rates", default="200mbit,500mbit,1gbit", help="of each host's link [200mbit,500mbit,1gbit]")
    parser.add_argument("--sizes", default="256K,2M,16M", help="of the allreduces [256K,2M,16M]")
    parser.add_argument("--profile", help="compare whole steps of this model, not allreduces")
    parser.add_argument("--meshes", action="store_true", help="compare paced steps over meshes")
    parser.add_argument("--repeats", type=positive, default=5, help="timings of an allreduce or of a step [5]")
    parser.add_argument("--testbed", default="simulated", help="the name that the testbed gets")
    parser.add_argument("--mpiexec", default=os.path.join(ROOT, "build/release/mpiexec"))
    parser.add_argument("--out", help="write the results to OUT.txt and OUT.json; rates that are there already stay")
    options = parser.parse_args()
    if options.hosts < 2:
        fail("--hosts: 2 or more exchange messages")
    facts = {**machine_facts(), "hosts": options.hosts, "link": f"{GOODPUT:.4f} of the rate, {LATENCY}, {OVERHEAD}",
             "coding": f"{CODING_NS} ns a float", "repeats": options.repeats,
             "gradwire": run([options.gradwire, "--version"]).strip()}
    if options.profile:
        facts["steps"] = {"profile": os.path.basename(options.profile), **CONFIGURATIONS}
    if options.meshes:
        facts["steps"] = {"layers": [WIDTH] * (LAYERS - 1), "pace": PACE, **MESHES}
    found = measure(options)
    if options.out and os.path.exists(options.out + ".json"):
        with open(options.out + ".json", encoding="utf-8") as file:
            before = [tuple(row.values()) for row in json.load(file)["seconds"]]
        found = [row for row in before if row[0] not in options.rates.split(",")] + found
    report(options.out, facts, table(found, 0.05 if options.hosts == 2 else 0.10),
           {"facts": facts, "seconds": [dict(zip(("rate", "what", "measured", "simulated"), row)) for row in found]})


if __name__ == "__main__":
    main()
