"""What the report reads: studies and single runs, and what it leaves out, with the reason."""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import unittest

import gwrun
from reportcase import ReportCase

from reporting import batches, ends, levels, page, runs, shape, verdicts


class Reading(ReportCase):
    def only(self):
        """The single Results of self.dir."""
        results = runs.read_results(self.dir)
        self.assertEqual(len(results), 1)
        return results[0]

    def test_figures(self):
        folder = self.copy("one")
        run = self.only().cells[0].runs[0]
        rows = [row for row in gwrun.batches(folder) if int(row["step"]) > 10]
        walls = {}
        for row in rows:
            walls.setdefault(row["step"], []).append(float(row["wall_s"]))
        slowest = [max(pair) for pair in walls.values()]
        self.assertEqual(list(run.walls), slowest)
        self.assertAlmostEqual(run.means["slowest_wall_s"], statistics.fmean(slowest))
        told = run.info["results"]["summary"]  # what has a time is of the same steps as the step time
        self.assertEqual((run.step_s, run.means["wall_s"], run.means["forward_s"]),
                         (told["wall_s"], told["wall_s"], told["phases"]["forward_s"]))
        for column in ("wire_bytes", "messages"):
            mean = statistics.fmean(float(row[column]) for row in rows)
            self.assertAlmostEqual(run.means[column], mean, delta=1e-12 * mean)
        self.assertIsNone(run.means["core_ctr_s"])  # no ceilings, no counters: blank, never 0
        self.assertEqual(run.present["core_ctr_s"], 0)
        self.assertEqual(run.present["wall_s"], 1)
        self.assertEqual([row["epoch"] for row in run.epochs], [1, 2])

    def test_short_runs_keep_all_steps(self):
        folder = self.copy("one")
        lines = gwrun.read(folder, "batches.csv").splitlines(True)
        for steps, kept in ((20, 20), (21, 11)):
            gwrun.write(os.path.join(folder, "batches.csv"), "".join(lines[:1 + 2 * steps]))
            gwrun.change(folder, lambda info, n=steps: info["results"].update(steps=n))
            self.assertEqual(len(self.only().cells[0].runs[0].walls), kept)

    def test_order_of_rows_does_not_matter(self):
        folder = self.copy("one")
        before = self.only().cells[0].runs[0]
        path = os.path.join(folder, "batches.csv")
        titles, *rows = gwrun.read(path).splitlines(True)
        gwrun.write(path, titles + "".join(sorted(rows)))
        after = self.only().cells[0].runs[0]
        self.assertEqual(list(before.walls), list(after.walls))
        self.assertAlmostEqual(before.means["wall_s"], after.means["wall_s"])

    def test_levels_without_a_study(self):
        self.copy("a")
        self.copy("b", "iallreduce")
        gwrun.change(self.copy("c", "iallreduce"), lambda info: info["options"].update(bound=True))
        found = self.only()
        self.assertEqual(found.factors, {"comm": ["allreduce", "iallreduce:algo=sra"]})
        self.assertEqual([(cell.label, len(cell.runs)) for cell in found.cells],
                         [("allreduce", 1), ("iallreduce:algo=sra", 2)])  # b and c begin with nothing
        self.assertIsNone(found.study)
        self.assertIsNone(found.cells[0].runs[0].block)

    def test_names_are_those_of_the_folders(self):
        """The last of a path, of repetitions what they begin with; the whole path where the last does not do."""
        for names, wanted in (
                (("x/plain", "y/ring-1", "y/ring-2"), ["plain", "ring"]), (("a/1", "b/1"), ["a/1", "b/1"]),
                (("a/1", "b/1", "b/2"), ["a/1", "b"]), (("1", "2", "3"), ["allreduce", "iallreduce:algo=sra"])):
            with self.subTest(names=names):
                for i, name in enumerate(names):
                    self.copy(name, "iallreduce" if i else "allreduce")
                self.assertEqual([cell.label for cell in self.only().cells], wanted)
                for name in names:
                    shutil.rmtree(self.path(name.partition("/")[0]), ignore_errors=True)

    def test_different_work_and_links_are_apart(self):
        """Each with its own reference; a run without figures is with none of them."""
        def batch(info):
            info["options"].update(batch=80)
        for name in ("a", "b", "c", "d"):
            self.copy(name, "iallreduce" if name in "bd" else "allreduce")
        gwrun.change(self.path("c"), batch)
        gwrun.change(self.path("d"), batch)
        gwrun.change(self.copy("e"), lambda info: info.update(
            link={"emulated": True, "hosts": 2, "rate_bits_per_s": 200000000}))
        os.unlink(os.path.join(self.copy("f"), "run.json"))
        lost, *found = runs.read_results(self.dir)
        top = os.path.basename(self.dir)
        self.assertEqual([(one.name, [cell.label for cell in one.cells], list(one.factors)) for one in found], [
            (f"{top}: batch 40, rate none", ["a", "b"], ["comm"]), (f"{top}: batch 80, rate none", ["c", "d"], ["comm"]),
            (f"{top}: batch 40, rate 200mbit", ["e"], [])])
        self.assertEqual([verdicts.reference_of(one).label for one in found], ["a", "c", "e"])
        self.assertEqual((lost.name, lost.cells, len(lost.lost)), (f"{top}: without figures", [], 1))

    def test_marks(self):
        gwrun.change(self.copy("a"), lambda info: info["machine"].update(oversubscribed=True))
        gwrun.change(self.copy("b"), lambda info: info.update(
            link={"emulated": True, "hosts": 2, "rate_bits_per_s": 1000000000}))
        gwrun.change(self.path("b"), lambda info: info.update(
            resumed={"step": 9, "from_ranks": 2, "dropped": []}, interruptions=[{"event": "x"}]))
        gwrun.change(self.path("b"), lambda info: info["results"].update(stopped_by="SIGTERM"))
        for name, warned in (("a", True), ("b", False)):
            gwrun.change(self.path(name), lambda info, warned=warned: info["results"]["summary"]["halves"].update(
                warned=warned))
        found = runs.read_results(self.dir)
        marks = [set(run.marks) - {runs.MARK_INTERRUPTED} for one in found for run in one.runs]
        self.assertCountEqual(marks, [{"oversubscribed", runs.MARK_UNSETTLED}, {"emulated link", runs.MARK_RESUMED,
                                                              "interrupted by SIGTERM"}])
        self.assertEqual([one.runs[0].levels["rate"] for one in found], ["none", "1gbit"])

    def test_links_cost(self):
        """What the emulation took of the cores: a mark where train warned, and absent where it was not
        measured."""
        link = {"emulated": True, "hosts": 2, "rate_bits_per_s": 100000000,
                "host_rates": [[1000000000, 1000000000], [100000000, 200000000]],
                "piece": {"packets": 8, "mtu": 1500}}
        for name, cores in (("a", 0.04), ("b", 0.06), ("c", None)):
            cost = {"seconds": 2.5, "interrupts_s": cores and cores * 5, "ranks_system_s": 1.0,
                    "cores_per_rank": cores, "warned": name == "b"}
            gwrun.change(self.copy(name), lambda info, cost=cost: info.update(
                link={**link, "cost": cost}))
        found = [run for cell in self.only().cells for run in cell.runs]
        self.assertEqual([runs.MARK_LINK in run.marks for run in found], [False, True, False])
        self.assertEqual(page.link_cost_of(found), "4.0% to 6.0% of a core for each rank that trains, "
                         "in interrupts; absent in 1 runs")
        self.assertEqual(page.link_of(found[0].info),
                         "emulated, 1gbit/1gbit,100mbit/200mbit")

    def test_interrupted_batches(self):
        folder = self.copy("a")
        for share in (0.05, 0.15):
            gwrun.change(folder, lambda info, share=share: info["results"]["summary"].update(interrupted=share))
            run = self.only().cells[0].runs[0]
            self.assertEqual(runs.MARK_INTERRUPTED in run.marks, share > 0.1)

    def test_study(self):
        self.study()
        found = self.only()
        self.assertEqual((found.name, found.folder), ("demo", "demo"))
        self.assertEqual([cell.label for cell in found.cells], ["allreduce", "iallreduce:algo=sra"])
        self.assertEqual([len(cell.runs) for cell in found.cells], [2, 2])
        self.assertIs(found.baseline, found.cells[0])
        self.assertEqual([run.block for run in found.cells[0].runs], ["0", "1"])
        self.assertEqual(found.counts, {"done": 4})

    def test_several_studies(self):
        self.study("one")
        self.study("two", blocks=1)
        self.copy("alone")
        self.assertEqual([found.name for found in runs.read_results(self.dir)],
                         ["one", "two", os.path.basename(self.dir)])
        self.assertEqual([found.name for found in runs.read_results(self.path("two"))], ["two"])

    def test_runs_that_came_to_nothing(self):
        self.study()
        attempt = {"started_utc": "", "seconds": 2, "status": None, "signal": "SIGKILL",
                   "timed_out": False, "message": "first\nout of <memory>\n"}
        self.record("demo/b00-s1/comm=allreduce", state="failed", attempts=[attempt] * 2)
        self.record("demo/b00-s1/comm=iallreduce", state="diverged",
                   attempts=[{**attempt, "status": 1, "signal": None}])
        self.record("demo/b01-s1/comm=allreduce", state="running", attempts=[])
        shutil.rmtree(self.path("demo/b01-s1/comm=iallreduce"))
        found = self.only()
        self.assertEqual(found.cells, [])
        self.assertEqual(found.lost, [
            ("failed", "demo/b00-s1/comm=allreduce", "comm=allreduce",
             "signal SIGKILL, 2 attempts: out of <memory>", 1),
            ("diverged", "demo/b00-s1/comm=iallreduce", "comm=iallreduce", "exit status 1: out of <memory>", 1),
            ("unfinished", "demo/b01-s1/comm=allreduce", "comm=allreduce", ends.WITHOUT_RECORD, 1)])
        self.assertEqual(found.missing, ["b01-s1/comm=iallreduce"])

    def test_no_run_is_left(self):
        os.unlink(os.path.join(self.copy("one"), "epochs.csv"))
        self.assertIn("No finished run.", page.first_screen(self.only(), None, "", ()))

    def test_study_and_runs_disagree(self):
        self.study()
        self.record("demo/b00-s1/comm=allreduce", study="other")
        self.record("demo/b01-s1/comm=allreduce", levels={"comm": "ps"})
        self.record("demo/b01-s1/comm=iallreduce", block=0)
        self.copy("demo/b01-s1/foreign")
        found = self.only()
        reasons = [why for _, why in found.left_out]
        self.assertEqual(sum("of another study" in why for why in reasons), 2)
        self.assertEqual(sum("the same cell and block as" in why for why in reasons), 1)
        self.assertEqual(sum("experiment.json: No such file" in why for why in reasons), 1)

    def test_bad_study_loses_no_runs(self):
        self.study()
        gwrun.write(self.path("demo", "study.json"), '{"schema": 1, "name": 3}')
        found = self.only()
        self.assertIsNone(found.study)
        self.assertEqual(sum(len(cell.runs) for cell in found.cells), 4)
        self.assertIn("study.json: name is 3, not a text; its runs", found.left_out[0][1])


