#!/usr/bin/python3
"""Step time of gradwire against PyTorch: same model, data, order of samples, batch and rate.

784-256-128-10 on Fashion-MNIST, global batch 64, SGD with rate 0.1, one thread a rank. All sides
take turns within one run (A B C A B C ...), so that a change of the machine's mood meets all of
them; the ratios are formed within each round. A step's time is that of the slowest rank; the
first steps are left out; the median of the rest counts. How PyTorch is used: torch_train.py.

PyTorch is a peer to measure, not a dependency: apt-get install python3-torch.
"""

import argparse
import ctypes
import datetime
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WARMUP = 100

# name: (program, ranks, further options of gradwire train)
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


class Failed(Exception):
    """What went wrong, in one line."""


def find_data():
    """The folder that gradwire itself would find."""
    own = os.environ.get("GW_DATA_DIR")
    folders = [os.path.join(own, "fashion-mnist")] if own else []
    for folder in folders + ["/usr/share/datasets/fashion-mnist", "data/fashion-mnist"]:
        if os.path.exists(os.path.join(folder, "train-images-idx3-ubyte.gz")):
            return os.path.abspath(folder)
    raise Failed("Fashion-MNIST not found: install dataset-fashion-mnist or set GW_DATA_DIR")


def torch_environment():
    """Environment of a PyTorch rank: one thread, and the right kernels where OpenBLAS is older than
    the CPU and would fall back to its slowest ones."""
    env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1",
               GLOO_SOCKET_IFNAME=os.environ.get("GLOO_SOCKET_IFNAME", "lo"))
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if re.search(r"\bavx512f\b", file.read()):
            env.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
    return env


def describe_torch():
    """Runs in a child, in the environment of the measured ranks: what PyTorch computes with."""
    import torch  # pylint: disable=import-outside-toplevel
    torch.ones(256, 256) @ torch.ones(256, 256)
    with open("/proc/self/maps", encoding="utf-8") as file:
        paths = set(re.findall(r"(/\S*(?:blas|mkl|dnnl)\S*\.so\S*)", file.read()))
    about = {"torch": torch.__version__, "blas": sorted(paths),
             "mkldnn": torch.backends.mkldnn.is_available(), "threads": 1,
             "kernels": "not OpenBLAS"}
    for path in paths:
        library = ctypes.CDLL(path)
        if hasattr(library, "openblas_get_corename"):
            library.openblas_get_corename.restype = ctypes.c_char_p
            about["kernels"] = "OpenBLAS " + library.openblas_get_corename().decode()
    print(json.dumps(about))


def run(command, **options):
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=600,
                          **options)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Failed(f"{' '.join(command)}: status {done.returncode}: {last}")
    return done.stdout


def run_torch(ranks, options, env):
    """Median seconds a step, and the last loss."""
    with tempfile.TemporaryDirectory() as folder:
        outs = [os.path.join(folder, f"{rank}.json") for rank in range(ranks)]
        children = [subprocess.Popen(
            [sys.executable, os.path.join(HERE, "torch_train.py"), "--data", options.data,
             "--rank", str(rank), "--ranks", str(ranks), "--meet", os.path.join(folder, "meet"),
             "--steps", str(options.steps + WARMUP), "--out", out],
            env=env, stderr=subprocess.PIPE, text=True) for rank, out in enumerate(outs)]
        errors = [child.communicate(timeout=600)[1] for child in children]
        for child, error in zip(children, errors):
            if child.returncode != 0:
                last = (error.strip() or "no message").splitlines()[-1]
                raise Failed(f"torch_train.py: status {child.returncode}: {last}")
        results = []
        for out in outs:
            with open(out, encoding="utf-8") as file:
                results.append(json.load(file))
    slowest = [max(step) for step in zip(*(result["step_s"] for result in results))]
    return statistics.median(slowest[WARMUP:])


