#!/usr/bin/env python3
r"""`gradwire simulate` against the testbed: allreduces, and whole steps of a profile.

  compare_simulated.py --hosts 4
  compare_simulated.py --hosts 2 --profile profiles/resnet18.json --rates 1gbit

Brings a testbed of its own up at each rate, one rank a host. The simulated link is the same at each rate, and
not fitted: GOODPUT of the rate, which is a TCP segment's share of its frame (1448 of 1514 bytes),
LATENCY, OVERHEAD and CODING below. Allreduces are those of `gradwire bench allreduce`, whose median counts;
steps are `gradwire replay --compute sleep` of the slowest rank, median without the first two. The bounds are those
of the design: 5% at 2 hosts, 10% at more. A row beyond it says so, and the program still ends with status 0.
"""

import argparse
import collections
import csv
import json
import os
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


def simulate(options, bits, words):
    """Seconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "simulated.json")
        run([options.gradwire, "simulate", "--ranks", str(options.hosts), "--link",
             f"{GOODPUT * bits:.0f}bit,{LATENCY},{OVERHEAD}", "--coding-ns", CODING_NS, "--json", out, *words])
        with open(out, encoding="utf-8") as file:
            return json.load(file)["step_s"]


def allreduces(options, bits):
    """(what, measured, simulated) of each algorithm and size: seconds."""
    for row in bench([*mpi(options.hosts, options), options.gradwire], "allreduce", "--sizes", options.sizes,
                     "--algos", ALGORITHMS, "--repeats", options.repeats):
        if row["algorithm"] != "native":
            yield (f"{row['algorithm']} {row['bytes']:>9}", row["median_s"],
                   simulate(options, bits, ["--bytes", str(row["bytes"]), "--steps", "1", "--comm",
                                            f"allreduce:algo={row['algorithm']}"]))


def median_of(out):
    """Seconds of a run's steps on the slowest rank, without the first ones."""
    steps = collections.defaultdict(float)
    with open(os.path.join(out, "batches.csv"), newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            steps[int(row["step"])] = max(steps[int(row["step"])], float(row["wall_s"]))
    return median_step([steps[step] for step in sorted(steps)], WARMUP)


def steps(options, bits):
    for what, text in CONFIGURATIONS.items():
        words = text.split() + ["--bucket-mb", "25"]
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run")
            run([*mpi(options.hosts, options), options.gradwire, "replay", options.profile, "--quiet", "--out", out,
                 "--steps", str(options.repeats + WARMUP), *words])
            measured = median_of(out)
        yield what, measured, simulate(options, bits, ["--profile", options.profile, *words])


def measure(options):
    """[rate, what, measured s, simulated s]"""
    found = []
    for rate in options.rates.split(","):
        run([TESTBED, "up", "--name", options.testbed, "--hosts", str(options.hosts), "--rate", rate])
        try:
            bits = json.loads(run([TESTBED, "status", "--json", "--name", options.testbed]))["rate_bits_per_s"]
            pairs = steps if options.profile else allreduces
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
    found = measure(options)
    if options.out and os.path.exists(options.out + ".json"):
        with open(options.out + ".json", encoding="utf-8") as file:
            before = [tuple(row.values()) for row in json.load(file)["seconds"]]
        found = [row for row in before if row[0] not in options.rates.split(",")] + found
    report(options.out, facts, table(found, 0.05 if options.hosts == 2 else 0.10),
           {"facts": facts, "seconds": [dict(zip(("rate", "what", "measured", "simulated"), row)) for row in found]})


if __name__ == "__main__":
    main()
