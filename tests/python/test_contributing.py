"""The examples of docs/extend-*.md, each as its page says: plugins train together, and a benchmark, a chart and an event
group take their file and one line."""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from test_counters import has_sde

SOURCE, BUILD = os.environ["SOURCE"], os.environ["BUILD"]
KINDS = {"sign": "codec", "chain": "algo", "whole": "strategy", "early": "timetable"}


def blocks(page, language):
    """The text of each block of a page of docs in that language."""
    with open(os.path.join(SOURCE, "docs", page), encoding="utf-8") as file:
        return re.findall(rf"^```{language}\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)


def examples():
    """{name: source} of the complete files in C; each begins with a comment '/* NAME: ...'."""
    found = [block for path in sorted(glob.glob(os.path.join(SOURCE, "docs", "extend-*.md")))
             for block in blocks(os.path.basename(path), "c")]
    return {name[1]: block for block in found if (name := re.match(r"/\* (\w+): ", block))}


def compiler():
    """Compiler and options of the build, from the command that compiled the program's main."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        command = next(c["command"] for c in json.load(file) if c["file"].endswith("cli/main.c"))
    words = shlex.split(command)
    return words[:words.index("-o")]


class Examples(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def run_well(self, command):
        done = subprocess.run(command, cwd=self.dir.name, text=True, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def build(self):
        found = examples()
        for name, kind in KINDS.items():
            path = os.path.join(self.dir.name, name)
            with open(path + ".c", "w", encoding="utf-8") as file:
                file.write(found[name].replace(f"gw_{kind}_{name}", f"gw_{kind}_plugin"))
            self.run_well(compiler() + ["-shared", "-fPIC", path + ".c", "-o", path + ".so"])

    def train(self, *words):
        """run.json of a short run."""
        self.run_well([os.environ["MPIEXEC"], "-n", "2", os.environ["PROGRAM"], "train",
                       "--data", "synthetic:samples=2000,features=20,classes=4,seed=1",
                       "--layers", "16", "--batch", "32", "--out", "run", "--overwrite", "--quiet",
                       "--overhead", "0", *words])
        with open(os.path.join(self.dir.name, "run", "run.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_examples_train(self):
        self.build()
        run = self.train("--steps", "200", "--update", "lazy", "--comm",
                         "./whole.so:algo=./chain.so", "--compress", "./sign.so")
        self.assertEqual(run["comm"], {"strategy": "whole", "algorithm": "chain", "codec": "sign",
                                       "error_feedback": True, "unmet": [],
                                       "encoded": run["comm"]["encoded"], "notes": None, "layers": None, "warning": None})
        self.assertEqual(run["results"]["steps"], 200)
        # Four classes: what learns nothing is right once in four times.
        self.assertGreater(run["results"]["test_accuracy"], 0.5)

    def write(self, name, text):
        path = os.path.join(self.dir.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def link(self, without, *more):
        """Link the program anew as ./gradwire, of the objects of the build without those whose names
        have `without`, and with `more`."""
        with open(os.path.join(BUILD, "CMakeFiles/gradwire.dir/link.txt"), encoding="utf-8") as file:
            all_words = shlex.split(file.read())
        words = [word for word in all_words if without not in word]
        self.assertLess(len(words), len(all_words))
        words[words.index("-o") + 1] = os.path.join(self.dir.name, "gradwire")
        done = subprocess.run([*words, *more], cwd=BUILD, text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_executor_is_a_file(self):
        path = self.write("tally.c", examples()["tally"])
        self.run_well([*compiler(), "-c", path, "-o", path + ".o"])
        self.link("/src/cli/", path + ".o")
        # Three layers and the loss; each layer's gradient, and its descent.
        self.assertRegex(self.run_well(["./gradwire"]), r"^forward 4, backward 6, loss 1\.\d+\n$")

    def test_benchmark_is_a_file_and_a_line(self):
        """In a program that is linked anew, of the objects of the build."""
        registry = "cli/bench/benchmarks.def"
        with open(os.path.join(SOURCE, "src", registry), encoding="utf-8") as file:
            self.write(registry, file.read() + "X(barrier)\n")
        words = compiler()
        words.insert(next(i for i, word in enumerate(words) if word.startswith("-I")), f"-I{self.dir.name}")
        ours = {}
        for name, path in (("bench", os.path.join(SOURCE, "src/cli/bench/bench.c")),
                           ("bench_barrier", self.write("bench_barrier.c", examples()["barrier"]))):
            ours[name] = os.path.join(self.dir.name, f"{name}.o")
            self.run_well([*words, "-c", path, "-o", ours[name]])
        self.link("/bench/bench.c.o", *ours.values())
        self.assertIn("\n  barrier    what MPI_Barrier takes\n", self.run_well(["./gradwire", "bench", "--help"]))
        self.run_well([os.environ["MPIEXEC"], "-n", "2", "./gradwire", "bench", "barrier", "--rounds", "20", "--json", "out.json"])
        with open(os.path.join(self.dir.name, "out.json"), encoding="utf-8") as file:
            row, = json.load(file)["results"]
        self.assertEqual(row["rounds"], 20)
        self.assertTrue(0 < row["min_s"] <= row["median_s"] <= row["p95_s"])

    def test_chart_is_a_file_and_a_line(self):
        tool = os.path.join(self.dir.name, "analysis")
        shutil.copytree(os.path.join(SOURCE, "analysis"), tool, ignore=shutil.ignore_patterns("__pycache__"))
        text, = blocks("extend-chart.md", "python")
        self.write("analysis/reporting/charts/spread.py", text)
        path = os.path.join(tool, "reporting/charts/__init__.py")
        with open(path, encoding="utf-8") as file:
            order = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(order.replace("ORDER = [", 'ORDER = ["spread", ', 1))
        steps = []
        for seed in ("1", "2"):
            steps.append(self.train("--steps", "30", "--seed", seed)["results"]["summary"]["wall_s"])
            shutil.move(os.path.join(self.dir.name, "run"), os.path.join(self.dir.name, "runs", seed))
        self.run_well([sys.executable, "-B", os.path.join(tool, "report"), "runs", "--plots", "plots"])
        with open(os.path.join(self.dir.name, "runs", "report.html"), encoding="utf-8") as file:
            shown = re.search(r'id="s0-spread">.*?<tbody>.*?data-v="2".*?data-v="([^"]*)"', file.read(), re.DOTALL)
        self.assertAlmostEqual(float(shown[1]), max(steps) / min(steps), places=6)
        self.assertTrue(os.path.exists(os.path.join(self.dir.name, "plots", "spread.svg")))

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
        path = os.path.join(self.dir.name, "early.so")
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
            path = os.path.join(self.dir.name, name)
            with open(path + ".c", encoding="utf-8") as file:
                text = file.read()
            self.assertIn(good, text)
            with open(path + ".c", "w", encoding="utf-8") as file:
                file.write(text.replace(good, bad))
            self.run_well(compiler() + ["-shared", "-fPIC", path + ".c", "-o", path + ".so"])
            done = subprocess.run([os.path.join(SOURCE, "tests/plugin"), path + ".so", BUILD, "2"],
                                  text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("breaks the contract", done.stderr)

    def test_path_of_a_plugin_is_cut_between_characters(self):
        """Where run.json keeps only so much of a spec."""
        self.build()
        for first in "a", "aa":
            folder = os.path.join(self.dir.name, first + 90 * "\u00fc")
            os.makedirs(folder)
            os.rename(os.path.join(self.dir.name, "sign.so"), os.path.join(folder, "sign.so"))
            spec = os.path.join(folder, "sign.so")
            run = self.train("--steps", "3", "--compress-stats", "1", "--compress",
                             f"{spec};layer1={spec};layer0={spec}")
            kept = [run["comm"]["codec"], *(layer["codec"] for layer in run["comm"]["layers"])]
            for text in kept:
                self.assertTrue(spec.startswith(text) or text.startswith(spec), text)
            os.rename(spec, os.path.join(self.dir.name, "sign.so"))


if __name__ == "__main__":
    unittest.main()