def run_gradwire(ranks, further, options):
    """Median seconds a step, as the run itself recorded them."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        run([options.mpiexec, "-n", str(ranks), options.gradwire, "train", "--data", options.data,
             "--layers", "256,128", "--batch", "64", "--lr", "0.1", "--seed", "1", "--threads", "1",
             "--steps", str(options.steps + WARMUP), "--quiet", "--out", out, *further])
        with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
            return json.load(file)["results"]["summary"]["wall_s"]


def measure(options, env):
    """{side: [median seconds a step, one a round]}"""
    figures = {name: [] for name in options.sides}
    for turn in range(options.rounds):
        for name in options.sides:
            program, ranks, further = SIDES[name]
            if program == "torch":
                figures[name].append(run_torch(ranks, options, env))
            else:
                figures[name].append(run_gradwire(ranks, further, options))
            print(f"round {turn + 1}/{options.rounds}  {name:34} {figures[name][-1] * 1e3:8.3f} ms",
                  file=sys.stderr)
    return figures


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


def table(figures):
    """Text: each side's step time, and how many times faster than PyTorch on as many ranks."""
    lines = [f"{'':34}  {'ms a step':>24}  {'PyTorch / this, by round':>24}"]
    for name, values in figures.items():
        program, ranks, _ = SIDES[name]
        peer = next((figures[n] for n in figures if SIDES[n][:2] == ("torch", ranks)), None)
        ratio = ""
        if program == "gradwire" and peer:
            ratio = spread([a / b for a, b in zip(peer, values)], ".2f")
        lines.append(f"{name:34}  {spread([v * 1e3 for v in values], '.3f'):>24}  {ratio:>24}"
                     .rstrip())
    return "\n".join(lines)


def describe_machine(options, env):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    model = re.search(r"model name\s*: (.*)", text)
    machine = {
        "date": datetime.date.today().isoformat(),
        "cpu": model.group(1) if model else platform.machine(),
        "avx512": bool(re.search(r"\bavx512f\b", text)),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "kernel": platform.release(),
        "pytorch": json.loads(run([sys.executable, __file__, "--describe-torch"], env=env)),
        "ddp": "gloo, gradient_as_bucket_view=True, broadcast_buffers=False, one bucket",
        "steps": options.steps, "warmup": WARMUP, "rounds": options.rounds,
    }
    if any(SIDES[name][0] == "gradwire" for name in options.sides):
        machine["gradwire"] = run([options.gradwire, "--version"]).strip()
    return machine


def write_results(prefix, machine, figures):
    text = [f"{key}: {value if isinstance(value, str) else json.dumps(value)}"
            for key, value in machine.items()]
    text += ["", table(figures), "", "Median over the rounds (least..most) of a round's median."]
    with open(prefix + ".txt", "w", encoding="utf-8") as file:
        file.write("\n".join(text) + "\n")
    with open(prefix + ".json", "w", encoding="utf-8") as file:
        json.dump({"machine": machine, "step_s": figures}, file, indent=2)
        file.write("\n")
    print("\n".join(text))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=500, help="timed steps a run [500]")
    parser.add_argument("--only", choices=["torch", "gradwire"], help="measure one program alone")
    parser.add_argument("--gradwire", default=os.path.join(ROOT, "build/release/gradwire"))
    parser.add_argument("--mpiexec", default=os.path.join(ROOT, "build/release/mpiexec"))
    parser.add_argument("--out", help="results go to OUT.txt and OUT.json "
                        "[experiments/peers/results-DATE]")
    parser.add_argument("--describe-torch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.sides = [name for name in SIDES if options.only in (None, SIDES[name][0])]
    options.out = options.out or os.path.join(HERE, f"results-{datetime.date.today():%Y%m%d}")
    return options


def main():
    options = parse()
    if options.describe_torch:
        describe_torch()
        return 0
    try:
        options.data = find_data()
        if options.only != "torch" and not shutil.which(options.gradwire):
            raise Failed(f"{options.gradwire} is not built: cmake --build --preset release")
        env = torch_environment()
        try:
            machine = describe_machine(options, env)
        except Failed as error:
            if "No module named" in str(error):
                raise Failed(f"{sys.executable} has no PyTorch: apt-get install python3-torch and "
                             "use /usr/bin/python3, or pip install torch") from error
            raise
        write_results(options.out, machine, measure(options, env))
    except Failed as error:
        print(f"compare_torch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
