"""A rank of test_torch.py as torch_rank.py is one, of batches that do not go as planned and models that
change."""

import contextlib
import json
import time

import torch
from torch_rank import bits, gpt, hash_of, main, refusal, replicate, sgd

import gradwire.torch


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


def attached(way, net, model, optimizers, words):
    """(run, optimizer, what a batch is within, what is told a loss): by State the loop is as without it."""
    optimizer = optimizers(model.parameters()) if way != "session" else None
    if way == "state":
        run = gradwire.torch.State(words)
        net.register_comm_hook(run, gradwire.torch.comm_hook)
        return run, optimizer, lambda n: contextlib.nullcontext(), lambda loss: loss
    if way == "hook":
        run = gradwire.torch.hook(net, optimizer, words)
    else:
        run = gradwire.torch.Session(model, words)
        optimizer = optimizers(run.parameters())
    return run, optimizer, run.batch, run.loss


def trained_through(way, words, rank, numbers, bad=(), scale=False):
    """A model after these batches, with what is seen on the way; in those of `bad` rank 1 has a loss that
    makes gradients infinite."""
    model, batches, loss = gpt(rank)
    net = model if way == "session" else replicate(model)
    run, optimizer, batch, tell = attached(way, net, model, sgd, words)
    scales, moved, left_out = scaler() if scale else None, [], []
    with run:
        for number in numbers:
            x, y = batches[number % len(batches)]
            before = bits(model)
            with batch(len(x)):
                value = tell(loss(net(x), y)) * (float("inf") if rank == 1 and number in bad else 1)
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
    net = model if way == "session" else replicate(model, **more)
    run, optimizer, run.around, run.tell = attached(way, net, model, optimizers, words)
    return model, net, optimizer, run


def samples(rank, number=0):
    torch.manual_seed(10 * number + rank)
    return torch.randn(2, 4)


def one_batch(net, optimizer, run, x):
    with run.around(len(x)):
        run.tell(net(x).square().mean()).backward()
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
    begins = (lambda: net(x)) if way == "state" else (lambda: run.batch(2).__enter__())
    found["unfrozen"] = refusal(begins)
    model[0].bias.requires_grad_(False)
    model.append(torch.nn.Linear(1, 1))
    found["added"] = refusal(begins)
    del model[2]
    model[1].weight = torch.nn.Parameter(torch.zeros(1, 3))
    found["replaced"] = refusal(begins)
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
    return {"find_unused_parameters": True} if way != "session" else {}


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
                    value = run.tell(net(x).square().mean())
                    value.backward()
                    return value
                with run.around(len(x)):
                    if name == "closure":
                        optimizer.step(evaluate)
                    else:
                        evaluate()
                        optimizer.step()
                    optimizer.zero_grad()
        found[name] = hash_of(model)
    if way == "state":  # each evaluation is a batch
        return {**found, **by_lbfgs(rank)}
    model, net, optimizer, run = linear(way, optimizers=lambda p: torch.optim.LBFGS(list(p), max_iter=4))
    batch = run.batch(2)
    batch.__enter__()
    found["lbfgs"] = refusal(optimizer.step, evaluation(optimizer, net, samples(rank)))
    run.cancel()
    run.close()
    return found


def evaluation(optimizer, net, x):
    """A closure for optimizer.step, which may evaluate it several times."""
    def again():
        optimizer.zero_grad()
        value = net(x).square().mean()
        value.backward()
        return value
    return again


def by_lbfgs(rank):
    found = {}
    for name in ("by Gloo", "lbfgs"):
        model, net, optimizer, run = linear("state", optimizers=lambda p: torch.optim.LBFGS(list(p), max_iter=4))
        net = net if name == "lbfgs" else replicate(model)  # which no hook has
        for _ in range(2):
            optimizer.step(evaluation(optimizer, net, samples(rank)))
        run.close()
        found[name] = hash_of(model)
    return found


def case_phases(way):
    """Figures of a batch that pauses between its passes, with a closure or without."""
    rank, _ = gradwire.torch.init()
    found = []
    for closes in False, True:
        model, net, optimizer, run = linear(way)

        def evaluate():
            out = net(samples(rank))
            time.sleep(PAUSE)
            out.square().mean().backward()
            time.sleep(PAUSE)
        with run:
            for _ in range(2):
                with run.around(2):
                    if not closes:
                        evaluate()
                    optimizer.step(evaluate if closes else None)
            found.append({name: run.figure(name) for name in ("forward_s", "backward_s", "update_s", "other_s")})
    return found


