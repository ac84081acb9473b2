"""examples/tiny_dnn.cpp: what several ranks train is what one does. Built where tiny-dnn is."""

import os
import random
import re
import struct

import gwrun
from test_examples import call

BATCHES = 20


def write_images(folder, name, count):
    """MNIST's files: a bright square on noise, whose place is the label."""
    chance = random.Random(name)
    labels = bytes(chance.randrange(10) for _ in range(count))
    gwrun.write(os.path.join(folder, f"{name}-labels-idx1-ubyte"), struct.pack(">ii", 2049, count) + labels)
    with open(os.path.join(folder, f"{name}-images-idx3-ubyte"), "wb") as file:
        file.write(struct.pack(">iiii", 2051, count, 28, 28))
        for label in labels:
            image = bytearray(value // 8 for value in chance.randbytes(784))
            corner = label // 5 * 14 * 28 + label % 5 * 5
            for row in range(4, 10):
                image[corner + row * 28 + 1:corner + row * 28 + 6] = bytes([255]) * 5
            file.write(image)


class TinyDnn(gwrun.Case):
    def test_ranks_train_as_one(self):
        write_images(self.dir, "train", BATCHES * 64)
        write_images(self.dir, "t10k", 1000)
        said = [call(ranks, "tiny_dnn", self.dir, str(BATCHES), *words.split())
                for ranks, words in ((1, ""), (2, "--comm iallreduce"), (3, "--comm sharded"))]
        sums = [float(re.search(r"sum of weights ([\d.]+)", line)[1]) for line in said]
        right = [int(re.search(r"(\d+) of 1000 right", line)[1]) for line in said]
        for other in (1, 2):
            self.assertAlmostEqual(sums[other], sums[0], delta=1e-4 * sums[0])
            self.assertAlmostEqual(right[other], right[0], delta=5)
        self.assertGreater(right[0], 500)
