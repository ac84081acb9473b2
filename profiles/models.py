"""Shapes of well-known models in plain PyTorch, with random weights: what profiles/make times, tests
and benchmarks train. Tensors are declared in forward order."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """K. He et al., "Deep residual learning for image recognition", CVPR 2016: two 3x3 convolutions,
    or, as a bottleneck, 1x1, 3x3 (with the stride) and 1x1."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = width * 4 if bottleneck else width
        sizes = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]
        widths = [inputs, *[width] * (len(sizes) - 1), outputs]
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for (size, step), before, after in zip(sizes, widths, widths[1:]):
            self.convs.append(nn.Conv2d(before, after, size, step, size // 2, bias=False))
            self.norms.append(nn.BatchNorm2d(after))
        self.short = None
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                       nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(conv(F.relu(y) if i else y))
        return F.relu(y + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    """small: for images of 32x32, with a stem that does not shrink them."""

    def __init__(self, depths, bottleneck, classes=1000, small=False, width=64):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3 if small else 7, 1 if small else 2, 1 if small else 3,
                              bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.pool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        blocks, inputs = [], width
        for stage, depth in enumerate(depths):
            for i in range(depth):
                blocks.append(Block(inputs, width << stage, 2 if stage and not i else 1, bottleneck))
                inputs = (width << stage) * (4 if bottleneck else 1)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.blocks(self.pool(F.relu(self.norm(self.stem(x)))))
        return self.head(x.mean((2, 3)))


def resnet18(small=True, **more):
    return ResNet([2, 2, 2, 2], False, small=small, **more)


def resnet50(**more):
    return ResNet([3, 4, 6, 3], True, **more)


class Attention(nn.Module):
    """fused: one matrix for query, key and value, as GPT-2 has it."""

    def __init__(self, width, heads, fused, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.ins = nn.ModuleList([nn.Linear(width, 3 * width)] if fused else
                                 [nn.Linear(width, width) for _ in range(3)])
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = torch.cat([f(x) for f in self.ins], 2).split(width, 2)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        scores = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        if self.causal:
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        return self.out((scores.softmax(3) @ v).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """A transformer's layer; first: normalize before each half (GPT-2), not after it (BERT)."""

    def __init__(self, width, heads, first, fused, causal):
        super().__init__()
        self.first = first
        if first:
            self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, fused, causal)
        if not first:
            self.norm1 = nn.LayerNorm(width)
        if first:
            self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        if not first:
            self.norm2 = nn.LayerNorm(width)

    def forward(self, x):
        if self.first:
            x = x + self.attention(self.norm1(x))
            return x + self.down(F.gelu(self.up(self.norm2(x))))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class GPT(nn.Module):
    """A. Radford et al., "Language models are unsupervised multitask learners", 2019: returns logits
    by the embedding's own matrix."""

    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads, True, True, True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return F.linear(self.norm(self.layers(x)), self.tokens.weight)


def gpt2():
    return GPT(50257, 1024, 768, 12, 12)


class BERT(nn.Module):
    """J. Devlin et al., "BERT: pre-training of deep bidirectional transformers for language
    understanding", NAACL 2019, without heads: returns the last states and the pooled first one."""

    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.layers = nn.Sequential(*(Layer(width, heads, False, False, False)
                                      for _ in range(layers)))
        self.pooler = nn.Linear(width, width)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1])) + self.kinds(ids * 0)
        x = self.layers(self.norm(x))
        return x, torch.tanh(self.pooler(x[:, 0]))


def bert_large():
    return BERT(30522, 512, 1024, 16, 24)
