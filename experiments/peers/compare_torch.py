#!/usr/bin/python3
r"""Step time of gradwire against PyTorch: same model, data, batch and rate.

784-256-128-10 (--layers) on Fashion-MNIST, global batch 64, SGD with rate 0.1, one thread a rank. For
the step without communication, --ranks 1 leaves the sides of two ranks out:

  compare_torch.py --ranks 1 --layers 2048,2048 --batch 1024 --lr 0.01 --threads 2 --steps 10

With --testbed NAME the ranks run on that testbed's emulated hosts (experiments/testbed up), one per
host in turn, and DDP over Gloo with each of its hooks meets the configurations given by --ours:

  compare_torch.py --testbed default --layers 2048,2048 \
      --ours 'ring=--comm allreduce:algo=sra' --ours 'qsgd8=--comm iallreduce --compress qsgd:bits=8'

All sides take turns within one run (A B C A B C ...), so that a change of the machine affects all
of them; ratios are formed within a round. A step's time is that of the slowest rank; the median
counts, without the first steps. torch_train.py is PyTorch's side.

PyTorch is a peer to measure, not a dependency: apt-get install python3-torch.
"""

import argparse
import csv
import datetime
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(ROOT, "analysis"))
from tool import need

TESTBED = os.path.join(ROOT, "experiments/testbed")

# name: (program, ranks, further options of torch_train.py or gradwire train)
SIDES = {
    "torch, 1 rank": ("torch", 1, []),
    "gradwire, 1 rank": ("gradwire", 1, ["--comm", "allreduce"]),
    "torch DDP gloo, 2 ranks": ("torch", 2, []),
    "gradwire allreduce, 2 ranks": ("gradwire", 2, ["--comm", "allreduce"]),
    "gradwire allreduce sra, 2 ranks": ("gradwire", 2, ["--comm", "allreduce:algo=sra"]),
    "gradwire iallreduce sra, 2 ranks": ("gradwire", 2, ["--comm", "iallreduce:algo=sra"]),
    "gradwire qsgd8, 2 ranks": ("gradwire", 2, ["--comm", "iallreduce", "--compress",
                                                "qsgd:bits=8"]),
}
HOOKS = ("none", "fp16", "powersgd2")
MEETINGS = itertools.count(29500)  # ports; the previous one may linger


def fail(message):
    sys.exit(f"{os.path.basename(sys.argv[0]).removesuffix('.py')}: {message}")


def find_data():
    """The folder that gradwire itself would find."""
    own = os.environ.get("GW_DATA_DIR")
    folders = [os.path.join(own, "fashion-mnist")] if own else []
    for folder in folders + ["/usr/share/datasets/fashion-mnist", "data/fashion-mnist"]:
        if os.path.exists(os.path.join(folder, "train-images-idx3-ubyte.gz")):
            return os.path.abspath(folder)
    return fail("Fashion-MNIST not found: install dataset-fashion-mnist or set GW_DATA_DIR")


def torch_environment(threads=1):
    """Environment of a PyTorch rank: its threads, and fast kernels even if OpenBLAS is older than
    the CPU and would choose its slowest ones."""
    libraries = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    env = {**os.environ, **libraries,
           "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if re.search(r"\bavx512f\b", file.read()):
            env.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
    return env


def find_torch(env):
    """PyTorch's version and libraries, in an interpreter with the ranks' environment."""
    tell = "import torch; print(torch.__version__, torch.__config__.show())"
    return " ".join(run([sys.executable, "-c", tell], env=env).split())


def run(command, **options):
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=600,
                          **options)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        fail(f"{' '.join(command)}: status {done.returncode}: {last}")
    return done.stdout


