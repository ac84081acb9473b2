#!/usr/bin/env python3
r"""Step time of gradwire against PyTorch: same model, data, batch and rate.

784-256-128-10 (--layers) on Fashion-MNIST, global batch 64, SGD with rate 0.1, one thread a rank. For
the step without communication, --ranks 1 leaves the sides of two ranks out:

  compare_torch.py --ranks 1 --layers 2048,2048 --batch 1024 --lr 0.01 --threads 2 --steps 10

With --testbed NAME the ranks run on that testbed's emulated hosts (experiments/testbed up), one per
host in turn, and DDP over Gloo with each of its hooks meets the configurations given by --ours:

  compare_torch.py --testbed default --layers 2048,2048 \
      --ours 'ring=--comm allreduce:algo=sra' --ours 'qsgd8=--comm iallreduce --compress qsgd:bits=8'

With --mesh the ranks share the model: DTensor's tensor parallelism, or the schedules of
torch.distributed.pipelining, meet the same mesh here:

  compare_torch.py --mesh tensor=2 --layers 2048,2048 --lr 0.01 --steps 100 --warmup 20
  compare_torch.py --mesh pipe=2 --microbatches 8 --layers 1024,1024,1024,1024 --batch 256 --lr 0.01

With --model the sides train another of gradwire's models, and torch_models.py is its twin:

  compare_torch.py --model cnn:preset=resnet --lr 0.01 --steps 60 --warmup 10
  compare_torch.py --model gpt --data text:shakespeare.txt --batch 12 --optimizer adamw --lr 0.0001

All sides take turns within one run (A B C A B C ...), so that a change of the machine affects all
of them; ratios are formed within a round. A step's time is that of the slowest rank; the median
counts, without the first steps. All sides start from the same weights and visit the same batches
(draws.py), so their losses are compared, too. torch_train.py is PyTorch's side.

PyTorch is a peer to measure, not a dependency: apt-get install python3-torch.
"""

import argparse
import collections
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
from tool import need, write

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
                                                "qsgd:bits=8;min_bytes=4K"]),
}
HOOKS = ("none", "fp16", "powersgd2")
EARLY = 10  # steps whose losses are compared: later on roundings have flipped a ReLU here or there
MEETINGS = itertools.count(29500)  # ports; the previous one may linger


def fail(message, status=1):
    print(f"{os.path.basename(sys.argv[0]).removesuffix('.py')}: {message}", file=sys.stderr)
    sys.exit(status)


def positive(text):
    """The type of an option that counts what is measured."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': must be a whole number, 1 or more")
    return int(text)


def median_step(steps, warmup):
    """Of a run's steps without the first ones. A run ends earlier than asked where its data do."""
    if len(steps) <= warmup:
        fail(f"a run ended after {len(steps)} steps, of which the first {warmup} do not count: give it more data, or fewer "
             "steps of --warmup", 2)
    return statistics.median(steps[warmup:])


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
    """PyTorch's version, BLAS and instruction set, in an interpreter with the ranks' environment."""
    tell = ("import torch; print(torch.__version__, torch.backends.cpu.get_cpu_capability(), "
            "torch.__config__.show())")
    version, cpu, config = run([sys.executable, "-c", tell], env=env).split(maxsplit=2)
    blas = re.search(r"BLAS_INFO=(\w+)", config)
    return f"{version}, BLAS {blas[1] if blas else 'not told'}, {cpu}"


def run(command, **options):
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=600,
                          **options)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        fail(f"{' '.join(command)}: status {done.returncode}: {last}", 2 if done.returncode == 2 else 1)
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
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for rank, out in enumerate(outs)]
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
    model = ["--model", options.model] if options.model else ["--layers", options.layers]
    return ["--data", options.data, *model, "--batch", str(options.batch), "--optimizer", options.optimizer, "--lr",
            str(options.lr), "--threads", str(options.threads), "--seed", "1", "--steps",
            str(options.steps + options.warmup)]


def first_weights(options):
    """model.gw after a step that is too short to move anything."""
    out = os.path.join(options.folder, "first")
    run([options.mpiexec, "-n", "1", options.gradwire, "train", *shared(options), "--steps", "1", "--lr", "1e-12",
         "--quiet", "--out", out])
    return os.path.join(out, "model.gw")


def run_torch(ranks, further, options, env):
    """(seconds, loss) of each step."""
    weights = ["--weights", options.weights] if options.weights else []
    results = run_ranks("torch_train.py", ranks, [*shared(options), *weights, *further], options, env)
    slowest = [max(step) for step in zip(*(result["step_s"] for result in results))]
    parts = [result["loss"] for result in results if result["loss"][0] is not None]
    return slowest, [statistics.fmean(step) for step in zip(*parts)]