class Labels(unittest.TestCase):
    CELLS = {"base": {"ranks": "2", "comm": "ps", "seed": "1"},
             "one": {"ranks": "1", "comm": "ps", "seed": "1"},
             "other": {"ranks": "2", "comm": "local", "seed": "1"}}
    FACTORS = {"ranks": [], "comm": [], "seed": []}

    def test_what_varies(self):
        self.assertEqual(list(levels.make_labels(self.CELLS, self.FACTORS).values()),
                         ["ranks 2, ps", "ranks 1, ps", "ranks 2, local"])

    def test_around_the_baseline(self):
        labels = levels.make_labels(self.CELLS, self.FACTORS, self.CELLS["base"])
        self.assertEqual(list(labels.values()), ["ranks 2, ps", "ranks 1", "local"])

    def test_a_level_of_two_factors_is_told_with_its_factor(self):
        cells = {1: {"up": "ring", "down": "tree"}, 2: {"up": "tree", "down": "ring"}, 3: {"up": "ring", "down": "star"}}
        self.assertEqual(list(levels.make_labels(cells, {"up": [], "down": []}).values()),
                         ["up ring, down tree", "up tree, down ring", "up ring, star"])


class LeftOut(ReportCase):
    """One good run and one bad run: the report continues, and says why."""

    def reason(self, spoil):
        """Why the run is left out after spoil(its folder)."""
        good, bad = self.copy("good"), self.copy("bad")
        spoil(bad)
        found, = runs.read_results(self.dir)
        self.assertEqual([run.folder for cell in found.cells for run in cell.runs], ["good"])
        (folder, why), = found.left_out
        self.assertEqual(folder, "bad")
        self.assertEqual(len(why.splitlines()), 1)
        self.assertLess(len(why), 400)
        shutil.rmtree(good)
        shutil.rmtree(bad, ignore_errors=True)
        return why

    def text(self, name, change):
        def spoil(folder):
            path = os.path.join(folder, name)
            text = gwrun.read(path)
            gwrun.write(path, change(text))
        return self.reason(spoil)

    def value(self, *keys, value):
        """The reason after run.json[keys..] = value."""
        def change(info):
            *way, last = keys
            for key in way:
                info = info[key]
            info[last] = value
        return self.reason(lambda folder: gwrun.change(folder, change))

    def test_figures_that_no_run_has(self):
        def walls(text, wall):
            titles, *rows = [line.split(",") for line in text.splitlines()]
            at = titles.index("wall_s")
            rows = [titles] + [row[:at] + [wall] + row[at + 1:] for row in rows]
            return "".join(",".join(row) + "\n" for row in rows)
        for wall in ("0", "1e300"):
            self.assertIn("a median step of",
                          self.text("batches.csv", lambda text, w=wall: walls(text, w)))
        self.assertIn("a step of", self.value("results", "summary", "wall_s", value=None))
        self.assertIn("test_accuracy outside 0 to 1", self.text(
            "epochs.csv", lambda text: "epoch,test_accuracy\n1,1e9\n"))
        self.assertIn("epochs.csv, line 3: more fields than the 2 columns", self.text(
            "epochs.csv", lambda text: "epoch,test_accuracy\n1,0.5\n2,0.5,0.5\n"))
        self.assertIn("not a number", self.value("results", "train_s", value=1e300))

    def test_half_written(self):
        for name in ("batches.csv", "epochs.csv"):
            why = self.reason(lambda folder, n=name: os.unlink(os.path.join(folder, n)))
            self.assertEqual(why, f"{name}: No such file or directory")
        self.assertIn("not valid JSON", self.text("run.json", lambda text: text[:5000]))
        self.assertIn("half written", self.text("batches.csv", lambda text: text[:9000]))
        self.assertIn("half written", self.text(
            "batches.csv", lambda text: text[:text.rindex("\n", 0, -1) + 1]))
        self.assertIn("half-written, or not a table", self.text(
            "batches.csv", lambda text: "rank," * 20000 + "\n"))

    def test_foreign(self):
        self.assertIn("has no schema", self.text("run.json", lambda text: '{"scores": [1, 2]}'))
        self.assertIn("has no schema", self.text("run.json", lambda text: "[1]"))
        self.assertEqual(self.value("schema", value=4),
                         "run.json: schema 4, this analysis reads schema 3")
        self.assertIn("schema true", self.value("schema", value=True))
        self.assertEqual(self.text("batches.csv", lambda text: "a,b\n1,2\n" * 99),
                         "batches.csv: no column rank")

    def test_hostile_json(self):
        for text in ("[" * 200000, '{"schema": ' + "9" * 5000 + "}", "\x00", '{"schema": NaN}'):
            self.assertIn("not valid JSON", self.text("run.json", lambda _, t=text: t))
        self.assertIn("longer than", self.text("run.json", lambda text: " " * (17 << 20) + text))
        self.assertIn("control characters", self.value("command", value="a\x1b[31m"))
        self.assertIn("control characters", self.value("options", value={"\ud800": 1}))

    def test_hostile_types(self):
        for keys, value in ((("options",), []), (("options", "comm"), {"a": 1}),
                            (("machine",), None), (("machine", "ranks"), -2),
                            (("machine", "ranks"), "2"), (("machine", "ranks"), True),
                            (("machine", "hosts"), [1]), (("link",), 7),
                            (("results", "steps"), 1e3), (("results", "elapsed_s"), 10 ** 400),
                            (("results", "summary", "wall_s"), "fast"),
                            (("results", "ranks"), [{"rank": 0}]),
                            (("ceilings",), {"levels": [[]]}), (("sources", "memory_s"), 5)):
            why = self.value(*keys, value=value)
            self.assertTrue(why.startswith("run.json: "), why)
            self.assertRegex(why, "not |lacks ")

    def test_counts_that_ask_for_memory(self):
        self.assertIn("half written", self.value("results", "steps", value=1 << 40))
        self.assertIn("half written", self.value("machine", "ranks", value=1 << 40))

    def test_hostile_rows(self):
        for change in (lambda text: text.replace("\n0,1,7,", "\n0,1,9999999,"),
                       lambda text: text.replace("\n0,1,7,", "\n-1,1,7,"),
                       lambda text: text.replace("\n0,1,7,", "\n0,1,nan,"),
                       lambda text: text.replace("\n0,1,7,", "\nx,1,7,"),
                       lambda text: text.replace("\n0,1,7,", '\n"0,1,7,'),
                       lambda text: text.replace("\n0,1,7,", "\n0,1,7,7,7,7,7,"),
                       lambda text: text.replace("rank,", "rank,rank,", 1)):
            self.assertTrue(self.text("batches.csv", change).startswith("batches.csv: "))

    def test_links_are_not_followed(self):
        for name in ("run.json", "batches.csv"):
            def spoil(folder, n=name):
                os.rename(os.path.join(folder, n), self.path(n))
                os.symlink(self.path(n), os.path.join(folder, n))
            with self.subTest(name):
                self.copy("d/good")
                spoil(self.copy("d/bad"))
                found, = runs.read_results(self.path("d"))
                self.assertEqual(found.left_out, [("bad", f"{name}: a link, not followed")])
                shutil.rmtree(self.path("d"))
        self.copy("d/good")
        os.symlink("/", self.path("d", "root"))
        found, = runs.read_results(self.path("d"))
        self.assertEqual(found.left_out, [("root", "a link to a folder: not followed")])
        self.assertEqual(len(found.cells), 1)

    def test_special_files(self):
        def pipe(folder):
            os.unlink(os.path.join(folder, "run.json"))
            os.mkfifo(os.path.join(folder, "run.json"))
        self.assertEqual(self.reason(pipe), "run.json: not a file")

    def test_nothing_there(self):
        self.assertEqual(runs.read_results(self.dir), [])
        with self.assertRaisesRegex(shape.Bad, "absent: No such file or directory"):
            runs.read_results(self.path("absent"))


