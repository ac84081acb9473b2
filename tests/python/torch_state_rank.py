"""A rank of test_torch.py as torch_rank.py is one, of gradwire.torch.State in loops that know nothing of
it, and of gradients that the library cannot read where they are."""

import contextlib
import copy
import json
import math
import os
import pickle
import sys
import threading
import types
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch_rank import DDP_OPTIONS, MODELS, apart, drop, hash_of, main, refusal, replicate, sgd

import gradwire.torch
from gradwire.torch import ddp as hooks
from gradwire.torch import model as runs
from gradwire.torch import staging


def attach(net, words="", **more):
    state = gradwire.torch.State(words, **more)
    net.register_comm_hook(state, gradwire.torch.comm_hook)
    return state


def plain(net, optimizer, loss, batches):
    for x, y in batches:
        loss(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def accumulating(net, optimizer, loss, batches):
    """Two batches a step, the first without an exchange."""
    for number, (x, y) in enumerate(batches):
        with net.no_sync() if number % 2 == 0 else contextlib.nullcontext():
            (loss(net(x), y) / 2).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()


def evaluating(net, optimizer, loss, batches):
    """Forward passes without a backward pass, with and without gradients enabled, between the steps."""
    for x, y in batches:
        with torch.no_grad():
            net(x)
        net.module(x)
        plain(net, optimizer, loss, [(x, y)])


def two_optimizers(net, optimizer, loss, batches):
    first, *others = net.module.parameters()
    pair = sgd([first]), sgd(others)
    for x, y in batches:
        loss(net(x), y).backward()
        for one in pair:
            one.step()
        optimizer.zero_grad()


LOOPS = {loop.__name__: loop for loop in (plain, accumulating, evaluating, two_optimizers)}


def trained(name, rank, options, loop, words, **more):
    """(model, state) after a training; words None: by Gloo."""
    model, batches, loss = MODELS[name](rank)
    net = replicate(model, **DDP_OPTIONS[options])
    state = None if words is None else attach(net, words, **({"ddp": net} if more.get("told") else {}))
    LOOPS[loop](net, sgd(model.parameters()), loss, batches)
    if state is not None:
        state.close()
    return model, state


def case_loops(jobs):
    """jobs: [[model, options of DistributedDataParallel, loop, words], ..], against Gloo."""
    rank, _ = gradwire.torch.init()
    found = []
    for number, (name, options, loop, words) in enumerate(json.loads(jobs)):
        reference, _ = trained(name, rank, options, loop, None)
        model, state = trained(name, rank, options, loop, words, told=number % 2)
        found.append({"apart": apart(model, list(reference.parameters())), "hash": hash_of(model),
                      "in place": state.lends})
    return found


def case_exchange(jobs):
    """[strategy, algorithm, codec] of a State by [ranks of this host, words, $GRADWIRE]."""
    gradwire.torch.init()
    found = []
    for here, words, study in json.loads(jobs):
        with mock.patch.dict(os.environ, MPI_LOCALNRANKS=here, GRADWIRE=study):
            state = gradwire.torch.State(words, replicate(torch.nn.Linear(2, 2)))
        found.append([state.text(key) for key in ("strategy", "algorithm", "codec")])
        state.close()
    return found


def case_registered():
    """A State that knows its model by its registration alone: what it is told and asked before the first bucket, copies
    of the model, which go without it, an earlier model that was dropped, and what it refuses."""
    rank, _ = gradwire.torch.init()
    drop()
    words, found = "--comm iallreduce --compress topk", {}
    model, batches, loss = MODELS["gpt"](rank)
    state = gradwire.torch.State(words)
    found["list"] = refusal(gradwire.torch.State, ["--comm", "iallreduce"])
    found["misspelt"] = refusal(gradwire.torch.State, "--compres qsgd")
    found["no mean"] = refusal(gradwire.torch.State, "--comm sharded")
    found["nobody"] = refusal(state.mean, 1.0)
    net = replicate(model)
    net.register_comm_hook(pickle.loads(pickle.dumps(state)), gradwire.torch.comm_hook)
    state, optimizer, losses = net._comm_hooks[0][1], sgd(model.parameters()), []
    averages = [copy.deepcopy(net)]
    for number, (x, y) in enumerate(batches):
        value = loss(net(x), y)
        (state.loss(value) if number == 0 else value).backward()
        if number:
            state.loss(value.item())
        averages[-1](x)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(state.figure("loss") == value.item())
        if number == 1:
            kept = state.save(), copy.deepcopy([model.state_dict(), optimizer.state_dict()])
            averages.append(copy.deepcopy(net))
    found["losses"], found["samples"] = losses, state.figure("samples")
    found["idle"], found["pickled"] = refusal(state.loss, 1.0), refusal(pickle.dumps, net)
    state.close()
    bucket = types.SimpleNamespace(parameters=lambda: [torch.nn.Parameter(torch.zeros(1))])
    found["another's"] = refusal(state._take, bucket)
    other = MODELS["gpt"](rank)[0]
    other.load_state_dict(kept[1][0])
    net = replicate(other)
    state, optimizer = attach(net, words), sgd(other.parameters())
    found["loads"] = refusal(state.load, None)
    state.load(bytearray(kept[0]))
    optimizer.load_state_dict(kept[1][1])
    plain(net, optimizer, loss, batches[2:])
    state.close()
    return {**found, "resumed": hash_of(other) == hash_of(model)}


class Gan:
    """Two models, each with its optimizer; the second's loss goes through the first."""

    def __init__(self, words=None):
        torch.manual_seed(3)
        self.judge = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        self.maker = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        self.nets = replicate(self.judge), replicate(self.maker)
        # The maker's is the first, and records, though the judge trains first.
        self.states = [attach(net, of) for net, of in zip(reversed(self.nets), reversed(words or ()))]
        self.optimizers = sgd(self.judge.parameters()), sgd(self.maker.parameters())

    def train(self, rank, steps=5):
        judge, maker = self.nets
        torch.manual_seed(4 + rank)
        for _ in range(steps):
            x, z = torch.randn(6, 4), torch.randn(6, 2)
            for optimizer, loss in zip(self.optimizers, (
                    lambda: F.softplus(-judge(x)).mean() + F.softplus(judge(maker(z).detach())).mean(),
                    lambda: F.softplus(-judge(maker(z))).mean())):
                optimizer.zero_grad()
                loss().backward()
                optimizer.step()
        for state in reversed(self.states):
            state.close()
        return [hash_of(self.judge), hash_of(self.maker)]


def case_models(out):
    rank, _ = gradwire.torch.init()
    exact = ["--comm allreduce", f"--comm iallreduce --out {out}"]
    shared = gradwire.torch.State()
    one, two = replicate(torch.nn.Linear(2, 2)), replicate(torch.nn.Linear(2, 2))
    for net in one, two:
        net.register_comm_hook(shared, gradwire.torch.comm_hook)
    try:
        shared._find()
    except gradwire.torch.Error as error:
        refused = str(error)
    lossy = Gan(["--comm sparse --compress topk:ratio=0.3", "--comm delayed"]).train(rank)
    return {"gloo": Gan().train(rank), "exact": Gan(exact).train(rank), "lossy": lossy, "refused": refused}


def case_folder(out):
    """Nobody closes it."""
    rank, _ = gradwire.torch.init()
    model, batches, loss = MODELS["gpt"](rank)
    net = replicate(model)
    state = attach(net, f"--comm iallreduce --out {out}")
    early = []
    for ask in (lambda: state.text("codec"), state.cancel):
        try:
            ask()
        except gradwire.torch.Error as error:
            early.append(str(error))
    early += [state.left_out, math.isnan(state.figure("loss"))]
    plain(net, sgd(model.parameters()), lambda y, t: loss(y, t) * 1, batches * 2)
    means = [state.mean(torch.tensor(rank + 1.0)), state.mean([rank, 1], weight=rank)]
    state.epoch()
    net(batches[0][0])  # opens a batch that never is
    return {"early": early, "means": [means[0], list(means[1])]}


def case_stops():
    """--on-nan stop: all ranks learn of it."""
    rank, _ = gradwire.torch.init()
    model, batches, loss = MODELS["gpt"](rank)
    net = replicate(model)
    attach(net, "--on-nan stop")
    plain(net, sgd(model.parameters()), lambda y, t: loss(y, t) * (float("nan") if rank else 1), batches)


def case_leaves(way, status, words):
    """Rank 1 ends before rank 0, which then waits for it in PyTorch."""
    rank, _ = gradwire.torch.init()
    with contextlib.ExitStack() as stack:
        if way == "shards":
            net = cut_up()
            gradwire.torch.Shards(net, words)
        elif way == "session":
            net = torch.nn.BatchNorm1d(4)
            run = gradwire.torch.Session(net, words)
            stack.enter_context(run.batch(3))
        else:
            net = replicate(torch.nn.BatchNorm1d(4))
            attach(net, words)
        net(torch.ones(3, 4)).sum().backward()
        if rank == 1:
            raise SystemExit(int(status) if status.isdecimal() else status)
        dist.barrier()


def case_forks(out):
    """A child that ends in order, and workers of a DataLoader, between a run's steps."""
    rank, _ = gradwire.torch.init()
    model, batches, loss = MODELS["gpt"](rank)
    net = replicate(model)
    attach(net, f"--out {out}", ddp=net)
    optimizer = sgd(model.parameters())
    plain(net, optimizer, loss, batches)
    child = os.fork()
    if child == 0:
        sys.exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    plain(net, optimizer, loss, [(x[0], y[0]) for x, y in torch.utils.data.DataLoader(batches, num_workers=2)])
    return {"ended": ended, "hash": hash_of(model)}


def gradients_of(net, x):
    net.zero_grad()
    net(x).float().square().mean().backward()
    return [p.grad.clone() for p in net.parameters()]


def means_of(net, x, ranks):
    """In float32, of the gradients that each rank comes to alone."""
    with net.no_sync():
        own = gradients_of(net, x)
    found = []
    for g in own:
        all_of = [torch.zeros(g.shape) for _ in range(ranks)]
        dist.all_gather(all_of, g.float().contiguous())
        found.append((sum(all_of) / ranks).to(g.dtype))
    return found


def convolution():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.ReLU(), torch.nn.Conv2d(6, 3, 3))


