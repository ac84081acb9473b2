#!/usr/bin/env python3
r"""Time of PyTorch's Gloo allreduce and of gradwire's (`gradwire bench allreduce`), by size.

  experiments/testbed up --hosts 2 --rate 1gbit
  gloo_allreduce.py --testbed default --sizes 65536,1048576,16777216 \
      --bench '--sizes 64K,1M,16M --algo ring,sra'

float32, sum. The two take turns, round by round; ratios are formed within a round. The time of a
repetition is that of its slowest rank, the time of a round its median. busbw is 2(P-1)/P of the
bytes reduced per second, the least that each link must carry.
"""

import argparse
import json
import shlex
import statistics
import sys
import time

import compare_torch
from compare_torch import need


def rank_main(options):
    """One rank: seconds of each repetition, by size."""
    import torch  # pylint: disable=import-outside-toplevel
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=options.meet, rank=options.rank,
                            world_size=options.ranks)
    times = {}
    for size in options.sizes:
        data, times[size] = torch.ones(size // 4), []
        for _ in range(options.repeats + 3):  # the first three warm up
            data.fill_(1)
            dist.barrier()
            begin = time.perf_counter()
            dist.all_reduce(data)
            times[size].append(time.perf_counter() - begin)
            if data[0] != options.ranks or data[-1] != options.ranks:
                raise RuntimeError(f"wrong sum of {size} bytes")
        times[size] = times[size][3:]
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(times, file)
    dist.barrier()
    dist.destroy_process_group()


def run_gloo(options, env):
    """{bytes: median seconds}"""
    results = compare_torch.run_ranks("gloo_allreduce.py", options.ranks, [
        "--sizes", ",".join(map(str, options.sizes)), "--repeats", str(options.repeats)], options,
        env)
    return {size: statistics.median(max(times) for times in zip(*(r[str(size)] for r in results)))
            for size in options.sizes}


def run_bench(options):
    """{(bytes, algorithm and codec): median seconds}"""
    rows = compare_torch.bench([*compare_torch.mpi(options.ranks, options), options.gradwire],
                               "allreduce", *options.bench)
    return {(row["bytes"], f"{row['algorithm']} {row['codec']}"): row["median_s"] for row in rows}


def measure(options, env):
    """{(bytes, side): [median seconds of each round]}"""
    figures = {}
    for turn in range(options.rounds):
        found = {(size, "gloo"): seconds for size, seconds in run_gloo(options, env).items()}
        if options.bench is not None:
            found.update(run_bench(options))
        for key, seconds in found.items():
            figures.setdefault(key, []).append(seconds)
        print(f"round {turn + 1}/{options.rounds} done", file=sys.stderr)
    return figures


def table(figures, ranks):
    lines = [f"{'bytes':>10}  {'side':<24}  {'median ms (least..most)':>30}  {'busbw GB/s':>10}  "
             f"{'Gloo / this, by round':>24}"]
    for (size, side), values in sorted(figures.items(), key=lambda item: item[0][0]):
        gloo = figures.get((size, "gloo"))
        ratio = "" if side == "gloo" or not gloo else compare_torch.spread(
            [a / b for a, b in zip(gloo, values)], ".2f")
        busbw = size / statistics.median(values) / 1e9 * 2 * (ranks - 1) / ranks
        milli = compare_torch.spread([v * 1e3 for v in values], ".3f")
        lines.append(f"{size:>10}  {side:<24}  {milli:>30}  {busbw:>10.4f}  {ratio:>24}".rstrip())
    return "\n".join(lines)


def sizes_of(text):
    sizes = [int(word) for word in text.split(",") if word.isdigit() and int(word) % 4 == 0]
    if len(sizes) != len(text.split(",")) or 0 in sizes:
        raise argparse.ArgumentTypeError(f"'{text}': must be multiples of 4 with commas between")
    return sizes


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    compare_torch.add_common(parser)
    parser.add_argument("--sizes", type=sizes_of, default=[65536, 1 << 20, 1 << 24], metavar="BYTES,..",
                        help="of Gloo's allreduces [65536,1048576,16777216]")
    parser.add_argument("--repeats", type=compare_torch.positive, default=20, help="per size and round [20]")
    parser.add_argument("--bench", type=shlex.split, metavar="OPTIONS",
                        help="of gradwire bench allreduce; without them Gloo is measured alone")
    parser.add_argument("--out", help="write the results to OUT.txt and OUT.json [only print]")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.rank is not None:
        rank_main(options)
        return
    need("torch")
    compare_torch.find_link(options)
    env = compare_torch.torch_environment()
    about = {"pytorch": compare_torch.find_torch(env), "link": options.link,
             "ranks": options.ranks, "bench": options.bench, "repeats": options.repeats}
    figures = measure(options, env)
    compare_torch.report(options.out, about, [table(figures, options.ranks)], {"about": about, "rows": [
        {"bytes": size, "side": side, "seconds": values} for (size, side), values in figures.items()]})


if __name__ == "__main__":
    main()
