"""profile: one training step of a model, gradient by gradient, for `gradwire replay`."""

import datetime
import json
import platform
import re
import statistics
import time

import torch

from gradwire.library import Error
from gradwire.torch.model import trained

SCHEMA = 1


def profile(model, inputs, loss, path=None, *, name, batch, source="gradwire.torch.profile",
            optimizer=None, steps=20, warmup=3):
    """Times a training step on this process alone, and returns the profile: a dict, written to `path`
    as JSON if it is given. inputs: the model's arguments, a tuple; loss: a function of what it
    returns; batch: samples in the inputs; optimizer: whose step is timed [SGD]. Each time is the
    median of `steps` steps, after `warmup` others; the model is trained by them all."""
    if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        raise Error(f"gradwire.torch.profile needs PyTorch 2.1 (this is {torch.__version__})")
    if steps < 1:
        raise Error(f"profile: steps={steps}: must be at least 1")
    parameters = trained(model)
    optimizer = optimizer or torch.optim.SGD(parameters.values(), lr=1e-4)
    timed = Timed(model, parameters)
    try:
        measured = [timed.step(inputs, loss, optimizer) for _ in range(warmup + steps)][warmup:]
    finally:
        timed.remove()
    first = measured[0]
    lacking = [name for name in parameters if name not in first.backward]
    if lacking:
        raise Error(f"profile: {lacking[0]} got no gradient: the loss does not depend on it")
    content = {
        "schema": SCHEMA, "model": name, "source": source, "device": "cpu", "machine": processor(),
        "date": datetime.date.today().isoformat(), "torch": torch.__version__,
        "threads": torch.get_num_threads(), "batch": batch, "steps": steps,
        "optimizer_s": seconds(step.optimizer for step in measured),
        "tensors": rows(parameters, measured)}
    if path:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text(content))
    return content


class Step:
    """Seconds of one step: by owner of tensors (forward), by tensor, in order (backward)."""

    def __init__(self):
        self.forward, self.backward, self.optimizer = {}, {}, 0.0


class Timed:
    """A model with a clock at the first use of each module's tensors and at each gradient."""

    def __init__(self, model, parameters):
        self.model, self.now, self.last, self.owner = model, Step(), 0.0, None
        owners = {name.rpartition(".")[0] for name in parameters}
        modules = dict(model.named_modules())
        self.hooks = [modules[owner].register_forward_pre_hook(self._uses(owner)) for owner in owners]
        self.hooks += [p.register_post_accumulate_grad_hook(self._completes(name))
                       for name, p in parameters.items()]

    def _uses(self, owner):
        def mark(module, inputs):
            if self.owner is not None:
                self._charge()
            self.owner = owner
        return mark

    def _charge(self):
        now = time.perf_counter()
        self.now.forward[self.owner] = self.now.forward.get(self.owner, 0.0) + now - self.last
        self.last = now

    def _completes(self, name):
        def mark(p):
            now = time.perf_counter()
            self.now.backward[name] = now - self.last
            self.last = now
        return mark

    def step(self, inputs, loss, optimizer):
        optimizer.zero_grad(set_to_none=True)
        self.now, self.owner, self.last = Step(), None, time.perf_counter()
        value = loss(self.model(*inputs))
        self._charge()
        value.backward()
        begin = time.perf_counter()
        optimizer.step()
        self.now.optimizer = time.perf_counter() - begin
        return self.now

    def remove(self):
        for hook in self.hooks:
            hook.remove()


def rows(parameters, measured):
    """The tensors in forward order: the reverse of that in which their gradients came. What one module
    owns is a group; its forward time stands at its first tensor."""
    found, group, before, told = [], -1, None, set()
    for name in reversed(measured[-1].backward):
        p, owner = parameters[name], name.rpartition(".")[0]
        if owner != before or group < 0:
            group, before = group + 1, owner
        forward = 0.0
        if owner not in told:
            told.add(owner)
            forward = seconds(step.forward.get(owner, 0.0) for step in measured)
        found.append({
            "name": re.sub(r"[^A-Za-z0-9_./-]", "_", name)[:127], "shape": list(p.shape) or [1],
            "group": group, "forward_s": forward,
            "backward_s": seconds(step.backward[name] for step in measured),
            "std": float(f"{p.grad.std(unbiased=False).item():.4g}")})
    return found


def seconds(values):
    return round(statistics.median(values), 7)


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return re.search(r"model name\s*: (.*)", file.read())[1].strip()
    except (OSError, TypeError):
        return platform.machine()


def text(content):
    """JSON with a line a tensor."""
    head = {key: value for key, value in content.items() if key != "tensors"}
    lines = ",\n".join(f"    {json.dumps(row)}" for row in content["tensors"])
    return json.dumps(head, indent=2)[:-2] + f',\n  "tensors": [\n{lines}\n  ]\n}}\n'
