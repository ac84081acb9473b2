"""The ledger's identities on real runs: sums, waiting against transfer, who sent how much to whom.
What a delay of known length does: test_delays."""

import os

import gwrun
import identities

STEPS = 60
SMALL = ("--data", "synthetic:samples=3840,features=64,classes=10", "--layers", "96,64")
BLOCKING = ("allreduce", "allreduce:algo=ring", "ps", "powersgd:rank=2")
# No message is there as soon as its exchange starts, which would go on at once then.
LINK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#define REAL(name) static __typeof__(&name) real; if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)
static int sent;
#if MPI_VERSION >= 4
int PMPI_Isend_c(const void *data, MPI_Count n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *r) {
    REAL(PMPI_Isend_c);
    sent = 1;
    return real(data, n, type, to, tag, comm, r);
}
#endif
int PMPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *r) {
    REAL(PMPI_Isend);
    sent = 1;
    return real(data, n, type, to, tag, comm, r);
}
int PMPI_Testall(int n, MPI_Request r[], int *done, MPI_Status status[]) {
    REAL(PMPI_Testall);
    *done = 0;
    if (sent)
        return sent = 0, MPI_SUCCESS;
    return real(n, r, done, status);
}
"""
OVERLAPPED = ("iallreduce:bucket=8K", "iallreduce:progress=thread,bucket=24K", "delayed", "sharded",
              "gossip", "local:period=4")


class Identities(gwrun.Case):

    def train(self, ranks, comm, *words):
        return gwrun.train(ranks, self.out, "--overwrite", "--collectives", *SMALL, "--steps", STEPS,
                           "--comm", comm, *words, ceilings=None)

    def check(self, ranks, blocking):
        identities.leaves(self, self.out, blocking)
        identities.gaps(self, self.out)
        identities.waits(self, self.out)
        identities.traffic(self, self.out)
        if blocking:
            identities.collectives(self, self.out, ranks)
            identities.waits_are_the_exchanges(self, self.out)

    def test_blocking(self):
        for ranks in (1, 2, 3):
            for comm in BLOCKING if ranks == 2 else BLOCKING[:2]:
                with self.subTest(ranks=ranks, comm=comm):
                    self.train(ranks, comm)
                    self.check(ranks, ranks > 1)

    def test_compressed(self):
        self.train(2, "allreduce:algo=sra", "--compress", "qsgd:bits=8")
        self.check(2, True)

    def test_overlapped(self):
        for comm in OVERLAPPED:
            with self.subTest(comm=comm):
                self.train(2, comm)
                self.check(2, False)
        for mode in ("bucket=8K", "progress=thread,algo=sra,order=priority,bucket=8K,credit=8K"):
            with self.subTest(lazy=mode):
                self.train(2, f"iallreduce:{mode}", "--update", "lazy")
                self.check(2, False)

    def test_lazy_steps_overlap(self):
        """A vote between two steps settles nothing: the second half of each exchange is sent in
        the next step, of the last one in its own. (The delay is for votes, which come by time.)"""
        gwrun.train(2, self.out, *SMALL, "--steps", 6, "--update", "lazy", "--inject-skew",
                    "0:0.05", "--comm", "iallreduce:algo=sra,progress=none", env=gwrun.preload(self.dir, LINK))
        for rows in identities.by_rank(gwrun.batches(self.out)):
            sent = [int(row["wire_bytes"]) for row in rows]
            whole = sum(sent) / len(sent)
            self.assertEqual(sent, [whole / 2] + [whole] * 4 + [whole * 3 / 2])

    def test_many_exchanges(self):
        """Hundreds a step: the flushes come closer, and nothing is lost."""
        self.train(2, "iallreduce:bucket=1K", "--data", "synthetic:samples=3840,features=784", "--layers", "256,128")
        identities.waits(self, self.out)
        a_step = len(identities.exchanges(self.out)) / STEPS
        self.assertGreater(a_step, 500)

    def test_neighbours_only(self):
        """A ring on three ranks sends to the right; gossip waits for neighbours alone."""
        self.train(3, "allreduce:algo=ring")
        sent = identities.traffic(self, self.out)
        peers = {(r["rank"], r["peer"]) for r in gwrun.rows(self.out, "matrix.csv")}
        self.assertEqual(peers, {("0", "1"), ("1", "2"), ("2", "0")})
        for rank, rows in enumerate(identities.by_rank(gwrun.batches(self.out))):
            self.assertEqual(sum(int(r["wire_bytes"]) for r in rows), sent[str(rank)])

    # ---- over a mesh ----

    def test_mesh(self):
        """Each dimension's figures, and its bytes and messages by formula."""
        widths = [64, 96, 64, 10]
        for sizes, micro, words in (
                ((1, 2, 1), 4, ("--timetable", "zb", "--recompute", "on")),
                ((1, 3, 1), 3, ("--timetable", "gpipe", "--stages", "1,1,1")),
                ((1, 1, 2), 1, ("--tensor-chunks", 2)),
                ((2, 2, 1), 2, ("--stages", "1,2")),
                ((2, 1, 2), 1, ()),
                ((1, 2, 2), 2, ("--stages", "2,1"))):
            with self.subTest(sizes=sizes, micro=micro, words=words):
                mesh = ",".join(map("{}={}".format, identities.DIMENSIONS, sizes))
                ranks = sizes[0] * sizes[1] * sizes[2]
                self.train(ranks, "allreduce", "--mesh", mesh, "--microbatches", micro, *words)
                for of_all in (identities.leaves, identities.gaps, identities.waits,
                               identities.traffic, identities.dimensions, identities.bubble):
                    of_all(self, self.out, *([False] if of_all is identities.leaves else []))
                run = gwrun.run_json(self.out)
                expected = identities.mesh_bytes(sizes, micro, 64, widths, run["mesh"]["layers"])
                for dim, figures in run["results"]["summary"]["dimensions"].items():
                    self.assertEqual((round(figures["bytes"] * ranks),
                                      round(figures["messages"] * ranks)), expected[dim], dim)
                recomputed = run["results"]["summary"]["phases"]["recompute_s"]
                self.assertEqual(recomputed > 0, "--recompute" in words)

    def test_source_of_bytes(self):
        """Modelled are those of MPI's own collectives, along each dimension."""
        for ranks, comm, words, source in (
                (2, "allreduce:algo=ring", ("tensor=2",), "modelled: .* [(]tensor[)]"),
                (2, "allreduce", ("tensor=2", "--tensor-algo", "ring"), "measured: "),
                (4, "allreduce:algo=ring", ("data=2,pipe=2",), "measured: "),
                (4, "allreduce", ("data=2,tensor=2", "--tensor-algo", "ring"),
                 "modelled: .* [(]data[)]")):
            with self.subTest(comm=comm, words=words):
                self.train(ranks, comm, "--steps", 3, "--mesh", *words)
                self.assertRegex(gwrun.run_json(self.out)["sources"]["wire_bytes"], source)
                modelled = {row["dimension"] for row in gwrun.rows(self.out, "matrix.csv")
                            if row["source"] == "modelled" and row["bytes"] != "0"}
                self.assertEqual(modelled, {dim for dim in identities.DIMENSIONS
                                            if f"({dim})" in source.replace("[", "").replace("]", "")})

    # ---- no waiting ----

    def test_alone_nobody_waits(self):
        self.train(1, "allreduce")
        results = gwrun.run_json(self.out)["results"]
        self.assertIsNone(results["straggler"])
        self.assertEqual(results["ranks"][0]["waiting_s"], 0)
        self.assertEqual(gwrun.rows(self.out, "matrix.csv"), [])

    def test_not_measured_is_blank(self):
        gwrun.train(2, self.out, *SMALL, "--steps", 20, "--profile", "off")
        for row in gwrun.batches(self.out):
            self.assertEqual((row["wait_skew_s"], row["transfer_s"], row["clock_err_s"]),
                             ("", "", ""))
        results = gwrun.run_json(self.out)["results"]
        self.assertIsNone(results["traffic"])
        self.assertIsNone(results["summary"]["waiting_s"])
        self.assertFalse(os.path.exists(os.path.join(self.out, "matrix.csv")))
