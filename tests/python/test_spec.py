"""Specs of experiments: what is read from them, and that whatever is wrong costs one line, with the
file and the line of the spec where it is."""

import glob
import itertools
import os
import random
import re
import shlex
from unittest import mock

import gwrun
from speccase import BadInput, Case
from ablation import design, dryrun, launch, select, spec

SHIPPED = sorted(glob.glob(os.path.join(gwrun.SOURCE, "experiments", "*.yaml")))

# (spec, what the message must say). The error is on the line marked <<.
CLAIMS = "claim: x\nsource: A\nfactors: {lr: [1, 2], batch: [8, 9]}\nskip: [{batch: 9}]\nclaims:\n"
CLAIM = CLAIMS + "  - claim: a\n    whose: A\n    theirs: x\n    figure: speedup\n    cell: lr=1\n"
BAD = [
    # YAML
    ("claim: x\nfactors: {threads: [1, 2}  # <<", "not YAML"),
    ("claim: x\n\tfactors: 1  # <<", "not YAML"),
    ("- claim  # <<", "must have a key, is a list; write KEY: VALUE"),
    ("claim: x\nfactors: &a {threads: [1]}  # <<", "anchors"),
    ("claim: x\nfactors: {threads: *a}  # <<", "anchors"),
    ("claim: !!python/name:os.system x  # <<", "tags"),
    ("claim: x\nfactors: {threads: [1]}\nclaim: y  # <<", "stands on line 1"),
    ("claim: x\nfactors:\n  threads: [1]\n  lr: [1]\n  threads: [2]  # <<", "stands on line 3"),
    ("claim: x\nfactors: {threads: [1]}\n--- # <<\nclaim: y", "second document"),
    ("claim: x\nfactors: [[[[[[[[[[1]]]]]]]]]]  # <<", "nested"),
    ("claim: x\nfactors: {[a]: 1}  # <<", "a key must be a word"),
    # command
    ("claim: x\ncommand: ''  # <<\nfactors: {lr: [1]}", "command: is empty; name a program"),
    ("claim: x\ncommand: {a: b}  # <<\nfactors: {lr: [1]}", "is a mapping, must be a line, or a list"),
    ("claim: x\ncommand: python3 'a  # <<\nfactors: {lr: [1]}", "close the quotes"),
    ("claim: x\ncommand: env {launcher}  # <<\nfactors: {lr: [1]}", "no program follows {launcher}"),
    ("claim: x\ncommand: gradwire  # <<\nfactors: {lr: [1]}", "write e.g. gradwire replay"),
    ("claim: x\ncommand: gradwire trian a  # <<\nfactors: {lr: [1]}", "gradwire trian runs no cell"),
    ("claim: x\ncommand: gradwire bench  # <<\nfactors: {lr: [1]}", "gradwire bench runs no cell"),
    ("claim: x\ncommand: prog --a={options}  # <<\nfactors: {lr: [1]}", "must be a word of its own"),
    ("claim: x\ncommand: prog {options} {options}  # <<\nfactors: {lr: [1]}", "{options} again"),
    ("claim: x\ncommand: prog {Size}  # <<\nfactors: {lr: [1]}", "a brace opens no place"),
    ("claim: x\ncommand: prog {size  # <<\nfactors: {lr: [1]}", "a brace opens no place"),
    ("claim: x\ncommand: prog {size}  # <<\nfactors: {lr: [1]}", "nothing gives {size} a value"),
    ("claim: x\ncommand: prog {size}\nfactors: {sise: [1]}  # <<", "did you mean 'size'?"),
    ("claim: x\ncommand: prog\nfactors: {env.GRADWIRE: [1]}  # <<", "the runner sets it"),
    ("claim: x\nfactors: {lr: [1]}\nshort: {command: prog}  # <<", "cannot change in short:"),
    # keys
    ("claimt: x  # <<\nfactors: {threads: [1]}", "unknown key 'claimt'; did you mean 'claim'?"),
    ("zzz: x  # <<\nfactors: {threads: [1]}", "must be one of claim, source"),
    ("factors: {threads: [1]}  # <<", "claim: must say"),
    ("claim:   # <<\nfactors: {threads: [1]}", "claim: must say"),
    ("claim: x  # <<", "no factors:"),
    ("claim: x\nfactors: []  # <<", "factors: is empty, must be a mapping"),
    ("claim: x\nfactors: {}  # <<", "must be a mapping of factors"),
    ("claim: x\nfactors: {threads: [1]}\nrepetitions: 0  # <<", "from 1 to 1000"),
    ("claim: x\nfactors: {threads: [1]}\nrepetitions: two  # <<", "'two' must be a whole number"),
    ("claim: x\nfactors: {threads: [1]}\nretries: -1  # <<", "from 0 to 100"),
    ("claim: x\nfactors: {threads: [1]}\norder_seed: 1.5  # <<", "whole number"),
    ("claim: x\nfactors: {threads: [1]}\nseeds: 3  # <<", "seeds: '3' must be a list"),
    ("claim: x\nfactors: {threads: [1]}\nseeds: []  # <<", "must be a list"),
    ("claim: x\nfactors: {threads: [1]}\nseeds:\n  - 1\n  - x  # <<", "'x' must be a whole"),
    ("claim: x\nfactors: {threads: [1]}\nseeds:\n  - 1\n  - 1  # <<", "1 again"),
    ("claim: x\nfactors: {threads: [1]}\ntimeout: soon  # <<", "10min"),
    ("claim: x\nfactors: {threads: [1]}\ntimeout: 0  # <<", "from 1 s on"),
    ("claim: x\nfactors: {threads: [1]}\nsource: [[A]]  # <<", "source: is a list, must be a word"),
    ("claim: x\nfactors: {threads: [1]}\ndesign: gird  # <<", "did you mean 'grid'?"),
    ("claim: x  # <<\nfactors: {threads: [1]}\nrepetitions: 1000\nseeds: ["
     + ", ".join(map(str, range(101))) + "]", "101000 runs; at most"),
    ("claim: x\nfactors:  # <<\n  lr: [" + ", ".join(map(str, range(150))) + "]\n  batch: ["
     + ", ".join(map(str, range(150))) + "]", "22500 cells; at most"),
    # options, placements, environment
    ("claim: x\nbase: --epoch 5  # <<\nfactors: {threads: [1]}",
     "unknown option 'epoch'; did you mean 'epochs'?"),
    ("claim: x\nbase:\n  batch: 32\n  epoch: 5  # <<\nfactors: {threads: [1]}", "'epochs'?"),
    ("claim: x\nbase: --epochs  # <<\nfactors: {threads: [1]}", "--epochs needs a value"),
    ("claim: x\nbase: epochs 5  # <<\nfactors: {threads: [1]}", "unexpected word 'epochs'"),
    ("claim: x\nbase: --layers '5  # <<\nfactors: {threads: [1]}", "close the quotes"),
    ("claim: x\nbase: --lr 1 --lr 2  # <<\nfactors: {threads: [1]}", "lr again"),
    ("claim: x\nbase: --ranks 2  # <<\nfactors: {threads: [1]}", "write it as a mapping"),
    ("claim: x\nbase: --trace=maybe  # <<\nfactors: {threads: [1]}", "true or false"),
    ("claim: x\nbase: [--lr, 1]  # <<\nfactors: {threads: [1]}", "a list must be options"),
    ("claim: x\nbase: {layers: [2, 3]}  # <<\nfactors: {threads: [1]}", "must be one value"),
    ("claim: x\nbase: {layers: --lr}  # <<\nfactors: {threads: [1]}", "is an option, not a value"),
    ("claim: x\nbase: {comm: \"a\\0b\"}  # <<\nfactors: {threads: [1]}", "control character"),
    ("claim: x\nbase: \"--comm a\\0b\"  # <<\nfactors: {threads: [1]}", "control character"),
    ("claim: x\nbase: --seed 3  # <<\nfactors: {threads: [1]}", "'seed' is not for a spec"),
    ("claim: x\nbase: {out: /tmp}  # <<\nfactors: {threads: [1]}", "'out' is not for a spec"),
    ("claim: x\nfactors:\n  seed: [1, 2]  # <<", "'seed' is not for a spec"),
    ("claim: x\nranks: 0  # <<\nfactors: {threads: [1]}", "ranks: '0' must be a whole number from"),
    ("claim: x\nbase: {env.2X: 1}  # <<\nfactors: {threads: [1]}", "does not name an environment"),
    ("claim: x\nbase: {env.GRADWIRE_TESTBED: 1}  # <<\nfactors: {threads: [1]}", "testbed sets it"),
    ("claim: x\nbase: {env.GRADWIRE_HOST_RATES: 1}  # <<\nfactors: {threads: [1]}", "testbed sets it"),
    ("claim: x\nfactors:\n  ranks:\n    - 1\n    - 0  # <<", "ranks: '0' must be"),
    ("claim: x\nfactors:\n  threads:\n    - 1\n    - -1  # <<", "threads: '-1' must be"),
    ("claim: x\nfactors:\n  hosts: [1]  # <<", "hosts: '1' must be a whole number from 2 to 64"),
    ("claim: x\nfactors:\n  rate:\n    - none\n    - 1gbits  # <<", "e.g. 1gbit"),
    ("claim: x\nfactors:\n  rate:\n    - 1kbit  # <<", "1mbit to 100gbit"),
    ("claim: x\nper-host: 2  # <<\nfactors: {threads: [1]}", "per-host without a testbed"),
    ("claim: x\nmtu: 9000  # <<\nfactors: {threads: [1]}", "mtu without a testbed"),
    ("claim: x\nrate: 1gbit\nfactors:\n  mtu: [9001]  # <<", "mtu: '9001' must be a whole number"),
    ("claim: x\nrate: 1gbit\nfactors:\n  offload: [45]  # <<", "on, off, or the segments"),
    ("claim: x\nracks: 2  # <<\nfactors: {threads: [1]}", "racks without a testbed"),
    ("claim: x\nrate: 1gbit\nfactors:\n  racks: [0]  # <<", "racks: '0' must be a whole number from 1 to 64"),
    ("claim: x\nhosts: 4\nuplink: 1gbit\nracks: 3  # <<\nfactors: {threads: [1]}", "3 racks cannot share 4 hosts"),
    ("claim: x\nhosts: 2\nuplink: 1gbit\nracks: 4  # <<\nfactors: {threads: [1]}", "4 racks cannot share 2 hosts"),
    ("claim: x\nhosts: 4\nracks: 2  # <<\nfactors: {threads: [1]}", "racks: 2 racks need the rate"),
    ("claim: x\nhosts: 4\nuplink: 1gbit  # <<\nfactors: {threads: [1]}", "uplink: a single rack has none"),
    ("claim: x\nhosts: 4\nracks: 2\nfactors:\n  uplink: [fast]  # <<", "uplink: 'fast' must be 1mbit to 100gbit"),
    ("claim: x\nbase: {env.GRADWIRE_RACKS: 1}  # <<\nfactors: {threads: [1]}", "testbed sets it"),
    ("claim: x\ncommand: python3 x.py\nlink: 1gbit  # <<\nfactors: {threads: [1]}", "must be gradwire train, replay"),
    ("claim: x\nnetwork: star  # <<\nfactors: {threads: [1]}", "network without a link; give link:"),
    ("claim: x\ncommand: gradwire simulate\nlink: 1gbit\nrate: 1gbit  # <<\nfactors: {steps: [1]}", "rate beside link:"),
    ("claim: x\nrate: 1gbit/2gbit/3gbit  # <<\nfactors: {threads: [1]}", "to send and receive"),
    ("claim: x\nhosts: 3\nrate: \"1gbit,2gbit\"  # <<\nfactors: {threads: [1]}",
     "2 rates for 3 hosts"),
    ("claim: x\nranks: 2\nbase:\n  ranks: 3  # <<\nfactors: {lr: [1]}", "set on line 2 already"),
    # factors and levels
    ("claim: x\nfactors:\n  theads: [1, 2]  # <<", "unknown factor 'theads'"),
    ("claim: x\nfactors:\n  theads: [1, 2]  # <<", "did you mean 'threads'?"),
    ("claim: x\nfactors:\n  a,b: {c: null}  # <<", "rename it"),
    ("claim: x\nfactors:\n  threads: []  # <<", "must be levels"),
    ("claim: x\nfactors:\n  codec: {}  # <<", "must be levels"),
    ("claim: x\nfactors:\n  codec: --lr 1  # <<", "must be levels"),
    ("claim: x\nfactors:\n  lr:\n    - 0.1\n    - 0.2\n    - 0.1  # <<", "stands on line 4"),
    ("claim: x\nfactors:\n  comm:\n    - a:b\n    - a;b  # <<",
     "the same folder as 'a:b' on line 4"),
    ("claim: x\nfactors:\n  layers:\n    - [2, 3]  # <<", "must be one value"),
    ("claim: x\nfactors:\n  codec:\n    \"a\\nb\": --lr 1  # <<", "control character"),
    ("claim: x\nfactors:\n  size:\n    small: {layers: 8}\n    large:\n      layer: 9  # <<",
     "did you mean 'layers'?"),
    ("claim: x\nfactors:\n  size:\n    small: --layer 8  # <<", "did you mean 'layers'?"),
    ("claim: x\nfactors:\n  size: {a: --lr 1}\n  lr: [1]  # <<",
     "factor 'lr' sets lr, as factor 'size' does on line 3"),
    ("claim: x\nbase: --lr 1\nfactors:\n  size: {a: null}\n  lr: [1]  # <<",
     "as base does on line 2"),
    ("claim: x\nranks: 2\nfactors:\n  cores: {a: {ranks: 1}}  # <<", "as base does on line 2"),
    # designs
    ("claim: x\nfactors: {threads: [1]}\ndesign: list  # <<", "needs cells:"),
    ("claim: x\nfactors: {threads: [1]}\ncells: [{threads: 1}]  # <<", "design: list needs cells"),
    ("claim: x\nfactors: {lr: [1]}\ndesign: one-at-a-time  # <<", "needs a baseline"),
    ("claim: x\nfactors: {lr: [1]}\nbaseline: {l: 1}  # <<",
     "unknown factor 'l'; did you mean 'lr'"),
    ("claim: x\nfactors: {lr: [0.1, 0.2]}\nbaseline: {lr: 0.12}  # <<",
     "unknown level '0.12' of 'lr'; must be one of 0.1, 0.2"),
    ("claim: x\nfactors: {lr: [1]}\nbaseline: 3  # <<", "baseline: is text, must be a mapping"),
    ("claim: x\nfactors: {lr: [1]}\nskip: {lr: 1}  # <<", "skip: is a mapping, must be a list"),
    ("claim: x\nfactors: {lr: [1]}\nskip: [{}]  # <<", "skip: is empty, must be a mapping {"),
    ("claim: x\nfactors: {lr: [1, 2]}\nskip:\n  - {lr: 1}\n  - {lr: 3}  # <<", "level '3'"),
    ("claim: x\nfactors: {lr: [1, 2]}\nskip:\n  - {lr: 1}\n  - {lrr: 3}  # <<", "factor 'lrr'"),
    ("claim: x\nfactors: {lr: [1, 2]}\nskip:\n  - {lr: [1]}  # <<", "is a list, must be a level"),
    ("claim: x\nfactors: {lr: [1]}\nskip: [{lr: 1}]  # <<", "no cell is left"),
    ("claim: x\nfactors: {lr: [1, 2]}\nbaseline: {lr: 1}  # <<\nskip: [{lr: 1}]", "not among"),
    ("claim: x\nfactors: {lr: [1, 2]}\ndesign: list\ncells:\n  - {lr: 1}\n  - {lr: 1}  # <<",
     "the same cell as on line 5"),
    ("claim: x\nfactors: {lr: [1, 2]}\ndesign: list\ncells:\n  - {lr: 4}  # <<", "level '4'"),
    ("claim: x\nfactors: {lr: [1, 2]}\ndesign: list\ncells: []  # <<", "no cell is left"),
    # claims
    (CLAIMS + "  - {claim: a, whose: A, theirs: x}  # <<", "lacks figure:"),
    (CLAIMS + "  - {claim: a, whose: A, not testable: x}  # <<", "lacks theirs:"),
    (CLAIMS + "  - claim: a\n    who: A  # <<", "unknown key of a claim: 'who'; did you mean 'whose'?"),
    (CLAIMS + "  - claim: [a]  # <<", "claim: is a list, must be a text in one line"),
    (CLAIMS.replace("claims:", "claims: x  # <<"), "claims: is text, must be a list of claims"),
    (CLAIM.replace("speedup", "speedup # <<") + "    not testable: b", "remove one of both"),
    (CLAIM + "    against: lr=2\n    confirmed: 1.7-2.1  # <<", "must be LOW..HIGH, >= N"),
    (CLAIM + "    against: lr=2\n    confirmed: 2..1  # <<", "must be LOW..HIGH, >= N"),
    (CLAIM + "    confirmed: '> 1'\n    against: lr=2\n    direction: up  # <<", "must be LOW..HIGH"),
    (CLAIM + "    confirmed: '> 1'\n    against: lr=3  # <<", "'lr=3' are no levels; write FACTOR=LEVEL"),
    (CLAIM + "    confirmed: '> 1'\n    against: batch=9  # <<", "'lr=1,batch=9' is not a cell of the design"),
    (CLAIM + "    confirmed: '> 1'\n    against: lr=1  # <<", "against: is the cell itself"),
    (CLAIM.replace("speedup", "speed # <<") + "    confirmed: '> 1'\n    against: lr=2", "did you mean 'speedup'?"),
    (CLAIM.replace("speedup", "speedup # <<") + "    confirmed: '> 1'", "is of two cells; give against:"),
    (CLAIM.replace("speedup", "step_s") + "    confirmed: '> 1'\n    than: lr=2  # <<", "give against:"),
    (CLAIM.replace("whose: A", "whose: A, B # <<") + "    confirmed: '> 1'\n    against: lr=2", "'B' is not in source:"),
    (CLAIM + "    confirmed: '> 1'\n    against: lr=2\n  - {claim: a, whose: A, theirs: b, not testable: c}  # <<",
     "'a' again; it stands on line 6 already"),
    ("claim: x\nfactors: {lr: [1]}\nshort: {claims: [a]}  # <<", "claims: cannot change in short:"),
    # report and short
    ("claim: x\nfactors: {lr: [1, 2]}\nreport: {expect: {lr=3: faster}}  # <<", "'lr=3' are no levels"),
    ("claim: x\nfactors: {lr: [1, 2]}\nreport: {expect: {lr=2: quick}}  # <<", "unknown 'quick'"),
    ("claim: x\nfactors: {lr: [1, 2]}\nreport: {expect: faster}  # <<", "must be a mapping"),
    ("claim: x\nfactors: {lr: [1]}\nreport: {y: lr}  # <<", "unknown key of report: 'y'"),
    ("claim: x\nfactors: {lr: [1]}\nreport: {x: lrs}  # <<",
     "x: factor: unknown 'lrs'; did you mean 'lr'?"),
    ("claim: x\nfactors: {lr: [1]}\nreport: {scaling: big}  # <<", "strong or weak"),
    ("claim: x\nfactors: {lr: [1]}\nreport: {target_accuracy: 80}  # <<", "between 0 and 1"),
    ("claim: x\nfactors: {lr: [1]}\nreport: {target_loss: 0}  # <<", "a number above 0"),
    ("claim: x\nfactors: {lr: [1, 2]}\nreport: {expect: {lr=2: soon to accuracy .8}}  # <<", "did you mean 'sooner"),
    ("claim: x\nfactors: {lr: [1]}\nreport: {compare_within: [lr, q]}  # <<",
     "compare_within: factor: unknown 'q'"),
    ("claim: x\nfactors: {lr: [1]}\nshort: {repetition: 1}  # <<", "did you mean 'repetitions'?"),
    ("claim: x\nfactors: {lr: [1]}\nshort: {claim: y}  # <<", "claim: cannot change"),
    ("claim: x\nfactors: {lr: [1]}\nshort: {factors: {batch: [1]}}  # <<",
     "unknown factor 'batch'"),
    ("claim: x\nfactors: {lr: [1]}\nshort:  # <<", "must have a key of short:, is null"),
    ("claim: x\nfactors: {lr: [1, 2]}\nbaseline: {lr: 2}  # <<\nshort: {factors: {lr: [1]}}",
     "give baseline: anew in short:"),
]