class Shapes(unittest.TestCase):
    def test_first_disagreement(self):
        of = {"a": [shape.NUMBER], "b?": shape.Map(shape.Maybe(shape.TEXT)), "c": {"x", "y"}}
        shape.check({"a": [1, 2.5], "c": "x", "more": object()}, of, "f")
        for value, why in (({"a": [1, None], "c": "x"}, r"f: a\[1\] is null, not a number"),
                           ({"a": []}, "f lacks c"),
                           ({"a": [], "c": "z"}, 'f: c is "z", not one of x, y'),
                           ({"a": [], "c": "x", "b": {"k": 1}}, "f: b: k is 1, not a text")):
            with self.assertRaisesRegex(shape.Bad, why):
                shape.check(value, of, "f")


class Memory(ReportCase):
    """Ten million rows take less than 2 GiB, because memory grows by one number a step alone."""

    READ = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from reporting.batches import read_batches
found = read_batches(sys.argv[2], 2, int(sys.argv[3]))
print(len(found.walls), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""

    def peak(self, steps):
        """Peak memory of a process that read so many steps of two ranks."""
        titles, *rows = gwrun.read(self.real, "allreduce", "batches.csv").splitlines(True)
        rests = [row.split(",", 3)[3] for row in rows]
        with open(self.path("batches.csv"), "w", encoding="utf-8") as file:
            file.write(titles)
            for i in range(2 * steps):
                file.write(f"{i % 2},1,{i // 2 + 1},{rests[i % len(rests)]}")
        done = subprocess.run([sys.executable, "-B", "-c", self.READ, sys.path[0],
                               self.path("batches.csv"), str(steps)],
                              text=True, capture_output=True, check=True)
        walls, most = map(int, done.stdout.split())
        self.assertEqual(walls, steps - batches.WARM_UP)
        return most

    def test_grows_with_steps_only(self):
        few, many = 5 * batches.PIECE_ROWS // 2, 15 * batches.PIECE_ROWS // 2
        small, large = self.peak(few), self.peak(many)
        page = resource.getpagesize()
        self.assertLess(large - small, 100 * (many - few) + 1000 * page)
        self.assertLess(large + 100 * (5_000_000 - many), 2 << 30)
