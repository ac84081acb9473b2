#!/usr/bin/python3
"""Choosing the 1% largest gradients: gradwire's codec topk against torch.topk, one thread each.

Both sides take turns within one run (A B A B ...); the ratios are formed within each round. What
PyTorch's side does is what a gradient hook does: torch.topk of the magnitudes, then the values at
the indices it found. It is tried in several ways, and the fastest of them, by size, is what counts.
Its time is its one thread's processor time, so that whatever else the machine runs is not held
against it; gradwire's is wall time. gradwire's side is `gradwire bench codec`: the whole encoding,
bytes for the wire, with indices in order and ties broken by index. The data are of the same kind:
normal, a scale of its own for each 4096 floats, an eighth exact zeros.

PyTorch is a peer to measure, not a dependency: apt-get install python3-torch.
"""

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(ROOT, "analysis"))
from tool import need

SIZES = (940584, 23298088)  # gradients of the nets 784-256-128-10 and 784-2048-2048-10
RATIO = 0.01


def gradient(torch, n):
    """n floats like those of gradwire bench codec."""
    scale = 1e-3 * torch.exp2(4 * torch.rand((n + 4095) // 4096)).repeat_interleave(4096)[:n]
    return torch.randn(n) * scale * (torch.rand(n) >= 0.125)


def ways(torch):
    """How PyTorch can find the k largest: name -> function of the gradient and k."""
    def by_value(x, k):  # ties would give more than k: kept out of the data
        magnitude = x.abs()
        least = torch.kthvalue(magnitude, x.numel() - k + 1).values
        return torch.nonzero(magnitude >= least).flatten()
    return {"topk sorted=False": lambda x, k: torch.topk(x.abs(), k, sorted=False).indices,
            "topk sorted=True": lambda x, k: torch.topk(x.abs(), k, sorted=True).indices,
            "kthvalue": by_value}


def measure_torch(repeats):
    """Runs in a child: {bytes: {way: median seconds}} as JSON."""
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


def run(command, env=None):
    done = subprocess.run(command, text=True, capture_output=True, check=False, env=env)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        sys.exit(f"compare_topk: {' '.join(command)}: status {done.returncode}: {last}")
    return done.stdout


def measure_gradwire(program, repeats):
    """{bytes: median seconds}, and what memcpy of the same span takes over the encoding's time."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "bench.json")
        run([program, "bench", "codec", "--codecs", f"topk:ratio={RATIO}", "--repeats",
             str(repeats), "--sizes", ",".join(map(str, SIZES)), "--json", out])
        with open(out, encoding="utf-8") as file:
            rows = json.load(file)["results"]
    return ({row["bytes"]: row["encode"]["median_s"] for row in rows},
            {row["bytes"]: row["encode"]["over_memcpy"] for row in rows})


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


def describe_machine(gradwire, version):
    """Lines that say where and with what the figures were taken."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    model = re.search(r"model name\s*:\s*(.*)", text)
    return [f"date: {datetime.date.today()}",
            f"cpu: {model.group(1) if model else platform.machine()}",
            f"avx512: {'avx512f' in text}",
            f"cores: {os.cpu_count()}",
            f"load_now: {os.getloadavg()[0]:.1f}",
            f"pytorch: {version}",
            f"gradwire: {run([gradwire, '--version']).strip()}", ""]


def table(peer, own, memcpy):
    """A row a size: the fastest way of PyTorch against gradwire, within each round."""
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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=7, help="timings a round [7]")
    parser.add_argument("--gradwire", default=os.path.join(ROOT, "build/release/gradwire"))
    parser.add_argument("--out", help="results go to this file, too")
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
                                str(options.repeats)], env))
        seconds, over = measure_gradwire(options.gradwire, options.repeats)
        for size in SIZES:
            peer[size].append(child["seconds"][str(size)])
            own[size].append(seconds[size])
            memcpy[size].append(over[size])
    lines = describe_machine(options.gradwire, child["version"])
    lines.append(f"topk:ratio={RATIO}, one thread, {options.rounds} rounds of {options.repeats}")
    text = "\n".join(lines + table(peer, own, memcpy)) + "\n"
    print(text, end="")
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