class Reading(Case):
    def test_bad_specs(self):
        for text, why in BAD:
            with self.subTest(text=text):
                message = self.marked(text, self.refusal(text))
                self.assertIn(why, message)
                self.assertRegex(message, r"; | must (be|say) ")  # what to do

    def test_bad_files(self):
        for data, line, why in ((b"", 1, "empty"), (b"# only\n# this\n", None, "empty"),
                                (b"a: 1\nb: \xff\n", 2, "UTF-8"),
                                (b"a: 1\nb: \x07\n", 2, "control"),
                                (b"a: \"\\U00110000\"\n", 1, "not YAML"),
                                (b"a: 1\n" * 60000, 1, "256 KiB"), (b"[" * 1000, 1, "nested"),
                                (b"a: [" + b"x, " * 70000, 1, "")):
            with self.subTest(data=data[:20]):
                at, message = self.refusal(data)
                self.assertIn(why, message)
                self.assertIn(line, (at, None))
        for path in (os.path.dirname(self.path), self.path + "-none", "a\0b"):
            with self.assertRaisesRegex(BadInput, "cannot be read: .*; name a YAML file"):
                spec.read_spec(path, False, gwrun.GRADWIRE)
        with self.assertRaisesRegex(BadInput, "/no/gradwire: cannot be run: .*build it"):
            spec.read_spec(SHIPPED[0], False, "/no/gradwire")

    def test_values_stay_as_written(self):
        study = self.read("""
claim: >
  two
  lines
source: A
base: {lr: 0.10, error-feedback: off, layers: '', trace: yes, overhead: null, env.A: 010}
factors:
  inject-skew: ["1:0.001", null]
  env.B: [null, '']
  compress: {half: fp16, some: "topk:ratio=0.01"}
timeout: 1.5min
report: {target_accuracy: .8, x: compress, compare_within: env.B}
""")
        self.assertEqual((study.claim, study.source, study.timeout_s, study.name),
                         ("two lines", ["A"], 90, "study"))
        self.assertEqual(study.report, {"target_accuracy": 0.8, "x": "compress",
                                        "compare_within": ["env.B"]})
        self.assertEqual(study.factors, {"inject-skew": ["1:0.001", "default"],
                                         "env.B": ["unset", "empty"], "compress": ["half", "some"]})
        first, last = study.cells[0], study.cells[-1]
        shared = ["--lr", "0.10", "--error-feedback", "off", "--layers", "", "--trace"]
        self.assertEqual(first.words, shared + ["--inject-skew", "1:0.001", "--compress", "fp16"])
        self.assertEqual(last.words, shared + ["--compress", "topk:ratio=0.01"])
        self.assertEqual((first.environment, last.environment),
                         ({"A": "010", "B": None}, {"A": "010", "B": ""}))
        self.assertEqual(first.id, "inject-skew=1_0.001,env.B=unset,compress=half")
        self.assertEqual(first.set_by["compress"], ("compress", 10))
        self.assertEqual(first.set_by["lr"], (None, 6))

    def test_uneven_ranks(self):
        """Laws and shares hold commas and colons; as levels they stay whole."""
        law, share = "all:pareto:alpha=1.5,scale=5ms", "sizes:3,1"
        study = self.read(f"claim: x\nbase: {{ranks: 2}}\nfactors: {{inject-skew: [null, '{law}'], "
                          f"partition: [uniform, 'labels:alpha=0.1', '{share}']}}")
        self.assertEqual(study.factors, {"inject-skew": ["default", law],
                                         "partition": ["uniform", "labels:alpha=0.1", share]})
        self.assertEqual(study.cells[-1].words, ["--inject-skew", law, "--partition", share])
        self.assertEqual(len({cell.id for cell in study.cells}), 6)

    def test_words_are_split_as_a_shell_does(self):
        study = self.read("claim: x\nbase: --layers '' --compress 'topk;layer2=none' --trace "
                          "--lr=1\nfactors: {a: {b: null, c: --batch 8}}")
        shared = ["--layers", "", "--compress", "topk;layer2=none", "--trace", "--lr", "1"]
        self.assertEqual([c.words for c in study.cells], [shared, shared + ["--batch", "8"]])

    def test_factor_called_as_an_option(self):
        """Its levels are values, with names or without, or settings as of any factor."""
        for levels, words in (("[sgd]", [["--optimizer", "sgd"]]),
                              ("{a: sgd, b: null}", [["--optimizer", "sgd"], []]),
                              ("{a: null, b: --momentum 0.9}", [[], ["--momentum", "0.9"]]),
                              ("{a: {lr: 1}, b: --lr 2}", [["--lr", "1"], ["--lr", "2"]])):
            with self.subTest(levels=levels):
                study = self.read(f"claim: x\nfactors: {{optimizer: {levels}}}")
                self.assertEqual([cell.words for cell in study.cells], words)
        self.assertIn("is an option, not a value", self.refusal(
            "claim: x\nfactors: {optimizer: {a: sgd, b: --momentum 0.9}}")[1])

    def test_ids(self):
        long = "abcdefghij" * 12
        study = self.read("claim: x\nfactors:\n  a b: {'ü/..': null, -: null}\n"
                          f"  c: {{{long}: null, {long}k: null}}\n  d: {{{long}: null}}")
        ids = [cell.id for cell in study.cells]
        self.assertEqual(len(set(ids)), 4)
        for name in ids:
            self.assertRegex(name, r"^[A-Za-z0-9.,=_+-]{1,160}$")
            self.assertTrue(name.startswith("a_b="))

    def test_placement(self):
        """hosts, rate and per-host of a cell, by hand."""
        for settings, expected in (
                ("ranks: 4", None), ("ranks: 4, rate: none", None),
                ("ranks: 4, rate: none, hosts: 4", None),
                ("ranks: 4, rate: 1gbit", (4, "1gbit", 1)),
                ("ranks: 1, rate: 10mbit", (2, "10mbit", 1)),
                ("ranks: 5, rate: 1gbit, per-host: 2", (3, "1gbit", 2)),
                ("ranks: 4, hosts: 2", (2, "1gbit", 1)), ("rate: null", None),
                ("ranks: 2, rate: '1gbit/50mbit,2gbit'", (2, "1gbit/50mbit,2gbit", 1)),
                ("ranks: 4, rate: 1gbit, racks: 1", (4, "1gbit", 1)),
                ("ranks: 4, rate: 1gbit, racks: 2, uplink: 200mbit", (4, "1gbit", 1)),
                ("rate: none, racks: 2", None),
                ("rate: 1gbit, offload: off, mtu: 9000", (2, "1gbit", 1))):
            with self.subTest(settings=settings):
                cell, = self.read(f"claim: x\nfactors: {{a: {{b: {{{settings}}}}}}}").cells
                more = dict(re.findall(r"(offload|mtu|racks|uplink): (\w+)", settings))
                keys = ("hosts", "rate", "per_host")
                self.assertEqual(cell.testbed, expected and {**dict(zip(keys, expected)), **more})

    def test_mutated_specs(self):
        """Whatever a file holds: a study or one line, soon."""
        chance = random.Random(6)
        texts = []
        for path in SHIPPED:
            texts.append(gwrun.read_bytes(path))
        outcomes = {"study": 0, "refused": 0}
        for _ in range(2000):
            data = mutate(chance, chance.choice(texts))
            try:
                self.assertTrue(spec.plan(self.read(data)))
                outcomes["study"] += 1
            except BadInput as error:
                self.assertEqual(len(str(error).splitlines()), 1, data)
                self.assertTrue(str(error).startswith(f"{self.path}:"), error)
                outcomes["refused"] += 1
        self.assertGreater(min(outcomes.values()), 100, outcomes)


