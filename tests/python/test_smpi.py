"""Simulated allreduces beside SimGrid's SMPI (smpicc, smpirun), a simulator of others: the same messages within 10%."""

import os
import re
import subprocess

import gwrun
from test_simulate import LINK, parse

# One rank of GOAL text in the order of its labels: a send or receive is posted, what a calculation requires is awaited.
RANK = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int me, rank = -1, peer, tag, bytes, labels = atoi(argv[2]);
    int at, need;
    char line[128], kind[8], *data = malloc(atol(argv[3]));
    MPI_Request *request = malloc(labels * sizeof *request);
    FILE *in = fopen(argv[1], "r");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    for (int i = 0; i < labels; i++)
        request[i] = MPI_REQUEST_NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), took, longest;
    while (fgets(line, sizeof line, in)) {
        if (sscanf(line, "rank %d", &rank) == 1 || rank != me)
            continue;
        if (sscanf(line, "l%d: %4s %db %*s %d tag %d", &at, kind, &bytes, &peer, &tag) == 5) {
            if (kind[0] == 's')
                MPI_Isend(data, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request[at]);
            else
                MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request[at]);
        } else if (sscanf(line, "l%d requires l%d", &at, &need) == 2) {
            MPI_Wait(&request[need], MPI_STATUS_IGNORE);
        }
    }
    MPI_Waitall(labels, request, MPI_STATUSES_IGNORE);
    took = MPI_Wtime() - begin;
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (me == 0)
        printf("longest %.9f\n", longest);
    MPI_Finalize();
    return 0;
}
"""
# LINK in its words: up and down take half of the latency each; a message's overhead at each end; nothing is held up by
# a late receive, no factors on bandwidth and latency, and no acknowledgements in the other direction.
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="all" prefix="h" suffix="" radical="0-63" speed="1Gf" bw="1GBps" lat="10us" sharing_policy="SPLITDUPLEX"/>
</platform>
"""
CONFIG = ["--cfg=" + text for text in (
    "smpi/bw-factor:0:1", "smpi/lat-factor:0:1", "smpi/os:0:2e-6:0", "smpi/ois:0:2e-6:0", "smpi/or:0:2e-6:0",
    "smpi/async-small-thresh:0", "smpi/send-is-detached-thresh:1000000000", "network/crosstraffic:0",
    "smpi/simulate-computation:no", "smpi/privatization:no", "smpi/auto-shared-malloc-thresh:100000")]


class Smpi(gwrun.Case):
    def test_allreduces(self):
        gwrun.write(self.path("rank.c"), RANK)
        gwrun.write(self.path("p.xml"), PLATFORM)
        gwrun.write(self.path("hosts"), "".join(f"h{i}\n" for i in range(64)))
        goal, size = self.path("f.goal"), 3200000
        subprocess.run(["smpicc", "-O1", self.path("rank.c"), "-o", self.path("rank")], check=True, capture_output=True)
        for algo, sizes in (("(ring:chunk=0)", (4, 16)), ("(halving:chunk=0)", (4, 16, 64)), ("doubling", (64,)),
                            ("sra", (4, 16))):
            for ranks in sizes:
                gwrun.clean(0, "simulate", "--ranks", ranks, *LINK, "--bytes", size, "--steps", 1, "--comm",
                            f"allreduce:algo={algo}", "--goal", goal, "--json", self.path("f.json"))
                labels = 1 + max(int(label[1:]) for rank in parse(gwrun.read(goal)) for label in rank)
                done = gwrun.finished(["smpirun", "-np", str(ranks), "-platform", self.path("p.xml"), "-hostfile",
                                       self.path("hosts"), *CONFIG, self.path("rank"), goal, str(labels), str(size)],
                                      env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"})
                self.assertEqual(done.returncode, 0, done.stderr)
                theirs = float(re.search(r"^longest (\S+)$", done.stdout, re.MULTILINE).group(1))
                own = gwrun.read_json(self.path("f.json"))["step_s"]
                self.assertAlmostEqual(own, theirs, delta=0.1 * theirs, msg=(algo, ranks))