def mpi(ranks, options):
    """The words that start `ranks` MPI ranks of the following command."""
    if options.testbed:
        return [TESTBED, "run", "--name", options.testbed, "--mpiexec", options.mpiexec, "-n",
                str(ranks), "--"]
    return [options.mpiexec, "-n", str(ranks)]


def run_gradwire(ranks, further, options):
    """The slowest rank's seconds and the loss of each step, from batches.csv."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        run([*mpi(ranks, options), options.gradwire, "train", *shared(options), "--quiet", "--out", out,
             *further])
        slowest, losses = collections.defaultdict(float), collections.defaultdict(float)
        with open(os.path.join(out, "batches.csv"), newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                step = int(row["step"])
                slowest[step] = max(slowest[step], float(row["wall_s"]))
                losses[step] += float(row["loss"] or 0) * int(row["samples"]) / options.batch
    return [[by_step[step] for step in sorted(by_step)] for by_step in (slowest, losses)]


def measure(options, env):
    """{side: [median seconds a step of each round]}, {side: loss of each step}"""
    figures, losses = {name: [] for name in options.sides}, {}
    for turn in range(options.rounds):
        for name in options.sides:
            program, ranks, further = options.sides[name]
            times, losses[name] = (run_torch(ranks, further, options, env) if program == "torch"
                                   else run_gradwire(ranks, further, options))
            figures[name].append(median_step(times, options.warmup))
            print(f"round {turn + 1}/{options.rounds}  {name:34} {figures[name][-1] * 1e3:8.3f} ms",
                  file=sys.stderr)
    return figures, losses


def apart(losses):
    """{side: the greatest relative difference of its early losses from the first side's}"""
    first = next(iter(losses.values()))[:EARLY]
    return {name: max(abs(loss / other - 1) for loss, other in zip(curve, first))
            for name, curve in losses.items()}


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


def table(figures, losses, sides):
    """Each side's difference in loss and step time, and PyTorch's time divided by it, for each
    PyTorch side on as many ranks."""
    differences = apart(losses)
    peers = [name for name in figures if sides[name][0] == "torch"]
    heads = [f"{name} / this" for name in peers]
    lines = [f"{'':34}  {'loss':>7}  {'ms a step':>26}" + "".join(f"  {head:>30}" for head in heads)]
    for name, values in figures.items():
        ratios = [spread([a / b for a, b in zip(figures[peer], values)], ".2f")
                  if (sides[name][0], sides[peer][1]) == ("gradwire", sides[name][1]) else ""
                  for peer in peers]
        line = (f"{name:34}  {differences[name]:>7.0e}  {spread([v * 1e3 for v in values], '.3f'):>26}"
                + "".join(f"  {ratio:>30}" for ratio in ratios))
        lines.append(line.rstrip())
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
        **({} if options.mesh else
           {"ddp": "gloo, gradient_as_bucket_view=True, broadcast_buffers=False"}),
        **({"model": options.model, "optimizer": options.optimizer} if options.model else {"layers": options.layers}),
        "batch": options.batch, "threads": options.threads,
        "link": link_of(options),
        "sides": {name: shlex.join(further) for name, (_, _, further) in options.sides.items()},
        "steps": options.steps, "warmup": options.warmup, "rounds": options.rounds,
    }
    if any(program == "gradwire" for program, _, _ in options.sides.values()):
        machine["gradwire"] = run([options.gradwire, "--version"]).strip()
    return machine


def report(prefix, facts, lines, content=None):
    """Prints facts and lines, and returns them; unless PREFIX is None they are PREFIX.txt, too, and the content
    PREFIX.json."""
    told = [f"{key}: {value if isinstance(value, str) else json.dumps(value)}" for key, value in facts.items()]
    text = "\n".join([*told, "", *lines])
    print(text)
    for kind, written in (("txt", text), ("json", json.dumps(content, indent=2))) if prefix else ():
        write(f"{prefix}.{kind}", (written + "\n").encode())
    return text


def link_of(options):
    return options.link and f"emulated: {len(options.link['links'])} hosts at " \
        f"{options.link['rate_bits_per_s'] / 1e6:g} Mbit/s" + (
            f" in {options.link['racks']} racks with uplinks of {options.link['uplink_bits_per_s'] / 1e6:g} Mbit/s"
            if options.link["racks"] > 1 else "")


def add_program(parser, rounds):
    parser.add_argument("--rounds", type=positive, default=rounds)
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