# Whole values of every kind, where another kind is wanted.
VALUES = [b"", b"null", b"[]", b"{}", b"[1, 2]", b"{a: b}", b"[[1]]", b"{a: {b: [c]}}", b"-1",
          b"[{lr: 1}]", b"true", b"''", b"--lr 1", b"|\n    two\n    lines", b'"\\e"', b"{x: [a]}"]


def mutate(chance, data):
    for _ in range(chance.randint(1, 3)):
        lines = data.split(b"\n")
        at, kind = chance.randrange(len(data) + 1), chance.randrange(8)
        if kind == 0:
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1:]
        elif kind == 1:
            data = data[:at] + chance.choice([b"[", b"}", b": ", b"'", b"\t", b"&a ", b"*a", b"- ",
                                              b"null", b"\n", b"-1", b"9" * 30]) + data[at:]
        elif kind == 2:
            data = data[:at] + data[at + chance.randint(1, 40):]
        elif kind < 5:
            line = chance.randrange(len(lines))
            lines[line:line + 1] = [] if kind == 3 else [lines[line], chance.choice(lines)]
            data = b"\n".join(lines)
        else:
            keys = [i for i, line in enumerate(lines) if re.match(rb"\s*[a-z_-]+:", line)]
            if keys:
                line = chance.choice(keys)
                lines[line] = lines[line].split(b":")[0] + b": " + chance.choice(VALUES)
            data = b"\n".join(lines)
    return data or b"x"


