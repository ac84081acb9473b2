"""A rank of test_torch.py: torch_rank.py CASE [ARGUMENT].. prints what the test looks at."""

import contextlib
import json
import os
import sys
import types
import warnings
import zlib
from unittest import mock

for part in ("python", "profiles"):
    sys.path.insert(0, os.path.join(os.environ["SOURCE"], part))

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
import models

warnings.simplefilter("ignore")


def resnet(rank):
    torch.manual_seed(3)
    model = models.resnet18(classes=10, width=16)
    torch.manual_seed(4 + rank)
    batches = [(torch.randn(2, 3, 32, 32), torch.randint(10, (2,))) for _ in range(4)]
    return model, batches, F.cross_entropy


def gpt(rank):
    torch.manual_seed(3)
    model = models.GPT(100, 16, 32, 2, 2)
    torch.manual_seed(4 + rank)
    ids = [torch.randint(100, (2, 9)) for _ in range(4)]
    return (model, [(i[:, :-1], i[:, 1:]) for i in ids],
            lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()))


class Halves(torch.nn.Module):
    """Uses one half or the other, as the number of the batch says: both ranks or this one alone."""

    def __init__(self):
        super().__init__()
        self.first, self.left, self.right = (torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        x, left = self.first(x[:, 1:]), bool(x[0, 0] > 0)
        return (self.left if left else self.right)(x)


def halves(rank):
    torch.manual_seed(3)
    model = Halves()
    torch.manual_seed(4 + rank)
    batches = []
    for step in range(4):
        x = torch.randn(2, 5)
        x[0, 0] = 1.0 if (step + rank) % 3 else -1.0
        batches.append((x, torch.randn(2, 4)))
    return model, batches, F.mse_loss


def bits(model):
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def hash_of(model):
    return zlib.crc32(bits(model))


def replicate(model, **more):
    return DistributedDataParallel(model, bucket_cap_mb=0.1, gradient_as_bucket_view=True,
                                   broadcast_buffers=False, **more)


def sgd(parameters):
    LIVE.append(torch.optim.SGD(parameters, lr=0.05, momentum=0.9))
    return LIVE[-1]


LIVE = []  # the optimizers that sgd made


def by_gloo(make, rank, **more):
    """Parameters after training by DistributedDataParallel alone."""
    model, batches, loss = make(rank)
    net = replicate(model, **more)
    optimizer = sgd(model.parameters())
    for x, y in batches:
        loss(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()]


def hooked(make, rank, words, **more):
    """(model, DistributedDataParallel, run, one step)"""
    model, batches, loss = make(rank)
    net = replicate(model, **more)
    optimizer = sgd(model.parameters())
    run = gradwire.torch.hook(net, optimizer, words)

    def step(number):
        x, y = batches[number]
        with run.batch(len(x)):
            run.loss(loss(net(x), y)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model, net, run, step


def session(make, rank, words):
    """(model, optimizer, run, one step)"""
    model, batches, loss = make(rank)
    run = gradwire.torch.Session(model, words)
    optimizer = sgd(run.parameters())

    def step(number):
        x, y = batches[number]
        with run.batch(len(x)):
            run.loss(loss(model(x), y)).backward()
            optimizer.step()
    return model, optimizer, run, step


def apart(model, others):
    return max(float((a - b).abs().max()) for a, b in zip(model.parameters(), others))


MODELS = {"resnet": resnet, "gpt": gpt, "halves": halves}
DDP_OPTIONS = {"plain": {}, "static": {"static_graph": True}, "unused": {"find_unused_parameters": True}}


def case_hook(jobs):
    """jobs: [[model, options, words], ..]: how far each is from DistributedDataParallel by Gloo."""
    rank, _ = gradwire.torch.init()
    found = []
    for name, options, words in json.loads(jobs):
        reference = by_gloo(MODELS[name], rank, **DDP_OPTIONS[options])
        model, _, run, step = hooked(MODELS[name], rank, words, **DDP_OPTIONS[options])
        with run:
            for number in range(4):
                step(number)
            run.settle()
        found.append({"apart": apart(model, reference), "hash": hash_of(model), "in place": run.lends})
    return found


def case_cramped():
    """One rank cannot move its buckets to shared memory, for want of room or by PyTorch's error: all
    copy, and are told."""
    return [cramped(os, "statvfs", types.SimpleNamespace(f_blocks=1, f_bavail=1, f_frsize=4096)),
            cramped(torch.UntypedStorage, "_share_fd_cpu_", None)]


def cramped(owner, name, answer):
    rank, _ = gradwire.torch.init()
    reference = by_gloo(gpt, rank)
    model, net, run, step = hooked(gpt, rank, "--comm allreduce:algo=shm")

    def limited(*_):
        if answer is None:
            raise RuntimeError("unable to allocate shared memory")
        return answer
    theirs = mock.patch.object(owner, name, limited) if rank == 1 else contextlib.nullcontext()
    with run, theirs, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(4):
            step(number)
    return {"apart": apart(model, reference), "in place": run.lends,
            "said": [str(w.message) for w in said if "copied" in str(w.message)]}


def case_sessions(jobs):
    """jobs: [[model, words], ..]: the same of Session, and what its optimizer had to do."""
    rank, _ = gradwire.torch.init()
    found = []
    for name, words in json.loads(jobs):
        options = DDP_OPTIONS["unused" if name == "halves" else "plain"]
        reference = by_gloo(MODELS[name], rank, **options)
        model, _, run, step = session(MODELS[name], rank, words)
        with run:
            for number in range(4):
                step(number)
            run.settle()
            owned = sum(p.numel() for name, p in run.named_parameters() if name != "none")
        found.append({"apart": apart(model, reference), "hash": hash_of(model), "owned": owned,
                      "all": sum(p.numel() for p in model.parameters())})
    return found


def case_resume(jobs):
    """jobs: [[hook or session, words], ..]: are two halves of a run, the second with a new handle, one
    run to the bit?"""
    rank, _ = gradwire.torch.init()
    found = []
    for way, words in json.loads(jobs):
        start = hooked if way == "hook" else session
        model, _, run, step = start(gpt, rank, words)
        with run:
            for number in (0, 1):
                step(number)
            run.settle()
            for number in (2, 3):
                step(number)
            run.settle()
        found.append(bits(model) == bits(resumed(start, rank, words)))
    return found


def resumed(start, rank, words):
    model, _, run, step = start(gpt, rank, words)
    with run:
        for number in (0, 1):
            step(number)
        run.settle()
        state, parts = run.save(), [p.detach().clone() for p in model.parameters()]
    kept = LIVE[-1].state_dict()
    model, _, run, step = start(gpt, rank, words)
    with torch.no_grad():
        for p, value in zip(model.parameters(), parts):
            p.copy_(value)
    LIVE[-1].load_state_dict(kept)
    with run:
        run.load(state)
        for number in (2, 3):
            step(number)
        run.settle()
    return model


def case_accumulate():
    """Two backward passes make one batch: as much as one of both halves."""
    rank, _ = gradwire.torch.init()
    found = {}
    for way in ("hook", "session"):
        torch.manual_seed(3)
        model = torch.nn.Linear(4, 1)
        torch.manual_seed(4 + rank)
        x = torch.randn(4, 4)
        if way == "hook":
            net = replicate(model)
            optimizer = sgd(model.parameters())
            run = gradwire.torch.hook(net, optimizer)
            hold = net.no_sync
        else:
            net, run = model, gradwire.torch.Session(model)
            optimizer, hold = sgd(run.parameters()), run.no_sync
        with run, run.batch(4):
            with hold():
                (net(x[:2]).square().mean() / 2).backward()
            run.loss(net(x[2:]).square().mean() / 2).backward()
            optimizer.step()
        found[way] = hash_of(model)
    return found


def refusal(function, *args, **more):
    try:
        function(*args, **more)
    except gradwire.torch.Error as error:
        return str(error)
    return None


def case_refusals():
    gradwire.torch.init()
    linear, embedding = torch.nn.Linear(4, 4), torch.nn.Embedding(5, 4, sparse=True)

    def hook(model, words=""):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return gradwire.torch.hook(DistributedDataParallel(model), optimizer, words)

    found = {"bare": refusal(gradwire.torch.hook, linear, None),
             "gpu": refusal(gradwire.torch.Session, torch.nn.Linear(4, 4, device="meta")),
             "double": refusal(hook, torch.nn.Linear(4, 4).double()),
             "double session": refusal(gradwire.torch.Session, torch.nn.Linear(4, 4).double()),
             "sparse": refusal(gradwire.torch.Session, embedding),
             "frozen": refusal(gradwire.torch.Session, torch.nn.Linear(4, 4).requires_grad_(False)),
             "channels": refusal(gradwire.torch.Session,
                                 torch.nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last))}
    for name in ("ps", "sharded", "local", "gossip"):
        found[name] = refusal(hook, torch.nn.Linear(4, 4), f"--comm {name}")
    found["words"] = refusal(hook, torch.nn.Linear(4, 4), "--comm nosuch")
    found["names"] = refusal(hook, torch.nn.Linear(4, 4), "--compress 'qsgd;weight=none;*.bias=none'")
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    net = DistributedDataParallel(linear)
    with gradwire.torch.hook(net, optimizer) as run, net.join():
        found["join"] = refusal(run.batch(1).__enter__)
    run = gradwire.torch.hook(DistributedDataParallel(linear), optimizer)
    batch = run.batch(1)
    batch.__enter__()
    found["nested"] = refusal(run.batch(1).__enter__)
    found["no exchange"] = refusal(batch.__exit__, None, None, None)
    found["open batch"] = refusal(run.close)
    return found


def case_moved():
    gradwire.torch.init(gloo=False)
    model = torch.nn.Linear(4, 4)
    run = gradwire.torch.Session(model)
    model.weight.data = model.weight.data.clone()
    said = [refusal(run.batch(1).__enter__), dist.is_initialized()]
    run.close()
    return said


def case_lonely():
    """An exception on rank 1, behind the exception hook of torch.distributed."""
    rank, _ = gradwire.torch.init()
    if rank == 1:
        raise ValueError("only here")
    dist.barrier()


def case_broken():
    """The hook fails on rank 1 while rank 0 waits in its own backward pass."""
    rank, _ = gradwire.torch.init()
    _, net, run, step = hooked(gpt, rank, "")
    step(0)
    if rank == 1:
        def fails(*args):
            raise ValueError("in the hook")
        run.handle.ready_at = fails
    step(1)


class Scaler:
    """What torch.amp.GradScaler does, for versions that have it for CUDA alone."""

    def __init__(self):
        self.by = 1024.0

    def scale(self, loss):
        return loss * self.by

    def step(self, optimizer):
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        assert grads, "no inf checks were recorded"
        self.finite = all(bool(g.isfinite().all()) for g in grads)
        for g in grads:
            g /= self.by
        if self.finite:
            optimizer.step()

    def update(self):
        self.by *= 1 if self.finite else 0.5

    def get_scale(self):
        return self.by


def scaler():
    try:
        return torch.amp.GradScaler("cpu", init_scale=1024.0)
    except AttributeError:
        return Scaler()


def trained_through(way, words, rank, numbers, bad=(), scale=False):
    """A model after these batches, with what is seen on the way; in those of `bad` rank 1 has a loss that
    makes gradients infinite."""
    model, batches, loss = gpt(rank)
    net = replicate(model) if way == "hook" else model
    if way == "hook":
        optimizer = sgd(model.parameters())
        run = gradwire.torch.hook(net, optimizer, words)
    else:
        run = gradwire.torch.Session(model, words)
        optimizer = sgd(run.parameters())
    scales, moved, left_out = scaler() if scale else None, [], []
    with run:
        for number in numbers:
            x, y = batches[number % len(batches)]
            before = bits(model)
            with run.batch(len(x)):
                value = run.loss(loss(net(x), y)) * (float("inf") if rank == 1 and number in bad else 1)
                (scales.scale(value) if scale else value).backward()
                if scale:
                    scales.step(optimizer)
                    scales.update()
                else:
                    optimizer.step()
                optimizer.zero_grad()
            moved.append(bits(model) != before)
            left_out.append(run.left_out)
        run.settle()
    return model, {"moved": moved, "left_out": left_out, "scale": scales.get_scale() if scale else 0,
                   "finite": all(bool(p.isfinite().all()) for p in model.parameters())}


def case_left_out(jobs):
    """jobs: [[hook or session, words], ..]: batches of which one is not finite on rank 1, against the
    same without it, and under a GradScaler."""
    rank, _ = gradwire.torch.init()
    found = []
    for way, words in json.loads(jobs):
        model, seen = trained_through(way, words, rank, range(5), bad=[1])
        other, _ = trained_through(way, words, rank, [0, 2, 3, 4])
        scaled, of_scaled = trained_through(way, words, rank, range(5), bad=[1], scale=True)
        found.append({"seen": seen, "scaled": of_scaled, "same": bits(model) == bits(other),
                      "hash": hash_of(model), "scaled hash": hash_of(scaled)})
    return found


def linear(way, words="", make=lambda: torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1)),
           optimizers=sgd, **more):
    """(model, network, optimizer, run)"""
    torch.manual_seed(3)
    model = make()
    net = replicate(model, **more) if way == "hook" else model
    if way == "hook":
        optimizer = optimizers(model.parameters())
        return model, net, optimizer, gradwire.torch.hook(net, optimizer, words)
    run = gradwire.torch.Session(model, words)
    return model, net, optimizers(run.parameters()), run


