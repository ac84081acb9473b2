"""Twins of gradwire's models in PyTorch, with the parameters of a run's model.gw."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import gpt_torch

TRIFLE = 1e-9

class LeNet5(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        side = round(inputs ** 0.5)
        self.convolutions = nn.ModuleList([nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)])
        self.dense = nn.ModuleList([nn.Linear(16 * ((side // 2 - 4) // 2) ** 2, 120), nn.Linear(120, 84),
                                    nn.Linear(84, classes)])

    def forward(self, x):
        x = square(x)
        for layer in self.convolutions:
            x = functional.max_pool2d(functional.relu(layer(x)), 2)
        x = x.permute(0, 2, 3, 1).flatten(1)  # channels innermost
        for layer in self.dense[:-1]:
            x = functional.relu(layer(x))
        return self.dense[-1](x)


class Normed(nn.Module):
    def __init__(self, channels, filters, kernel, stride=1):
        super().__init__()
        self.layer = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x):
        return self.norm(self.layer(x))


class Residual(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        opens = filters != channels
        self.first = Normed(channels, filters, 3, 2 if opens else 1)
        self.second = Normed(filters, filters, 3)
        self.across = Normed(channels, filters, 1, 2) if opens else nn.Identity()

    def forward(self, x):
        return functional.relu(self.second(functional.relu(self.first(x))) + self.across(x))


class ResNet(nn.Module):
    def __init__(self, _, classes, width=16, blocks=1):
        super().__init__()
        self.entry = Normed(1, width, 3)
        made, channels = [], width
        for stage in range(3):
            for _ in range(blocks):
                made.append(Residual(channels, width << stage))
                channels = width << stage
        self.blocks = nn.Sequential(*made)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        return self.head(self.blocks(functional.relu(self.entry(square(x)))).mean((2, 3)))


class Gpt(gpt_torch.Gpt):
    """With a head of its own."""

    def __init__(self, _, classes, layers=4, heads=4, width=128, context=64):
        super().__init__(classes, context, layers, heads, width)
        self.head = nn.Linear(width, classes, bias=False)

    def forward(self, text):
        return self.head(self.through(text)).flatten(0, 1)


def square(x):
    """Rows of one channel as images, with their channels innermost in memory."""
    side = round(x.shape[1] ** 0.5)
    return x.view(-1, 1, side, side).contiguous(memory_format=torch.channels_last)


def parts(text):
    """NAME and options of `--model text`."""
    name, _, words = text.partition(":")
    return name, dict(word.split("=") for word in words.split(",") if word)


def context(text):
    return int(parts(text)[1].get("context", 64))


def build(text, inputs, classes):
    """The twin of `--model text`, without its parameters."""
    name, options = parts(text)
    form = Gpt if name == "gpt" else {"lenet5": LeNet5, "resnet": ResNet}[options.pop("preset", "lenet5")]
    net = form(inputs, classes, **{key: int(value) for key, value in options.items()})
    return net.to(memory_format=torch.channels_last)


def tensors(net):
    """In the order of gradwire's parameters; running means and variances are among them."""
    for part in net.modules():
        for name in ("weight", "bias", "running_mean", "running_var"):
            if isinstance(getattr(part, name, None), torch.Tensor):
                yield part, getattr(part, name).data


@torch.no_grad()
def load(net, path, first=True):
    """The parameters at the end of model.gw, before its checksum. `first`: they are of a run of one step at the least
    rate, so what that moved is put back: running means and variances, and zeros, at which a rectifier is closed."""
    sizes = [tensor.numel() for _, tensor in tensors(net)]
    with open(path, "rb") as file:
        flat = torch.from_numpy(np.frombuffer(file.read()[-4 * sum(sizes) - 4:-4], np.float32).copy())
    if first:
        flat[flat.abs() < TRIFLE] = 0
    for (part, tensor), values in zip(tensors(net), flat.split(sizes)):
        shape = tensor.shape
        if len(shape) == 4:
            values = values.view(shape[2], shape[3], shape[1], shape[0]).permute(3, 2, 0, 1)
        elif len(shape) == 2 and isinstance(part, nn.Linear):
            values = values.view(shape[1], shape[0]).T
        tensor.copy_(values.view_as(tensor) if values.dim() == 1 else values)
    for part in net.modules():
        if isinstance(part, gpt_torch.Block):  # q, k and v of each head in turn
            for tensor in (part.qkv.weight.data, part.qkv.bias.data):
                heads = tensor.view(part.heads, 3, -1, *tensor.shape[1:])
                tensor.copy_(heads.transpose(0, 1).reshape(tensor.shape))
        if first and isinstance(part, nn.BatchNorm2d):
            part.reset_running_stats()
