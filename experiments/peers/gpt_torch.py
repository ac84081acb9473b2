"""The twin of examples/gpt in PyTorch: the same model from the same weights over the same batches.

--check FILE compares loss and every gradient with what `gpt_check FILE` wrote. Otherwise it trains as
`gpt --text FILE` does, and prints the test loss and the median step. compare_gpt.py starts it.
The model is the fastest plain form that we know: one matrix for q, k and v,
scaled_dot_product_attention, a fused AdamW, zero_grad(set_to_none=True), denormals flushed.
"""

import argparse
import json
import math
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../analysis"))
from tool import need
need("numpy", "torch")

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from draws import mix


def attend(q, k, v):
    """By PyTorch 2's kernel where there is one."""
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    context, width = q.shape[-2:]
    past = torch.ones(context, context, dtype=torch.bool).tril()
    return (q @ k.transpose(-1, -2) / width ** 0.5).masked_fill(~past, -math.inf).softmax(-1) @ v


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, context, width = x.shape
        parts = self.qkv(self.ln1(x)).view(batch, context, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = attend(q, k, v)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, context, width))
        return x + self.out(functional.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Its parameters() come in the order of the C program's tensors."""

    def __init__(self, vocabulary, context, layers, heads, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)

    def through(self, text):
        """To the head."""
        x = self.embedding(text) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return self.ln(x)

    def forward(self, text, target):
        logits = functional.linear(self.through(text), self.embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def draw_starts(seed, step, batch, span):
    """Where the sequences of a step begin, as gpt_text_draw says."""
    number = np.arange(step * batch, (step + 1) * batch, dtype=np.uint64)
    return (mix((np.uint64(seed) << np.uint64(40)) + number * np.uint64(0x9e3779b97f4a7c15))
            % np.uint64(span)).astype(np.int64)


def draw_weights(model, seed):
    """gpt_draw: SplitMix64 and Box and Muller, one matrix after another."""
    state = np.uint64(seed)
    layers = len(model.blocks)
    for name, tensor in model.named_parameters():
        if tensor.dim() == 1:
            tensor.data.fill_(1.0 if name.endswith("weight") else 0.0)
            continue
        n = tensor.numel()
        steps = np.arange(1, 2 * n + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        drawn = (mix(state + steps) >> np.uint64(11)).astype(np.float64)
        state = np.uint64((int(state) + int(steps[-1])) % 2**64)
        deviation = 0.02
        if name.endswith(("proj.weight", "out.weight")):
            deviation /= math.sqrt(2 * layers)
        u, v = (drawn[::2] + 0.5) * 2.0 ** -53, drawn[1::2] * 2.0 ** -53
        values = deviation * np.sqrt(-2 * np.log(u)) * np.cos(6.283185307179586 * v)
        tensor.data.copy_(torch.from_numpy(values.astype(np.float32)).view_as(tensor))


def check(path):
    """Exit status 1 if loss or a gradient is further from the C program's than rounding takes it."""
    with open(path, "rb") as file:
        head = np.fromfile(file, np.int32, 6)
        text = np.fromfile(file, np.uint8, head[5] * (head[1] + 1)).reshape(head[5], -1)
        loss = float(np.fromfile(file, np.float64, 1)[0])
        model = Gpt(*map(int, head[:5]))
        wanted = []
        for tensor in model.parameters():
            tensor.data.copy_(torch.from_numpy(np.fromfile(file, np.float32, tensor.numel()))
                              .view_as(tensor))
            wanted.append(torch.from_numpy(np.fromfile(file, np.float32, tensor.numel()))
                          .view_as(tensor))
    text = torch.from_numpy(text.astype(np.int64))
    here = model(text[:, :-1], text[:, 1:])
    here.backward()
    off = abs(here.item() - loss) / loss
    # A gradient that is a sum of cancelling parts, such as a key's bias, is rounding and nothing else.
    size = max(tensor.abs().max().item() for tensor in wanted)
    far = [((tensor.grad - other).abs().max() / max(other.abs().max().item(), 0.01 * size)).item()
           for tensor, other in zip(model.parameters(), wanted)]
    print(f"loss {here.item():.7f}, off by {off:.1e}; worst of {len(far)} gradients off by {max(far):.1e}")
    return 0 if off < 1e-6 and max(far) < 1e-5 else 1


def load(path):
    """(training text, text for the test), as numbers in the order of the bytes that occur."""
    with open(path, "rb") as file:
        data = np.frombuffer(file.read(), np.uint8)
    letters, numbers = np.unique(data, return_inverse=True)
    numbers = torch.from_numpy(numbers.astype(np.int64))
    cut = len(data) - len(data) // 10
    return numbers[:cut], numbers[cut:], len(letters)


@torch.no_grad()
def test(model, text, context, batch):
    """Mean loss over windows side by side."""
    count = (len(text) - 1) // context
    total = 0.0
    for at in range(0, count, batch):
        rows = torch.arange(at, min(at + batch, count))[:, None] * context + torch.arange(context)
        total += model(text[rows], text[rows + 1]).item() * len(rows)
    return total / count


def learning_rate(args, step):
    if step < args.warmup:
        return args.rate * (step + 1) / args.warmup
    part = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * part)))


def train(args):
    text, rest, vocabulary = load(args.text)
    model = Gpt(vocabulary, args.context, args.layers, args.heads, args.width)
    draw_weights(model, args.seed)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), fused=True)
    step_model = model
    if args.ranks > 1:
        step_model = DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
    mine = slice(args.batch * args.rank // args.ranks, args.batch * (args.rank + 1) // args.ranks)
    offsets = torch.arange(args.context)
    times, losses = [], []
    for step in range(args.steps):
        begin = time.perf_counter()
        starts = draw_starts(args.seed, step, args.batch, len(text) - args.context)[mine]
        rows = torch.from_numpy(starts)[:, None] + offsets
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, step)
        optimizer.zero_grad(set_to_none=True)
        loss = step_model(text[rows], text[rows + 1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - begin)
    result = {"step_s": times, "loss": losses}
    if args.test:
        result["test"] = test(model, rest, args.context, args.batch)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", metavar="FILE")
    parser.add_argument("--text")
    for name, value in (("steps", 3000), ("batch", 12), ("context", 64), ("layers", 4), ("heads", 4),
                        ("width", 128), ("warmup", 100), ("seed", 1), ("rank", 0), ("ranks", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--meet", help="where the ranks meet: file://PATH")
    parser.add_argument("--out", help="JSON file for step times and losses")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if args.check:
        sys.exit(check(args.check))
    if args.ranks > 1:
        dist.init_process_group("gloo", init_method=args.meet, rank=args.rank, world_size=args.ranks)
    result = train(args)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(result, file)
    print(f"loss {result['loss'][-1]:.4f}, test {result.get('test', math.nan):.4f}, "
          f"median step {1e3 * float(np.median(result['step_s'])):.2f} ms")
    if args.ranks > 1:
        dist.barrier()
        os._exit(0)  # Gloo's shutdown can wait forever for a peer that has exited


if __name__ == "__main__":
    main()
