"""One rank of compare_ddp.py: DistributedDataParallel with Gloo's exchange, PyTorch's hooks or
gradwire's hook, in turns within one process, each step beside one without any exchange.

With --profile every rank first times the model by gradwire.torch.profile, all at once, as they train.
A side of a round builds its own DistributedDataParallel over the model, warms up, and then takes a
step with the exchange and one under no_sync() in turn, so that both see the same machine. Losses are
read after the last step."""

import argparse
import contextlib
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, part) for part in ("python", "profiles", "analysis")]
from tool import need
need("numpy", "torch")

import torch
import torch.distributed as dist
from torch.nn import functional as F

import ddp_hooks
import gradwire.torch
import models
from gradwire.torch.profiles import profile


def task(name, batch, length, rank):
    """(model, its inputs, loss of what it returns); the model's weights are the same on all ranks."""
    torch.manual_seed(1)
    model = {"resnet18": models.resnet18, "gpt2": models.gpt2, "tiny": tiny}[name]()
    torch.manual_seed(2 + rank)
    if name == "gpt2":
        ids = torch.randint(50257, (batch, length + 1))
        return model, (ids[:, :-1],), lambda out: F.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten())
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(1000, (batch,))
    return model, (images,), lambda out: F.cross_entropy(out, labels)


def tiny():
    """For a trial of the script."""
    return models.ResNet([1, 1, 1, 1], False, small=True, width=8)


def replicate(model, side, bucket_mb):
    """DistributedDataParallel with what the side names: gloo, none, fp16, powersgd2 or gradwire."""
    net = ddp_hooks.replicate(model, side, **({"bucket_cap_mb": bucket_mb} if side == "gradwire" else {}))
    if side == "none":
        net.register_comm_hook(None, unexchanged)
    return net


def unexchanged(_, bucket):
    """What DistributedDataParallel itself costs."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


class Clock:
    """Seconds spent in some functions."""

    def __init__(self):
        self.total = 0.0

    def around(self, function):
        def timed(*args, **more):
            begin = time.perf_counter()
            try:
                return function(*args, **more)
            finally:
                self.total += time.perf_counter() - begin
        return timed


def watched(net, words):
    """(state, clock of all that it has PyTorch call, clock of the library's calls within that)"""
    hook, library = Clock(), Clock()
    calls = ("_take", "_forward", "_forwarded", "_backward", "_poll", "_before_step", "_after_step")
    timed = type("State", (gradwire.torch.State,),
                 {call: hook.around(getattr(gradwire.torch.State, call)) for call in calls})
    state = timed(words, net)
    state.handle._ask = library.around(state.handle._ask)
    net.register_comm_hook(state, gradwire.torch.comm_hook)
    return state, hook, library


def measure(side, words, model, inputs, loss, options):
    """{"step_s", "alone_s": a list each, "hook_s": Python's part of the hook a step, "loss"}"""
    net = replicate(model, side, options.bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    state, *clocks = watched(net, words) if side == "gradwire" else (None,)
    found = {"step_s": [], "alone_s": [], "loss": []}
    dist.barrier()
    for step in range(options.warmup + options.steps):
        for key in ("step_s", "alone_s"):
            begin = time.perf_counter()
            alone = key == "alone_s"
            with net.no_sync() if alone else contextlib.nullcontext():
                value = loss(net(*inputs))
                value.backward()
                optimizer.step()
                optimizer.zero_grad()
            found[key].append(time.perf_counter() - begin)
            if not alone:
                found["loss"].append(value.detach())
            elif step + 1 < options.warmup + options.steps:
                dist.barrier()  # what one rank computes longer alone is not the exchange's affair
        if step + 1 == options.warmup:
            for clock in clocks:
                clock.total = 0.0
    found = {key: [float(value) for value in values[options.warmup if key != "loss" else 0:]]
             for key, values in found.items()}
    if state:
        hook, library = clocks
        found["hook_s"] = (hook.total - library.total) / options.steps
        found["exchange"] = f"{words or 'State()'}: " + ", ".join(map(state.text, ("strategy", "algorithm", "codec")))
        state.close()
    return found


def take_profile(model, loss, inputs, options, rank):
    """Leaves FOLDER/profile.json and FOLDER/gradients.bin: rank 0's, in the profile's order."""
    content = profile(model, inputs, loss, name=options.model, batch=options.batch, steps=options.steps,
                      optimizer=torch.optim.SGD(model.parameters(), lr=options.lr))
    if rank > 0:
        return
    with open(os.path.join(options.profile, "profile.json"), "w", encoding="utf-8") as file:
        json.dump(content, file)
    gradients = {name: p.grad for name, p in model.named_parameters()}
    with open(os.path.join(options.profile, "gradients.bin"), "wb") as file:
        for tensor in content["tensors"]:
            file.write(gradients[tensor["name"]].numpy().tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["resnet18", "gpt2", "tiny"], required=True)
    parser.add_argument("--sides", type=json.loads, required=True, help="[[name, kind, words], ..]")
    parser.add_argument("--batch", type=int, required=True, help="of a rank")
    parser.add_argument("--length", type=int, default=64, help="tokens of a sample")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--bucket-mb", type=float, default=4, help="of gradwire's sides")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--profile", metavar="FOLDER", help="leave profile and gradients there")
    parser.add_argument("--out", required=True, help="JSON file, by rank 0")
    options = parser.parse_args()
    threads = [words for _, _, words in options.sides if "progress=thread" in words]
    rank, ranks = gradwire.torch.init(threads[0] if threads else "")
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    model, inputs, loss = task(options.model, options.batch, options.length, rank)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    if options.profile:
        take_profile(model, loss, inputs, options, rank)
    rounds = []
    for turn in range(options.rounds):
        rounds.append({})
        for name, kind, words in options.sides:
            model.load_state_dict(start)
            model.zero_grad(set_to_none=True)
            mine, all_ranks = measure(kind, words, model, inputs, loss, options), [None] * ranks
            dist.all_gather_object(all_ranks, mine)
            rounds[-1][name] = all_ranks
            if rank == 0:
                print(f"round {turn + 1}/{options.rounds}  {name}", file=sys.stderr, flush=True)
    if rank == 0:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(rounds, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
