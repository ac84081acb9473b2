"""Counters in whole runs: PAPI's own software events and gradwire's come back with the values they must
have, and what cannot be counted is refused or absent, with the reason."""

import math
import os
import re
import unittest

import gwrun

SMALL = ("--data", "synthetic:samples=1500,features=64,classes=5", "--layers", "32", "--epochs", "1")
SDE = "sde:::gradwire::"

# Half of every phase, whatever is counted.
HALF = f"""
cpu family=1 # no CPU of today
group half
event batches any = {SDE}batches
memory lower = 0.5 + 0 * batches
figure batches_twice = 2 * batches
"""

COMPUTE = ("forward_s", "backward_s", "update_s")


def has_sde():
    said = " ".join(gwrun.run(1, "doctor").stdout.split())
    return re.search(r"papi components [^;]*\bsde\b", said) is not None


def other_pmu():
    """A PMU that PAPI can be made to believe in and that is not this CPU's."""
    return "amd64_fam19h_zen4" if "GenuineIntel" in gwrun.read("/proc/cpuinfo") else "spr"


class Counters(gwrun.Case):

    def group_file(self, text):
        path = self.path("my.grp")
        gwrun.write(path, text)
        return path

    def refused(self, says, *words, ranks=1, **more):
        gwrun.refusal(gwrun.run(ranks, "train", *SMALL, *words, **more), says)

    def test_absent(self):
        """PAPI knows names that the kernel counts nothing for: no figure, a reason, and a run."""
        environment = dict(os.environ, LIBPFM_FORCE_PMU=other_pmu())
        gwrun.clean(1, "train", *SMALL, "--quiet", "--out", self.out, env=environment)
        run = gwrun.run_json(self.out)
        papi = run["papi"]
        self.assertRegex(run["sources"]["memory_s"], "^(modelled.*counters )?absent: ")
        self.assertIsNone(run["results"]["summary"]["memory_s"]["ctr_s"])
        self.assertEqual(papi["events_counted"], [])
        self.assertEqual(papi["groups"], [])
        self.assertIsNone(papi["reading"])
        for event in papi["events"]:
            self.assertIsNone(event["papi"])
            self.assertTrue(event["reason"])
        for row in gwrun.batches(self.out):
            self.assertEqual((row["memory_ctr_s"], row["core_ctr_s"]), ("", ""))
            self.assertNotEqual(row["source"], "ctr")
            self.assertEqual(list(row)[-1], "interrupted")

    def test_named_group_that_cannot_count(self):
        pmu = other_pmu()
        group = "intel-spr" if pmu == "spr" else "amd-zen4"
        environment = dict(os.environ, LIBPFM_FORCE_PMU=pmu)
        for ranks in (1, 2):
            self.refused(f"{group}: event ", "--papi-group", group, ranks=ranks, env=environment)
            self.refused("cannot be counted here: ", "--papi-group", f"{group}/traffic",
                         ranks=ranks, env=environment)

    def test_bad_options(self):
        self.refused("no group 'nosuch': must be one of ", "--papi-group", "nosuch")
        self.refused("amd-zen4 has no group 'x'", "--papi-group", "amd-zen4/x")
        self.refused("names of events with commas", "--papi-events", "A,,B")
        self.refused("NO_SUCH_EVENT cannot be found by that name", "--papi-events", "NO_SUCH_EVENT")
        self.refused("--papi-events excludes --profile timers: ",
                     "--papi-events", "A", "--profile", "timers")
        self.refused("--papi-group excludes --profile off: ",
                     "--papi-group", "amd-zen4", "--profile", "off")

    def test_older_run_stays(self):
        """What is refused leaves the run alone that it was to replace."""
        first = gwrun.train(1, self.out, *SMALL)
        self.refused("NO_SUCH_EVENT", "--papi-events", "NO_SUCH_EVENT", "--out", self.out,
                     "--overwrite")
        self.assertEqual(gwrun.run_json(self.out), first)
        self.assertGreater(len(gwrun.batches(self.out)), 0)

    def test_no_counters(self):
        run = gwrun.train(1, self.out, *SMALL, "--profile", "timers")
        self.assertIsNone(run["papi"])
        self.assertRegex(run["sources"]["memory_s"], "^(modelled.*counters )?absent")

    @unittest.skipUnless(has_sde(), "PAPI without its component sde")
    def test_own_events(self):
        """gradwire's own counts, through PAPI, equal the ledger's, batch by batch."""
        names = ("batches", "wire_bytes", "messages", "collectives")
        run = gwrun.train(2, self.out, *SMALL, "--comm", "iallreduce:algo=ring", "--papi-events",
                          ",".join(SDE + name for name in names))
        rows = gwrun.batches(self.out)
        self.assertGreater(len(rows), 20)
        self.assertGreater(int(rows[0]["messages"]), 0)
        for row in rows:
            self.assertEqual(row[SDE + "batches"], "1")
            for name in names[1:]:
                self.assertEqual(row[SDE + name], row[name])
        papi = run["papi"]
        self.assertEqual(papi["events_counted"], papi["events_wanted"])
        self.assertEqual(papi["reading"]["ranks"], 2)
        self.assertEqual(papi["reading"]["batches_lost"], 0)
        self.assertEqual(papi["groups"][0]["batches"], len(rows))
        self.assertEqual(papi["groups"][0]["sums"][SDE + "wire_bytes"],
                         sum(int(row["wire_bytes"]) for row in rows))

    @unittest.skipUnless(has_sde(), "PAPI without its component sde")
    def test_event_that_delivers_nothing(self):
        """PAPI accepts any name of the component sde, starts it, and reads -1."""
        for ranks in (1, 2):
            self.refused(f"{SDE}nosuch is accepted, but reads -1", "--papi-events", SDE + "nosuch",
                         ranks=ranks)

    @unittest.skipUnless(has_sde(), "PAPI without its component sde")
    def test_split(self):
        """A formula of known value splits each batch's computation."""
        path = self.group_file(HALF)
        run = gwrun.train(2, self.out, *SMALL, "--compress", "qsgd:bits=4", "--papi-group", path)
        rows = gwrun.batches(self.out)
        for row in rows:
            compute = sum(float(row[name]) for name in COMPUTE)
            codec = float(row["encode_s"]) + float(row["decode_s"])
            for column, value in (("memory_ctr_s", compute / 2), ("core_ctr_s", compute / 2),
                                  ("memory_codec_ctr_s", codec / 2)):
                self.assertTrue(math.isclose(float(row[column]), value, rel_tol=1e-8), row)
            self.assertEqual(row["source"], "ctr")
            self.assertEqual(row["batches"], "1")
        self.assertEqual(run["sources"]["memory_s"],
                         "measured: hardware counters (ctr), a lower bound")
        self.assertEqual(run["papi"]["group"], path)
        figures = run["papi"]["groups"][0]["figures"]
        self.assertEqual(figures, {"memory_bound": 0.5, "batches_twice": 2.0 * len(rows)})
        summary = run["results"]["summary"]
        self.assertGreater(summary["memory_s"]["ctr_s"], 0.25 * summary["compute_s"])
        self.assertLess(summary["memory_s"]["ctr_s"], summary["compute_s"])

    @unittest.skipUnless(has_sde(), "PAPI without its component sde")
    def test_turns(self):
        """Groups of a file and the user's own events come in turn, a batch each."""
        path = self.group_file(HALF + f"group other\nevent sent any = {SDE}wire_bytes\n")
        gwrun.train(1, self.out, *SMALL, "--papi-group", path, "--papi-events", SDE + "messages")
        for i, row in enumerate(gwrun.batches(self.out)):
            blank = [row[name] == "" for name in ("batches", "sent", SDE + "messages")]
            self.assertEqual(blank, [i % 3 != 0, i % 3 != 1, i % 3 != 2])
            self.assertEqual(row["memory_ctr_s"] == "", i % 3 != 0)
            self.assertEqual(row["source"] == "ctr", i % 3 == 0)

    def test_threads(self):
        """The kernel's clock of each thread, summed: in each batch something, and of two threads no more
        than twice the wall."""
        event = "perf::TASK-CLOCK"
        done = gwrun.run(1, "train", *SMALL, "--quiet", "--steps", "1", "--papi-events", event)
        if done.returncode != 0:
            self.skipTest(f"no software events of the kernel's: {done.stderr}")
        run = gwrun.train(1, self.out, *SMALL, "--threads", "2", "--papi-events", event)
        rows = gwrun.batches(self.out)
        self.assertEqual(run["papi"]["reading"]["threads"], 2)
        self.assertEqual(run["papi"]["reading"]["batches_lost"], 0)
        counted = sum(float(row[event]) for row in rows) * 1e-9
        self.assertTrue(all(float(row[event]) > 0 for row in rows))
        self.assertLess(counted, 2 * run["results"]["elapsed_s"])
