"""Every strategy, codec, algorithm and timetable gives back what it takes: tests/contract/leaks.c counts MPI's
objects, descriptors and memory. With 10,000 steps of each, before a release:
mpiexec -n 2 build/release/tests/leaks 2 10000"""

import glob
import os
import re
import unittest

import gwrun

LEAKS = os.path.join(os.environ["BUILD"], "tests", "leaks")
# What makes an object that must be freed or completed, MPI 4.0.
MAKERS = re.compile(r"\bMPI_(I(?!nit|n_place|nfo|probe|s_)[a-z]\w+|\w+_init(?:_c)?|Comm_(?:i?dup|split|"
                    r"create(?!_keyval))\w*|Type_(?:contiguous|vector|indexed|struct|dup|"
                    r"create_(?!keyval))\w*|Op_create\w*|Win_(?:allocate|create(?!_keyval))\w*|"
                    r"Comm_group|Group_(?:incl|excl|union|range)\w*)\(")


def leaks(*words):
    return gwrun.finished([gwrun.MPIEXEC, "-n", "2", LEAKS, "2", *words])


class Leaks(unittest.TestCase):
    def test_none(self):
        tried = {tuple(line.split()[:2]) for line in gwrun.quiet(leaks("30")).splitlines()}
        for comm in gwrun.names("comm/strategies.def"):
            self.assertTrue(any(words[0] == comm for words in tried), comm)
        for codec in gwrun.names("compress/codecs.def"):
            self.assertIn(("iallreduce", codec), tried)
        for algo in gwrun.names("comm/algos.def"):
            self.assertTrue(any(words[0].split(":path=")[0] == f"iallreduce:algo={algo}" for words in tried), algo)
        for timetable in gwrun.names("comm/pipeline/timetables.def"):
            self.assertIn(("pipe=2", timetable), tried)
        for split in ("pairs", "columns"):
            self.assertIn(("tensor=2", split), tried)

    def test_each_is_found(self):
        for what, steps, said in (("communicator", 30, "communicators, then"),
                                  ("request", 30, "requests, then"), ("type", 30, "types, then"),
                                  ("window", 30, "windows, then"),
                                  ("descriptor", 30, "open descriptors, then"),
                                  ("memory", 1000, "KiB resident, then")):
            with self.subTest(what=what):
                done = leaks(str(steps), "leak", what)
                self.assertEqual(done.returncode, 1)
                self.assertIn(said, done.stderr)

    def test_all_makers_are_watched(self):
        """What is counted nowhere could be lost unseen."""
        watched = set(re.findall(r"WATCH\(P?(MPI_\w+)", gwrun.read(gwrun.SOURCE, "tests/contract/objects.c")))
        watched |= {name + "_c" for name in ("MPI_Isend", "MPI_Irecv")}
        used = set()
        for folder in ("src", "comm", "compress"):
            for path in glob.glob(os.path.join(gwrun.SOURCE, folder, "**", "*.c"), recursive=True):
                if not os.path.basename(path).startswith("pmpi"):  # which hands all of them on
                    used |= {match.group(0)[:-1] for match in MAKERS.finditer(gwrun.read(path))}
        self.assertGreater(len(used), 8)
        self.assertLessEqual(used, watched)