FACTORS = "claim: x\nfactors: {ranks: [1, 2, 4], batch: [32, 64], lr: [0.1, 0.2]}\n"


class Designs(Case):
    def levels(self, text, short=False):
        return [tuple(cell.levels.values()) for cell in self.read(FACTORS + text, short).cells]

    def test_grid(self):
        every = list(itertools.product("124", ("32", "64"), ("0.1", "0.2")))
        self.assertEqual(self.levels(""), every)
        self.assertEqual(self.levels("skip: [{ranks: 1, lr: 0.2}, {batch: 64}]"),
                         [("1", "32", "0.1"), ("2", "32", "0.1"), ("2", "32", "0.2"),
                          ("4", "32", "0.1"), ("4", "32", "0.2")])

    def test_one_at_a_time(self):
        self.assertEqual(self.levels("design: one-at-a-time\nbaseline: {ranks: 2}"),
                         [("2", "32", "0.1"), ("1", "32", "0.1"), ("4", "32", "0.1"),
                          ("2", "64", "0.1"), ("2", "32", "0.2")])

    def test_list(self):
        self.assertEqual(self.levels("design: list\ncells: [{ranks: 4}, {batch: 64, lr: 0.2}]\n"
                                     "baseline: {ranks: 4}"),
                         [("4", "32", "0.1"), ("4", "64", "0.2")])

    def test_baseline(self):
        def baseline(text):
            study = self.read(FACTORS + text)
            self.assertEqual([c.id for c in study.cells if c.baseline], [study.baseline])
            return study.baseline
        self.assertEqual(baseline(""), "ranks=1,batch=32,lr=0.1")
        self.assertEqual(baseline("baseline: {batch: 64}"), "ranks=1,batch=64,lr=0.1")
        self.assertEqual(baseline("skip: [{ranks: 1}]"), "ranks=2,batch=32,lr=0.1")

    def test_short(self):
        text = ("base: --epochs 5 --layers 8\nseeds: [1, 2]\nskip: [{ranks: 4, lr: 0.2}]\n"
                "repetitions: 4\nreport: {scaling: weak}\nshort:\n  base: {epochs: 1}\n"
                "  factors: {ranks: [1, 2]}\n  repetitions: 1\n  report: {x: ranks}\n")
        full, short = (self.read(FACTORS + text, s) for s in (False, True))
        self.assertEqual((len(full.cells), len(full.blocks)), (10, 8))
        self.assertEqual((len(short.cells), len(short.blocks)), (8, 2))
        self.assertEqual(short.cells[0].words[:4], ["--epochs", "1", "--layers", "8"])
        self.assertEqual((full.report, short.report), ({"scaling": "weak"},
                                                       {"scaling": "weak", "x": "ranks"}))
        self.assertEqual((full.short, short.short), (False, True))
        self.assertIn("no short:", self.refusal(FACTORS, True)[1])

    def test_order(self):
        text = FACTORS + "repetitions: 3\nseeds: [7, 8]\n"
        study = self.read(text)
        runs = design.plan(study)
        self.assertEqual(study.blocks, [(1, 7), (1, 8), (2, 7), (2, 8), (3, 7), (3, 8)])
        self.assertEqual([run.block for run in runs], sorted([*range(6)] * 12))
        orders = [tuple(run.cell.id for run in runs[12 * b:12 * (b + 1)]) for b in range(6)]
        for order in orders:
            self.assertEqual(sorted(order), sorted(cell.id for cell in study.cells))
        self.assertEqual(len(set(orders)), 6)  # 6 of 12! orders alike would be no accident
        self.assertNotIn(tuple(cell.id for cell in study.cells), orders)
        self.assertEqual(len({run.folder for run in runs}), 72)
        self.assertEqual(runs[12].folder, f"b01-s8/{runs[12].cell.id}")
        self.assertEqual(design.plan(self.read(text)), runs)
        self.assertNotEqual([r.folder for r in design.plan(self.read(text + "order_seed: 2"))],
                            [r.folder for r in runs])
        more = design.plan(self.read(text.replace("repetitions: 3", "repetitions: 4")))
        self.assertEqual([r.folder for r in more][:72], [r.folder for r in runs])

    def test_example_of_the_documentation(self):
        """Of 12 cells by hand: 2 strategies x 2 sizes x (none; 100mbit with and without UCX's)."""
        page = gwrun.read(gwrun.SOURCE, "experiments", "README.md")
        example = re.search(r"^```yaml\n(claim.*?)^```", page, re.DOTALL | re.MULTILINE)
        full, short = (self.read(example[1], s) for s in (False, True))
        self.assertEqual((len(full.cells), len(full.blocks)), (12, 5))
        self.assertEqual((len(short.cells), len(short.blocks)), (6, 2))
        self.assertEqual({cell.levels["env.UCX_RNDV_THRESH"] for cell in full.cells
                          if not cell.testbed}, {"unset"})

    def test_shipped(self):
        for path in SHIPPED:
            with self.subTest(path=path):
                full, short = (spec.read_spec(path, s, gwrun.GRADWIRE) for s in (False, True))
                self.assertLess(len(short.cells) * len(short.blocks),
                                len(full.cells) * len(full.blocks) + 1)


