"""A study of another command than `gradwire train`: its places, its options in $GRADWIRE, and what the
runner can tell of it."""

import os
import re
import shlex

import gwrun
import speccase
from ablation import base, launch, spec
from reporting import info
from test_experiments import TRAIN, WRAPPER, Study, read

# A host program: options by $GRADWIRE, sizes of its own.
HOST = """#!/bin/bash
[ "$1" = --layers ] || exit 9
echo "$GRADWIRE" >>{folder}/told
exec {gradwire} train {train} --layers "$2" --steps 5 $GRADWIRE
"""
SPEC = """
claim: a test
command: {command}
ranks: 2
base: {{compress: fp16}}
factors:
  width: [8, 16]
  how: {{sum: {{comm: allreduce}}, server: {{comm: ps}}}}
"""


class Foreign(Study):
    def setUp(self):
        super().setUp()
        self.script("host", HOST)
        self.command = f"env MARK={{{{mine}}}} {{launcher}} {self.dir}/host --layers {{width}}"

    def told(self):
        """Of each rank that was started."""
        return [shlex.split(line) for line in read(self.path("told")).splitlines()]

    def test_runs(self):
        self.write(SPEC.format(command=self.command))
        self.assertIn("no estimate of the time before the first has ended", gwrun.quiet(self.call()))
        self.assertEqual(set(self.states().values()), {"done"})
        self.assertEqual(len(self.told()), 2 * 4)
        for folder, record in self.records().items():
            run = gwrun.run_json(os.path.join(self.out, folder))
            self.assertEqual(run["machine"]["ranks"], 2)
            self.assertEqual(run["options"]["layers"], record["levels"]["width"])
            self.assertEqual(run["options"]["comm"], {"sum": "allreduce", "server": "ps"}[record["levels"]["how"]])
            self.assertEqual(run["options"]["compress"], "fp16")
            self.assertIn("MARK={mine}", record["command"])
            words = shlex.split(record["environment"]["GRADWIRE"])
            self.assertEqual(self.told().count(words), 2)
            self.assertEqual(words[-4:], ["--seed", "1", "--out", os.path.join(self.out, folder)])
        again = self.call("--resume")
        self.assertIn("complete: nothing is left to run", again.stdout)

    def test_preview_and_array(self):
        """A line of the preview does what the run does."""
        self.write(SPEC.format(command=self.command))
        said = gwrun.quiet(self.call("--dry-run", "--only", "width=8,how=server"))
        line = next(line for line in said.splitlines() if " env " in line)
        gwrun.said("bash", "-c", line[line.index(" env "):])
        self.assertEqual(gwrun.run_json(os.path.join(self.out, self.told()[0][-1]))["options"]["comm"], "ps")

    def test_array(self):
        self.write(SPEC.format(command=self.command).replace("compress: fp16", "env.OMP_NUM_THREADS: 3"))
        self.assertIn("#SBATCH --cpus-per-task=3\n", gwrun.quiet(self.call("--slurm", "array.sh", "--dry-run")))
        gwrun.refusal(self.call("--jobs", "9999"), "runs of 6 ranks x threads")

    def test_refusals(self):
        self.write(SPEC.format(command="./nonesuch --layers {width}"))
        gwrun.refusal(self.call(), "spec.yaml:3: command: './nonesuch': no such program")
        self.write(SPEC.format(command=self.command).replace("comm:", "com:"))
        gwrun.refusal(self.call(), "unknown option 'com'; did you mean 'comm'?")

    def test_what_fails(self):
        self.write(SPEC.format(command=self.command).replace("comm: ps", "comm: nonesuch"))
        done = self.call("--only", "width=8")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.states(), {"width=8,how=sum": "done", "width=8,how=server": "failed"})
        self.assertIn("unknown strategy 'nonesuch'", done.stderr)

    def test_own_program_by_words(self):
        """As `gradwire train`, with a place: checked before it runs, and its time is estimated."""
        self.script("build/gradwire", WRAPPER.replace("{probe}", "{gradwire}"))
        self.write(f"claim: a test\ncommand: gradwire train --layers {{width}}\nbase: {TRAIN} --steps 5\n"
                   "factors: {width: [8, 16]}\n".replace("--layers 8 ", ""))
        self.assertIn("by a few steps of 1 of them", gwrun.quiet(self.call()))
        self.assertEqual([gwrun.run_json(os.path.join(self.out, folder))["options"]["layers"]
                          for folder in self.planned()],
                         [record["levels"]["width"] for record in map(self.records().get, self.planned())])
        self.write(read(self.spec).replace("[8, 16]", "[8, 0]"))
        gwrun.refusal(self.call(out=self.out + "2"), "spec.yaml:4: level '0' of 'width'")


