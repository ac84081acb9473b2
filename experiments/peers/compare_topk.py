#!/usr/bin/env python3
"""Choosing the 1% largest gradients: gradwire's codec topk against torch.topk, one thread each.

Both sides take turns within one run (A B A B ...); ratios are formed within a round. PyTorch does
what a gradient hook does: torch.topk of the magnitudes, then the values at these indices. For each
size the fastest of several ways counts, by its thread's CPU time, so that other load on the machine
does not count against it. gradwire's side is `gradwire bench codec`, in wall time: the whole
encoding for the wire, with indices in order and ties broken by index. Both get data of the same
kind: normal, a scale of its own for each 4096 floats, an eighth exact zeros.

PyTorch is a peer to measure, not a dependency: apt-get install python3-torch.
"""

import argparse
import json
import os
import statistics
import sys
import time

from compare_torch import add_program, bench, machine_facts, need, positive, report, run, spread

SIZES = (940584, 23298088)  # gradients of the nets 784-256-128-10 and 784-2048-2048-10
RATIO = 0.01


def gradient(torch, n):
    """n floats like those of gradwire bench codec."""
    scale = 1e-3 * torch.exp2(4 * torch.rand((n + 4095) // 4096)).repeat_interleave(4096)[:n]
    return torch.randn(n) * scale * (torch.rand(n) >= 0.125)


def ways(torch):
    """How PyTorch can find the k largest: {name: function of the gradient and k}."""
    def by_value(x, k):  # ties would give more than k; the data have none
        magnitude = x.abs()
        least = torch.kthvalue(magnitude, x.numel() - k + 1).values
        return torch.nonzero(magnitude >= least).flatten()
    return {"topk sorted=False": lambda x, k: torch.topk(x.abs(), k, sorted=False).indices,
            "topk sorted=True": lambda x, k: torch.topk(x.abs(), k, sorted=True).indices,
            "kthvalue": by_value}


def measure_torch(repeats):
    """In a child process: prints {bytes: {way: median seconds}} as JSON."""
    import torch  # pylint: disable=import-outside-toplevel
    torch.set_num_threads(1)
    torch.manual_seed(1)
    result = {"version": torch.__version__, "seconds": {}}
    for size in SIZES:
        x = gradient(torch, size // 4)
        k = int(RATIO * x.numel() + 0.5)
        result["seconds"][size] = {}
        for name, find in ways(torch).items():
            times = []
            for _ in range(repeats + 1):  # the first warms up
                start = time.process_time()
                values = x[find(x, k)]
                times.append(time.process_time() - start)
            assert values.numel() >= k
            result["seconds"][size][name] = statistics.median(times[1:])
    print(json.dumps(result))


def measure_gradwire(program, repeats):
    """{bytes: median seconds of encoding}, and {bytes: memcpy's time over that}."""
    rows = bench([program], "codec", "--codecs", f"topk:ratio={RATIO}", "--repeats", repeats,
                 "--sizes", ",".join(map(str, SIZES)))
    return ({row["bytes"]: row["encode"]["median_s"] for row in rows},
            {row["bytes"]: row["encode"]["over_memcpy"] for row in rows})


def table(peer, own, memcpy):
    """One row per size: PyTorch's fastest way against gradwire, within each round."""
    lines = [f"{'bytes':>9}  {'PyTorch, ms':>24}  {'gradwire, ms':>24}  "
             f"{'PyTorch / gradwire':>22}  {'memcpy / gradwire':>20}  fastest of PyTorch"]
    for size in SIZES:
        best = min(peer[size][0], key=lambda way: statistics.median(r[way] for r in peer[size]))
        times = [r[best] for r in peer[size]]
        ratio = [a / b for a, b in zip(times, own[size])]
        lines.append(f"{size:>9}  {spread([1e3 * s for s in times], '.3f'):>24}  "
                     f"{spread([1e3 * s for s in own[size]], '.4f'):>24}  "
                     f"{spread(ratio, '.1f'):>22}  {spread(memcpy[size], '.2f'):>20}  {best}")
    for size in SIZES:
        others = ", ".join(f"{way} {1e3 * statistics.median(r[way] for r in peer[size]):.3f}"
                           for way in peer[size][0])
        lines.append(f"{size:>9}  PyTorch, ms: {others}")
    return lines + ["Median over the rounds (least..most) of a round's median."]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_program(parser, 5)
    parser.add_argument("--repeats", type=positive, default=7, help="timings a round [7]")
    parser.add_argument("--out", help="also write the results to this file")
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        measure_torch(options.repeats)
        return
    need("torch")
    env = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    peer, own, memcpy = ({size: [] for size in SIZES} for _ in range(3))
    for _ in range(options.rounds):
        child = json.loads(run([sys.executable, __file__, "--torch", "--repeats",
                                str(options.repeats)], env=env))
        seconds, over = measure_gradwire(options.gradwire, options.repeats)
        for size in SIZES:
            peer[size].append(child["seconds"][str(size)])
            own[size].append(seconds[size])
            memcpy[size].append(over[size])
    facts = {**machine_facts(), "pytorch": child["version"],
             "gradwire": run([options.gradwire, "--version"]).strip()}
    text = report(None, facts, [f"topk:ratio={RATIO}, one thread, {options.rounds} rounds of {options.repeats}",
                                *table(peer, own, memcpy)])
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