def samples(rank, number=0):
    torch.manual_seed(10 * number + rank)
    return torch.randn(2, 4)


def one_batch(net, optimizer, run, x):
    with run.batch(len(x)):
        run.loss(net(x).square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.1)


def case_changes(way):
    """What becomes of a model whose parameters change after the exchange was opened."""
    rank, _ = gradwire.torch.init()
    x, found = samples(rank), {}

    model, net, optimizer, run = linear(way, optimizers=adamw, **unused(way))
    with run:
        one_batch(net, optimizer, run, x)
        model[0].weight.requires_grad_(False)
        before = model[0].weight.clone()
        other = model[1].weight.clone()
        for number in (1, 2):
            one_batch(net, optimizer, run, samples(rank, number))
        run.epoch()
        found["frozen moves"] = bool((before != model[0].weight).any())
        found["others move"] = bool((other != model[1].weight).any())
        found["frozen"] = hash_of(model)

    if way == "hook":
        model, net, optimizer, run = linear(way)
        model[0].weight.requires_grad_(False)
        found["plain frozen"] = refusal(one_batch, net, optimizer, run, x)
        run.cancel()
        run.close()

    def half():
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
        model[0].bias.requires_grad_(False)
        return model
    model, net, optimizer, run = linear(way, make=half)
    one_batch(net, optimizer, run, x)
    model[0].bias.requires_grad_(True)
    found["unfrozen"] = refusal(run.batch(2).__enter__)
    model[0].bias.requires_grad_(False)
    model.append(torch.nn.Linear(1, 1))
    found["added"] = refusal(run.batch(2).__enter__)
    del model[2]
    model[1].weight = torch.nn.Parameter(torch.zeros(1, 3))
    found["replaced"] = refusal(run.batch(2).__enter__)
    run.close()

    def tied():
        model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
        model[1].weight = model[0].weight
        return model
    model, net, optimizer, run = linear(way, make=tied)
    with run:
        for number in range(3):
            one_batch(net, optimizer, run, samples(rank, number))
        run.epoch()
        found["tied"] = hash_of(model)
    return found


