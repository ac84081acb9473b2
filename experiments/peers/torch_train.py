"""One timed PyTorch run of the main job's step; compare_torch.py starts one process per rank.

This is the fastest plain form of the loop that we know. Images are float tensors in memory, already
in the order of the visit, so a batch is a slice and costs nothing. Denormals
flushed; zero_grad(set_to_none=True). Several ranks use DistributedDataParallel over Gloo with
gradients as views of its buckets (one for the default layers), optionally with one of PyTorch's
compressing hooks (--hook), or share the model itself (--mesh, torch_mesh.py). The loop reads losses
only after the last step and prints nothing. In turns with this form,
SGD(foreach=True), static_graph=True and gradients copied out of the bucket were not faster beyond
the noise.
"""

import argparse
import gzip
import json
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../analysis"))
from tool import need
need("numpy", "torch")

import numpy as np
import torch
import torch.distributed as dist

import draws
import gpt_torch
import torch_mesh
import torch_models
from ddp_hooks import replicate


def read_idx(path, header):
    with gzip.open(path, "rb") as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=header)


def mine(samples, batch, rank, ranks, seed, steps):
    """Numbers of this rank's samples of the full batches of epoch 0, as many as steps take: (batches, local)."""
    order = draws.order(seed, samples)
    full = min(steps, samples // batch)
    return order[:full * batch].reshape(full, batch)[:, batch * rank // ranks:batch * (rank + 1) // ranks]


def load(folder, *part):
    """(batches, local, 784), (batches, local), and the classes."""
    labels = read_idx(os.path.join(folder, "train-labels-idx1-ubyte.gz"), 8)
    images = read_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"), 16).reshape(len(labels), -1)
    chosen = mine(len(labels), *part)
    return (torch.from_numpy(images[chosen].astype(np.float32) / 255.0),
            torch.from_numpy(labels[chosen].astype(np.int64)), 10)


def load_text(path, context, *part):
    """(batches, local, context), (batches, local x context), and the classes."""
    text, _, classes = gpt_torch.load(path)
    samples = (len(text) - 1) // context
    chosen = torch.from_numpy(mine(samples, *part))
    inputs, targets = (text[at:at + samples * context].view(samples, context)[chosen] for at in (0, 1))
    return inputs, targets.flatten(1), classes


def build(layers, seed):
    widths = [784, *layers, 10]
    parts = []
    for number, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layer = torch.nn.Linear(inputs, outputs)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(draws.weights(seed, number, inputs, outputs).T))
            layer.bias.zero_()
        parts += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def whole_pass(model):
    """A step forward and back that takes the batch at once."""
    def step(images, labels):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        return loss.detach()
    return step


def prepare(args, inputs, classes):
    """(the model, or this rank's part, and a function that takes it forward and back)."""
    if args.model:
        model = torch_models.build(args.model, inputs, classes)
        torch_models.load(model, args.weights)
    else:
        model = build(args.layers, args.seed)
    if args.mesh == "pipe":
        return torch_mesh.pipeline(model, args.rank, args.ranks, args.stages, args.timetable,
                                   args.microbatches)
    if args.mesh == "tensor":
        model = torch_mesh.cut_neurons(model, args.ranks)
    elif args.ranks > 1:
        model = replicate(model, args.hook)
    return model, whole_pass(model)


def train(model, both_ways, images, labels, args):
    """Seconds and loss (None where it is not computed) of each step."""
    if args.optimizer == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    times, losses = [], []
    begin = time.perf_counter()
    for step in range(args.steps):
        batch = step % len(images)
        optimizer.zero_grad(set_to_none=True)
        losses.append(both_ways(images[batch], labels[batch]))
        optimizer.step()
        end = time.perf_counter()
        times.append(end - begin)
        begin = end
    return times, [loss if loss is None else loss.item() for loss in losses]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--meet", required=True,
                        help="where the ranks meet: file://PATH, or tcp://ADDRESS:PORT of rank 0")
    parser.add_argument("--layers", type=lambda text: [int(n) for n in text.split(",")],
                        default=[256, 128], help="hidden widths [256,128]")
    parser.add_argument("--model", help="a twin of gradwire's --model instead, which has no --mesh")
    parser.add_argument("--weights", help="model.gw with the twin's parameters")
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--hook", choices=["none", "fp16", "powersgd2"], default="none")
    parser.add_argument("--mesh", choices=["data", "tensor", "pipe"], default="data",
                        help="what the ranks share: batches, each layer, or the layers [data]")
    parser.add_argument("--stages", type=lambda text: [int(n) for n in text.split(",")],
                        help="layers of each chunk of a pipe")
    parser.add_argument("--timetable", choices=torch_mesh.SCHEDULES, default="1f1b", help="of a pipe")
    parser.add_argument("--microbatches", type=int, default=1, help="of a pipe")
    parser.add_argument("--batch", type=int, default=64, help="global")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True, help="JSON file for this rank's step times")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    if args.ranks > 1:
        dist.init_process_group("gloo", init_method=args.meet, rank=args.rank, world_size=args.ranks)
    part = (args.rank, args.ranks) if args.mesh == "data" else (0, 1)
    drawn = (args.batch, *part, args.seed, args.steps)
    if args.data.startswith("text:"):
        images, labels, classes = load_text(args.data.removeprefix("text:"), torch_models.context(args.model), *drawn)
    else:
        images, labels, classes = load(args.data, *drawn)
    model, both_ways = prepare(args, images.shape[2], classes)
    if args.ranks > 1:
        dist.barrier()
    times, losses = train(model, both_ways, images, labels, args)
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump({"step_s": times, "loss": losses}, file)
    if args.ranks > 1:
        dist.barrier()
        os._exit(0)  # Gloo's shutdown can wait forever for a peer that has exited


if __name__ == "__main__":
    main()
