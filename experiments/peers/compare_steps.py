#!/usr/bin/python3
"""The step without communication: gradwire against PyTorch on nets from small to large.

Forward, loss, backward and SGD on one batch in memory, on one rank, with one and two threads. Both
sides take turns, one process each per round, and ratios are formed within a round. The peer is
PyTorch 2 from PyPI:

  python3 -m venv VENV && VENV/bin/pip install torch
  compare_steps.py --torch VENV/bin/python
"""

import argparse
import json
import os
import statistics
import sys

from compare_torch import add_program, bench, run, spread

# name: (hidden widths, batch, timed steps, rate)
NETS = {
    "784-256-128-10 at 64": ("256,128", 64, 600, 0.1),
    "784-2048-2048-10 at 1024": ("2048,2048", 1024, 10, 0.01),
    "784-1024x4-10 at 256": ("1024,1024,1024,1024", 256, 40, 0.01),
    "784-2048-2048-10 at 32": ("2048,2048", 32, 60, 0.01),
}

TORCH = """
import json, statistics, sys, time
import torch
layers, batch, steps, rate, threads = sys.argv[1:]
batch, steps = int(batch), int(steps)
torch.set_num_threads(int(threads))
torch.set_flush_denormal(True)
torch.manual_seed(1)
widths = [784, *map(int, layers.split(",")), 10]
parts = []
for inputs, outputs in zip(widths, widths[1:]):
    parts += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
model = torch.nn.Sequential(*parts[:-1])
rule = torch.optim.SGD(model.parameters(), lr=float(rate))
loss = torch.nn.CrossEntropyLoss()
x, y, took = torch.rand(batch, 784), torch.randint(10, (batch,)), []
for step in range(steps + max(steps // 4, 3)):
    start = time.perf_counter()
    rule.zero_grad(set_to_none=True)
    loss(model(x), y).backward()
    rule.step()
    took.append(time.perf_counter() - start)
print(json.dumps([torch.__version__, statistics.median(took[-steps:])]))
"""


def time_torch(options, net, threads):
    words = [options.torch, "-c", TORCH, *map(str, (*net, threads))]
    options.version, seconds = json.loads(run(words, env={**os.environ,
                                                          "OMP_NUM_THREADS": str(threads)}))
    return seconds


def time_gradwire(options, net, threads):
    layers, batch, steps, rate = net
    return bench([options.gradwire], "step", "--layers", layers, "--batch", batch, "--steps", steps,
                 "--lr", rate, "--threads", threads, "--warmup", max(steps // 4, 3), "--comm",
                 options.comm)[0]["median_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", default=sys.executable, help="a Python that has PyTorch 2")
    add_program(parser, 5)
    parser.add_argument("--comm", default="allreduce", help="strategy [allreduce]")
    parser.add_argument("--threads", default="1,2", help="numbers of threads [1,2]")
    options = parser.parse_args()
    print(f"{'net':26} threads  gradwire ms  PyTorch ms  PyTorch / gradwire (least..most)")
    for threads in map(int, options.threads.split(",")):
        for name, net in NETS.items():
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours.append(time_gradwire(options, net, threads))
                theirs.append(time_torch(options, net, threads))
            ratios = [b / a for a, b in zip(ours, theirs)]
            print(f"{name:26} {threads:7}  {1e3 * statistics.median(ours):11.3f}  "
                  f"{1e3 * statistics.median(theirs):10.3f}  {spread(ratios, '.2f')}", flush=True)
    print(f"PyTorch {options.version}")


if __name__ == "__main__":
    main()
