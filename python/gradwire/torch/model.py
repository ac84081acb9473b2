"""What hook and Session share: a model's parameters as tensors, and the run around its batches."""

import contextlib
import ctypes
import math

import torch

from gradwire.library import Error, Phase
from gradwire.session import Session as Handle


def trained(model, ignored=()):
    """{name: parameter} of what is trained, in forward order; refuses what cannot be exchanged."""
    found = {name: p for name, p in model.named_parameters() if p.requires_grad and name not in ignored}
    if not found:
        raise Error("the model has no parameter that requires a gradient")
    for name, p in found.items():
        if p.device.type != "cpu":
            raise Error(f"{name} is on {p.device}: gradwire.torch exchanges gradients of the CPU alone")
        if p.dtype != torch.float32:
            raise Error(f"{name} is {p.dtype}: gradwire.torch exchanges float32 alone: keep the model's "
                        "parameters in float32 (autocast may compute in others)")
        if not p.is_contiguous():
            raise Error(f"{name} has strides {p.stride()}: call .contiguous() on it; channels_last is "
                        "not supported")
    for name, module in model.named_modules():
        if getattr(module, "sparse", False):
            raise Error(f"{name} makes sparse gradients: build it with sparse=False (`--comm sparse` "
                        "sends dense ones sparsely)")
    return found


class Run:
    """One model's exchange: batches, losses, and what the run's folder gets."""

    def __init__(self, parameters, words, comm):
        self.names = list(parameters)
        self.parameters_ = list(parameters.values())
        self.tensor_of = {p: i for i, p in enumerate(self.parameters_)}
        self.handle = Handle(words, comm)
        try:
            self._open(parameters)
        except Error:
            self.handle.abandon()
            raise
        self.rank, self.ranks = self.handle.rank, self.handle.ranks
        self.latest, self.inside, self.complete, self.updates = None, False, False, False

    def _open(self, parameters):
        """Declare the tensors, a module's as a group, and open; more refusals of a subclass."""
        group, owner = -1, None
        for name, p in parameters.items():
            module = name.rpartition(".")[0]
            if module != owner or group < 0:
                group, owner = group + 1, module
            self.handle.declare(name, p.numel(), group, p.shape[0] if p.dim() > 1 else 0, p.data_ptr())
        self.strategy = (self.text("strategy") or "").partition(":")[0]
        self._check()
        self.handle.open()

    def _check(self):
        """What a subclass refuses before the exchange begins."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.handle.__exit__(kind, error, trace)

    @contextlib.contextmanager
    def batch(self, samples, total=None):
        """One optimizer step on `samples` samples of this rank, of `total` on all [samples * ranks]:
        forward and backward pass, optimizer.step()."""
        if self.inside:
            raise Error("batch: the one before it has not ended")
        self._before()
        self.latest, self.complete, self.inside = None, False, True
        self.handle.begin(samples, total)
        yield self
        if not self.complete:
            raise Error("batch: no backward pass exchanged gradients (no_sync, or no backward at all)")
        self._after()
        self.inside = False
        self.handle.end(math.nan if self.latest is None else float(self.latest))

    def loss(self, loss):
        """Tell the mean loss of this rank's samples; returns it, for .backward()."""
        self.latest = loss.detach()
        self.handle.phase(Phase.BACKWARD)
        return loss

    def _finish(self):
        """All gradients are with the library: wait for the exchanged ones."""
        self.updates = self.handle.finish()
        self.complete = True
        self.handle.phase(Phase.UPDATE)

    def _forward(self, module, inputs):
        if self.inside and not self.complete:
            self.handle.phase(Phase.FORWARD)

    def _poll(self, *_):
        """Between kernels: messages of a nonblocking exchange move in the library's calls alone."""
        if self.inside and not self.complete:
            self.handle.poll()

    def settle(self):
        """All ranks, before evaluating or saving the model: replicas agree."""
        self.handle.settle()

    def epoch(self, test_loss=math.nan, test_accuracy=math.nan):
        """A row of epochs.csv."""
        self.handle.epoch(test_loss, test_accuracy)

    def save(self):
        """All ranks: this rank's state of the exchange as bytes, to be kept with model and optimizer."""
        return self.handle.save()

    def load(self, state):
        """All ranks, with the model's parameters restored: go on from what `save` returned."""
        self.handle.load(state)

    def figure(self, column):
        """A column of batches.csv, of the last batch; NaN: not there."""
        return self.handle.figure(column)

    def text(self, key):
        return self.handle.text(key)

    def close(self):
        """All ranks: writes run.json."""
        self.handle.close()


def indices(numbers):
    return (ctypes.c_int * len(numbers))(*numbers)


def addresses(tensors):
    return (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