class Only(Case):
    def only(self, *filters):
        study = self.read("claim: x\nfactors:\n  ranks: [1, 2]\n  layers: ['256,128', 64]\n"
                          "  comm: [allreduce, 'iallreduce:algo=(ring:chunk=64K,window=4)']\n")
        return [tuple(c.levels.values()) for c in select.cells(study.cells, list(filters))]

    def test_filters(self):
        ring = "iallreduce:algo=(ring:chunk=64K,window=4)"
        self.assertEqual(len(self.only()), 8)
        self.assertEqual(len(self.only("ranks=2")), 4)
        self.assertEqual(self.only("ranks=2,layers=256,128,comm=all*"),
                         [("2", "256,128", "allreduce")])
        self.assertEqual(self.only("layers=64,comm=" + ring, "ranks=1,layers=64"),
                         [("1", "64", "allreduce"), ("1", "64", ring), ("2", "64", ring)])
        self.assertEqual(self.only("ranks=[12],layers=256_128,comm=iall*,ranks=1"),
                         [("1", "256,128", ring)])

    def test_refusals(self):
        for text, why in (("rank=2", "unknown factor 'rank'; did you mean 'ranks'?"),
                          ("ranks=2,layer=64", "unknown factor 'layer'; did you mean 'layers'?"),
                          ("ranks", "'ranks' is not a condition; write FACTOR=LEVEL"),
                          ("", "is not a condition"),
                          ("comm=allredoce", "no level of 'comm' matches 'allredoce'; did you"),
                          ("ranks=1,ranks=2", "no cell has these levels together")):
            with self.subTest(text=text):
                with self.assertRaises(BadInput) as caught:
                    self.only(text)
                self.assertIn(why, str(caught.exception))
                self.assertEqual(len(str(caught.exception).splitlines()), 1)