def even_cut(widths, chunks):
    """Layers of each chunk, so that the chunk with most parameters has least."""
    if chunks >= len(widths):
        fail(f"--mesh: {chunks} chunks need as many layers, and --layers makes {len(widths) - 1}")
    work = [a * b for a, b in zip(widths, widths[1:])]
    cuts = itertools.combinations(range(1, len(work)), chunks - 1)
    return min(([b - a for a, b in zip((0, *cut), (*cut, len(work)))] for cut in cuts),
               key=lambda sizes: max(sum(work[sum(sizes[:i]):sum(sizes[:i + 1])])
                                     for i in range(chunks)))


def mesh_sides(options):
    """The sides whose ranks share the model, beside one rank of each program."""
    what, ranks = options.mesh
    alone = {"torch, 1 rank": ("torch", 1, []), "gradwire, 1 rank": ("gradwire", 1, [])}
    words = ["--mesh", f"{what}={ranks}"]
    if what == "tensor":
        return {**alone, "torch DTensor": ("torch", ranks, ["--mesh", what]),
                "gradwire tensor": ("gradwire", ranks, words)}
    widths = [784, *map(int, options.layers.split(",")), 10]
    sides = {}
    for name, program, timetable in (
            ("torch GPipe", "torch", "gpipe"), ("torch 1F1B", "torch", "1f1b"),
            ("torch Interleaved1F1B", "torch", "interleaved"), ("gradwire gpipe", "gradwire", "gpipe"),
            ("gradwire 1f1b", "gradwire", "1f1b"), ("gradwire interleaved", "gradwire", "interleaved"),
            ("gradwire zb", "gradwire", "zb")):
        chunks = ranks * (2 if timetable == "interleaved" else 1)
        sides[name] = (program, ranks,
                       [*(words if program == "gradwire" else ["--mesh", what]),
                        "--microbatches", str(options.microbatches), "--timetable", timetable,
                        "--stages", ",".join(map(str, even_cut(widths, chunks)))])
    return {**alone, **sides}


def choose_sides(options):
    if options.mesh:
        sides = mesh_sides(options)
    elif options.testbed or options.ours:
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


def mesh(text):
    found = re.fullmatch(r"(tensor|pipe)=([2-9])", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}': must be tensor=N or pipe=N, of 2 to 9 ranks")
    return found[1], int(found[2])


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_common(parser)
    parser.add_argument("--ours", type=named_words, action="append", metavar="NAME=OPTIONS",
                        help="a side: options of gradwire train; may be repeated")
    parser.add_argument("--mesh", type=mesh, help="the ranks share the model: tensor=N or pipe=N")
    parser.add_argument("--microbatches", type=int, default=8, help="of a pipe [8]")
    parser.add_argument("--layers", default="256,128", help="hidden widths [256,128]")
    parser.add_argument("--model", help="gradwire's --model, instead of --layers: gpt or cnn, with options")
    parser.add_argument("--data", help="text:FILE for a gpt [Fashion-MNIST]")
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--batch", type=int, default=64, help="global [64]")
    parser.add_argument("--lr", type=float, default=0.1, help="rate [0.1]")
    parser.add_argument("--threads", type=int, default=1, help="of a rank [1]")
    parser.add_argument("--steps", type=positive, default=500, help="timed steps a run [500]")
    parser.add_argument("--warmup", type=int, default=100, help="steps before these [100]")
    parser.add_argument("--only", choices=["torch", "gradwire"], help="measure one program alone")
    parser.add_argument("--out", help="write the results to OUT.txt and OUT.json "
                        "[experiments/peers/results-DATE]")
    options = parser.parse_args()
    if options.mesh:
        if options.ours or options.ranks:
            parser.error("--mesh names the ranks and the sides: leave out --ranks and --ours")
        if options.model:
            parser.error("--mesh shares a perceptron: leave out --model")
        options.ranks = options.mesh[1]
    options.out = options.out or os.path.join(HERE, f"results-{datetime.date.today():%Y%m%d}")
    return options


def main():
    options = parse()
    if options.only != "gradwire":
        need("numpy", "torch")
    options.data = options.data or find_data()
    find_link(options)
    options.sides = choose_sides(options)
    if options.only != "torch" and not shutil.which(options.gradwire):
        fail(f"{options.gradwire} is not built: cmake --build --preset release")
    env = torch_environment(options.threads)
    machine = describe_machine(options, env)
    with tempfile.TemporaryDirectory() as options.folder:
        options.weights = first_weights(options) if options.model else None
        figures, losses = measure(options, env)
    report(options.out, machine, [
        table(figures, losses, options.sides), "",
        "Median over the rounds (least..most) of a round's median; loss: the greatest relative "
        f"difference from the first side's in the first {EARLY} steps."],
        {"machine": machine, "step_s": figures, "loss": losses})


if __name__ == "__main__":
    main()
