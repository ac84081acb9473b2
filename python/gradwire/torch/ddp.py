"""State and comm_hook: gradwire as a communication hook of DistributedDataParallel, in the form of
PyTorch's own; and hook, which registers them."""

import atexit
import ctypes
import functools
import gc
import itertools
import math
import os
import re
import types
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers

from gradwire.launch import start
from gradwire.library import Error, Phase, checked, forked, last_words, library, of_words, shared
from gradwire.session import OPEN
from gradwire.torch.group import by_launcher
from gradwire.torch.model import Run, check_words, tensors
from gradwire.torch.staging import Way, addresses, indices, lies_as_declared

STEP_HOOKS = hasattr(optimizers, "register_optimizer_step_pre_hook")
MADE = itertools.count()  # numbers of States, as they are made


def comm_hook(state, bucket):
    """For ddp.register_comm_hook(State(..), comm_hook). DistributedDataParallel calls it with each
    bucket, in one order on all ranks, on the thread of backward(). An exception that this rank alone has
    would only reach the others as a hang."""
    try:
        if not isinstance(state, State):
            raise Error(f"comm_hook: its state is {type(state).__name__}: register it by "
                        "ddp.register_comm_hook(gradwire.torch.State(..), gradwire.torch.comm_hook)")
        return state._take(bucket)
    except BaseException as error:
        if not shared(error):
            last_words(type(error), error, error.__traceback__)
        raise


def hook(ddp, optimizer, words="", comm=None):
    """Exchange the gradients of `ddp`, a DistributedDataParallel over the ranks of gradwire.torch.init,
    by gradwire; returns its State. What it does beyond registering that is for PyTorch before 2.1,
    which needs the optimizer."""
    state = State(words, ddp, comm, optimizer)
    ddp.register_comm_hook(state, comm_hook)
    return state


