"""What fails during a run: one line, exit status 1, on every number of ranks, and no run.json."""

import itertools
import os

import faultcase
import gwrun

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


class Failure(gwrun.Case):
    def test_products(self):
        """The matrix library's failure ends the run; CBLAS has no way to tell one."""
        # From the 17th product on: in the fourth step, or in the evaluation after three of five products each.
        env = faultcase.product(self.dir, "fail", 17)
        for ranks, more in ((1, []), (1, ["--steps", "3"]), (2, [])):
            with self.subTest(ranks=ranks, more=more):
                out = self.path(f"run{ranks}{len(more)}")
                done = gwrun.run(ranks, "train", "--data", "synthetic:samples=2000,features=9",
                                 "--layers", "7", "--batch", 8, "--epochs", 1, "--out", out,
                                 *more, env=env)
                self.assertEqual(done.returncode, int(USES_DNNL), done.stderr)
                self.assertEqual(os.path.exists(os.path.join(out, "run.json")), not USES_DNNL)
                if USES_DNNL:
                    self.assertRegex(gwrun.failure(done), r"oneDNN.*\(out_of_memory\)")

    def test_one_rank_loses_the_others(self):
        """A failed MPI call, wherever: that rank says so and ends the job; it neither waits for the
        others, who wait for it, nor closes anything with them."""
        for comm, at in itertools.product(("allreduce:algo=ring", "delayed:algo=ring"),
                                          (3, 20, 40, 60)):
            with self.subTest(comm=comm, at=at):
                done = gwrun.run(2, "train", "--data", "synthetic:samples=2000,features=9",
                                 "--layers", "7", "--batch", 8, "--epochs", 3, "--ceilings", "off",
                                 "--verify-every", 5, "--comm", comm,
                                 env=gwrun.preload(self.dir, LOST, FAILS_AT=str(at)))
                self.assertRegex(gwrun.failure(done), "rank 1: MPI_Iallreduce")