class Simulated(Study):
    def test_beside_real_ranks(self):
        """Simulated ranks train as real ones do, to the bit; their times are marked as a model's."""
        self.write(f"claim: a test\nbase: {TRAIN} --comm allreduce:algo=ring --epochs 1\nranks: 2\nfactors: {{simulate: [false, true]}}\n")
        self.assertEqual(self.call().returncode, 0)
        real, simulated = (gwrun.run_json(os.path.join(self.out, f"b00-s1/simulate={word}")) for word in ("false", "true"))
        for key in ("test_loss", "test_accuracy", "wire_bytes", "replica_hash"):
            self.assertEqual(simulated["results"][key], real["results"][key], key)
        self.assertEqual([mark for mark, _ in info.unlike(simulated)], ["simulated"])


class Placement(speccase.Case):
    def test_simulated_placement(self):
        """The links of a cell by its rate, or the memory of one host; what the cell gives itself stays."""
        host = "--link 956mbit,40us,5us --memory-link 70gbit,1us"
        for settings, expected in (
                ("ranks: 4, simulate: true", f"--per-host 4 {host}"),
                ("ranks: 4, simulate: true, rate: none", f"--per-host 4 {host}"),
                ("ranks: 4, simulate: true, rate: 1gbit, per-host: 2", f"--per-host 2 {host}"),
                ("ranks: 4, simulate: true, rate: 200mbit, coding-ns: 1",
                 "--link 191.2mbit,40us,5us --memory-link 70gbit,1us --coding-ns 1"),
                ("ranks: 4, simulate: true, link: '1gbit,1us'",
                 "--link 1gbit,1us"), ("ranks: 4, simulate: false", None)):
            with self.subTest(settings=settings):
                cell, = self.read(f"claim: x\nfactors: {{a: {{b: {{{settings}}}}}}}").cells
                self.assertEqual(cell.words, ["--ranks", "4", *expected.split()] if expected else [])
                self.assertEqual((cell.simulated, cell.testbed), (expected is not None, None))

    def test_coding_of_profiles(self):
        """Training measures it; of a profile there is nothing to measure it on."""
        cell, = self.read("claim: x\ncommand: gradwire replay resnet18\nranks: 4\nsimulate: true\nfactors: {comm: [ps]}\n").cells
        self.assertEqual(cell.words[cell.words.index("--coding-ns"):][:2], ["--coding-ns", "0.5"])

    def test_refusals(self):
        for text, why in (
                ("claim: x\nsimulate: true\nhosts: 2  # <<\nfactors: {threads: [1]}", "hosts beside simulate:"),
                ("claim: x\nsimulate: true\nrate: 1gbit/50mbit  # <<\nfactors: {threads: [1]}", "must be one rate beside simulate:"),
                ("claim: x\nfactors:\n  threads: [1]\nsimulate: maybe  # <<", "simulate: 'maybe' must be true or false")):
            with self.subTest(why=why):
                self.assertIn(why, self.marked(text, self.refusal(text)))


