"""The step of examples/gpt and of its twin in PyTorch, in turns: one thread a rank, 1 and 2 ranks.

    examples/shakespeare > shakespeare.txt
    ~/peers/bin/python experiments/peers/compare_gpt.py --text shakespeare.txt

With --test each side trains once over all --steps instead, and the table has test losses.
"""

import argparse
import os
import re
import statistics

import compare_torch as peers
from compare_torch import need

# name: (program, ranks, options of gradwire)
SIDES = {
    "torch, 1 rank": ("torch", 1, ""),
    "gpt, 1 rank": ("gpt", 1, "--comm allreduce"),
    "torch DDP gloo, 2 ranks": ("torch", 2, ""),
    "gpt allreduce, 2 ranks": ("gpt", 2, "--comm allreduce:algo=sra"),
    "gpt iallreduce, 2 ranks": ("gpt", 2, "--comm iallreduce:algo=sra"),
    "gpt sharded qsgd8, 2 ranks": ("gpt", 2, "--comm sharded --compress qsgd:bits=8"),
}
SAID = re.compile(r"median (?P<ms>[\d.]+) ms, last loss (?P<loss>[\d.]+)")
TESTED = re.compile(r"step \d+: test (?P<loss>[\d.]+)")


def run_gpt(options, env, ranks, words):
    command = [options.mpiexec, "-n", str(ranks), options.gpt, "--text", options.text, "--steps",
               str(options.steps), "--test", str(options.steps if options.test else 0)]
    said = peers.run([*command, "--", *words.split()], env=env)
    found = SAID.search(said)
    return {"step_s": float(found["ms"]) / 1e3, "loss": float(found["loss"]),
            **({"test": float(TESTED.search(said)["loss"])} if options.test else {})}


def run_torch(options, env, ranks, _):
    """Rank 0's figures."""
    words = ["--text", options.text, "--steps", str(options.steps), *["--test"] * options.test]
    result = peers.run_ranks("gpt_torch.py", ranks, words, options, env)[0]
    return {**result, "step_s": statistics.median(result["step_s"]), "loss": result["loss"][-1]}


def table(rounds):
    """A line a side: milliseconds a step, and PyTorch's time on as many ranks divided by it."""
    lines = [f"{'':28}  {'ms a step':>24}  {'PyTorch / this':>20}  {'last loss':>9}"]
    tested = "test" in next(iter(rounds[0].values()))
    lines[0] += f"  {'test':>10}" if tested else ""
    for name, (program, ranks, _) in SIDES.items():
        if name not in rounds[0]:
            continue
        other = next(peer for peer, side in SIDES.items() if side[:2] == ("torch", ranks))
        ratio = peers.spread([r[other]["step_s"] / r[name]["step_s"] for r in rounds], ".2f")
        time = peers.spread([r[name]["step_s"] * 1e3 for r in rounds], ".1f")
        line = (f"{name:28}  {time:>24}  {ratio if program == 'gpt' else '':>20}  "
                f"{rounds[0][name]['loss']:>9.4f}")
        line += f"  {rounds[0][name]['test']:>10.4f}" if tested else ""
        lines.append(line.rstrip())
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.set_defaults(testbed=None)
    parser.add_argument("--text", required=True)
    parser.add_argument("--steps", type=peers.positive, default=60)
    parser.add_argument("--rounds", type=peers.positive, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="sides on so many ranks")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--gpt", default=os.path.join(peers.ROOT, "build/release/examples/gpt"))
    parser.add_argument("--mpiexec", default=os.path.join(peers.ROOT, "build/release/mpiexec"))
    parser.add_argument("--out", required=True, help="write the results to OUT.txt and OUT.json")
    return parser.parse_args()


def main():
    options = parse()
    need("numpy", "torch")
    env = peers.torch_environment()
    run = {"torch": run_torch, "gpt": run_gpt}
    sides = {name: side for name, side in SIDES.items() if side[1] in options.ranks}
    rounds = [{name: run[program](options, env, ranks, words)
               for name, (program, ranks, words) in sides.items()} for _ in range(options.rounds)]
    machine = {**peers.machine_facts(), "pytorch": peers.find_torch(env), "steps": options.steps,
               "rounds": options.rounds, "sides": {name: side[2] for name, side in sides.items()}}
    peers.report(options.out, machine, [
        table(rounds), "", "Median over the rounds (least..most) of a run's median step; "
        "the loss is rank 0's in the last one."], {"machine": machine, "rounds": rounds})


if __name__ == "__main__":
    main()
