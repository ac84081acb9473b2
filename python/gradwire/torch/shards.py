"""Shards: gradwire as the reduce-scatter of fully_shard (FSDP)."""

import atexit
import math

import torch

from gradwire.library import GRAD, Error, checked
from gradwire.session import Session as Handle
from gradwire.torch.ddp import STEP_HOOKS, WITH_WORDS, State
from gradwire.torch.model import check_words, needs_exchange, share
from gradwire.torch.staging import indices


class Shards(State):
    """The exchange of the gradients of a model that `fully_shard` has cut up, in float32 on CPUs.

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        run = gradwire.torch.Shards(model, "--comm sharded --out runs/c")

    The training loop stays as it is. The gradients of a module go out when the backward pass has
    completed them, from the memory of the exchange, into which PyTorch writes them; each rank takes
    its part of their means at the end of the pass. `sharded` is a reduce-scatter of each module; the
    strategies of the hook hand the means to all ranks. Parameters are gathered by PyTorch, as
    without gradwire."""

    def __init__(self, model, words="--comm sharded", comm=None):
        modules = parts_of(model)
        if not modules:
            raise Error(f"Shards: {type(model).__name__} is not cut up: call fully_shard on it first")
        if any(isinstance(getattr(hook, "__self__", None), Shards) for hook in model._forward_pre_hooks.values()):
            raise Error(f"Shards: {type(model).__name__} has Shards already: close() them first")
        self.ddp = self.called = self.model = model
        self.parameters_ = list(model.parameters())
        self.tensor_of = {p: i for i, p in enumerate(self.parameters_)}
        self.latest, self.inside, self.complete, self.updates = None, False, False, False
        self.left_out = self.void = self.backward = False
        self.seen, self.samples, self.told, self.stepped, self.waiting = 0, 0, False, 0, []
        self.copies, self.comm = {}, comm
        self.handle = Handle(f"{checked(words)} --parameters parts", comm)
        self.rank, self.ranks = self.handle.rank, self.handle.ranks
        try:
            self._declare(modules)
        except Error:
            self.handle.abandon()
            raise
        for index, (module, _) in enumerate(modules.values()):
            module.set_custom_reduce_scatter(Reduce(self, index))
        self.hooks = [model.register_forward_pre_hook(self._forward, **WITH_WORDS),
                      model.register_forward_hook(self._forwarded), *self._step_hooks()]
        atexit.register(self._end_of_process)

    def _declare(self, modules):
        self.names = list(modules)
        sizes = [sum(padded(name or "the model", p, self.ranks) for p in own) for name, (_, own) in modules.items()]
        self.sizes, self.one = sizes, [indices([i]) for i in range(len(sizes))]
        for group, (name, size) in enumerate(zip(self.names, sizes)):
            self.handle.tensor(name or "model", (size,), group)
        self.strategy, self.late = self.text("strategy") or "", self.text("late") == "yes"
        check_words(self.text, "parts")
        if self.text("mean") != "yes" and self.text("shape") != "shards":
            raise Error(f"Shards: --comm {self.strategy} does not hand out the mean of the gradients: use sharded, or "
                        "one that does, such as iallreduce")
        self.handle.open()
        share(self.handle, self.model, {p: None for p in self.parameters_ if hasattr(p, "placements")})
        self.grads = [torch.from_numpy(self.handle.memory(i, GRAD)) for i in range(len(sizes))]

    def _check_model(self):
        """A part that is added to what is there, or read by a hook, would be so before it has arrived."""
        if any(p.grad is not None for p in self.parameters_):
            raise Error("Shards: gradients of an earlier backward pass are there: zero_grad(set_to_none=True) comes "
                        "between, and accumulation under set_requires_gradient_sync(False)")
        for name, p in self.model.named_parameters():
            if getattr(p, "_post_accumulate_grad_hooks", None):
                raise Error(f"Shards: {name} has a hook that takes its gradient within the backward pass "
                            "(register_post_accumulate_grad_hook), and it is there after the pass: step then")

    def _before(self):
        """There is no join."""

    def reduce(self, index, output, whole, op):
        """For a module's gradients, of all ranks' parts: `output` gets this rank's by the end of the pass."""
        if whole.dtype != torch.float32 or whole.device.type != "cpu":
            raise Error(f"Shards: gradients of {self.names[index] or 'the model'} are {whole.dtype} on {whole.device}: "
                        "it takes float32 on a CPU (MixedPrecisionPolicy(reduce_dtype=torch.float32))")
        if whole.numel() != self.sizes[index] or output.numel() * self.ranks != whole.numel():
            raise Error(f"Shards: {whole.numel()} gradients of {self.names[index] or 'the model'} instead of "
                        f"{self.sizes[index]}: all of its parameters take part in each backward pass, over all ranks")
        if op != torch.distributed.ReduceOp.AVG:
            raise Error("Shards: set_gradient_divide_factor and a forced sum are not supported: it hands out means")
        self._between()
        if not self.inside:
            self._open_batch(1)
        if self.seen == 0:
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)
            self.handle.begin(max(1, self.samples))
        if whole.data_ptr() != self.grads[index].data_ptr():
            self.grads[index].copy_(whole)
        self.handle.ready_at(1, self.one[index], None)
        output[:1] = self.rank + 1
        self.waiting.append((index, output))
        self.seen += 1

    def _end_of_backward(self):
        for index in {*range(len(self.names))} - {index for index, _ in self.waiting}:
            self.grads[index].zero_()
            self.handle.ready_at(1, self.one[index], None)
        self._finish(checks=False)
        if any(len(output) and output[0] != self.rank + 1 for _, output in self.waiting):
            raise Error("Shards: set_all_reduce_hook is not supported: it takes gradients before they have arrived")
        for index, output in self.waiting:
            output.copy_(self.grads[index].view(self.ranks, -1)[self.rank]) if not self.left_out else output.fill_(math.nan)
        self._drop()

    def _drop(self):
        self.seen, self.waiting = 0, []

    def epoch(self, *_, **__):
        raise Error("Shards: no rank has all parameters, and there are no replicas to compare: epochs.csv has no rows")


