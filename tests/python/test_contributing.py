"""The examples of docs/extend-*.md, each as its page says: plugins train together, and a benchmark, a chart and an event
group take their file and one line."""

import glob
import os
import re
import shlex
import shutil
import sys
import unittest

import gwrun
from test_counters import has_sde

SOURCE, BUILD = os.environ["SOURCE"], os.environ["BUILD"]
KINDS = {"sign": "codec", "chain": "algo", "whole": "strategy", "early": "timetable"}


def blocks(page, language):
    """The text of each block of a page of docs in that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", gwrun.read(SOURCE, "docs", page), re.MULTILINE | re.DOTALL)


def examples():
    """{name: source} of the complete files in C; each begins with a comment '/* NAME: ...'."""
    found = [block for path in sorted(glob.glob(os.path.join(SOURCE, "docs", "extend-*.md")))
             for block in blocks(os.path.basename(path), "c")]
    return {name[1]: block for block in found if (name := re.match(r"/\* (\w+): ", block))}


class Examples(gwrun.Case):

    def run_well(self, command):
        return gwrun.said(*command, cwd=self.dir)

    def build(self):
        found = examples()
        for name, kind in KINDS.items():
            gwrun.plugin(self.path(name), found[name].replace(f"gw_{kind}_{name}", f"gw_{kind}_plugin"))

    def train(self, *words):
        """run.json of a short run."""
        self.run_well([os.environ["MPIEXEC"], "-n", "2", os.environ["PROGRAM"], "train",
                       "--data", "synthetic:samples=2000,features=20,classes=4,seed=1",
                       "--layers", "16", "--batch", "32", "--out", "run", "--overwrite", "--quiet",
                       "--overhead", "0", *words])
        return gwrun.run_json(self.dir, "run")

    def test_examples_train(self):
        self.build()
        run = self.train("--steps", "200", "--update", "lazy", "--comm",
                         "./whole.so:algo=./chain.so", "--compress", "./sign.so")
        self.assertEqual(run["comm"], {"strategy": "whole", "algorithm": "chain", "codec": "sign",
                                       "error_feedback": True, "clip": None, "unmet": [],
                                       "encoded": run["comm"]["encoded"], "notes": None, "layers": None, "warning": None})
        self.assertEqual(run["results"]["steps"], 200)
        # Four classes: what learns nothing is right once in four times.
        self.assertGreater(run["results"]["test_accuracy"], 0.5)

    def link(self, without, *more):
        """Link the program anew as ./gradwire, of the objects of the build without those whose names
        have `without`, and with `more`."""
        all_words = shlex.split(gwrun.read(BUILD, "CMakeFiles/gradwire.dir/link.txt"))
        words = [word for word in all_words if without not in word]
        self.assertLess(len(words), len(all_words))
        words[words.index("-o") + 1] = self.path("gradwire")
        gwrun.said(*words, *more, cwd=BUILD)

    def test_executor_is_a_file(self):
        path = self.write("tally.c", examples()["tally"])
        self.run_well([*gwrun.compiler(), "-c", path, "-o", path + ".o"])
        self.link("/src/cli/", path + ".o")
        # Three layers; the lowest has no input whose gradient anybody needs.
        self.assertRegex(self.run_well(["./gradwire"]), r"^forward 3, weights 3, input \d, loss 1\.\d+\n$")

    def test_benchmark_is_a_file_and_a_line(self):
        """In a program that is linked anew, of the objects of the build."""
        registry = "cli/bench/benchmarks.def"
        self.write(registry, gwrun.read(SOURCE, "src", registry) + "X(barrier)\n")
        words = gwrun.compiler()
        words.insert(next(i for i, word in enumerate(words) if word.startswith("-I")), f"-I{self.dir}")
        ours = {}
        for name, path in (("bench", os.path.join(SOURCE, "src/cli/bench/bench.c")),
                           ("bench_barrier", self.write("bench_barrier.c", examples()["barrier"]))):
            ours[name] = self.path(f"{name}.o")
            self.run_well([*words, "-c", path, "-o", ours[name]])
        self.link("/bench/bench.c.o", *ours.values())
        self.assertIn("\n  barrier    what MPI_Barrier takes\n", self.run_well(["./gradwire", "bench", "--help"]))
        self.run_well([os.environ["MPIEXEC"], "-n", "2", "./gradwire", "bench", "barrier", "--rounds", "20", "--json", "out.json"])
        row, = gwrun.read_json(self.dir, "out.json")["results"]
        self.assertEqual(row["rounds"], 20)
        self.assertTrue(0 < row["min_s"] <= row["median_s"] <= row["p95_s"])

    def test_chart_is_a_file_and_a_line(self):
        tool = self.path("analysis")
        shutil.copytree(os.path.join(SOURCE, "analysis"), tool, ignore=shutil.ignore_patterns("__pycache__"))
        text, = blocks("extend-chart.md", "python")
        self.write("analysis/reporting/charts/spread.py", text)
        path = os.path.join(tool, "reporting/charts/__init__.py")
        order = gwrun.read(path)
        gwrun.write(path, order.replace("ORDER = [", 'ORDER = ["spread", ', 1))
        steps = []
        for seed in ("1", "2"):
            steps.append(self.train("--steps", "30", "--seed", seed)["results"]["summary"]["wall_s"])
            shutil.move(self.path("run"), self.path("runs", seed))
        self.run_well([sys.executable, "-B", os.path.join(tool, "report"), "runs", "--plots", "plots"])
        shown = re.search(r'id="s0-spread">.*?<tbody>.*?data-v="2".*?data-v="([^"]*)"',
                          gwrun.read(self.dir, "runs", "report.html"), re.DOTALL)
        self.assertAlmostEqual(float(shown[1]), max(steps) / min(steps), places=6)
        self.assertTrue(os.path.exists(self.path("plots", "spread.svg")))

    @unittest.skipUnless(has_sde(), "PAPI without its component sde")
    def test_event_group_counts(self):
        text, command = blocks("extend-event-group.md", "")
        path = self.write("messages.grp", text)
        self.assertIn(f"--papi-group ./{os.path.basename(path)}", command)
        papi = self.train("--steps", "30", "--comm", "allreduce:algo=ring", "--papi-group", "./messages.grp")["papi"]
        group, = papi["groups"]
        self.assertGreater(group["sums"]["messages"], 0)
        self.assertAlmostEqual(group["figures"]["bytes_per_message"], group["sums"]["sent"] / group["sums"]["messages"])

    def test_timetable_keeps_its_contract(self):
        self.build()
        path = self.path("early.so")
        self.assertIn(f"timetable {os.path.realpath(path)}: keeps its contract",
                      self.run_well([os.path.join(SOURCE, "tests/plugin"), path, BUILD]))

    def test_contract_is_broken(self):
        """A codec whose signs are lost, an algorithm whose last hop is left out, and a timetable that
        waits less than it says."""
        self.build()
        for name, good, bad in (("sign", "? -scale : scale", "? scale : scale"),
                                ("chain", "return gw_schedule_unpack(s, slot, span, false);",
                                 "return GW_OK;"),
                                ("early", "(stages - 1) * (cost->", "stages * (cost->")):
            path = self.path(name)
            text = gwrun.read(path + ".c")
            self.assertIn(good, text)
            done = gwrun.finished([os.path.join(SOURCE, "tests/plugin"),
                                   gwrun.plugin(path, text.replace(good, bad)), BUILD, "2"])
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("breaks the contract", done.stderr)

    def test_path_of_a_plugin_is_cut_between_characters(self):
        """Where run.json keeps only so much of a spec."""
        self.build()
        for first in "a", "aa":
            folder = self.path(first + 90 * "\u00fc")
            os.makedirs(folder)
            os.rename(self.path("sign.so"), os.path.join(folder, "sign.so"))
            spec = os.path.join(folder, "sign.so")
            run = self.train("--steps", "3", "--compress-stats", "1", "--compress",
                             f"{spec};layer1={spec};layer0={spec}")
            kept = [run["comm"]["codec"], *(layer["codec"] for layer in run["comm"]["layers"])]
            for text in kept:
                self.assertTrue(spec.startswith(text) or text.startswith(spec), text)
            os.rename(spec, self.path("sign.so"))
