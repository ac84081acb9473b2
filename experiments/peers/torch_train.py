"""One timed PyTorch run of the main job's step; compare_torch.py starts one process per rank.

This is the fastest plain form of the loop that we know. Images are float tensors in memory, already
in the order of the visit, so a batch is a slice and costs nothing. Denormals
flushed; zero_grad(set_to_none=True). Several ranks use DistributedDataParallel over Gloo with
gradients as views of its buckets (one for the default layers), optionally with one of PyTorch's
compressing hooks (--hook). The loop reads no loss back and prints nothing. In turns with this form,
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
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

def read_idx(path, header):
    with gzip.open(path, "rb") as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=header)


def load(folder, batch, rank, ranks, seed):
    """This rank's part of each full batch of epoch 0: (batches, local, 784) and (batches,
    local)."""
    labels = read_idx(os.path.join(folder, "train-labels-idx1-ubyte.gz"), 8)
    images = read_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"), 16)
    images = images.reshape(len(labels), -1)
    order = np.random.default_rng(seed).permutation(len(labels))
    full = len(labels) // batch
    mine = order[:full * batch].reshape(full, batch)[:, batch * rank // ranks:
                                                     batch * (rank + 1) // ranks]
    return (torch.from_numpy(images[mine].astype(np.float32) / 255.0),
            torch.from_numpy(labels[mine].astype(np.int64)))


def build(layers, ranks, hook):
    widths = [784, *layers]
    parts = []
    for inputs, outputs in zip(widths, widths[1:]):
        parts += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts, torch.nn.Linear(widths[-1], 10))
    if ranks > 1:
        buckets = {}
        if hook == "powersgd2":
            # One bucket: the hook starts each bucket's second allreduce from a callback, and Gloo
            # runs these on two threads, so that with several buckets the ranks' orders differ.
            dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 30  # pylint: disable=protected-access
            buckets = {"bucket_cap_mb": 1024}
        model = DistributedDataParallel(model, gradient_as_bucket_view=True,
                                        broadcast_buffers=False, **buckets)
        if hook == "fp16":
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif hook == "powersgd2":  # from step 2, the earliest that its error feedback allows
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2,
                                                start_powerSGD_iter=2)
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return model


def train(model, images, labels, lr, steps):
    """Seconds of each step, and the last step's loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    times = []
    begin = time.perf_counter()
    for step in range(steps):
        batch = step % len(images)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        end = time.perf_counter()
        times.append(end - begin)
        begin = end
    return times, loss.item()


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
    parser.add_argument("--batch", type=int, default=64, help="global")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True, help="JSON file for this rank's step times")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(args.seed)
    if args.ranks > 1:
        dist.init_process_group("gloo", init_method=args.meet, rank=args.rank, world_size=args.ranks)
    images, labels = load(args.data, args.batch, args.rank, args.ranks, args.seed)
    model = build(args.layers, args.ranks, args.hook)
    if args.ranks > 1:
        dist.barrier()
    times, loss = train(model, images, labels, args.lr, args.steps)
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump({"step_s": times, "loss": loss}, file)
    if args.ranks > 1:
        dist.barrier()
        os._exit(0)  # Gloo's shutdown can wait forever for a peer that has exited


if __name__ == "__main__":
    main()
