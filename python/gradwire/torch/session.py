"""Session: gradwire in the place of DistributedDataParallel, for every strategy."""

import contextlib
import math

import torch

from gradwire.library import Error, Phase
from gradwire.torch.model import Run, check_alike, share
from gradwire.torch.staging import Way, addresses, flat, indices


class Session(Run):
    """The exchange of a model that all ranks have built alike; rank 0's parameters go to all.

        session = gradwire.torch.Session(model, "--comm sharded --out runs/b")
        optimizer = torch.optim.AdamW(session.parameters(), lr=1e-3)
        for x, y in loader:
            with session.batch(len(x)):
                session.loss(criterion(model(x), y)).backward()
                optimizer.step()

    Each gradient goes out as soon as the backward pass has completed it. A batch begins without
    gradients, so zero_grad is not needed. Frozen parameters and buffers go from rank 0 to all, too, when
    the session opens; buffers, such as BatchNorm's statistics, are each rank's from then on."""

    def __init__(self, model, words="", comm=None):
        if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
            raise Error(f"gradwire.torch.Session needs PyTorch 2.1 (this is {torch.__version__}): "
                        "gradwire.torch.hook does without")
        from torch.optim import optimizer as optimizers
        self.called = model
        super().__init__(model, (), words, comm)
        self.holding = False
        self._drop()
        self.serves = self.rank < self.handle.servers
        self.one = [indices([i]) for i in range(len(self.names))]
        self.places = [p.data_ptr() for p in self.parameters_]
        self.ways = {p: Way(p) for p in self.copies}
        for p, copy in self.copies.items():  # rank 0's
            flat(p).copy_(copy)
        self.pieces = [self._piece(tensor, part) for tensor, part in self.handle.owned()]
        self.none = None if self.pieces else torch.nn.Parameter(torch.zeros(1))
        self.hooks += [model.register_forward_pre_hook(self._forward), model.register_forward_hook(self._forwarded),
                       optimizers.register_optimizer_step_pre_hook(self._before_step),
                       optimizers.register_optimizer_step_post_hook(self._after_step)]
        self.hooks += [p.register_post_accumulate_grad_hook(self._arrive) for p in self.parameters_]
        if self.late and self.polls:  # its exchange runs under the next forward pass, too
            for module in model.modules():
                if not any(True for _ in module.children()):
                    self.hooks.append(module.register_forward_hook(self._poll))

    def _check(self):
        for name, p in zip(self.names, self.parameters_):
            if p in self.copies and self.text("mean") != "yes":
                raise Error(f"{name} is {p.dtype} on {p.device}: --comm {self.strategy} hands parameters around, and "
                            "needs them as float32 in the host's memory")

    def _open(self, parameters):
        """Elements go as they lie in memory: alike on all ranks, or sums would mix them up."""
        super()._open(parameters)
        check_alike(self.handle, [p.stride() for p in self.parameters_], "Session: the ranks' parameters lie in memory in "
                    "different orders: call .to(memory_format=..) on all ranks alike")
        share(self.handle, self.model, self.tensor_of)

    def _forward(self, module, inputs):
        if module is self.called and self.inside and not self.complete:
            self.handle.phase(Phase.FORWARD)

    def _piece(self, tensor, part):
        """(parameter for the optimizer, tensor, elements; None: the parameter itself, as a whole)"""
        whole = self.parameters_[tensor]
        if part == slice(0, whole.numel()):
            return whole, tensor, None
        return torch.nn.Parameter(flat(whole)[part]), tensor, part

    def named_parameters(self):
        """(name, parameter) of what this rank updates: a tensor of the model where it is all this
        rank's, else a flat view into it. Gradients are there after the backward pass. Where this rank
        updates nothing there is one of a single zero, for optimizers and GradScaler refuse to have
        none."""
        for piece, tensor, _ in self.pieces:
            yield self.names[tensor], piece
        if self.none is not None:
            yield "none", self.none

    def parameters(self):
        """What this rank updates, for the optimizer; see named_parameters."""
        return [piece for _, piece in self.named_parameters()]

    @contextlib.contextmanager
    def no_sync(self):
        """In a batch: backward passes that only accumulate gradients."""
        self.holding = True
        try:
            yield
        finally:
            self.holding = False

    def _before(self):
        for name, p, place in zip(self.names, self.parameters_, self.places):
            if p.data_ptr() != place:
                raise Error(f"{name} has moved in memory: change parameters in place")
            p.grad = None
        for piece, _, _ in self.pieces:
            piece.grad = None
        self._drop()

    def _drop(self):
        self.arrived, self.next, self.stepping, self.moving = None, len(self.names) - 1, False, []

    def serve(self):
        """In the place of forward and backward pass, on a rank without samples: `batch(0)` of one that
        only serves (`--comm ps:dedicated=1`: self.serves), or `batch(0, total)`. optimizer.step()
        follows, as on other ranks."""
        if not self.inside or self.complete or self.samples:
            raise Error("serve: it takes the place of a backward pass within `with session.batch(0)`")
        self._end_of_backward()

    def _before_step(self, optimizer, args, more):
        """Of any optimizer: with a parameter of this session it belongs into a batch, and nothing moves
        in one that has no update."""
        own = set(self.parameters())
        if not any(p in own for group in optimizer.param_groups for p in group["params"]):
            return
        if not self.inside:
            raise Error("optimizer.step(): it belongs into `with session.batch(n)`")
        plain = type(optimizer) is torch.optim.SGD and not any(group["momentum"] for group in optimizer.param_groups)
        if self.directs and not plain:
            raise Error(f"optimizer.step(): --comm {self.strategy} hands out the direction of an update, with a "
                        "momentum of its own: use torch.optim.SGD without momentum")
        if self.rejoins and any(group["weight_decay"] for group in optimizer.param_groups):
            raise Error(f"optimizer.step(): --comm {self.strategy} puts parameters back to where the ranks last met, "
                        "and the weight decay of the steps since would be lost: leave it out")
        self.stepping = True
        self.handle.phase(Phase.UPDATE)
        if self.complete and not self.updates:
            self._give(None)

    def _after_step(self, optimizer, args, more):
        if self.stepping:
            self.handle.phase(Phase.OTHER)
        self.stepping = False

    def _give(self, value):
        """The same gradient to all that this rank updates: a number, or none."""
        for piece in [self.none] if self.none is not None else [piece for piece, _, _ in self.pieces]:
            piece.grad = None if value is None else torch.full_like(piece, value)

    def _arrive(self, p):
        """A gradient is complete. All ranks hand tensors over in one order, from the last: what came
        early waits for those behind it."""
        if self.holding:
            return
        if self.arrived is None:
            if not self.inside or self.complete:
                raise Error("a backward pass outside `with session.batch(n)`, or a second one in it: "
                            "accumulate gradients under session.no_sync(); closures that are evaluated "
                            "several times (LBFGS) are not supported")
            self.arrived = [False] * len(self.names)
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)
        self.arrived[self.tensor_of[p]] = True
        while self.next >= 0 and self.arrived[self.next]:
            self._hand_over()

    def _hand_over(self):
        p = self.parameters_[self.next]
        if p.grad is None:  # not used in this pass
            p.grad = torch.zeros_like(p)
        if p.grad.stride() != p.stride():
            p.grad = torch.empty_like(p).copy_(p.grad)
        self.moving.append((self.next, p))
        if p in self.ways:
            self.ways[p].out(p.grad)
        self._pass_on()
        self.next -= 1

    def _pass_on(self, wait=False):
        """To the library what has arrived where it can read it."""
        while self.moving and (self.moving[0][1] not in self.ways or self.ways[self.moving[0][1]].arrived(wait)):
            tensor, p = self.moving.pop(0)
            self.handle.ready_at(1, self.one[tensor], addresses([self.ways[p].copy if p in self.ways else p.grad]))

    def _end_of_backward(self):
        """Those that took no part in it have a gradient of zero; then the exchange is waited for."""
        while self.next >= 0:
            self._hand_over()
        self._pass_on(wait=True)
        self._finish()
        if self.stepping:  # a closure's
            self.handle.phase(Phase.UPDATE)
        for p, way in self.ways.items():
            way.back(p.grad)
        self.arrived = None
        for piece, tensor, part in self.pieces:
            whole = self.parameters_[tensor]
            if not self.updates or not whole.requires_grad:  # frozen since: as torch would leave it
                piece.grad = None
            elif part is not None:
                piece.grad = flat(whole.grad)[part]
        if not self.stepping and (not self.updates or self.none is not None):
            self._give(math.nan if self.left_out else 0.0)  # a GradScaler sees why, on every rank

    def _after(self):
        self.handle.updated()