PAUSE = 0.1


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
                with run.around(len(x)):
                    if number == 2 and (who == "all" or rank == 1):
                        raise ValueError("no such sample")
                    run.tell(net(x).square().mean()).backward()
                    optimizer.step()
                    optimizer.zero_grad()
            except ValueError:
                run.cancel()
            if number == 2 and who == "one":
                found["left out"] = run.left_out or rank == 1
        found[who] = hash_of(model)
        found["idle"] = "no batch is open" if way == "state" else refusal(run.cancel)
        run.close()
    before = hash_of(model)
    net(samples(rank, 9)).square().mean().backward()
    optimizer.step()
    found["after"] = hash_of(model)
    found["goes on"] = found["after"] != before
    _, net, optimizer, run = linear(way, "--update lazy")
    one_batch(net, optimizer, run, samples(rank))
    with run.around(2):
        loss = run.tell(net(samples(rank)).square().mean())
        found["lazy"] = refusal(run.cancel)
        loss.backward()
        optimizer.step()
    run.close()
    return found


# DistributedDataParallel of PyTorch 1 itself fails with an empty parameter of two dimensions, and with bool and complex
# buffers.
OLD = int(torch.__version__.partition(".")[0]) < 2
EMPTY = (0,) if OLD else (0, 3)


class Odd(torch.nn.Module):
    """Frozen parameters and buffers of many kinds, of other values on each rank; parameters without elements come first
    and last, so that a bucket may have nothing else."""

    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(3 + rank)
        self.none = torch.nn.Parameter(torch.zeros(EMPTY))
        self.first, self.norm, self.last = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
        self.last.weight.requires_grad_(False)
        self.norm.running_mean.fill_(rank)
        self.norm.num_batches_tracked.fill_(5 + rank)
        for name, value in {"double": torch.full((2,), rank + 0.1, dtype=torch.double),
                            "empty": torch.zeros(0), "gaps": torch.arange(12.0).view(3, 4).t()[:, ::2] + rank,
                            **({} if OLD else {"complex": torch.tensor(rank + 1j),
                                               "bool": torch.tensor([rank > 0, True])})}.items():
            self.register_buffer(f"a_{name}", value, persistent=name != "double")
        self.nothing = torch.nn.Parameter(torch.zeros(EMPTY))

    def forward(self, x):
        return self.last(self.norm(self.first(x))) + self.none.sum() + self.nothing.sum()


def case_untrained(way):
    """What is not trained, when the exchange opens, and after the ranks have trained and saved."""
    rank, _ = gradwire.torch.init()
    found = {}
    model = Odd(rank)
    if way == "session":  # DistributedDataParallel would write to it
        model.register_buffer("same", torch.ones(1).expand(3))
    net = model if way == "session" else replicate(model)
    run, optimizer, around, tell = attached(way, net, model, sgd, "--verify-every 1")
    values = [*model.parameters(), *model.buffers()]
    found["opened"] = [t.flatten().tolist() for t in values if not t.is_complex()] if way == "session" else None
    with run:
        for number in range(3):
            with around(2):
                tell(net(samples(rank, number)).square().mean()).backward()
                optimizer.step()
                optimizer.zero_grad()
        run.epoch()
    found["trained"] = [p.flatten().tolist() for p in model.parameters()]
    found["statistics"] = model.norm.running_mean.tolist()
    if way == "session":
        model = torch.nn.Linear(2, 2)
        model.register_buffer("more", torch.zeros(2 + rank))
        found["shapes"] = refusal(gradwire.torch.Session, model)
        model.register_buffer("more", torch.eye(2).to_sparse())
        found["sparse"] = refusal(gradwire.torch.Session, model)
        model.register_buffer("more", torch.eye(2, device="meta"))
        found["meta"] = refusal(gradwire.torch.Session, model)
        found["lazy"] = refusal(gradwire.torch.Session, torch.nn.LazyLinear(2))
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


if __name__ == "__main__":
    main(globals())