def unused(way):
    return {"find_unused_parameters": True} if way == "hook" else {}


def case_closures(way):
    """optimizer.step(closure) against the same without; LBFGS evaluates it several times."""
    rank, _ = gradwire.torch.init()
    found = {}
    for name in ("plain", "closure"):
        model, net, optimizer, run = linear(way)
        with run:
            for number in range(3):
                x = samples(rank, number)

                def evaluate():
                    optimizer.zero_grad()
                    value = run.loss(net(x).square().mean())
                    value.backward()
                    return value
                with run.batch(len(x)):
                    if name == "closure":
                        optimizer.step(evaluate)
                    else:
                        evaluate()
                        optimizer.step()
                    optimizer.zero_grad()
        found[name] = hash_of(model)
    model, net, optimizer, run = linear(way, optimizers=lambda p: torch.optim.LBFGS(list(p), max_iter=4))
    batch = run.batch(2)
    batch.__enter__()
    x = samples(rank)

    def again():
        optimizer.zero_grad()
        value = net(x).square().mean()
        value.backward()
        return value
    found["lbfgs"] = refusal(optimizer.step, again)
    run.cancel()
    run.close()
    return found


def case_cancel(way):
    """An exception within a batch is caught: on all ranks, or on one, before the backward pass. The next
    batches are those of a run without it; after close the model goes on by itself."""
    rank, _ = gradwire.torch.init()
    found = {}
    for who in ("nobody", "all", "one"):
        model, net, optimizer, run = linear(way, "--comm iallreduce --compress onebit")
        for number in range(4):
            x = samples(rank, number)
            if number == 2 and who == "nobody":
                continue
            try:
                with run.batch(len(x)):
                    if number == 2 and (who == "all" or rank == 1):
                        raise ValueError("no such sample")
                    run.loss(net(x).square().mean()).backward()
                    optimizer.step()
                    optimizer.zero_grad()
            except ValueError:
                run.cancel()
            if number == 2 and who == "one":
                found["left out"] = run.left_out or rank == 1
        found[who] = hash_of(model)
        found["idle"] = refusal(run.cancel)
        run.close()
    before = hash_of(model)
    net(samples(rank, 9)).square().mean().backward()
    optimizer.step()
    found["after"] = hash_of(model)
    found["goes on"] = found["after"] != before
    return found