def bench(program, *words):
    """The results of `gradwire bench`; `program`: the words that start gradwire."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "bench.json")
        run([*program, "bench", *map(str, words), "--json", out])
        with open(out, encoding="utf-8") as file:
            return json.load(file)["results"]


def run_ranks(script, ranks, words, options, env):
    """The --out of each rank of a PyTorch script, on this machine or on the testbed."""
    with tempfile.TemporaryDirectory() as folder:
        outs = [os.path.join(folder, f"{rank}.json") for rank in range(ranks)]
        meet, on = f"file://{folder}/meet", [[]] * ranks
        if options.testbed:
            links = options.link["links"]
            meet = f"tcp://{links[0]['address']}:{next(MEETINGS)}"
            on = [[TESTBED, "exec", "--name", options.testbed, str(rank % len(links) + 1), "--"]
                  for rank in range(ranks)]
            env = dict(env, GLOO_SOCKET_IFNAME=options.link["interface"])
        children = [subprocess.Popen(
            [*on[rank], sys.executable, os.path.join(HERE, script), "--rank", str(rank), "--ranks",
             str(ranks), "--meet", meet, "--out", out, *words],
            env=env, stderr=subprocess.PIPE, text=True) for rank, out in enumerate(outs)]
        try:
            errors = [child.communicate(timeout=600)[1] for child in children]
        finally:
            for child in children:
                child.kill()
        for child, error in zip(children, errors):
            if child.returncode != 0:
                last = (error.strip() or "no message").splitlines()[-1]
                fail(f"{script}: status {child.returncode}: {last}")
        results = []
        for out in outs:
            with open(out, encoding="utf-8") as file:
                results.append(json.load(file))
    return results


def shared(options):
    """The options that both programs take."""
    return ["--data", options.data, "--layers", options.layers, "--batch", str(options.batch), "--lr",
            str(options.lr), "--threads", str(options.threads), "--seed", "1", "--steps",
            str(options.steps + options.warmup)]


def run_torch(ranks, further, options, env):
    """Median seconds a step."""
    results = run_ranks("torch_train.py", ranks, [*shared(options), *further], options, env)
    slowest = [max(step) for step in zip(*(result["step_s"] for result in results))]
    return statistics.median(slowest[options.warmup:])


def mpi(ranks, options):
    """The words that start `ranks` MPI ranks of the following command."""
    if options.testbed:
        return [TESTBED, "run", "--name", options.testbed, "--mpiexec", options.mpiexec, "-n",
                str(ranks), "--"]
    return [options.mpiexec, "-n", str(ranks)]


def run_gradwire(ranks, further, options):
    """Median over the timed steps of the slowest rank's seconds, from batches.csv."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        run([*mpi(ranks, options), options.gradwire, "train", *shared(options), "--quiet", "--out", out,
             *further])
        slowest = {}
        with open(os.path.join(out, "batches.csv"), newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                step = int(row["step"])
                slowest[step] = max(slowest.get(step, 0), float(row["wall_s"]))
    return statistics.median([slowest[step] for step in sorted(slowest)][options.warmup:])


def measure(options, env):
    """{side: [median seconds a step of each round]}"""
    figures = {name: [] for name in options.sides}
    for turn in range(options.rounds):
        for name in options.sides:
            program, ranks, further = options.sides[name]
            if program == "torch":
                figures[name].append(run_torch(ranks, further, options, env))
            else:
                figures[name].append(run_gradwire(ranks, further, options))
            print(f"round {turn + 1}/{options.rounds}  {name:34} {figures[name][-1] * 1e3:8.3f} ms",
                  file=sys.stderr)
    return figures


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


def table(figures, sides):
    """Each side's step time, and PyTorch's divided by it, for each PyTorch side on as many
    ranks."""
    peers = {name: [n for n in figures if sides[n][:2] == ("torch", sides[name][1])]
             for name in figures if sides[name][0] == "gradwire"}
    several = max(map(len, peers.values()), default=0) > 1
    heads = ([f"{peer} / this" for peer in next(iter(peers.values()))] if several
             else ["PyTorch / this, by round"])
    lines = [f"{'':34}  {'ms a step':>24}" + "".join(f"  {head:>24}" for head in heads)]
    for name, values in figures.items():
        ratios = [spread([a / b for a, b in zip(figures[peer], values)], ".2f")
                  for peer in peers.get(name, [])]
        lines.append(f"{name:34}  {spread([v * 1e3 for v in values], '.3f'):>24}"
                     + "".join(f"  {ratio:>24}" for ratio in ratios))
    return "\n".join(lines)


def machine_facts():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    model = re.search(r"model name\s*: (.*)", text)
    return {"date": datetime.date.today().isoformat(),
            "cpu": model.group(1) if model else platform.machine(),
            "avx512": bool(re.search(r"\bavx512f\b", text)),
            "cores": len(os.sched_getaffinity(0)),
            "load_before": os.getloadavg()[0],
            "kernel": platform.release()}


def describe_machine(options, env):
    machine = {
        **machine_facts(),
        "pytorch": find_torch(env),
        "ddp": "gloo, gradient_as_bucket_view=True, broadcast_buffers=False",
        "layers": options.layers, "batch": options.batch, "threads": options.threads,
        "link": options.link and f"emulated: {len(options.link['links'])} hosts at "
                                 f"{options.link['rate_bits_per_s'] / 1e6:g} Mbit/s",
        "sides": {name: shlex.join(further) for name, (_, _, further) in options.sides.items()},
        "steps": options.steps, "warmup": options.warmup, "rounds": options.rounds,
    }
    if any(program == "gradwire" for program, _, _ in options.sides.values()):
        machine["gradwire"] = run([options.gradwire, "--version"]).strip()
    return machine


def write(prefix, text, content):
    """PREFIX.txt and PREFIX.json."""
    with open(prefix + ".txt", "w", encoding="utf-8") as file:
        file.write(text + "\n")
    with open(prefix + ".json", "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def write_results(prefix, machine, figures, sides):
    text = [f"{key}: {value if isinstance(value, str) else json.dumps(value)}"
            for key, value in machine.items()]
    text += ["", table(figures, sides), "", "Median over the rounds (least..most) of a round's median."]
    write(prefix, "\n".join(text), {"machine": machine, "step_s": figures})
    print("\n".join(text))


def add_program(parser, rounds):
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--gradwire", default=os.path.join(ROOT, "build/release/gradwire"))


def add_common(parser):
    parser.add_argument("--testbed", metavar="NAME", help="run on this testbed's hosts")
    parser.add_argument("--ranks", type=int, help="[one per host of the testbed, else 2]")
    add_program(parser, 7)
    parser.add_argument("--mpiexec", default=os.path.join(ROOT, "build/release/mpiexec"))


def find_link(options):
    """The testbed's description, and the number of ranks by default."""
    options.link = None
    if options.testbed:
        status = subprocess.run([TESTBED, "status", "--json", "--name", options.testbed], text=True,
                                capture_output=True, check=False)
        if status.returncode != 0:
            fail(status.stderr.strip() or f"--testbed {options.testbed} is not up: start it by "
                 "experiments/testbed up")
        options.link = json.loads(status.stdout)
    options.ranks = options.ranks or (len(options.link["links"]) if options.link else 2)


def choose_sides(options):
    if options.testbed or options.ours:
        sides = {f"DDP {hook}" if hook != "none" else "DDP": ("torch", options.ranks,
                                                              ["--hook", hook]) for hook in HOOKS}
        for name, words in options.ours or [("gradwire", ["--comm", "allreduce:algo=sra"])]:
            sides[name] = ("gradwire", options.ranks, words)
    else:
        sides = {name: side for name, side in SIDES.items() if side[1] <= options.ranks}
    return {name: side for name, side in sides.items() if options.only in (None, side[0])}


def named_words(text):
    name, equals, words = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"'{text}': must be NAME=--option value ...")
    return name, shlex.split(words)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_common(parser)
    parser.add_argument("--ours", type=named_words, action="append", metavar="NAME=OPTIONS",
                        help="a side: options of gradwire train; may be repeated")
    parser.add_argument("--layers", default="256,128", help="hidden widths [256,128]")
    parser.add_argument("--batch", type=int, default=64, help="global [64]")
    parser.add_argument("--lr", type=float, default=0.1, help="rate [0.1]")
    parser.add_argument("--threads", type=int, default=1, help="of a rank [1]")
    parser.add_argument("--steps", type=int, default=500, help="timed steps a run [500]")
    parser.add_argument("--warmup", type=int, default=100, help="steps before these [100]")
    parser.add_argument("--only", choices=["torch", "gradwire"], help="measure one program alone")
    parser.add_argument("--out", help="write the results to OUT.txt and OUT.json "
                        "[experiments/peers/results-DATE]")
    options = parser.parse_args()
    options.out = options.out or os.path.join(HERE, f"results-{datetime.date.today():%Y%m%d}")
    return options


def main():
    options = parse()
    if options.only != "gradwire":
        need("numpy", "torch")
    options.data = find_data()
    find_link(options)
    options.sides = choose_sides(options)
    if options.only != "torch" and not shutil.which(options.gradwire):
        fail(f"{options.gradwire} is not built: cmake --build --preset release")
    env = torch_environment(options.threads)
    machine = describe_machine(options, env)
    write_results(options.out, machine, measure(options, env), options.sides)


if __name__ == "__main__":
    main()
