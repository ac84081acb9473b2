"""A rank of test_recipes.py: what of PyTorch State and Session carry and refuse, a case a row of the table in
docs/python.md; and the recipes of that page."""

import contextlib
import json
import os
import re
import tempfile
from unittest import mock

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch_rank import main

import gradwire.torch
from gradwire.torch.staging import flat

STEPS = 3
NEAR = 1e-5


def mlp(dtype=torch.float32):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).to(dtype)


def convolution():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.Tanh(), torch.nn.Conv2d(6, 4, 3)).to(
        memory_format=torch.channels_last)


def replicate(model, **more):
    return DistributedDataParallel(model, gradient_as_bucket_view=True, **more)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(x).tanh())


class Checkpointed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp()

    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


class Halves(torch.nn.Module):
    """Of which a rank uses one half alone."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.left, self.right = (torch.nn.Linear(4, 4) for _ in range(3))
        self.rank = int(os.environ["RANK"])

    def forward(self, x):
        return (self.right if self.rank else self.left)(self.first(x))


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.net, self.last = mlp(torch.bfloat16), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.net(x).float())


def sgd(parameters):
    return torch.optim.SGD(list(parameters), lr=0.1)


class Loop:
    """Training in one of three ways: by Gloo, State or Session; `words` of the exchange, `more` of
    DistributedDataParallel. `step` is a training step's inside."""

    def __init__(self, way, make=mlp, words="", optimizers=sgd, wrap=lambda net: net, shape=(6, 4), tells=False,
                 **more):
        self.way, self.model = way, make()
        net = self.model if way == "Session" else replicate(self.model, **more)
        self.run = None
        if way == "State":
            self.run = gradwire.torch.State(words, net if tells else None)
            net.register_comm_hook(self.run, gradwire.torch.comm_hook)
        elif way == "Session":
            self.run = gradwire.torch.Session(self.model, words)
        self.raw, self.net = net, wrap(net)
        parameters = self.run.parameters() if way == "Session" else list(self.model.parameters())
        made = optimizers(parameters)
        self.optimizers = made if isinstance(made, list) else [made]
        rank = int(os.environ["RANK"])
        torch.manual_seed(4 + rank)
        dtype = next(self.model.parameters()).dtype
        self.data = [torch.randn(shape).to(dtype) for _ in range(STEPS)]

    def batch(self, n):
        return self.run.batch(n) if self.way == "Session" else contextlib.nullcontext()

    def no_sync(self):
        return self.run.no_sync() if self.way == "Session" else self.raw.no_sync()

    def backward(self, x):
        loss = self.net(x).float().square().mean()
        loss.backward()
        return loss

    def step(self, x):
        self.backward(x)
        for optimizer in self.optimizers:
            optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def train(self):
        try:
            for x in self.data:
                with self.batch(len(x)):
                    self.step(x)
        except gradwire.torch.Error:
            if self.run.inside:
                self.run.cancel()
            self.run.close()
            raise
        return self.close()

    def close(self):
        if self.run is not None:
            if self.way == "Session":
                self.run.settle()
            self.run.close()
        return torch.cat([flat(p).float() for p in self.model.parameters()])


class Accumulating(Loop):
    def step(self, x):
        with self.no_sync():
            (self.net(x[:3]).square().mean() / 2).backward()
        super().step(x[3:])


class Closures(Loop):
    def step(self, x):
        self.optimizers[0].step(lambda: self.evaluate(x))

    def evaluate(self, x):
        self.optimizers[0].zero_grad()
        return self.backward(x)


def models_of_each(way, **more):
    """Two at once, in turns."""
    loops = [Loop(way, **more), Loop(way, make=Tied, **more)]
    for number in range(STEPS):
        for loop in loops:
            with loop.batch(6):
                loop.step(loop.data[number])
    return torch.cat([loop.close() for loop in reversed(loops)])


def one_for_two(way):
    state = gradwire.torch.State()
    nets = [replicate(mlp()) for _ in range(2)]
    for net in nets:
        net.register_comm_hook(state, gradwire.torch.comm_hook)
    state._find()


def joined(way):
    loop = Loop(way, tells=True)
    with loop.raw.join():
        loop.train()


def unfrozen(way):
    loop = Loop(way, make=half_frozen)
    with loop.batch(6):
        loop.step(loop.data[0])
    loop.model[0].bias.requires_grad_(True)
    loop.train()


def half_frozen():
    model = mlp()
    model[0].bias.requires_grad_(False)
    return model


def gaps():
    model = mlp()
    model[0].weight = torch.nn.Parameter(torch.zeros(8, 8)[:, ::2])
    return model


def embedding():
    return torch.nn.Sequential(torch.nn.Embedding(5, 4, sparse=True), torch.nn.Linear(4, 4))


def sharded_by_torch():
    model = mlp()
    fully_shard(model)
    return model


def told(make, **more):
    """A State that is told its model: what it refuses is known before any backward pass."""
    def case(way):
        if way == "State":
            return gradwire.torch.State(more.get("words", ""), replicate(make()))
        return Loop(way, make, **more).train()
    return case