class DryRun(Case):
    def test_page(self):
        study = self.read("claim: what is tested\nranks: 2\nrate: 1gbit\nrepetitions: 2\n"
                          "factors: {layers: ['', 64], env.A: [null, b c]}")
        runs = list(enumerate(design.plan(study)))
        launcher = launch.Launcher("mpiexec", "build", "out", None)
        with mock.patch.object(launcher, "command", lambda p, folder: ["go", *p.cell.words, folder]):
            page = dryrun.text(study, runs, "out", launcher)
        lines = page.splitlines()
        self.assertIn("what is tested", lines[0])
        self.assertIn("  layers: empty | 64", lines)
        self.assertEqual(lines[-1], "4 cells (grid) x 2 blocks = 8 runs; listed: 8; nothing was "
                                    "run or written")
        listed = [line for line in lines if " go " in line]
        self.assertEqual([line.split()[:2] for line in listed],
                         [[str(i), planned.folder] for i, planned in runs])
        for line, (_, planned) in zip(listed, runs):
            self.assertIn(f"2 ranks on 2 hosts at 1gbit, 1 each in turn  env "
                          f"{'-u A' if planned.cell.levels['env.A'] == 'unset' else 'A=b'}",
                          line.replace("'", ""))
            words = shlex.split(line)
            self.assertEqual(words[words.index("go") + 1:],
                             [*planned.cell.words, f"out/{planned.folder}"])