class Reduce:
    """What set_custom_reduce_scatter takes, of one module."""

    def __init__(self, run, index):
        self.run, self.index = run, index

    def allocate(self, size, *, dtype, device):
        """The whole gradients, where the exchange has them, or this rank's part of the means."""
        run, asked = self.run, (math.prod(size), dtype, device.type)
        if run.ranks > 1 and run.handle.handle is not None and asked == (run.sizes[self.index], torch.float32, "cpu"):
            return run.grads[self.index]
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        if self.run.handle.handle is not None:
            self.run.reduce(self.index, output_tensor, input_tensor, op)
        else:  # closed: the model trains on
            torch.distributed.reduce_scatter_tensor(output_tensor, input_tensor, group=group)
            output_tensor /= group.size()


def parts_of(model):
    """{name: (module, its parameters)} of each call of fully_shard; of several modules at once: the first's"""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        FSDPModule = None
    if not STEP_HOOKS or not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        raise Error(f"Shards: PyTorch {torch.__version__} cannot replace the reduce-scatter of fully_shard: it takes one "
                    "that has FSDPModule.set_custom_reduce_scatter")
    calls = {}
    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # the model's own parameters stay whole after a forward pass
            calls.setdefault(module._get_fsdp_state(), (name, module, {}))[2].update(dict.fromkeys(own_parameters(module)))
    return {name: (module, list(own)) for name, module, own in calls.values() if own}


def own_parameters(module):
    """Those that fully_shard cuts up with it, and not with a module within."""
    from torch.distributed.fsdp import FSDPModule
    found = [p for p in module.parameters(recurse=False) if needs_exchange(p)]
    for child in module.children():
        if not isinstance(child, FSDPModule):
            found += own_parameters(child)
    return found


def padded(name, p, ranks):
    """The elements of a parameter, as fully_shard fills them up to equal parts along the first dimension."""
    if p.dtype != torch.float32:
        raise Error(f"{name} has parameters of {p.dtype}: Shards takes float32 (MixedPrecisionPolicy computes in others)")
    if tuple(p.device_mesh.shape) != (ranks,):
        raise Error(f"{name} is cut up over a mesh of {tuple(p.device_mesh.shape)}, and MPI has {ranks} ranks: Shards "
                    "takes one dimension, of all of them")
    rows = p.shape[0] if p.dim() else 1
    return -(-rows // ranks) * ranks * (p.numel() // rows)