def case_narrow():
    """bfloat16, float16 and a mix of them with float32, exchanged in both ways; channels_last."""
    rank, ranks = gradwire.torch.init()
    found = {}
    torch.manual_seed(5 + rank)
    x = torch.randn(2, 4, 9, 9)

    def both(name, make, more=""):
        words = f"--comm allreduce {more}"  # by one algorithm, so that bytes compare
        dtype = next(make().parameters()).dtype
        for way in "state", "session":
            model = make()
            net = replicate(model)
            expected = means_of(net, x.to(dtype), ranks)
            run = gradwire.torch.Session(model, words) if way == "session" else attach(net, words, ddp=net)
            batch = run.batch(2) if way == "session" else contextlib.nullcontext()
            with run:
                with batch:
                    got = gradients_of(model if way == "session" else net, x.to(dtype))
                run._between() if way == "state" else None
                run.epoch()
                found[f"{name} {way}"] = {
                    "same": all(torch.equal(a, b) for a, b in zip(got, expected)),
                    "apart": max(float((a.float() - b.float()).abs().max()) for a, b in zip(got, expected)),
                    "strides": [g.stride() == p.stride() for g, p in zip(got, model.parameters())],
                    "wire": run.figure("wire_bytes")}

    def mixed():
        model = convolution().to(torch.bfloat16)
        model[2].float()
        model[1] = torch.nn.Sequential(model[1], Widen())
        return model
    for dtype in torch.bfloat16, torch.float16:
        name = str(dtype).split(".")[1]
        both(name, lambda: convolution().to(dtype), "--compress none")
    both("narrow wire", lambda: convolution().to(torch.bfloat16), "--compress bf16")
    both("mixed", mixed)
    both("channels_last", lambda: convolution().to(memory_format=torch.channels_last))
    both("plain", convolution)
    model = convolution().to(torch.bfloat16)
    net = replicate(model)
    run = attach(net, "--verify-every 1", ddp=net)
    step = net, sgd(model.parameters()), lambda y, _: y.float().square().mean(), [(x.bfloat16(), None)]
    plain(*step)
    model[0].weight.data += rank  # a fault of one replica
    try:
        plain(*step)
    except gradwire.torch.Error as error:
        found["fault"] = str(error)
    run.close()
    model = convolution()
    try:
        gradwire.torch.Session(model.to(memory_format=torch.channels_last) if rank else model)
    except gradwire.torch.Error as error:
        found["layouts"] = str(error)
    return found