class Places(Study):
    def read(self, text):
        self.write(text)
        return spec.read_spec(self.spec, False, gwrun.GRADWIRE)

    def filled(self, command, more=""):
        study = self.read(f"claim: a test\ncommand: {command}\nfactors: {{comm: [ps]}}\n{more}")
        launcher = launch.Launcher("mpiexec", "/build", "/out", None)
        run = spec.plan(study)[0]
        return launcher.command(run, "/out/run"), launcher.environment(run, "/out/run")

    def test_places(self):
        options = ["--overwrite", "--comm", "ps", "--seed", "1", "--out", "/out/run"]
        start = ["/build/mpiexec", "-n", "1"]
        self.assertEqual(self.filled("prog a"),
                         ([*start, "prog", "a"], {"GRADWIRE": shlex.join(options)}))
        self.assertEqual(self.filled("prog {options}"), ([*start, "prog", *options], {}))
        self.assertEqual(self.filled("[a, '{launcher}', prog, 'b {out} {seed} {ranks}', '{gradwire}', '']")[0],
                         ["a", *start, "prog", "b /out/run 1 1", "/build/gradwire", ""])
        self.assertEqual(self.filled("gradwire train x")[0],
                         [*start, "/build/gradwire", "train", "x", "--quiet", *options])
        self.assertEqual(self.filled("gradwire train {options} x")[0][-1], "x")
        words, environment = self.filled("prog {comm}")  # where an option has a place, it stands there
        self.assertEqual(words[-1], "ps")
        self.assertNotIn("--comm", environment["GRADWIRE"])

    def test_commands_of_levels(self):
        """In place of the study's, with places of its own, and without options of base that it takes away."""
        study = self.read("claim: x\nbase: --lr 0.1 --ceilings off\nranks: 2\nfactors:\n  how:\n    train: {comm: ps}\n"
                          "    simulated: {comm: ring, simulate: true}\n"
                          "    own: {command: 'prog {lr} {options}', comm: ring, ceilings: null}\n")
        launcher = launch.Launcher("mpiexec", "/build", "/out", None)
        train, simulated, own = (launcher.command(run, "/run") for run in sorted(
            spec.plan(study), key=lambda run: list(study.factors["how"]).index(run.cell.levels["how"])))
        start = ["/build/mpiexec", "-n", "2"]
        self.assertEqual(train[:6], [*start, "/build/gradwire", "train", "--quiet"])
        self.assertEqual(simulated[:3], ["/build/gradwire", "simulate", "--train"])
        self.assertEqual(own, [*start, "prog", "0.1", "--overwrite", "--comm", "ring", "--seed", "1", "--out", "/run"])
        refused = (("command: gradwire replay x", "gradwire replay in a study of gradwire train; name that"),
                   ("command: 'prog {width}'", "nothing gives {width} a value in each cell"),
                   ("command: prog, lr: 1", "factor 'how' sets lr, as base does"))
        for level, why in refused:
            with self.assertRaisesRegex(spec.BadInput, re.escape(why)):
                self.read(f"claim: x\nbase: --lr 0.1\nfactors: {{how: {{a: {{{level}}}}}}}\n")

    def test_an_absent_program_of_a_level(self):
        self.write(f"claim: x\nbase: {TRAIN}\nfactors:\n  how:\n    train: {{comm: ps}}\n    own: {{command: ./nonesuch, comm: ps}}\n")
        gwrun.refusal(self.call(), "spec.yaml:6: command: './nonesuch': no such program")

    def test_simulated_ranks_have_no_launcher(self):
        for command, words in (("env A=b {launcher} gradwire train x", ["env", "A=b", "/build/gradwire", "simulate", "--train", "x"]),
                               ("gradwire replay {options} x", ["/build/gradwire", "simulate", "--profile", "x", "--quiet"])):
            found = self.filled(command, "ranks: 4\nsimulate: true\n")[0]
            self.assertEqual(found[:len(words)], words)
            self.assertIn("--ranks 4 --per-host 4 ", " ".join(found))

    def test_the_callers_variable(self):
        """It would win over the spec."""
        os.environ[base.VARIABLE] = "--comm gossip"
        self.assertEqual(self.filled("prog {options}")[1], {"GRADWIRE": None})