class State(Run):
    """The state of comm_hook: one model's exchange and run.

        state = gradwire.torch.State("--comm sparse --compress topk --out runs/a")
        ddp.register_comm_hook(state, gradwire.torch.comm_hook)

    The training loop stays as it is. A batch goes from a forward pass with gradients enabled (the
    first one: from its first bucket) to the end of optimizer.step, or to the next forward pass; it
    closes when the process ends, or by `close`. Without `ddp` the exchange opens with the first bucket,
    or with what all ranks tell or ask before it. All ranks weigh alike, as in DistributedDataParallel; `with state.batch(n, total)` around a step
    weighs them by their samples. Without `--comm` the exchange is the one that suits (with_exchange).

    Small buckets (bucket_cap_mb=4) let the exchange begin early. For other strategies, and without
    DistributedDataParallel: gradwire.torch.Session."""

    ddp, left_out, exchanges = None, False, 0

    def __init__(self, words="", ddp=None, comm=None, optimizer=None):
        if not STEP_HOOKS and optimizer is None:
            raise Error(f"gradwire.torch.State needs PyTorch 2.1 (this is {torch.__version__}): "
                        "gradwire.torch.hook does without")
        self.words, self.comm, self.optimizer, self.number = checked(words), comm, optimizer, next(MADE)
        self._check_words(functools.partial(of_words, words))
        if ddp is not None:
            self._bind(ddp)

    def __deepcopy__(self, memo):
        """A copied model has its hooks, and goes without."""
        copied = State(self.words, None, self.comm, self.optimizer)
        copied.number = math.inf  # nobody opens it for its age
        return copied

    def __reduce__(self):
        if self.ddp is not None:
            return super().__reduce__()
        return State, (self.words, None, self.comm, self.optimizer)

    def _bind(self, ddp):
        ddp = getattr(ddp, "_orig_mod", ddp)  # of torch.compile
        if not isinstance(ddp, DistributedDataParallel):
            raise Error(f"State: {type(ddp).__name__} is no DistributedDataParallel: use gradwire.torch.Session for a "
                        "bare model, gradwire.torch.Shards for one of fully_shard")
        for state, models in registered():  # one that was made earlier is opened earlier: the first records for all
            if state.number < self.number and len(models) == 1:
                state._bind(models[0])
        self.ddp = self.called = ddp
        super().__init__(ddp.module, getattr(ddp, "parameters_to_ignore", ()), with_exchange(self.words), self.comm)
        self.seen, self.samples, self.told, self.stepped = 0, 0, False, 0
        self.taken, self.waiting, self.layouts = [], [], {}
        self.exchanges, self.lends, self.lent = 1, self.text("in_place") == "yes", []
        self.hooks += [ddp.register_forward_pre_hook(self._forward, **WITH_WORDS),
                       ddp.register_forward_hook(self._forwarded), *self._step_hooks()]
        if self.polls and hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):  # buckets come rarely
            self.hooks += [p.register_post_accumulate_grad_hook(self._poll) for p in self.parameters_]
        atexit.register(self._end_of_process)

    def _step_hooks(self):
        if not STEP_HOOKS:
            return [Around(self.optimizer, self._before_step, self._after_step)]
        return [optimizers.register_optimizer_step_pre_hook(self._before_step),
                optimizers.register_optimizer_step_post_hook(self._after_step)]

    def _find(self):
        """Bind this state to the model that has registered it."""
        found = dict(registered()).get(self, [])
        if len(found) != 1:
            raise Error(f"State: {len(found) or 'no'} models have registered it: give each model a State of its own, "
                        "by ddp.register_comm_hook(state, gradwire.torch.comm_hook)")
        self._bind(found[0])

    def _check_words(self, text):
        check_words(text)
        if text("mean") != "yes":
            raise Error(f"hook: --comm {text('strategy')} does not hand out the mean of the gradients, which "
                        "DistributedDataParallel takes: use gradwire.torch.Session for it")

    def _check(self):
        theirs = dist.get_world_size(self.ddp.process_group)
        if theirs != self.handle.ranks:
            raise Error(f"hook: DistributedDataParallel has {theirs} ranks and MPI {self.handle.ranks}: start both by "
                        "gradwire.torch.init, or give State(comm=..) the communicator that mpi4py has of these ranks")

    def __getattr__(self, name):
        """What comes with the exchange opens it, where all ranks need it at once."""
        if self.ddp is None and name in ("handle", "inside"):
            self._find()
            return getattr(self, name)
        raise AttributeError(f"State has no {name}")

    def text(self, key):
        if self.ddp is None:
            raise Error("State.text: no backward pass has told the model so far: State(words, ddp) names it")
        return super().text(key)

    def figure(self, column):
        return math.nan if self.ddp is None else super().figure(column)

    def loss(self, loss):
        if self.ddp is None:
            self._find()
            self._open_batch(1)
        return super().loss(loss)

    # ---- a batch ----

    def batch(self, samples, total=None):
        """As Run.batch; one that forward passes have opened since the last step becomes this one."""
        self._between()
        if self.inside and not self.told and self.seen == 0:
            self.inside = False
        return super().batch(samples, total)

    def _begin(self, samples, total=None):
        self.told, self.stepped = True, 0
        super()._begin(samples, total)

    def _open_batch(self, samples):
        self._check_model()
        self._before()
        super()._begin(samples)
        self.told, self.stepped = False, 0

    def _between(self):
        """A batch that nobody ends is over once its gradients are there."""
        if self.inside and self.complete and not self.told:
            self._end()

    def _before(self):
        joined = getattr(self.ddp, "_join_config", None)
        if joined is not None and joined.enable:
            raise Error("hook: join() is not supported: give all ranks as many batches")

    def _after(self):
        self.handle.updated()

    def cancel(self):
        """As Run.cancel; also before this rank's forward pass, where the others have a batch."""
        if self.ddp is None or not self.inside and self.exchanges == 1:
            raise Error("cancel: the model has had no backward pass, in the first of which DistributedDataParallel settles "
                        "its buckets over all ranks: they would wait for this one")
        if not self.inside and not self.told:
            self._open_batch(1)
        super().cancel()

    def _drop(self):
        self.seen, self.taken, self.waiting = 0, [], []

    def _forward(self, ddp, args, words=None):
        if ddp is not self.called:  # a copy
            return
        if self.inside and self.told:
            if not self.complete:
                self.handle.phase(Phase.FORWARD)
            return
        if not torch.is_grad_enabled():
            return
        self._between()
        samples = samples_of((*args, *(words or {}).values()))
        if self.inside:  # one that accumulates
            self.samples += samples
        else:
            self._open_batch(samples)
        self.handle.phase(Phase.FORWARD)

    def _poll(self, *_):
        """From the first bucket on: nothing is under way before it."""
        if self.seen or self.late:
            super()._poll()

    # ---- buckets ----

    def _take(self, bucket):
        if self.ddp is None:
            self._find()
        if self.handle.handle is None:  # closed, and a communication hook stays for ever
            self._check_own(bucket.parameters())
            return allreduce_hook(self.ddp.process_group, bucket)
        if bucket.buffer().numel() == 0:  # of parameters without elements
            future = future_of(bucket.buffer())
            future.set_result(bucket.buffer())
            return future
        if self.inside and self.complete and self.told:
            raise Error("hook: a second backward pass in `with run.batch(n)`: accumulate gradients under "
                        "ddp.no_sync()")
        self._between()
        if not self.inside:
            self._open_batch(1)
        elif self.seen == 0 and not self.told:
            self.handle.begin(self.samples)
        self._hand_over(bucket)
        self.exchanges += self.complete
        return self.waiting[-1][0] if not self.complete else self._release()

    def _hand_over(self, bucket):
        buffer = bucket.buffer()
        if self.lends and self.exchanges == 2:  # DistributedDataParallel has rebuilt its buckets
            self._lend(buffer)
        # Keyed by parameter: buckets are rebuilt after the first step, and with static_graph all of
        # that step's have one index.
        n, tensors, at, way = self._layout(buffer, bucket)
        future = future_of(buffer)
        if way is not None:
            way.out(buffer)
        self.taken.append((n, tensors, at, way))
        self.waiting.append((future, buffer, way))
        self.seen += n
        whole = self.seen == len(self.names)
        while self.taken and (self.taken[0][3] is None or self.taken[0][3].arrived(wait=whole)):
            self.handle.ready_at(*self.taken.pop(0)[:3])
        if whole:
            self._finish(checks=self.told)

    def _release(self):
        """The exchanged gradients to where they were; the last bucket's future."""
        for future, buffer, way in self.waiting:
            if self.left_out:  # so a GradScaler sees why, on every rank
                buffer.fill_(math.nan)
            elif way is not None:
                way.back(buffer)
            future.set_result(buffer)
        last = self.waiting[-1][0]
        self._drop()
        return last

    def _lend(self, buffer):
        """Move a bucket to memory that the other ranks map: they sum there, and nothing is copied."""
        if not lies_as_declared(buffer):
            return
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

    def _layout(self, buffer, bucket):
        """(number, tensors, addresses, way) of a bucket's gradients, remembered while it stays in place;
        way: None, or to where the library finds them."""
        of = bucket.parameters()
        place = buffer.data_ptr(), buffer.numel(), len(of), self.tensor_of.get(of[0])
        found = self.layouts.get(place)
        if found is None:
            of = self._check_own(of)
            gradients = [g for g in bucket.gradients() if g.numel() > 0]
            way = None if lies_as_declared(buffer) else Way(buffer)
            if way is not None:
                first, size = buffer.data_ptr(), buffer.element_size()
                gradients = [way.copy[(g.data_ptr() - first) // size:] for g in gradients]
            found = len(of), indices([self.tensor_of[p] for p in of]), addresses(gradients), way
            self.layouts[place] = found
        return found

    def _check_own(self, parameters):
        """Those that have elements."""
        own = [p for p in parameters if p.numel() > 0]
        if any(p not in self.tensor_of for p in own):
            raise Error("State: gradients of another model, or of one that has got parameters since: give each model a "
                        "State of its own, after it is built")
        return own

    # ---- the optimizer's step ----

    def _own(self, optimizer):
        """How many of this model's parameters it steps."""
        return sum(p in self.tensor_of for group in optimizer.param_groups for p in group["params"])

    def _before_step(self, optimizer, args, more):
        """Nothing moves while `delayed` has no gradient yet, nor in a batch that is left out."""
        if not self._own(optimizer):
            return None
        for p in self.parameters_:  # frozen since: as torch would leave it
            if not p.requires_grad:
                p.grad = None
        if self.inside:
            self.handle.phase(Phase.UPDATE)
        closure = more.get("closure") or next(iter(args[1:2]), None)
        if closure is None:
            self._spare()
            return None
        evaluate = functools.partial(self._evaluate, closure)
        if "closure" in more:
            return args, {**more, "closure": evaluate}
        return (args[0], evaluate, *args[2:]), more

    def _evaluate(self, closure):
        """The batch's forward and backward pass, within optimizer.step."""
        if self.inside and self.complete and self.told:
            raise Error("optimizer.step(closure): this batch's gradients are exchanged already: backward() "
                        "belongs into the closure alone, and one that is evaluated several times (LBFGS) "
                        "goes without `with run.batch(n)`")
        loss = closure()
        if self.inside:
            self.handle.phase(Phase.UPDATE)
        self._spare()
        return loss

    def _spare(self):
        if self.complete and not self.updates:
            for p in self.parameters_:
                p.grad = None

    def _after_step(self, optimizer, args, more):
        own = self._own(optimizer)
        if not own or not self.inside:
            return
        self.handle.phase(Phase.OTHER)
        self.stepped += own
        # Where another model trains too, its exchange belongs into this batch, until the next one.
        if self.stepped >= len(self.parameters_) and len(OPEN) == 1:
            self._between()

    def _why_none(self):
        why = super()._why_none()
        return f"{why}: DistributedDataParallel needs find_unused_parameters=True" if "frozen" in why else why

    # ---- the end ----

    def settle(self):
        self._between()
        super().settle()

    def epoch(self, test_loss=math.nan, test_accuracy=math.nan):
        self._between()
        super().epoch(test_loss, test_accuracy)

    def save(self):
        self._between()
        return super().save()

    def close(self):
        if self.ddp is not None:
            self._between()
            super().close()

    def _end_of_process(self):
        """The library closes it once all ranks exit, for another may have more to do. Only the library learns this
        one's exit status: a rank that has failed ends the job."""
        if self.handle.handle is None or forked():
            return
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # it outlives Python, and so do the parameters
        self.handle.leave(math.nan if self.latest is None else float(self.latest))


def registered():
    """[(a State that is not open yet, the models that have registered it)], as they were made."""
    gc.collect()  # each rank would find a dropped model gone at another time
    models = {}
    for one in gc.get_objects():
        for _, state in getattr(one, "_comm_hooks", ()) if issubclass(type(one), DistributedDataParallel) else ():
            if isinstance(state, State) and state.ddp is None:
                models.setdefault(state, []).append(one)
    return sorted(models.items(), key=lambda item: item[0].number)


def with_exchange(words):
    """`words`; where they and $GRADWIRE name no --comm, with the exchange that suits: ranks of one host sum in
    place, others overlap, and a host's ranks are one on the wire. With a codec its own algorithm."""
    named = f" {words} {os.environ.get('GRADWIRE', '')}"
    if re.search(r"\s--comm\b(?!-)", named):
        return words
    if re.search(r"\s--compress\b(?!-)", named):
        return f"--comm iallreduce {words}"
    return f"--comm {'allreduce:algo=shm' if by_launcher(start(words)[1]) else 'iallreduce:algo=hier'} {words}"


WITH_WORDS = {"with_kwargs": True} if STEP_HOOKS else {}


def samples_of(inputs):
    """How many: the first dimension of the first tensor; 1 where nothing tells."""
    first = next(tensors(inputs), None)
    return max(1, len(first)) if first is not None and first.dim() else 1


def future_of(buffer):
    return torch.futures.Future(devices=None if buffer.device.type == "cpu" else [buffer.device])


def need_room(size):
    """Shared memory for all ranks: PyTorch 1.13 takes what is not there, and ends by a signal."""
    room = os.statvfs("/dev/shm")
    if 0 < room.f_blocks and room.f_bavail * room.f_frsize < size:
        raise OSError(f"/dev/shm has {room.f_bavail * room.f_frsize} bytes left, and the ranks need {size}")


class Around:
    """The hooks of one optimizer's step, where PyTorch has none."""

    def __init__(self, optimizer, before, after):
        step = optimizer.step

        @functools.wraps(step)
        def instead(_, *args, **more):
            changed = before(optimizer, (optimizer, *args), more)
            (_, *args), more = changed or ((optimizer, *args), more)
            result = step(*args, **more)
            after(optimizer, args, more)
            return result

        self.optimizer, self.step = optimizer, step
        optimizer.step = types.MethodType(instead, optimizer)  # bound: schedulers ask for its __func__

    def remove(self):
        self.optimizer.step = self.step
