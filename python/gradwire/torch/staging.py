"""Tensors that the library cannot read where they are, on a GPU or of 16 bits, and their copies that
it can: float32, in the host's memory, pinned where a device copies from it.

A tensor's elements go as they lie in memory, so that any dense layout will do (channels_last)."""

import ctypes
import threading

import torch

from gradwire.library import Error

NARROW = (torch.bfloat16, torch.float16)


def has_values(name, t):
    if torch.nn.parameter.is_lazy(t):
        raise Error(f"{name} is not initialized: a forward pass gives a lazy module its parameters")
    if t.device.type == "meta":
        raise Error(f"{name} is on meta, without values: give the model some first (model.to_empty)")


def plain(name, p):
    """Refuses a parameter whose gradients cannot be exchanged."""
    if type(p).__name__ == "DTensor" or hasattr(p, "placements"):
        raise Error(f"{name} is a DTensor, of which each rank has a part: gradwire.torch exchanges whole "
                    "gradients (gradwire.torch.Shards those of fully_shard)")
    has_values(name, p)
    if p.is_sparse or p.dtype not in (torch.float32, *NARROW):
        raise Error(f"{name} is {p.dtype if not p.is_sparse else 'sparse'}: gradwire.torch exchanges dense "
                    "float32, bfloat16 and float16 alone")
    if not dense(p):
        raise Error(f"{name} has strides {p.stride()}, with gaps or shared elements: call .contiguous() on it")


def dense(t):
    """Whether its elements lie side by side, in any order of the dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(t.stride(), t.shape) if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def flat(t):
    """Its elements as they lie in memory."""
    return t.detach().as_strided((t.numel(),), (1,), t.storage_offset())


def lies_as_declared(t):
    """Whether the library may read and write it where it is."""
    return t.device.type == "cpu" and t.dtype == torch.float32


def staged(t):
    """A copy of its elements for the library."""
    return room(t).copy_(flat(t))


def room(t):
    """Memory for such a copy."""
    return torch.empty(t.numel(), dtype=torch.float32, pin_memory=t.device.type != "cpu")


class Way:
    """From a device to a copy, while the device goes on; `back` when the library has written there."""

    def __init__(self, t):
        self.copy, self.device, self.event = room(t), t.device, None

    def out(self, t):
        """Begin; `arrived` says when the copy has it."""
        self.copy.copy_(flat(t), non_blocking=True)
        if self.device.type != "cpu":
            self.event = getattr(torch, self.device.type).Event()
            self.event.record()

    def arrived(self, wait=False):
        if self.event is None:
            return True
        if wait:
            self.event.synchronize()
        return wait or self.event.query()

    def back(self, t):
        flat(t).copy_(self.copy, non_blocking=True)


def keep_to_this_thread(parameters):
    """PyTorch runs the backward pass of a device's tensors, and its hooks, on a thread of its own, and the
    library is used by one thread."""
    device = next((p.device for p in parameters if p.device.type != "cpu"), None)
    if device is None:
        return
    if threading.current_thread() is not threading.main_thread():
        raise Error(f"the model is on {device}: gradwire.torch.State(words, ddp) has to know it before its first "
                    "backward pass")
    torch.autograd.set_multithreading_enabled(False)


def indices(numbers):
    return (ctypes.c_int * len(numbers))(*numbers)


def addresses(tensors):
    return (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
