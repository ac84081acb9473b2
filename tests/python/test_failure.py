"""What fails during a run: one line, exit status 1, on every number of ranks, and no run.json."""

import itertools
import os
import tempfile
import unittest

import gwrun

# Takes the place of oneDNN's; fails from the 17th product on: in the fourth step, or in the
# evaluation after three of five products each.
BROKEN = r"""
#include <stdint.h>
#include <string.h>
int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    static int calls;
    for (int64_t i = 0; i < m; i++)
        memset(c + i * ldc, 0, (size_t)n * sizeof *c);
    return ++calls < 17 ? 0 : 1;
}
"""


# Between the program and the MPI library: rank 1's FAILS_AT-th agreement fails, for it alone.
LOST = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
int PMPI_Iallreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                    MPI_Request *request) {
    static int (*real)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
    static int calls, rank, at;
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "PMPI_Iallreduce");
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
        at = atoi(getenv("FAILS_AT"));
    }
    if (rank == 1 && ++calls == at)
        return MPI_ERR_OTHER;
    return real(in, out, n, type, op, comm, request);
}
"""
USES_DNNL = gwrun.cached("GW_GEMM") != "cblas"


class Failure(unittest.TestCase):
    def test_products(self):
        """The matrix library's failure ends the run; CBLAS has no way to tell one."""
        with tempfile.TemporaryDirectory() as top:
            env = gwrun.preload(top, BROKEN)
            for ranks, more in ((1, []), (1, ["--steps", "3"]), (2, [])):
                with self.subTest(ranks=ranks, more=more):
                    out = os.path.join(top, f"run{ranks}{len(more)}")
                    done = gwrun.run(ranks, "train", "--data", "synthetic:samples=2000,features=9",
                                     "--layers", "7", "--batch", 8, "--epochs", 1, "--out", out,
                                     *more, env=env)
                    ours = [line for line in done.stderr.splitlines() if "gradwire:" in line]
                    self.assertEqual(done.returncode != 0, USES_DNNL, done.stderr)
                    self.assertEqual(os.path.exists(os.path.join(out, "run.json")), not USES_DNNL)
                    if USES_DNNL:
                        self.assertEqual(done.returncode, 1, done.stderr)
                        self.assertIn("oneDNN", ours[0])
                        self.assertIn("(out_of_memory)", ours[0])

    def test_one_rank_loses_the_others(self):
        """A failed MPI call, wherever: that rank says so and ends the job; it neither waits for the
        others, who wait for it, nor closes anything with them."""
        with tempfile.TemporaryDirectory() as top:
            for comm, at in itertools.product(("allreduce:algo=ring", "delayed:algo=ring"),
                                              (3, 20, 40, 60)):
                with self.subTest(comm=comm, at=at):
                    done = gwrun.run(2, "train", "--data", "synthetic:samples=2000,features=9",
                                     "--layers", "7", "--batch", 8, "--epochs", 3, "--ceilings", "off",
                                     "--verify-every", 5, "--comm", comm,
                                     env=gwrun.preload(top, LOST, FAILS_AT=str(at)))
                    ours = [line for line in done.stderr.splitlines() if "gradwire:" in line]
                    self.assertEqual((done.returncode, len(ours)), (1, 1), done.stderr)
                    self.assertRegex(ours[0], "rank 1: MPI_Iallreduce")


if __name__ == "__main__":
    unittest.main()
