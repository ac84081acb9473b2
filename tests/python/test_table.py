"""analysis/table: the table's figures and units, absent figures, and bad folders."""

import copy
import json
import os

import gwrun

SCRIPT = os.path.join(gwrun.SOURCE, "analysis", "table")
RUN = {
    "schema": 3,
    "results": {
        "test_accuracy": 0.85714,
        "summary": {
            "wall_s": 0.000625,
            "compute_s": 0.0005,
            "memory_s": {"ctr_s": None, "twin_s": None, "model_lo_s": None, "model_hi_s": None},
            "exposed_s": 0.000125,
            "hidden_s": 0.0,
            "codec_s": 0.00001,
            "wire_bytes": 941096,
        },
    }
}


COUNTED = {**RUN["results"]["summary"]["memory_s"], "ctr_s": 0.0002}


def changed(**figures):
    """RUN with other figures of its summary."""
    return {**RUN, "results": {**RUN["results"], "summary": {**RUN["results"]["summary"], **figures}}}


class Table(gwrun.Case):

    def write(self, name, content):
        gwrun.write(self.path(name, "run.json"), content)
        return self.path(name)

    def table(self, *folders):
        return gwrun.script(SCRIPT, *folders)

    def test_figures(self):
        folders = self.write("blocking", RUN), self.write("overlap", changed(memory_s=COUNTED))
        few = self.table(*folders).stdout.splitlines()
        self.assertLessEqual(max(map(len, few)), 80)
        self.assertEqual(few[3].split(), ["blocking", "0.625", "0.500", "0.125", "0.010", "941,096",
                                          "0.8571"])
        lines = gwrun.quiet(self.table("--all", *folders)).splitlines()
        self.assertEqual(lines[1].count("ms"), 6)
        self.assertEqual(lines[3].split(), ["blocking", "0.625", "0.500", "absent", "0.125",
                                            "0.000", "0.010", "941,096", "0.8571"])
        self.assertEqual(lines[4].split()[:4], ["overlap", "0.625", "0.500", "0.200"])
        self.assertIn("absent: not measured", lines[-1])

    def test_no_footnote_without_need(self):
        self.assertNotIn("absent", gwrun.well(self.table("--all", self.write("counted", changed(memory_s=COUNTED)))))

    def test_bound(self):
        """Of its step, where a run has measured it; the columns are left out where none has."""
        bounded = {**RUN, "bound": {"bound_s": 0.0005, "mode": "eager"}}
        without = self.write("without", {**RUN, "bound": None})
        said = gwrun.quiet(self.table(self.write("bounded", bounded), without))
        titles, units, _, one, other = said.splitlines()[:5]
        self.assertRegex(titles, "^run +step +bound +of bound +compute ")
        self.assertRegex(units, r"^ +\(ms\) +\(ms\) +\(times\) +\(ms\) ")
        self.assertEqual(one.split()[:5], ["bounded", "0.625", "0.500", "1.25", "0.500"])
        self.assertEqual(other.split()[:3], ["without", "0.625", "0.500"])
        start, end = titles.index("step") + 4, titles.index("of bound") + 8
        self.assertEqual(other[start:end].strip(), "")
        self.assertIn("bound: of the step", said)
        self.assertNotIn("of bound", self.table(without).stdout)

    def test_memory_by_source(self):
        memory = {"ctr_s": None, "twin_s": 1e-5, "model_lo_s": 2e-5, "model_hi_s": 5e-5}
        said = gwrun.well(self.table("--all", *(
            self.write(name, changed(memory_s={**memory, **other})) for name, other in (
                ("twins", {}), ("counted", {"ctr_s": 4e-5}), ("bare", {"model_lo_s": None})))))
        cells = [line.split()[3] for line in said.splitlines()[3:6]]
        self.assertEqual(cells, ["0.030..0.060~", "0.040", "absent"])
        self.assertIn("~: modelled, not measured.", said)

    def test_marks(self):
        again = {**RUN, "resumed": {"step": 7}, "interruptions": [{"event": "ended"}]}
        run = {**RUN, "machine": {"oversubscribed": True},
               "sources": {"wire_bytes": "modelled: what the optimal collective sends"}}
        drifted = {**RUN, "ceilings": {"drifted": True}}
        done = self.table(self.write("three", run), self.write("two", RUN),
                          self.write("again", again),
                          self.write("drifted", drifted))
        lines = done.stdout.splitlines()
        self.assertRegex(lines[3], r"^three \*  .* 941,096~ ")
        self.assertRegex(lines[4], r"^two  .* 941,096 ")
        self.assertRegex(lines[5], r"^again \^  ")
        self.assertRegex(lines[6], r"^drifted !  ")
        self.assertIn("!: the machine's speed changed", done.stdout)
        self.assertIn("*: oversubscribed", done.stdout)
        self.assertIn("^: resumed", done.stdout)
        self.assertIn("~: modelled", done.stdout)

    def test_the_fastest_and_why(self):
        base = self.write("blocking", RUN)
        fast = self.write("qsgd", changed(wall_s=0.0005, exposed_s=0.00002, codec_s=0.00004))
        slow = self.write("zlib", changed(wall_s=0.002, codec_s=0.0014))
        said = self.table(base, slow, fast).stdout
        self.assertIn("fastest: qsgd, 0.80 of the step of blocking: "
                      "exposed communication 0.125 -> 0.020 ms\n", said)
        self.assertIn("fastest: none is faster than blocking by more than 2%\n",
                      self.table(base, slow).stdout)
        self.assertNotIn("fastest", self.table(base).stdout)

    def test_the_fastest_is_doubted_where_it_stands(self):
        base = self.write("blocking", RUN)
        busy = {"machine": {"busy": {"during": {"warned": True, "text": "others took 1 of 2 CPUs"}}}}
        said = self.table(base, self.write("qsgd", {**changed(wall_s=0.0005), **busy})).stdout
        self.assertRegex(said, r"\nfastest: qsgd, .*\n\(not to be trusted: qsgd\)\n")

    def test_different_work_is_not_compared(self):
        """A model, a batch or a link of its own has a table of its own, with a reference of its own."""
        def of(wall_s, batch, **more):
            return {**changed(wall_s=wall_s), "options": {"layers": "64", "batch": batch}, **more}
        link = {"emulated": True, "hosts": 2, "rate_bits_per_s": 200000000}
        said = self.table(self.write("a", of(1e-3, 64)), self.write("big", of(0.5, 4096)), self.write("b", of(9e-4, 64)),
                          self.write("quick", of(0.4, 4096)), self.write("far", of(0.7, 64, link=link))).stdout
        one, two, three = said.split("\n\n")
        self.assertRegex(one.strip(), r"(?s)^batch 64, rate none:\n.*\na .*\nb .*\nfastest: b, 0.90 of the step of a\b")
        self.assertRegex(two, r"(?s)^batch 4096, rate none:\n.*\nbig .*\nfastest: quick, 0.80 of the step of big\b")
        self.assertRegex(three, r"(?s)^batch 64, rate 200mbit:\n.*\nfar ")
        self.assertEqual(said.count("fastest:"), 2)
        self.refused("link: rate_bits_per_s is", self.write("odd", of(1e-3, 64, link={**link, "rate_bits_per_s": "x"})))

    def test_folder_of_runs(self):
        """It stands for the runs in it, in order of their names; what is no run is ignored."""
        for name in ("b", "a"):
            self.write(name, RUN)
        os.makedirs(self.path("no-run", "deeper"))
        done = self.table(self.dir)
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()[3:5]], ["a", "b"])

    def test_same_name_twice(self):
        done = self.table(self.write("a", RUN), self.write("b/a", RUN))
        self.assertEqual(done.stdout.count("941,096"), 2)

    def refused(self, word, *folders):
        gwrun.refusal(self.table(*folders), word)

    def test_bad_folders(self):
        lacking = copy.deepcopy(RUN)
        del lacking["results"]["summary"]["exposed_s"]
        self.refused("No such file", self.path("nothing"))
        self.refused("not valid JSON", self.write("torn", json.dumps(RUN)[:40]))
        self.refused("exposed_s", self.write("lacking", lacking))
        self.refused("RUN_DIR")

    def test_strange_figures(self):
        """Whatever stands in the place of anything that is read costs one line."""
        memory = {"ctr_s": None, "twin_s": 0.1, "model_lo_s": 0.1, "model_hi_s": 0.2}
        places = [("results",), ("results", "summary"), ("results", "test_accuracy"), ("machine",),
                  ("sources",), ("bound",), ("bound", "bound_s"),
                  *(("results", "summary", key) for key in RUN["results"]["summary"]),
                  *(("results", "summary", "memory_s", key) for key in memory)]
        for place in places:
            for value in ("x", [1], True, {"a": 1}):
                run = {**copy.deepcopy(RUN), "machine": {}, "sources": {},
                       "bound": {"bound_s": None}}
                if len(place) == 4:
                    run["results"]["summary"]["memory_s"] = dict(memory)
                *above, last = place
                of = run
                for key in above:
                    of = of[key]
                of[last] = value
                if value == {"a": 1} and place in (("machine",), ("sources",)):
                    continue
                with self.subTest(place=place, value=value):
                    name = f"{'-'.join(place)}-{json.dumps(value)[:2].strip('[{')}{type(value)}"
                    self.refused("run.json", self.write(name, run))
