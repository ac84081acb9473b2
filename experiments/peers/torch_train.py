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
import torch_mesh
from ddp_hooks import replicate


def read_idx(path, header):
    with gzip.open(path, "rb") as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=header)


def load(folder, batch, rank, ranks, seed, steps):
    """This rank's part of the full batches of epoch 0, as many as steps take: (batches, local, 784)
    and (batches, local)."""
    labels = read_idx(os.path.join(folder, "train-labels-idx1-ubyte.gz"), 8)
    images = read_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"), 16)
    images = images.reshape(len(labels), -1)
    order = draws.order(seed, len(labels))
    full = min(steps, len(labels) // batch)
    mine = order[:full * batch].reshape(full, batch)[:, batch * rank // ranks:
                                                     batch * (rank + 1) // ranks]
    return (torch.from_numpy(images[mine].astype(np.float32) / 255.0),
            torch.from_numpy(labels[mine].astype(np.int64)))


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


def prepare(args):
    """(the model, or this rank's part, and a function that takes it forward and back)."""
    model = build(args.layers, args.seed)
    if args.mesh == "pipe":
        return torch_mesh.pipeline(model, args.rank, args.ranks, args.stages, args.timetable,
                                   args.microbatches)
    if args.mesh == "tensor":
        model = torch_mesh.cut_neurons(model, args.ranks)
    elif args.ranks > 1:
        model = replicate(model, args.hook)
    return model, whole_pass(model)


def train(model, both_ways, images, labels, lr, steps):
    """Seconds and loss (None where it is not computed) of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    times, losses = [], []
    begin = time.perf_counter()
    for step in range(steps):
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
    images, labels = load(args.data, args.batch, *part, args.seed, args.steps)
    model, both_ways = prepare(args)
    if args.ranks > 1:
        dist.barrier()
    times, losses = train(model, both_ways, images, labels, args.lr, args.steps)
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump({"step_s": times, "loss": losses}, file)
    if args.ranks > 1:
        dist.barrier()
        os._exit(0)  # Gloo's shutdown can wait forever for a peer that has exited


if __name__ == "__main__":
    main()
