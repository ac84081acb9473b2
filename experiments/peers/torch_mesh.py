"""PyTorch's model parallelism, for torch_train.py: DTensor's tensor parallelism, and the pipelines of
torch.distributed.pipelining. Both take a Sequential of Linear layers and ReLUs; all ranks hold the
whole model before, and have the whole batch."""

import torch
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import parallel

SCHEDULES = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B,
             "interleaved": pipelining.ScheduleInterleaved1F1B}


def cut_neurons(model, ranks):
    """The layers by columns and by rows in turn (Shoeybi et al., "Megatron-LM", 2019). A last layer
    whose turn is columns stays whole: with 10 outputs that is faster than two more sums."""
    layers = [name for name, part in model.named_children() if isinstance(part, torch.nn.Linear)]
    styles = [(parallel.ColwiseParallel, parallel.RowwiseParallel)[i % 2]() for i in range(len(layers))]
    plan = dict(zip(layers, styles))
    if len(layers) % 2:
        del plan[layers[-1]]
    return parallel.parallelize_module(model, init_device_mesh("cpu", (ranks,)), plan)


def cut_layers(model, sizes):
    """Sequentials of so many Linear layers each, with the ReLUs behind them."""
    chunks, layers = [[] for _ in sizes], -1
    owners = [chunk for chunk, size in enumerate(sizes) for _ in range(size)]
    for part in model:
        layers += isinstance(part, torch.nn.Linear)
        chunks[owners[layers]].append(part)
    return [torch.nn.Sequential(*chunk) for chunk in chunks]


def pipeline(model, rank, ranks, sizes, schedule, microbatches):
    """(the layers of this rank, a function that does one step forward and back). The function takes
    images and labels and returns the loss, or None on ranks that do not compute it."""
    chunks = cut_layers(model, sizes)
    mine = {i: chunk for i, chunk in enumerate(chunks) if i % ranks == rank}
    stages = [pipelining.PipelineStage(chunk, i, len(chunks), torch.device("cpu"))
              for i, chunk in mine.items()]
    plan = SCHEDULES[schedule](stages if schedule == "interleaved" else stages[0], microbatches,
                               loss_fn=torch.nn.functional.cross_entropy)

    def step(images, labels):
        losses = []
        inputs = [images] if rank == 0 else []
        plan.step(*inputs, **({"target": labels, "losses": losses} if rank == ranks - 1 else {}))
        return torch.stack(losses).mean().detach() if losses else None
    return torch.nn.ModuleList(mine.values()), step
