"""A rank of test_torch.py: torch_rank.py CASE [ARGUMENT].. prints what the test looks at."""

import contextlib
import gc
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


def drop():
    """A replica with a State that is gone, and among Python's objects until garbage is collected, which nothing does
    by itself from now on."""
    gc.disable()
    net = replicate(torch.nn.Linear(2, 2))
    net.register_comm_hook(gradwire.torch.State(), gradwire.torch.comm_hook)
    net.cycle = [net]


def sgd(parameters, momentum=0.9):
    LIVE.append(torch.optim.SGD(parameters, lr=0.05, momentum=momentum))
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
    optimizer = sgd(run.parameters(), 0 if run.directs else 0.9)

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

    strided = torch.nn.Linear(4, 4)
    strided.weight = torch.nn.Parameter(torch.zeros(4, 8)[:, ::2])

    def hook(model, words=""):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return gradwire.torch.hook(DistributedDataParallel(model), optimizer, words)

    found = {"bare": refusal(gradwire.torch.hook, linear, None),
             "gpu": refusal(gradwire.torch.Session, torch.nn.Linear(4, 4, device="meta")),
             "double": refusal(hook, torch.nn.Linear(4, 4).double()),
             "double session": refusal(gradwire.torch.Session, torch.nn.Linear(4, 4).double()),
             "sparse": refusal(gradwire.torch.Session, embedding),
             "frozen": refusal(gradwire.torch.Session, torch.nn.Linear(4, 4).requires_grad_(False)),
             "strided": refusal(gradwire.torch.Session, strided),
             "state": refusal(gradwire.torch.State)}
    for name in ("ps", "sharded", "local", "gossip"):
        found[name] = refusal(hook, torch.nn.Linear(4, 4), f"--comm {name}")
    found["words"] = refusal(hook, torch.nn.Linear(4, 4), "--comm nosuch")
    for name, value in ("optimizer", "sgd"), ("gradient", "scaled"), ("parameters", "parts"):
        found[name] = refusal(gradwire.torch.Session, torch.nn.Linear(4, 4), f"--{name} {value}")
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
    run.close()  # nothing of it was exchanged
    return found


def case_directs():
    gradwire.torch.init(gloo=False)
    net, plain = torch.nn.Linear(4, 4), torch.optim.SGD
    with gradwire.torch.Session(net, "--comm demo") as run, run.batch(1):
        run.loss(net(torch.ones(1, 4)).sum()).backward()
        said = [refusal(torch.optim.AdamW(run.parameters()).step),
                refusal(plain(run.parameters(), lr=0.1, momentum=0.9).step)]
        before = net.bias.detach().clone()
        plain(run.parameters(), lr=0.1).step()
        moved = (before - net.bias.detach()).abs().max().item()
    with gradwire.torch.Session(net, "--comm zerooneadam") as run, run.batch(1):
        run.loss(net(torch.ones(1, 4)).sum()).backward()
        said.append(refusal(plain(run.parameters(), lr=0.1, weight_decay=0.1).step))
        plain(run.parameters(), lr=0.1).step()
    return [*said, moved]


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


def main(cases):
    torch.set_num_threads(1)
    result = cases[f"case_{sys.argv[1]}"](*sys.argv[2:])
    rank = os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK"))
    line = json.dumps({"rank": int(rank), "result": result})
    os.write(1, f"\n{line}\n".encode())  # behind what others may not have ended
    with contextlib.suppress(Exception):
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(globals())