def narrow(way):
    return torch.cat([Loop(way, lambda: mlp(torch.bfloat16)).train(), Loop(way, lambda: mlp(torch.float16)).train(),
                      Loop(way, Mixed).train()])


def of(loop=Loop, **more):
    return lambda way: loop(way, **more).train()


def compiled(net):
    return torch.compile(net, backend="eager")


ROWS = {
    "gradient accumulation (`no_sync`)": of(Accumulating),
    "`static_graph`": of(static_graph=True),
    "`find_unused_parameters`": of(make=Halves, find_unused_parameters=True),
    "tied weights": of(make=Tied),
    "activation checkpointing": of(make=Checkpointed),
    "`torch.compile`": of(wrap=compiled),
    "`optimizer.step(closure)`": of(Closures),
    "LBFGS, which evaluates it several times": of(Closures, optimizers=lambda p: torch.optim.LBFGS(list(p), max_iter=3)),
    "several optimizers for a model": of(optimizers=lambda p: [sgd(p[:1]), sgd(p[1:])]),
    "ZeroRedundancyOptimizer": of(optimizers=lambda p: ZeroRedundancyOptimizer(p, torch.optim.SGD, lr=0.1)),
    "several models, each with its own": models_of_each,
    "one for two models": one_for_two,
    "`join()`": joined,
    "strategies that hand out no mean, such as `sharded`":
        lambda way: told(mlp, words="--comm sharded")(way) if way != "Gloo" else of()(way),
    "bfloat16, float16, and a mix with float32": narrow,
    "float64, complex numbers": told(lambda: mlp(torch.float64)),
    "`channels_last`": of(make=convolution, shape=(2, 4, 7, 7)),
    "parameters with gaps": told(gaps),
    "parameters on `meta`": told(lambda: mlp().to("meta")),
    "sparse gradients (`nn.Embedding(sparse=True)`)": told(embedding),
    "DTensors of `fully_shard`": told(sharded_by_torch),
    "parameters unfrozen later": unfrozen}


def case_carried(cells):
    """cells: [[row, State or Session], ..]: "yes", or what is wrong, or the line that refuses it."""
    gradwire.torch.init()
    found = []
    for row, way in json.loads(cells):
        try:
            mine = ROWS[row](way)
            apart = float((mine - ROWS[row]("Gloo")).abs().max())
            near = 0.02 if row.startswith("bfloat16") else NEAR  # Gloo rounds in every sum
            found.append("yes" if apart < near else f"{apart} from Gloo's")
        except gradwire.torch.Error as error:
            found.append(str(error))
    return {"cells": found, "rows": list(ROWS)}


# ---- recipes ----

def recipe(name):
    with open(os.path.join(os.environ["SOURCE"], "docs", "python.md"), encoding="utf-8") as page:
        return re.search(rf"<!-- recipe: {name} -->\n```python\n(.*?)```", page.read(), re.DOTALL)[1]


def names_of(name):
    """What the recipe finds: the model and its data, and the package's names."""
    model, mse = mlp(), torch.nn.functional.mse_loss
    torch.manual_seed(5)
    x, y = torch.randn(32, 4), torch.randn(32, 4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
    names = {"gradwire": gradwire, "torch": torch, "model": model, "loader": loader, "criterion": mse,
             "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    if name == "accelerate":
        from accelerate import Accelerator, DistributedDataParallelKwargs
        return model, {**names, "Accelerator": Accelerator, "DistributedDataParallelKwargs": DistributedDataParallelKwargs}
    if name == "lightning":
        import lightning

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = model

            def training_step(self, batch, number):
                return mse(self.net(batch[0]), batch[1])

            def configure_optimizers(self):
                return names["optimizer"]
        return model, {**names, "module": Module(), "Trainer": lightning.Trainer, "Callback": lightning.Callback}
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model

        def forward(self, x, labels):
            out = self.net(x)
            return {"loss": mse(out, labels), "logits": out}
    items = [{"x": a, "labels": b} for a, b in zip(x, y)]
    return model, {**names, "model": Net(), "items": items, "Trainer": Trainer, "TrainerCallback": TrainerCallback,
                   "TrainingArguments": TrainingArguments}


def case_recipe(name):
    """As the page has it, and again with PyTorch's own exchange in the place of gradwire's."""
    found = {}
    os.chdir(tempfile.mkdtemp())
    for exchange in "gradwire", "gloo":
        model, names = names_of(name)
        gloo = mock.patch.object(gradwire.torch, "comm_hook", lambda state, bucket: allreduce_hook(None, bucket))
        with gloo if exchange == "gloo" else contextlib.nullcontext():
            torch.manual_seed(6)
            exec(compile(recipe(name), name, "exec"), names)
        found[exchange] = torch.cat([p.detach().flatten() for p in model.parameters()])
        if exchange == "gradwire":
            state = names["state"]
            found["sent"], found["ranks"] = state.figure("wire_bytes"), state.ranks
            state.close()
    moved = float((found["gradwire"] - torch.cat([p.detach().flatten() for p in mlp().parameters()])).abs().max())
    return {"apart": float((found.pop("gradwire") - found.pop("gloo")).abs().max()), "moved": moved, **found}


if __name__ == "__main__":
    main(globals())
