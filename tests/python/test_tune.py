"""`tune:` of a spec: the same trials for each level choose its options, by validation, and are not compared."""

import csv
import io
import itertools
import json
import os
import shutil

import gwrun
import speccase
from reportcase import call
from test_experiments import TRAIN, Study, read

from ablation import design, tune
from reporting import page, runs
from tool import BadInput

BASE = "claim: x\nseeds: [1, 2, 3]\nbase: --validation 0.2\nfactors: {compress: [none, fp16], batch: [32, 64]}\n"
TUNE = "tune: {factor: compress, options: {lr: [0.1, 0.2], momentum: [0, 0.9]}, seeds: [7, 8], by: validation_loss}"


class Specs(speccase.Case):
    def test_trials(self):
        """Each level of the factor gets each point of the grid with each seed, at the baseline's other levels."""
        study = self.read(BASE + TUNE)
        trials = tune.trials(study)
        self.assertEqual(trials.blocks, [(1, 7), (1, 8)])
        self.assertEqual(len(design.plan(trials)), 2 * 4 * 2)
        self.assertEqual({(cell.levels["compress"], cell.levels["batch"]) for cell in trials.cells},
                         {("none", "32"), ("fp16", "32")})
        self.assertEqual(trials.cells[1].words[-4:], ["--lr", "0.1", "--momentum", "0.9"])
        final = tune.chosen(study, {"none": 0, "fp16": 3})
        self.assertEqual([cell.words[-4:] for cell in final.cells], [["--lr", "0.1", "--momentum", "0"]] * 2
                         + [["--lr", "0.2", "--momentum", "0.9"]] * 2)
        self.assertEqual([cell.id for cell in final.cells], [cell.id for cell in study.cells])
        skipped = self.read(BASE + "skip: [{compress: fp16, batch: 32}]\n" + TUNE)
        self.assertEqual({cell.levels["batch"] for level, _, cell in skipped.tune.cells if level == "fp16"}, {"64"})

    def test_refusals(self):
        for old, new, why in (
                ("by: validation_loss", "by: test_accuracy", "by: 'test_accuracy' must be one of validation_loss"),
                ("factor: compress", "factor: comm", "factor: 'comm' must be one of compress, batch"),
                ("seeds: [7, 8]", "seeds: [7, 3]", "3 is a seed of the final runs"),
                ("seeds: [7, 8]", "seeds: [7, 7]", "different numbers"),
                ("seeds: [7, 8]", "seeds: []", "different numbers"), (", by: validation_loss", "", "tune: lacks by:"),
                ("lr: [0.1, 0.2]", "batch: [8]", "tune sets batch, as line 4 does"),
                ("lr: [0.1, 0.2]", "lr: 0.1", "must be a list of values"),
                ("lr: [0.1, 0.2]", "lr: [1, 1]", "a value again"),
                ("lr: [0.1, 0.2]", "rl: [1]", "unknown option 'rl'"),
                ("lr: [0.1, 0.2]", "seed: [1]", "'seed' is not for a spec"),
                ("lr: [0.1, 0.2]", "ranks: [1]", "'ranks' is no option to choose"),
                ("{lr: [0.1, 0.2], momentum: [0, 0.9]}", "lr", "must be a mapping"),
                ("seeds: [7, 8]", "seeds: [7, 8], most: 3", "unknown key of tune: 'most'")):
            text = BASE + TUNE.replace(old, new) + "  # <<"
            self.assertIn(why, self.marked(text, self.refusal(text)))
        for base in ("", "base: --validation 0\n"):
            self.assertIn("the test samples must not choose",
                          self.refusal(BASE.replace("base: --validation 0.2\n", base) + TUNE)[1])
        for key, value in itertools.product(("factor: compress", "{lr: [0.1, 0.2], momentum: [0, 0.9]}", "[7, 8]",
                                             "validation_loss", "[0.1, 0.2]", TUNE.partition(" ")[2]),
                                            ("null", "[]", "{}", "[[1]]", "{a: b}", "[{a: b}]", "''", "--lr 1", "-1")):
            self.refusal(BASE + TUNE.replace(key, value if ":" not in key or key[0] == "{" else f"factor: {value}"))
        replayed = "claim: x\ncommand: gradwire replay p\nfactors: {compress: [none, fp16]}\nbaseline: {compress: none}\n" + TUNE
        self.assertIn("gradwire replay has none", self.refusal(replayed)[1])

    def test_trials_of_a_program(self):
        """What is chosen may stand in the command; whether there is a figure to choose by, the runs tell."""
        text = BASE.replace("--validation 0.2", "--comm iallreduce") + TUNE
        study = self.read(text + "\ncommand: examples/own --rate {lr}\n")
        self.assertEqual([(cell.words[-2:], cell.places) for cell in tune.trials(study).cells[:2]],
                         [(["--momentum", "0"], {"lr": "0.1"}), (["--momentum", "0.9"], {"lr": "0.1"})])
        self.assertEqual(tune.chosen(study, {"none": 0, "fp16": 3}).cells[-1].places, {"lr": "0.2"})
        self.assertIn("nothing gives {lr} a value", self.refusal(
            text.replace("lr:", "weight-decay:") + "\ncommand: examples/own --rate {lr}\n")[1])

    def test_choice(self):
        """By the mean over the seeds; what diverged loses, of equal points the first wins."""
        study = self.read(BASE + TUNE)
        folders = {}

        def write(losses):
            for (_, _, cell), figures in zip(study.tune.cells, losses):
                folders[cell.id] = [os.path.join(os.path.dirname(self.path), cell.id, str(i)) for i in range(2)]
                for folder, figure in zip(folders[cell.id], figures):
                    os.makedirs(folder, exist_ok=True)
                    state = "diverged" if figure is None else "done"
                    gwrun.write(os.path.join(folder, "experiment.json"), {"state": state})
                    gwrun.write(os.path.join(folder, "epochs.csv"), f"epoch,validation_loss\n1,0\n2,{figure}\n")
        write([(0.5, 0.1), (0.2, 0.2), (0.1, None), (0.2, 0.2)] + [(None, None), (0.9, 0.9), (0.1, None), (0.8, 0.9)])
        choices, rows = tune.choose(study, folders)
        self.assertEqual(choices, {"none": 1, "fp16": 3})
        self.assertEqual([row["chosen"] for row in rows], [0, 1, 0, 0, 0, 0, 0, 1])
        self.assertEqual(rows[2], {"compress": "none", "lr": "0.2", "momentum": "0", "validation_loss": None,
                                   "trials": 2, "diverged": 1, "chosen": 0})
        write([(0.1, 0.1)] * 4 + [(None, 1)] * 4)
        with self.assertRaisesRegex(BadInput, "each trial of compress=fp16 diverged"):
            tune.choose(study, folders)
        os.remove(os.path.join(folders[study.tune.cells[0][2].id][0], "epochs.csv"))
        with self.assertRaisesRegex(BadInput, "has no validation_loss of a last epoch"):
            tune.choose(study, folders)


