"""hook: gradwire as the communication hook of DistributedDataParallel."""

import functools
import math
import os
import types
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from gradwire.library import Error, Phase, last_words, library
from gradwire.torch.model import Run, addresses, indices


def hook(ddp, optimizer, words="", comm=None):
    """Exchange the gradients of `ddp`, a DistributedDataParallel over the ranks of gradwire.torch.init,
    by gradwire; returns the Run.

        run = gradwire.torch.hook(ddp, optimizer, "--comm sparse --compress topk --out runs/a")
        for x, y in loader:
            with run.batch(len(x)):
                run.loss(criterion(ddp(x), y)).backward()
                optimizer.step()
                optimizer.zero_grad()

    Small buckets (bucket_cap_mb=4) let the exchange begin early. For other strategies, and without
    DistributedDataParallel: gradwire.torch.Session."""
    if not isinstance(ddp, DistributedDataParallel):
        raise Error(f"hook: {type(ddp).__name__} is no DistributedDataParallel: use "
                    "gradwire.torch.Session for a bare model")
    return HookedRun(ddp, optimizer, words, comm)


class HookedRun(Run):
    def __init__(self, ddp, optimizer, words, comm):
        self.ddp = ddp
        super().__init__(ddp.module, getattr(ddp, "parameters_to_ignore", ()), words, comm)
        self.seen, self.waiting, self.layouts = 0, [], {}
        self.exchanges, self.lends, self.lent = 1, self.text("in_place") == "yes", []
        ddp.register_comm_hook(None, self._bucket)
        self.hooks.append(ddp.register_forward_pre_hook(self._forward))
        around_step(optimizer, self._step)
        if hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):  # buckets alone come rarely
            self.hooks += [p.register_post_accumulate_grad_hook(self._poll) for p in self.parameters_]

    def _check(self):
        if self.text("mean") != "yes":
            raise Error(f"hook: --comm {self.strategy} does not hand out the mean of the gradients, which "
                        "DistributedDataParallel takes: use gradwire.torch.Session for it")
        theirs = dist.get_world_size(self.ddp.process_group)
        if theirs != self.handle.ranks:
            raise Error(f"hook: DistributedDataParallel has {theirs} ranks and MPI {self.handle.ranks}: "
                        "start both by gradwire.torch.init")

    def _before(self):
        joined = getattr(self.ddp, "_join_config", None)
        if joined is not None and joined.enable:
            raise Error("hook: join() is not supported: give all ranks as many batches")

    def _bucket(self, state, bucket):
        """DistributedDataParallel calls it with each bucket, in one order on all ranks, on the thread
        of backward(). An exception here would only reach the others as a hang."""
        try:
            return self._take(bucket)
        except BaseException as error:
            last_words(type(error), error, error.__traceback__)
            raise

    def _take(self, bucket):
        if self.handle.handle is None:  # closed, and a communication hook stays for ever
            return allreduce_hook(self.ddp.process_group, bucket)
        if not self.inside or self.complete:
            raise Error("hook: a backward pass outside `with run.batch(n)`, or a second one in it: "
                        "accumulate gradients under ddp.no_sync()")
        buffer, future = bucket.buffer(), torch.futures.Future()
        if self.lends and self.exchanges == 2:  # DistributedDataParallel has rebuilt its buckets
            self._lend(buffer)
        # Keyed by parameter: buckets are rebuilt after the first step, and with static_graph all of
        # that step's have one index.
        of = bucket.parameters()
        n, tensors, at = self._layout(buffer, bucket, of)
        self.handle.ready_at(n, tensors, at)
        self.waiting.append((future, buffer))
        self.seen += n
        if self.seen == len(self.names):
            self._finish()
            for ready, result in self.waiting:
                if self.left_out:  # so a GradScaler sees why, on every rank
                    result.fill_(math.nan)
                ready.set_result(result)
            self.seen, self.waiting = 0, []
            self.exchanges += 1
        return future

    def _lend(self, buffer):
        """Move a bucket to memory that the other ranks map: they sum there, and nothing is copied."""
        storage, file, why = getattr(buffer, "untyped_storage", buffer.storage)(), -1, ""
        try:
            need_room(self.ranks * storage.nbytes())
            file = storage._share_fd_cpu_()[0]  # moves it under all views, as share_memory_() does
        except (AttributeError, OSError, RuntimeError) as error:  # of another PyTorch, or no room
            why = str(error)
        self.lends = self.handle.lend(storage.data_ptr(), storage.nbytes(), file)
        if not self.lends:
            warnings.warn(f"gradients are copied: {why or library().gradwire_error().decode()}", stacklevel=2)
        self.lent.append(storage)  # mapped until the end, whatever DistributedDataParallel does

    def _layout(self, buffer, bucket, of):
        """(number, tensors, addresses) of a bucket's gradients, remembered while it stays in place."""
        place = buffer.data_ptr(), buffer.numel(), len(of), self.tensor_of.get(of[0])
        found = self.layouts.get(place)
        if found is None:
            if any(p not in self.tensor_of for p in of):
                raise Error("hook: the model has got parameters since: call hook after it is built")
            found = len(of), indices([self.tensor_of[p] for p in of]), addresses(bucket.gradients())
            self.layouts[place] = found
        return found

    def _step(self, step, closure=None, **more):
        """The optimizer's step, or none while `delayed` has no gradient yet, and of a batch that is
        left out."""
        if not self.inside:
            return step(closure, **more) if closure else step(**more)
        for p in self.parameters_:  # frozen since: as torch would leave it
            p.grad = p.grad if p.requires_grad else None
        if closure:
            result = step(functools.partial(self._evaluate, closure), **more)
        else:
            result = step(**more) if self.updates else None
        self.handle.phase(Phase.OTHER)
        return result

    def _evaluate(self, closure):
        """The batch's forward and backward pass, within optimizer.step."""
        if self.complete:
            raise Error("optimizer.step(closure): this batch's gradients are exchanged already: backward() "
                        "belongs into the closure alone, and one that is evaluated several times (LBFGS) "
                        "is not supported")
        loss = closure()
        if not self.updates:
            for p in self.parameters_:
                p.grad = None
        return loss

    def _why_none(self):
        why = super()._why_none()
        return f"{why}: DistributedDataParallel needs find_unused_parameters=True" if "frozen" in why else why

    def _drop(self):
        self.seen, self.waiting = 0, []

    def _after(self):
        self.handle.updated()


def need_room(size):
    """Shared memory for all ranks: PyTorch 1.13 takes what is not there, and ends by a signal."""
    room = os.statvfs("/dev/shm")
    if 0 < room.f_blocks and room.f_bavail * room.f_frsize < size:
        raise OSError(f"/dev/shm has {room.f_bavail * room.f_frsize} bytes left, and the ranks need {size}")


def around_step(optimizer, around):
    """optimizer.step() goes through around(step)."""
    step = optimizer.step

    @functools.wraps(step)
    def instead(_, *args, **more):
        return around(step, *args, **more)

    optimizer.step = types.MethodType(instead, optimizer)  # bound: schedulers ask for its __func__
