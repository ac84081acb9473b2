"""Ceilings and the memory split in a run folder: identities, sources, cache, bad files."""

import functools
import os
from unittest import mock

import gwrun
from gwrun import batches, run, run_json

train = functools.partial(gwrun.train, ceilings=None)
SET = ["--data", "synthetic:samples=640,features=64", "--layers", "64", "--epochs", "1",
       "--overhead", "3"]
COMPUTE = ("forward_s", "backward_s", "update_s")


def value(row, column):
    return float(row[column]) if row[column] else None


class Ceilings(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ, XDG_CACHE_HOME=self.path("cache")))

    def caches(self):
        folder = os.path.join(self.path("cache"), "gradwire")
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]

    def check_rows(self, rows):
        """Core and memory add up to computation, whichever end of the interval one takes."""
        inconsistent, most = 0, max(int(row["samples"]) for row in rows)
        for row in rows:
            samples = int(row["samples"])
            if "replica" in row:  # one of its ranks has the samples; all of them compute
                samples = max(int(other["samples"]) for other in rows
                              if (other["step"], other["replica"]) == (row["step"], row["replica"]))
            twin = value(row, "core_twin_s"), value(row, "memory_twin_s")
            model = [value(row, f"{part}_model_{end}_s") for part in ("core", "memory")
                     for end in ("lo", "hi")]
            compute = sum(value(row, column) for column in COMPUTE)
            if row["source"] == "":
                self.assertEqual((twin, model), ((None, None), [None] * 4))
                continue
            self.assertEqual(row["source"], "twin+model")
            self.assertGreaterEqual(min(twin), 0)
            self.assertLessEqual(sum(twin), compute * (1 + 1e-6))
            if None in model:
                self.assertEqual(model, [None] * 4)
                inconsistent += samples >= 0.9 * most
                continue
            core_lo, core_hi, memory_lo, memory_hi = model
            self.assertLessEqual(0, memory_lo)
            self.assertLessEqual(memory_lo, memory_hi)
            self.assertAlmostEqual((sum(twin) + core_lo + memory_hi) / compute, 1, places=6)
            self.assertAlmostEqual((sum(twin) + core_hi + memory_lo) / compute, 1, places=6)
        return inconsistent

    def check_run(self, ranks, *words):
        out = self.path(f"run{ranks}{len(words)}")
        facts = train(ranks, out, *SET, *words)
        rows = batches(out)
        inconsistent = self.check_rows(rows)
        memory, ceilings = facts["results"]["summary"]["memory_s"], facts["ceilings"]
        split = sum(row["source"] != "" for row in rows)
        self.assertEqual(memory["batches"], split)
        self.assertEqual(memory["batches_inconsistent"], inconsistent)
        self.assertEqual(memory["source"], "twin+model" if split else "absent")
        self.assertEqual(memory["twin_s"] is None, split == 0)
        self.assertIsNone(memory["ctr_s"])
        self.assertEqual(split == 0, facts["machine"]["oversubscribed"])
        self.assertEqual(ceilings["all_threads"], ranks)
        self.assertEqual(ceilings["oversubscribed"], facts["machine"]["oversubscribed"])
        self.assertEqual(len(ceilings["products"]), 5)
        self.assertEqual(len(ceilings["links"]), ranks > 1)
        drift = ceilings["drift"]
        self.assertEqual(ceilings["drifted"], None if drift is None else abs(drift) > 0.1)
        return facts

    def test_one_rank(self):
        first = self.check_run(1)["ceilings"]
        self.assertEqual((first["source"], first["note"]), ("measured", None))
        levels = [level["update_bytes_per_s"]["one"] for level in first["levels"]]
        self.assertGreater(min(levels), 0)
        again = self.check_run(1, "--seed", "2")["ceilings"]
        self.assertEqual((again["source"], again["times_measured_now"]), ("cached", 0))
        self.assertEqual(again["fma_flops_per_s"], first["fma_flops_per_s"])

    def test_two_ranks_with_a_codec(self):
        facts = self.check_run(2, "--compress", "qsgd", "--comm", "allreduce:algo=ring")
        rows = batches(self.path("run24"))
        told = [row["memory_codec_twin_s"] for row in rows if row["source"] != ""]
        self.assertTrue(all(told), "a codec with a twin, and a batch without the figure")
        self.assertEqual(facts["results"]["summary"]["memory_s"]["codec_twin_s"] is None,
                         not told)

    def test_three_ranks(self):
        self.check_run(3)

    def test_file(self):
        first = self.check_run(1)["ceilings"]
        self.assertEqual(len(self.caches()), 1)
        given = train(1, self.path("given"), *SET, "--ceilings", self.caches()[0])["ceilings"]
        self.assertEqual((given["source"], given["levels"]), ("file", first["levels"]))
        for word, text in (("line 1", "{"), ("gradwire_ceilings", "{}")):
            gwrun.write(self.path("bad.json"), text)
            done = run(2, "train", *SET, "--out", self.path("bad"), "--ceilings",
                       self.path("bad.json"))
            gwrun.refusal(done, word, "bad.json")
        foreign = dict(gwrun.read_json(self.caches()[0]), cpu="abacus")
        gwrun.write(self.path("bad.json"), foreign)
        done = run(1, "train", *SET, "--out", self.path("bad"), "--ceilings",
                   self.path("bad.json"))
        gwrun.refusal(done, "abacus")

    def test_damaged_cache_is_named_and_mended(self):
        self.check_run(1)
        gwrun.write(self.caches()[0], "[]")
        mended = train(1, self.path("mended"), *SET)["ceilings"]
        self.assertEqual(mended["source"], "measured")
        self.assertIn(self.caches()[0], mended["note"])
        self.assertEqual(train(1, self.path("again"), *SET)["ceilings"]["source"], "cached")

    def test_only_what_the_run_used(self):
        """The cache keeps the products and twins of all models, run.json those of its own model."""
        first = self.check_run(1)["ceilings"]
        other = train(1, self.path("other"), *SET[:2], "--layers", "40,24", "--epochs", 1,
                      "--compress", "qsgd")["ceilings"]
        again = self.check_run(1, "--seed", 3)["ceilings"]
        self.assertEqual(again["seconds"], first["seconds"])
        self.assertEqual(len(other["products"]), 8)
        self.assertEqual(set(first["seconds"]) & {"product nn 64x64x64", "product nn 64x40x64"},
                         {"product nn 64x64x64"})
        kept = gwrun.read_json(self.caches()[0])["seconds"]
        self.assertEqual(set(kept), {*first["seconds"], *other["seconds"]})

    def test_work(self):
        """What a roofline needs: operations, bytes and isolated times of each product of a step."""
        facts = train(2, self.path("work"), *SET, "--batch", "63")
        work, summary = facts["work"], facts["results"]["summary"]
        self.assertEqual(work["local_batch"], 32)
        alone = {(p["operands"], p["m"], p["n"], p["k"]): p["s"]
                 for p in facts["ceilings"]["products"]}
        for p in work["products"]:
            self.assertEqual(p["alone_s"],
                             None if facts["machine"]["oversubscribed"]
                             else alone[p["operands"], p["m"], p["n"], p["k"]])
            self.assertEqual(p["flops"], 2 * p["m"] * p["n"] * p["k"])
        self.assertEqual(len(work["products"]), 5)
        for key in ("flops", "bytes"):
            self.assertEqual(work[key], sum(p[key] for p in work["products"]))
        compute = summary["phases"]["forward_s"] + summary["phases"]["backward_s"]
        self.assertAlmostEqual(work["compute_s"] / compute, 1, places=6)
        self.assertAlmostEqual(work["flops_per_s"] / (work["flops"] / compute), 1, places=6)
        self.assertEqual(work["update_bytes"], 12 * facts["parameters"])

    def test_mesh(self):
        """Over a mesh, of the products of what each rank holds, with the rows of a microbatch."""
        for mesh, micro, shapes in (("pipe=2", 2, {(32, 64, 64), (32, 10, 64)}),
                                    ("tensor=2", 1, {(64, 32, 64), (64, 10, 32)})):
            out = self.path(mesh)
            facts = train(2, out, *SET, "--mesh", mesh, "--microbatches", str(micro))
            memory, rows = facts["results"]["summary"]["memory_s"], batches(out)
            self.assertEqual(memory["batches_inconsistent"], self.check_rows(rows))
            self.assertEqual(memory["batches"], sum(row["source"] != "" for row in rows))
            self.assertEqual(memory["batches"] == 0, facts["machine"]["oversubscribed"])
            found = {(p["m"], p["n"], p["k"]) for p in facts["ceilings"]["products"] if p["operands"] == "nn"}
            self.assertEqual(found, shapes)
            work = facts["work"]
            self.assertEqual((work["local_batch"], work["microbatches"]), (64, micro))
            first = 2 * 64 * 64 * 64 * 2 // (1 if mesh == "pipe=2" else 2)
            last = 0 if mesh == "pipe=2" else 2 * 64 * 32 * 10 * 3
            self.assertEqual(work["flops"], first + last)
            self.assertEqual(work["flops"],
                             micro * sum(p["flops"] for p in work["products"]))
            self.assertAlmostEqual(work["flops_per_s"] * work["compute_s"] / work["flops"], 1,
                                   places=6)

    def test_work_of_servers(self):
        """A rank that only serves computes nothing, which does not shorten the step of the others."""
        facts = train(2, self.path("work"), *SET, "--comm", "ps:dedicated=1", "--ceilings", "off")
        phases = facts["results"]["summary"]["phases"]
        self.assertEqual(facts["work"]["local_batch"], 64)
        self.assertAlmostEqual(facts["work"]["compute_s"] / 2 /
                               (phases["forward_s"] + phases["backward_s"]), 1, places=6)
        self.assertIsNone(facts["work"]["level"])

    def test_off(self):
        for words in (["--ceilings", "off"], ["--profile", "timers"]):
            out = self.path(words[1])
            facts = train(1, out, *SET, *words)
            self.assertIsNone(facts["ceilings"])
            self.assertEqual(facts["results"]["summary"]["memory_s"]["source"], "absent")
            self.assertEqual(self.check_rows(batches(out)), 0)
        self.assertNotIn("memory-bound", gwrun.well(run(1, "train", *SET, "--papi-group", "none")))
        self.assertFalse(os.path.exists(self.path("cache")), "measured for nobody")
        gwrun.refusal(run(1, "train", *SET, "--ceilings", "some.json"), "--out")

    def test_said_at_the_end(self):
        said = gwrun.well(run(1, "train", *SET, "--papi-group", "none", "--out", self.path("said")))
        memory = run_json(self.path("said"))["results"]["summary"]["memory_s"]
        torn = memory["batches_inconsistent"] > memory["batches"] / 2  # on a busy machine
        self.assertRegex(said, "memory-bound: not measurable here" if torn else
                         r"memory-bound (at least )?[0-9.]+.*twin")
