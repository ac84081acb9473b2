"""PyTorch and the twins of experiments/peers; None where it is not installed."""

import os
import sys

import gwrun

try:
    import torch
except ImportError:
    torch = None
else:
    sys.path.append(os.path.join(gwrun.SOURCE, "experiments", "peers"))
    import torch_models


def twin(model, out, inputs, classes, first=True):
    """PyTorch's `model`, in doubles, with the parameters of the run in the folder `out` (`first`: of its start)."""
    net = torch_models.build(model, inputs, classes)
    torch_models.load(net, os.path.join(out, "model.gw"), first)
    return net.double()


def apart(net, other):
    """The greatest difference of two twins' parameters."""
    return max((one - two).abs().max().item() for (_, one), (_, two) in zip(
        torch_models.tensors(net), torch_models.tensors(other)))


def learn(net, optimizer, x, y, steps):
    """Losses of its training by all samples at once."""
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
