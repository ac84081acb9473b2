#!/usr/bin/env python3
r"""What gradwire predicts of a step against the step: `train --forecast`, `plan`, `plan --mesh` and `simulate`.

  compare_predictions.py
  compare_predictions.py --gradwire OTHER/build/release/gradwire --places 200mbit --models gpt

2 ranks train in shared memory, or on two hosts of a testbed that it brings up at each rate. Each configuration runs for
some seconds, and its step is that of run.json; beside it stand predictions by the same binary, divided by it. Those of
`simulate` take the link of compare_simulated.py, and within a host the memory of MEMORY. A binary whose `simulate` takes no
--layers has the program simulate-train in its tree, or trains by `simulate --train`. The row `auto` has the step of what
`--compress auto` would choose over the best step, both measured by `plan --verify`, whose candidates take turns. A predictor that refuses a configuration has no figure there.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile

from compare_simulated import CODING_NS, GOODPUT, LATENCY, OVERHEAD
from compare_torch import ROOT, TESTBED, add_program, fail, machine_facts, mpi, report, run

MEMORY = "70gbit,1us"
DATA, INPUTS, CLASSES = "synthetic:samples=24000,features=784,classes=10", 784, 10
LETTERS = "abcdefghijklmnopqrstuvwxyz "
MODELS = {"784-256-128-10": "--layers 256,128 --batch 64", "784-512-512-10": "--layers 512,512 --batch 256",
          "gpt": "--model gpt:layers=2,heads=4,width=128,context=64 --batch 16"}
CODECS = ("none", "qsgd:bits=4", "topk:ratio=0.01")
ALGORITHMS = "native;sra;gathersum"  # the defaults of these codecs, in their order
MICROBATCHES, TIMETABLE = "4", "1f1b"
MESHES = {"pipe=2": ["--mesh", "pipe=2", "--microbatches", MICROBATCHES, "--timetable", TIMETABLE],
          "tensor=2": ["--mesh", "tensor=2"]}
PREDICTORS = ("forecast", "plan", "simulate")


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def attempt(words):
    """Whether the command ended well: a predictor may refuse a configuration."""
    return subprocess.run(words, capture_output=True, check=False, timeout=600).returncode == 0


class Place:
    """Where two ranks train a model, and what is predicted of it there."""

    def __init__(self, options, rate, model, folder):
        self.options, self.rate, self.folder = options, rate, folder
        self.text = MODELS[model].startswith("--model gpt")
        self.model = MODELS[model].split()
        self.data = ["--data", f"text:{folder}/text" if self.text else DATA]
        self.ranks = [*mpi(2, options), options.gradwire]

    def out(self, name):
        return os.path.join(self.folder, name)

    def step(self, words):
        """(seconds of a step, of its forecast) of a run."""
        run([*self.ranks, "train", *self.model, *self.data, *words, "--time-limit", f"{self.options.seconds}s", "--epochs",
             "1000", "--overhead", "0", "--ceilings", "off", "--save-model", "off", "--quiet", "--overwrite", "--out",
             self.out("run")])
        found = read(self.out("run/run.json"))
        step_s = found["results"]["summary"]["wall_s"] or found["results"]["train_s"] / found["results"]["steps"]
        return step_s, (found["forecast"] or {}).get("predicted_step_s")

    def plan(self, words):
        """The results of `gradwire plan`; {}: it refuses that."""
        sizes = ["--classes", str(len(LETTERS))] if self.text else ["--inputs", str(INPUTS), "--classes", str(CLASSES)]
        done = attempt([*self.ranks, "plan", *self.model, *sizes, *words, "--json", self.out("plan.json")])
        return read(self.out("plan.json"))["results"] if done else {}

    def simulated(self, words):
        bits = 1e9 if self.rate == "shm" else float(self.rate.removesuffix("mbit")) * 1e6
        place = ["--ranks", "2", "--link", f"{GOODPUT * bits:.0f}bit,{LATENCY},{OVERHEAD}", "--memory-link", MEMORY,
                 "--per-host", "2" if self.rate == "shm" else "1", "--coding-ns", CODING_NS]
        done = attempt([*self.options.simulate, *place, *self.model, *([] if self.options.plays else self.data), *words, "--steps", "6",
                        "--quiet", "--overwrite", "--out", self.out("simulated")])
        return read(self.out("simulated/run.json"))["results"]["summary"]["wall_s"] if done else None

    def rows(self):
        """(what, measured s, {predictor: seconds}) of each configuration."""
        for update, codecs in (("eager", CODECS), ("lazy", CODECS[:1])):
            shared = ["--comm", "iallreduce", "--update", update]
            found = self.plan([*shared, "--codecs", ";".join(codecs), "--algos", ALGORITHMS, "--budget", "2", "--verify",
                               "8"])
            candidates = found.get("candidates", [])
            for codec, algorithm in zip(codecs, ALGORITHMS.split(";")):
                words = [*shared, "--compress", codec]
                step_s, forecast_s = self.step([*words, "--forecast"])
                planned = next((one["step_s"] for one in candidates
                                if (one["codec"], one["algorithm"]) == (codec, algorithm)), None)
                yield f"{codec}, {update}", step_s, dict(zip(PREDICTORS, (forecast_s, planned, self.simulated(words))))
            timed = [one for one in candidates if one["measured_step_s"]]
            if codecs == CODECS and timed:
                chosen = next(one for one in timed if (one["codec"], one["algorithm"]) == (found["codec"], found["algorithm"]))
                yield f"auto, {update}", min(one["measured_step_s"] for one in timed), {"auto": chosen["measured_step_s"]}
        for mesh, words in MESHES.items():
            planned = self.plan(["--comm", "allreduce", "--mesh", mesh, "--microbatches", words[3] if len(words) > 2 else "1",
                                 "--timetables", TIMETABLE]).get("layouts", [])
            found = next((one["step_s"] for one in planned if one["split"] in (None, "pairs")), None)
            yield mesh, self.step(words)[0], {"plan": found, "simulate": self.simulated(words)}


def measure(options, folder):
    """[place, model, what, measured s, {predictor: seconds}]"""
    found = []
    for rate in options.places.split(","):
        options.testbed = None if rate == "shm" else options.bed
        if options.testbed:
            run([TESTBED, "up", "--name", options.bed, "--hosts", "2", "--rate", rate])
        try:
            for model in options.models.split(","):
                found += [[rate, model, *row] for row in Place(options, rate, model, folder).rows()]
        finally:
            if options.testbed:
                subprocess.run([TESTBED, "down", "--name", options.bed], check=False, capture_output=True)
    return found


def table(found):
    names = [*PREDICTORS, "auto"]
    lines = [f"{'place':8}  {'model':15}  {'exchange':22}  {'measured ms':>11}" + "".join(f"  {name:>8}" for name in names)]
    ratios = {name: [] for name in names}
    for place, model, what, measured, predicted in found:
        line = f"{place:8}  {model:15}  {what:22}  {1e3 * measured:11.3f}"
        for name in names:
            ratio = predicted[name] / measured if predicted.get(name) else None
            ratios[name] += [ratio] if ratio else []
            line += f"  {'' if ratio is None else f'{ratio:.2f}':>8}"
        lines.append(line.rstrip())
    lines.append("")
    for name, values in ratios.items():
        if values:
            error = statistics.median(max(value, 1 / value) - 1 for value in values)
            lines.append(f"{name}: median error {100 * error:.0f}% of {len(values)}, {min(values):.2f}..{max(values):.2f}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_program(parser, 1)
    parser.add_argument("--mpiexec", default=os.path.join(ROOT, "build/release/mpiexec"))
    parser.add_argument("--places", default="shm,100mbit,200mbit,500mbit", help="[shm,100mbit,200mbit,500mbit]")
    parser.add_argument("--models", default=",".join(MODELS), help=f"[{','.join(MODELS)}]")
    parser.add_argument("--seconds", type=float, default=2.0, help="that each configuration trains [2]")
    parser.add_argument("--bed", metavar="NAME", default="predictions", help="the name that the testbed gets")
    parser.add_argument("--out", help="write the results to OUT.txt and OUT.json")
    options = parser.parse_args()
    if unknown := set(options.models.split(",")) - MODELS.keys():
        fail(f"--models {sorted(unknown)[0]}: must be of {', '.join(MODELS)}", 2)
    build = os.path.dirname(os.path.abspath(options.gradwire))
    own = os.path.join(build, "../../experiments/simulate-train")
    options.simulate = [own, "--build", build] if os.path.exists(own) else [options.gradwire, "simulate"]
    options.plays = options.simulate[1] == "simulate" and "--layers" in run([*options.simulate, "--help"])
    if options.simulate[1] == "simulate" and not options.plays:
        options.simulate.append("--train")
    facts = {**machine_facts(), "gradwire": run([options.gradwire, "--version"]).strip(), "seconds": options.seconds,
             "link": f"{GOODPUT:.4f} of the rate, {LATENCY}, {OVERHEAD}; in a host {MEMORY}", "coding": f"{CODING_NS} ns a float",
             "models": MODELS}
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w", encoding="ascii") as file:
            file.write("".join(draw.choices(LETTERS, k=200000)))
        found = measure(options, folder)
    names = ("place", "model", "what", "measured_s", "predicted_s")
    report(options.out, facts, table(found), {"facts": facts, "rows": [dict(zip(names, row)) for row in found]})


if __name__ == "__main__":
    main()