def case_serves():
    """A dedicated server against a parameter server that also trains: rank 0 has no samples here."""
    rank, ranks = gradwire.torch.init(gloo=False)
    found = {}
    for words in ("--comm ps:dedicated=1", "--comm allreduce"):
        model, net, optimizer, run = linear("session", words, optimizers=adamw)
        with run:
            for number in range(3):
                x = samples(rank, number)
                with run.batch(0 if rank == 0 else len(x), None if run.handle.servers else 2 * (ranks - 1)):
                    if rank == 0:
                        run.serve()
                    else:
                        run.loss(net(x).square().mean()).backward()
                    optimizer.step()
            found["refused"] = refusal(run.serve)
            found["serves"] = run.serves or found.get("serves", False)
            if words == "--comm allreduce":
                found["no total"] = refusal(run.batch(0).__enter__)
        found[words] = [float(v) for p in model.parameters() for v in p.detach().flatten()]
    found["outside"] = None
    model, net, optimizer, run = linear("session")
    with run:
        found["outside"] = refusal(optimizer.step)
    return found


def main():
    torch.set_num_threads(1)
    result = globals()[f"case_{sys.argv[1]}"](*sys.argv[2:])
    os.write(1, (json.dumps({"result": result}) + "\n").encode())
    with contextlib.suppress(Exception):
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
