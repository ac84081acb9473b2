"""Session: a model of numpy arrays."""

import contextlib
import ctypes
import math
import threading

import numpy as np

from gradwire.launch import start
from gradwire.library import (
    ALL,
    PARAM,
    VERSION,
    Error,
    Phase,
    check,
    handle_of,
    library,
    own,
    shared,
)


class Session:
    """One model's exchange and run: the functions of gradwire.h, one a method, used by the thread that
    opened it. Where a process has several, the first records for all and is closed last.

        with gradwire.Session("--comm iallreduce --compress qsgd:bits=8 --out runs/a") as session:
            weight = session.tensor("weight", w)          # in forward order
            session.open()
            for x, y in batches:
                with session.batch(len(x)) as batch:
                    batch.loss, grad = backward(w, x, y)
                    session.ready([weight], [grad])
                    if session.finish():
                        for tensor, piece in session.owned():
                            w.reshape(-1)[piece] -= rate * grad.reshape(-1)[piece]
                    session.updated()

    Arrays are float32, C-contiguous, and used where they lie: never copied, so they must not be
    replaced. `words` are options of `gradwire train`; $GRADWIRE is appended and wins."""

    def __init__(self, words="", comm=None):
        self.handle, self.shapes, self.held, self.grads = None, [], [], {}
        self.rank, self.ranks = start(words)
        handle = ctypes.c_void_p()
        check(library().gradwire_new(ctypes.byref(handle), handle_of(comm), words.encode()))
        self.handle = handle
        OPEN.append(self)
        own(threading.get_ident())
        self._check_version()
        self.servers = int(self.text("servers"))  # ranks 0 to servers - 1 get no samples

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
        elif shared(error):
            self.abandon()

    def abandon(self):
        """All ranks, after an error that all of them have: close, whatever the run's folder lacks."""
        with contextlib.suppress(Error):
            self.close()

    def _check_version(self):
        version = self.text("version") or "unknown"
        if version.partition("+")[0] != VERSION:
            self.abandon()
            raise Error(f"libgradwire is of version {version}, the Python package of {VERSION}: "
                        "install both from one source")

    def _call(self, name, *values):
        return check(self._ask(name, *values))

    def _ask(self, name, *values):
        if self.handle is None:
            raise Error(f"{name.removeprefix('gradwire_')}: the session is closed")
        return getattr(library(), name)(self.handle, *values)

    def tensor(self, name, array, group=None, rows=None):
        """Declare a tensor, in forward order; returns its index. array: its parameters, or its shape:
        then they are the library's (`memory`). group: that of the tensors finished together, rising
        from 0 [all tensors: 0]. rows: of the matrix that it is; 0: a vector [from the shape]."""
        held = isinstance(array, np.ndarray)
        if held:
            _usable(name, array)
        shape = array.shape if held else tuple(np.atleast_1d(array).tolist())
        if rows is None:
            rows = shape[0] if len(shape) > 1 else 0
        index = self.declare(name, math.prod(shape), group or 0, rows,
                             array.ctypes.data if held else None)
        self.shapes.append(shape)
        self.held.append(array if held else None)
        return index

    def declare(self, name, size, group, rows, address):
        """As `tensor`, by an address that the caller keeps valid; None: the library's memory."""
        return self._call("gradwire_tensor", name.encode(), group, size, rows, address)

    def open(self):
        """All ranks: the tensors are declared. Rank 0's parameters go to all."""
        self._call("gradwire_open")
        return self

    def share(self, array):
        """Copy rank 0's `array` to all ranks, between batches: a numpy array of any type that the exchange does not
        have, such as statistics. All ranks call it. Error: it is not writable and C-contiguous, or sizes differ."""
        if not isinstance(array, np.ndarray) or not array.flags.carray:
            raise Error("share: must be a writable, C-contiguous array")
        self.share_at(array.ctypes.data, array.nbytes)

    def share_at(self, address, size):
        """As `share`, by an address."""
        self._call("gradwire_share", address, size)

    def memory(self, tensor, which=PARAM):
        """The library's memory of a tensor's parameters (PARAM) or gradient (GRAD), as an array:
        with it nothing is copied."""
        at = self._ask("gradwire_memory", tensor, which)
        if not at:
            check(-1)
        shape = self.shapes[tensor]
        floats = (ctypes.c_float * math.prod(shape)).from_address(at)
        return np.ctypeslib.as_array(floats).reshape(shape)

    @contextlib.contextmanager
    def batch(self, samples, total=None):
        """One optimizer step: begin, and end unless there was an exception (then `cancel` it, if the
        program goes on). total: samples of all ranks [as many as here on each that trains]. Set
        .loss of what it yields, the mean over this rank's samples."""
        self.begin(samples, total)
        batch = Batch()
        yield batch
        self.end(batch.loss)

    def begin(self, samples, total=None):
        if total is None:
            if samples == 0 and self.rank >= self.servers:
                raise Error("batch: 0 samples on this rank: give total, the samples of all ranks")
            total = max(1, samples * (self.ranks - self.servers))
        self._call("gradwire_begin", samples, total)

    def phase(self, phase):
        self._call("gradwire_phase", Phase(phase))

    def ready(self, tensors, grads=None):
        """The gradients of these tensors, means over this rank's samples, are final. `finish` writes
        the exchanged ones into the same arrays. None: they lie in the library's memory."""
        tensors = list(tensors)
        indices = (ctypes.c_int * len(tensors))(*tensors)
        if grads is None:
            return self.ready_at(len(tensors), indices, None)
        for tensor, grad in zip(tensors, grads, strict=True):
            _usable(f"gradient of tensor {tensor}", grad)
            if grad.size != math.prod(self.shapes[tensor]):
                raise Error(f"gradient of tensor {tensor}: {grad.size} elements, not "
                            f"{math.prod(self.shapes[tensor])}")
            self.grads[tensor] = grad  # kept until the next one: the library writes into it
        at = (ctypes.c_void_p * len(tensors))(*(self.grads[tensor].ctypes.data for tensor in tensors))
        return self.ready_at(len(tensors), indices, at)

    def ready_at(self, n, indices, addresses):
        """As `ready`, from C arrays."""
        return self._call("gradwire_ready", n, indices, addresses)

    def lend(self, address, size, file):
        """All ranks: gradients will lie in `size` bytes at `address`, mapped shared from the beginning
        of the open file. True: they are summed there, without copies; False: gradwire_error says why."""
        return self._call("gradwire_lend", address, size, file) > 0

    def poll(self):
        """Between computations: moves messages on."""
        self._call("gradwire_poll")

    def finish(self, group=ALL):
        """Wait for the exchange. True: update what is `owned`; False: nothing this time."""
        return self._call("gradwire_finish", group) > 0

    def owned(self):
        """[(tensor, slice of its elements)] that this rank updates; fixed once it is open."""
        tensor, begin, n = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
        found = []
        while self._call("gradwire_owned", len(found), ctypes.byref(tensor), ctypes.byref(begin),
                         ctypes.byref(n)):
            found.append((tensor.value, slice(begin.value, begin.value + n.value)))
        return found

    def update(self, rate, group=ALL):
        """After `finish`: move what is owned by the rule of the word --optimizer, at this rate."""
        self._call("gradwire_update", group, rate)

    def updated(self, group=ALL):
        """The owned pieces are updated: they go to the other ranks. ALL also waits, as await_ does."""
        self._call("gradwire_updated", group)

    def await_(self, group=ALL):
        """Wait until parameters may be read."""
        self._call("gradwire_await", group)

    def end(self, loss=math.nan):
        self._call("gradwire_end", loss)

    def mean(self, values, weight=1.0):
        """All ranks: the means over them of a number or of several, by their weights (the samples that
        each is a mean of, say)."""
        numbers = np.array(values, np.float64)
        self._call("gradwire_mean", numbers.size, numbers.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
                   weight)
        return numbers if numbers.ndim else float(numbers)

    def left_out(self):
        """After `finish` (lazy: `end`): is this batch left out, for a gradient that is not finite, or
        since it was cancelled? Then nothing is to be updated; see gradwire.h."""
        return self._call("gradwire_left_out") > 0

    def cancel(self):
        """Give up the batch that is open, instead of what is left of it: all ranks leave it out,
        whether they call this or end it as usual. Before `finish` nothing of it stays."""
        self._call("gradwire_cancel")

    def settle(self):
        """All ranks, before evaluating or saving: replicas agree."""
        self._call("gradwire_settle")

    def epoch(self, test_loss=math.nan, test_accuracy=math.nan, validation_loss=math.nan, validation_accuracy=math.nan):
        """A row of epochs.csv."""
        self._call("gradwire_validated", validation_loss, validation_accuracy)
        self._call("gradwire_epoch", test_loss, test_accuracy)

    def save(self):
        """All ranks: this rank's state as bytes, for `load` on the same rank; without parameters."""
        at, n = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("gradwire_save", ctypes.byref(at), ctypes.byref(n))
        try:
            return ctypes.string_at(at, n.value)
        finally:
            _free(at)

    def load(self, state):
        """All ranks, after `open`: go on from what `save` returned; parameters are the caller's."""
        if not isinstance(state, (bytes, bytearray, memoryview)):
            raise Error(f"load: {type(state).__name__} instead of the bytes that save() returned")
        self._call("gradwire_load", bytes(state), len(bytes(state)))

    def figure(self, column):
        """A column of batches.csv, of the last batch; NaN: not there."""
        return self._ask("gradwire_figure", column.encode())

    def text(self, key):
        """What the library tells under a key ("algorithm", "mpi", ..), or None."""
        told = self._ask("gradwire_text", key.encode())
        return None if told is None else told.decode(errors="replace")

    def leave(self, loss=math.nan):
        """This rank's program is at its end: the library closes the session once all ranks exit. `loss`: of a batch that
        is open. What was declared must stay in memory."""
        self._call("gradwire_leave", loss)

    def close(self):
        """All ranks: writes run.json. A second call does nothing."""
        if self.handle is None:
            return
        if len(OPEN) > 1 and OPEN[0] is self:
            raise Error("close: other sessions of this process are open, and this one records for them: "
                        "close them first")
        handle, self.handle = self.handle, None
        OPEN.remove(self)
        if not OPEN:
            own(None)
        check(library().gradwire_close(handle))


class Batch:
    loss = math.nan


OPEN = []  # the sessions of this process; the first records


_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [ctypes.c_void_p], None


def _usable(name, array):
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or not array.flags.carray:
        what = (f"{array.dtype}, strides {array.strides}" if isinstance(array, np.ndarray)
                else type(array).__name__)
        raise Error(f"{name}: {what}: must be a writable, C-contiguous array of float32")

