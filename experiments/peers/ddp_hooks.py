"""DistributedDataParallel as a peer, with PyTorch's hooks."""

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

FIRST_BUCKET = dist._DEFAULT_FIRST_BUCKET_BYTES  # pylint: disable=protected-access


def replicate(model, hook, **buckets):
    """The model in DistributedDataParallel with one of PyTorch's hooks, or any other word for none."""
    whole = hook == "powersgd2"
    # One bucket: this hook starts each bucket's second allreduce from a callback, and Gloo runs these on
    # two threads, so that with several buckets the ranks' orders differ.
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 31 if whole else FIRST_BUCKET
    if whole:
        buckets = {"bucket_cap_mb": 2048}
    model = DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False,
                                    **buckets)
    if hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif whole:  # from step 2, the earliest that its error feedback allows
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return model