class Widen(torch.nn.Module):
    def forward(self, x):
        return x.float()


class Late(staging.Way):
    """From a device whose copies arrive when they are waited for, or asked for often enough."""

    waited = []

    def out(self, t):
        self.copy.fill_(float("nan"))
        self.source, self.asked = t, 0

    def arrived(self, wait=False):
        self.asked += 1
        if not wait and self.asked < 3:
            return False
        Late.waited.append(wait)
        self.copy.copy_(staging.flat(self.source))
        return True


def case_device(words):
    """Tensors that count as a device's, in the host's memory: what would be read too early is NaN."""
    rank, _ = gradwire.torch.init()
    reference, _ = trained("gpt", rank, "plain", "plain", None)
    found = {}
    with contextlib.ExitStack() as stack:
        for module in runs, hooks:
            stack.enter_context(mock.patch.object(module, "lies_as_declared", lambda t: False))
        from gradwire.torch import session
        for module in session, hooks:
            stack.enter_context(mock.patch.object(module, "Way", Late))
        model, state = trained("gpt", rank, "plain", "plain", words)
        found["state"] = apart(model, list(reference.parameters())), hash_of(model), state.lends
        model, batches, loss = MODELS["gpt"](rank)
        run = gradwire.torch.Session(model, words)
        optimizer = sgd(run.parameters())
        with run:
            for x, y in batches:
                with run.batch(len(x)):
                    run.loss(loss(model(x), y)).backward()
                    optimizer.step()
            run.epoch()
        found["session"] = apart(model, list(reference.parameters())), hash_of(model), False
        try:
            gradwire.torch.Session(MODELS["gpt"](rank)[0], "--comm sharded")
        except gradwire.torch.Error as error:
            found["sharded"] = str(error)
    device = types.SimpleNamespace(device=torch.device("cuda"))
    staging.keep_to_this_thread([device])
    found["threads"] = torch._C._is_multithreading_enabled()

    def elsewhere():
        try:
            staging.keep_to_this_thread([device])
        except gradwire.torch.Error as error:
            found["elsewhere"] = str(error)
    aside = threading.Thread(target=elsewhere)
    aside.start()
    aside.join()
    found["waited"] = [Late.waited.count(True) > 0, Late.waited.count(False) > 0]
    return found


