"""What State and Session share: a model's parameters as tensors, and the run around its batches."""

import contextlib
import math
import zlib

import torch

from gradwire.library import Error, Phase, shared
from gradwire.session import Session as Handle
from gradwire.torch.staging import flat, has_values, keep_to_this_thread, lies_as_declared, plain, staged


def trained(model, ignored=()):
    """{name: parameter} of what is trained, in forward order; refuses what cannot be exchanged."""
    found = {name: p for name, p in model.named_parameters() if p.requires_grad and name not in ignored}
    for name, p in found.items():
        plain(name, p)
    found = {name: p for name, p in found.items() if needs_exchange(p)}
    if not found:
        raise Error("the model has no parameter that requires a gradient")
    for name, module in model.named_modules():
        if getattr(module, "sparse", False):
            raise Error(f"{name} makes sparse gradients: build it with sparse=False (`--comm sparse` "
                        "sends dense ones sparsely)")
    return found


def needs_exchange(p):
    """Whether it has a gradient, and elements: one without elements is left out."""
    return p.requires_grad and p.numel() > 0


def check_words(text, parameters="whole"):
    """Refuses words that are about another loop than PyTorch's, which would do nothing, or make other sums. text: what
    a session says of a key."""
    for key, own in ("optimizer", "none"), ("gradient", "mean"), ("parameters", parameters):
        if text(key) != own:
            raise Error(f"--{key} {text(key)} is for programs without PyTorch, whose optimizer updates whole parameters by "
                        "means: leave it out")


def check_alike(handle, facts, why):
    """Refuses, on all ranks, facts that differ over them."""
    sum_of = zlib.crc32(str(facts).encode())
    halves = [float(sum_of & 0xffff), float(sum_of >> 16)]
    means = handle.mean(halves + [half * half for half in halves])
    if any(mean * mean != square for mean, square in zip(means[:2], means[2:])):
        raise Error(why)


def share(handle, model, exchanged):
    """Give all ranks what rank 0 has in parameters that are not exchanged, such as frozen ones, and in buffers."""
    rest = {name: t for name, t in (*model.named_parameters(), *model.named_buffers()) if t not in exchanged}
    for name, t in rest.items():
        has_values(name, t)
        if t.layout != torch.strided:
            raise Error(f"{name} is sparse: what is not trained goes from rank 0 to all ranks, and has to be dense: keep it "
                        "outside the model's buffers")
    check_alike(handle, [(name, t.dtype, t.shape) for name, t in rest.items()], "the ranks' frozen parameters and buffers "
                "differ in names, types or shapes: build the model alike on all ranks")
    for t in rest.values():
        values = t.detach().cpu().contiguous()  # where it lies, or a copy
        handle.share_at(values.data_ptr(), values.numel() * values.element_size())
        if values.data_ptr() != t.data_ptr() and not torch.equal(values, t.cpu()):  # elements may share memory
            with torch.no_grad():
                t.copy_(values)


