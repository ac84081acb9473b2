"""--wire-check: a run with frames equals the run without them; a byte that flips below MPI ends it."""

import re

import gwrun

SMALL = ("--data", "synthetic:samples=600,features=16,classes=4", "--layers", "12", "--batch", 24,
         "--epochs", 1)

# Between the program and the MPI library: rank 1's 30th message loses a bit on its way.
FLIP = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int PMPI_Isend_c(const void *buf, MPI_Count n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                 MPI_Request *request) {
    static int (*real)(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    static int calls, rank;
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "PMPI_Isend_c");
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    }
    if (rank == 1 && ++calls == 30) {
        char *copy = malloc((size_t)n);
        memcpy(copy, buf, (size_t)n);
        copy[n * 2 / 3] ^= 16;
        buf = copy;
    }
    return real(buf, n, type, to, tag, comm, request);
}
"""


class WireCheck(gwrun.Case):

    def hashes(self, ranks, name, *words):
        out = self.path(name)
        facts = gwrun.train(ranks, out, *SMALL, *words)
        return facts, [row["replica_hash"] for row in gwrun.rows(out, "epochs.csv")]

    def test_same_run(self):
        """Every strategy and algorithm on any number of ranks: tests/contract."""
        for ranks, codec in ((1, "none"), (2, "none"), (2, "topk;min_bytes=200"),
                             (2, "qsgd:bits=4+zlib"), (3, "topk;min_bytes=200"),
                             (4, "qsgd:bits=4+zlib")):
            words = ("--comm", "allreduce:algo=sra", "--compress", codec)
            with self.subTest(ranks=ranks, codec=codec):
                name = f"{ranks}{codec}"
                _, bare = self.hashes(ranks, name, *words)
                facts, framed = self.hashes(ranks, name + "f", *words, "--wire-check", "on")
                self.assertEqual(bare, framed)
                self.assertEqual(facts["options"]["wire-check"], "on")
                results = facts["results"]
                self.assertEqual(results["checks"]["wire"]["frames"],
                                 results["traffic"]["messages"], "not each message is checked")
                self.assertEqual(results["traffic"]["messages"] > 0, ranks > 1)
                self.assertEqual(facts["comm"]["codec"], codec.replace(":bits=4", ""))

    def test_algorithm(self):
        """MPI cannot add frames: if MPI's sum is chosen, the run is refused; else another algorithm
        carries them."""
        gwrun.refusal(gwrun.run(2, "train", *SMALL, "--comm", "allreduce:algo=native", "--wire-check", "on"),
                      "frames")
        facts, _ = self.hashes(2, "default", "--wire-check", "on")
        self.assertEqual(facts["comm"]["algorithm"], "sra")

    def test_flipped_bit(self):
        env = gwrun.preload(self.dir, FLIP)
        for ranks, codec, comm, lane in ((2, "none", "allreduce:algo=ring", "gradients"),
                                         (3, "qsgd:bits=4", "allreduce:algo=ring", "gradients"),
                                         (4, "fp16+zlib", "allreduce:algo=ring", "gradients"),
                                         (2, "none", "sharded:algo=ring", "parameters")):
            with self.subTest(ranks=ranks, codec=codec, lane=lane):
                done = gwrun.run(ranks, "train", "--quiet", *SMALL, "--comm", comm, "--compress",
                                 codec, "--wire-check", "on", env=env)
                self.assertRegex(gwrun.failure(done), rf"rank {2 % ranks}: step \d+: from rank 1: codec "
                                 rf"{re.escape(codec)}: a frame's checksum is 0x\w+, expected 0x\w+: .* \({lane}, "
                                 r"layers? \d.*, floats \d+ to \d+; frame \d+ that this rank checked\)")

    def test_flipped_activation(self):
        env = gwrun.preload(self.dir, FLIP)
        for lane, codec, *mesh in (("deltas", "none", "pipe=2"),
                                   ("deltas", "fp16", "pipe=2", "--compress-deltas", "fp16"),
                                   ("tensor outputs", "none", "tensor=2", "--tensor-algo", "ring")):
            with self.subTest(lane=lane, codec=codec):
                done = gwrun.run(2, "train", "--quiet", *SMALL, "--microbatches", 2, "--wire-check",
                                 "on", "--mesh", *mesh, env=env)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, rf"rank 0: step \d+: from rank 1: codec {codec}: a "
                                 rf"frame's checksum is .* \({lane}, floats \d+ to \d+; frame \d+")

    def test_flipped_while_algorithms_are_tried(self):
        """Before the first step: the other ranks, which wait in that exchange, do not wait for ever."""
        done = gwrun.run(2, "train", "--quiet", *SMALL, "--comm", "allreduce:algo=auto",
                         "--wire-check", "on", env=gwrun.preload(self.dir, FLIP))
        self.assertRegex(gwrun.failure(done), r"rank 0: from rank 1: codec none: a frame's checksum is")