def blocks(dtype=torch.float32):
    torch.manual_seed(3)
    inner = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Tanh())
    return torch.nn.Sequential(torch.nn.Linear(4, 7), torch.nn.Tanh(), inner, torch.nn.Linear(5, 3)).to(dtype)


def cut_up(dtype=torch.float32, together=False, **more):
    """Its modules one by one, or two of them as one."""
    from torch.distributed.fsdp import fully_shard
    model = blocks(dtype)
    for part in (model[0], model[2], model) if not together else ([model[0], model[2]], model):
        fully_shard(part, **more)
    return model


def learn(net, model, rank, scale=lambda step: 1.0):
    """Its parameters after AdamW on six batches, the gradients of which may be scaled, or are called off."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    torch.manual_seed(4 + rank)
    for step in range(6):
        x = torch.randn(6, 4)
        if scale(step) is None:
            continue
        loss = net(x).square().mean()
        if callable(scale(step)):
            scale(step)()
            continue
        (loss * scale(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().flatten() for p in whole])


def case_shards():
    rank, _ = gradwire.torch.init()
    found, model = {}, blocks()
    expected = learn(replicate(model), model, rank)
    model = cut_up()
    by_gloo = learn(model, model, rank)
    scatter = "--comm sharded:algo=ring"
    for words in "--comm iallreduce:algo=ring", "--comm iallreduce --compress qsgd:bits=4", scatter, f"{scatter} --compress qsgd:bits=4":
        model = cut_up()
        run = gradwire.torch.Shards(model, f"{words} --on-nan keep")
        got = learn(model, model, rank)
        found[words] = {"apart": float((got - expected).abs().max()), "gloo": torch.equal(got, by_gloo),
                        "step": run.figure("step"), "wire": run.figure("wire_bytes"), "floats": sum(run.sizes)}
        run.close()
        found["trains on"] = float((learn(model, model, rank) - got).abs().max())
    results = []
    for words in None, scatter:
        model = cut_up(together=True)
        with gradwire.torch.Shards(model, words) if words else contextlib.nullcontext():
            results.append(learn(model, model, rank))
    found["together"] = torch.equal(*results)
    for words in "--comm sparse --compress topk:ratio=0.2", f"{scatter} --compress topk:ratio=0.2":
        results = []
        for way in "inf", "cancel", None:
            model = cut_up()
            with gradwire.torch.Shards(model, words) as run:
                third = {"inf": float("inf") if rank else 1.0, "cancel": run.cancel, None: None}[way]
                results.append(learn(model, model, rank, lambda step: third if step == 2 else 1.0))
        found[f"left out {words}"] = [torch.equal(one, results[2]) for one in results[:2]]

    def refused(key, function, *args, **more):
        found[key] = refusal(function, *args, **more)
    refused("whole", gradwire.torch.Shards, blocks())
    refused("ps", gradwire.torch.Shards, cut_up(), "--comm ps")
    refused("directs", gradwire.torch.Shards, cut_up(), "--comm dion")
    refused("clips", gradwire.torch.Shards, cut_up(), "--comm sharded --clip-norm 1")
    refused("compares", gradwire.torch.Shards, cut_up(), "--verify-every 1")
    refused("narrow", gradwire.torch.Shards, cut_up(torch.bfloat16))
    model = cut_up()
    with gradwire.torch.Shards(model) as run:
        model(torch.ones(2, 4)).sum().backward()
        refused("there", model, torch.ones(2, 4))
        refused("epoch", run.epoch)
        refused("twice", gradwire.torch.Shards, model)
    model = cut_up()
    model(torch.ones(2, 4))  # leaves parameters whole
    model[0].weight.register_post_accumulate_grad_hook(lambda p: None)
    with gradwire.torch.Shards(model):
        refused("early", model, torch.ones(2, 4))
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "parts"))
    refused("mesh", gradwire.torch.Shards, cut_up(mesh=mesh))
    model = cut_up()
    model.set_all_reduce_hook(dist.all_reduce)
    run = gradwire.torch.Shards(model)
    refused("reduced", model(torch.ones(2, 4)).sum().backward)
    run.close()
    return found


if __name__ == "__main__":
    main(globals())