def tensors(value):
    """Those in a value of a forward pass, at any depth."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(one)


class Run:
    """One model's exchange: batches, losses, and what the run's folder gets."""

    called = None  # what the program calls for a forward pass; a copy of it has the hooks, too

    def __init__(self, model, ignored, words, comm):
        parameters = trained(model, ignored)
        self.model, self.ignored = model, ignored
        self.names = list(parameters)
        self.parameters_ = list(parameters.values())
        self.tensor_of = {p: i for i, p in enumerate(self.parameters_)}
        self.latest, self.inside, self.complete, self.updates = None, False, False, False
        self.left_out = self.void = False  # void: as left_out, of the gradients that batch k hands in
        self.backward = False  # within a backward pass
        self.hooks = []
        keep_to_this_thread(self.parameters_)
        self.handle = Handle(words, comm)
        try:
            self._open(parameters)
        except Error:
            self.handle.abandon()
            raise
        self.rank, self.ranks = self.handle.rank, self.handle.ranks

    def _open(self, parameters):
        """Declare the tensors, a module's as a group, and open; more refusals of a subclass."""
        group, owner = -1, None
        self.copies = {p: staged(p) for p in self.parameters_ if not lies_as_declared(p)}
        for name, p in parameters.items():
            module = name.rpartition(".")[0]
            if module != owner or group < 0:
                group, owner = group + 1, module
            self.handle.declare(name, p.numel(), group, p.shape[0] if p.dim() > 1 else 0,
                                self.copies.get(p, p).data_ptr())
        self.strategy, self.late = self.text("strategy") or "", self.text("late") == "yes"
        self._check_words(self.text)
        self.polls = self.text("polls") == "yes"
        self.directs = self.text("directs") == "yes"
        self.rejoins = self.text("rejoins") == "yes"
        self._check()
        self.handle.open()

    def _check_words(self, text):
        """Refuses words that do not suit: text says what a session with them will say of a key."""
        check_words(text)

    def _check(self):
        """What else a subclass refuses before the exchange begins."""

    def _copy_parameters(self):
        """The library compares those that it sees in its own memory."""
        for p, copy in self.copies.items():
            copy.copy_(flat(p))

    def __deepcopy__(self, memo):
        """Copies of a model (an average of its parameters, say) have its hooks; an exchange has no copies."""
        return self

    def __reduce__(self):
        raise Error(f"{type(self).__name__}: an open exchange cannot be pickled, nor what has its hooks: keep the "
                    "model's state_dict() and what save() returns")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None or shared(error):
            with contextlib.nullcontext() if kind is None else contextlib.suppress(Error):
                self.close()

    @contextlib.contextmanager
    def batch(self, samples, total=None):
        """One optimizer step on `samples` samples of this rank, of `total` on all [samples * ranks]:
        forward and backward pass, optimizer.step(). After an exception that the program catches, it
        is open until `cancel`."""
        if self.inside:
            raise Error("batch: the one before it has not ended: cancel() gives it up")
        self._check_model()
        self._before()
        self._begin(samples, total)
        yield self
        if not self.inside:  # cancelled
            return
        if not self.complete:
            raise Error(f"batch: no backward pass exchanged gradients ({self._why_none()})")
        self._end()

    def _begin(self, samples, total=None):
        self.latest, self.complete, self.left_out, self.samples = None, False, False, samples
        self.backward = False
        self.handle.begin(samples, total)
        self.inside = True

    def _end(self):
        self._after()
        self.inside = False
        if self.copies and self.text("compares") == "yes":
            self._copy_parameters()
        self.handle.end(math.nan if self.latest is None else float(self.latest))

    def cancel(self):
        """Give up the batch that is open, outside of its `with` or at its end: all ranks leave it out,
        whether they call this or go through it as usual. What is exchanged is as before it; if its
        gradients were exchanged already, they are lost, and the model is as optimizer.step left it."""
        if not self.inside:
            raise Error("cancel: no batch is open")
        if self.text("update") == "lazy" and not self.complete:
            raise Error("cancel: --update lazy leaves to the next batch what is under way: use --update eager")
        self.inside = False
        self._drop()
        self.handle.cancel()
        for p in self.parameters_:
            p.grad = None

    def _why_none(self):
        frozen = [name for name, p in zip(self.names, self.parameters_) if not p.requires_grad]
        return f"{frozen[0]} is frozen by now" if frozen else "no_sync, or no backward at all"

    def _drop(self):
        """What a subclass has of a batch that is cancelled."""

    def _check_model(self):
        """Gradients that were not declared would be nobody's to exchange, and replicas part."""
        present = set()
        for name, p in self.model.named_parameters():
            present.add(p)
            if needs_exchange(p) and p not in self.tensor_of and name not in self.ignored:
                raise Error(f"{name} requires a gradient, and did not when the exchange was opened: no "
                            "rank would exchange it: open another one for the model as it is now")
        for name, p in zip(self.names, self.parameters_):
            if p not in present:
                raise Error(f"{name} is another parameter than when the exchange was opened: open "
                            "another one for the model as it is now")

    def loss(self, loss):
        """Tell the mean loss of this rank's samples, a tensor or a number; returns it, for .backward()."""
        if not self.inside:
            raise Error("loss: no batch is open: tell it between the forward pass and the end of optimizer.step()")
        self.latest = loss.detach() if isinstance(loss, torch.Tensor) else loss
        if not self.complete:
            self._watch(loss)
        return loss

    def _forwarded(self, model, args, output):
        """What follows belongs to neither pass, such as a loss function outside the model; a backward pass may repeat a
        forward pass."""
        if model is self.called and self.inside and not self.complete:
            self.handle.phase(Phase.BACKWARD if self.backward else Phase.OTHER)
            self._watch(output)

    def _watch(self, value):
        """A backward pass begins where a gradient comes to one of these tensors."""
        for t in tensors(value):
            if t.grad_fn is not None:  # a leaf would keep the hook
                t.register_hook(self._backward_begins)

    def _backward_begins(self, gradient):
        if self.inside and not self.complete and not self.backward:
            self.backward = True
            self.handle.phase(Phase.BACKWARD)
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)

    def _backward_ends(self):
        self.backward = False
        if self.inside and not self.complete:
            self.handle.phase(Phase.OTHER)

    def mean(self, values, weight=1.0):
        """All ranks: the means over them of a number or of several (tensors, too), as numbers, by their
        weights (the samples that each is a mean of, say)."""
        if isinstance(values, torch.Tensor):
            values = values.detach().cpu().tolist()
        return self.handle.mean(values, weight)

    def _finish(self, checks=True):
        """All gradients are with the library: wait for the exchanged ones."""
        if checks:
            self._check_model()
        self.updates = self.handle.finish()
        void, self.void = self.void, self.handle.left_out()
        self.left_out = void if self.late else self.void  # it hands out the last ones
        self.updates = self.updates and not self.left_out
        self.complete = True
        self.handle.phase(Phase.OTHER)  # until the optimizer's step

    def _poll(self, *_):
        """Between kernels: messages of a nonblocking exchange move in the library's calls alone."""
        if self.inside and not self.complete:
            self.handle.poll()

    def settle(self):
        """All ranks, before evaluating or saving the model: replicas agree."""
        self.handle.settle()

    def epoch(self, test_loss=math.nan, test_accuracy=math.nan):
        """All ranks: a row of epochs.csv. The parameters that are exchanged are compared over the ranks,
        but not frozen ones and buffers."""
        self._copy_parameters()
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
        """All ranks: writes run.json. The model goes on without gradwire."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        self.handle.close()