class Tuned(Study):
    def test_trials_come_first_and_are_not_compared(self):
        self.write(f"""
claim: a test
base: {TRAIN} --epochs 2 --validation 0.25
factors: {{compress: [none, fp16]}}
tune: {{factor: compress, options: {{lr: [0.000001, 0.1]}}, seeds: [9], by: validation_accuracy}}
""")
        dry = self.call("--dry-run")
        self.assertIn("these trials choose lr for each compress", dry.stdout)
        self.assertEqual(dry.stdout.count(" 1 rank "), 4 + 2)
        self.assertFalse(os.path.exists(self.out))
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([start.split("/")[0] for start in self.starts()], ["tune"] * 4 + ["b00-s1"] * 2)
        rows = list(csv.DictReader(read(os.path.join(self.out, "tuned.csv")).splitlines()))
        self.assertEqual([(row["compress"], row["lr"]) for row in rows if row["chosen"] == "1"],
                         [("none", "0.1"), ("fp16", "0.1")])
        for record in self.records().values():
            self.assertEqual(record["command"][record["command"].index("--lr") + 1], "0.1")
        found, = runs.read_results(self.out)
        self.assertEqual((len(found.runs), len(found.trials.runs), found.trials.name), (2, 4, "spec, trials"))
        text = page.render([found], "x")[0]
        for words in ("by validation accuracy after the last epoch, 2 trials for each compress (seeds 9, which no "
                      "compared run has): none: lr 0.1; fp16: lr 0.1",
                      "Trials of tune, not compared: 4 choices of options"):
            self.assertIn(words, text)
        self.assertEqual([[row["study"] for row in csv.DictReader(io.StringIO(call("export", self.out, *words).stdout))]
                          for words in ((), ("--compact",))], [["spec"] * 2 + ["spec, trials"] * 4, ["spec"] * 2])
        shutil.rmtree(os.path.join(self.out, self.starts()[1]))  # as if it had been interrupted
        again = self.call("--resume")
        self.assertEqual((again.returncode, self.starts()[6:]), (0, [self.starts()[1]]), again.stderr)
        self.assertIn("complete: nothing is left to run", again.stdout)
        path = os.path.join(self.out, "study.json")
        study = json.loads(read(path))
        study["tuned"][0]["chosen"] = "1"
        gwrun.write(path, study)
        self.assertIn("choose otherwise now", self.call("--resume").stderr)
        gwrun.refusal(self.call("--out", self.path("array"), "--slurm", self.path("a.sh")), "omit --slurm")

    def test_refused_before_the_trials(self):
        self.write(f"""
claim: a test
base: {TRAIN} --validation 0.25
factors: {{compress: [none, fp16]}}
tune: {{factor: compress, options: {{lr: [0.1, 0.2]}}, seeds: [9], by: validation_loss}}
""")
        gwrun.write(self.path("else/file"), "")
        gwrun.refusal(self.call(out=self.path("else")), "holds other things than a study (file)")
        self.assertEqual(self.starts(), [])
