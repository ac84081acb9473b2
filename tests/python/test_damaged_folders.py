"""Run folders and studies that were damaged at random: what reads them takes them, or leaves them
out with a reason of one line; it never ends in a traceback."""

import copy
import json
import os
import random
import shutil

import gwrun
from reportcase import ReportCase, module_of

from reporting import runs, sidebyside, summary

ROUNDS = 120
ODD = (None, True, -1, 0, 1 << 31, 1 << 63, 10 ** 30, 1e308, -0.5, "", "x", "\x1b[31m", "a\nb",
       "\ud800", [], [[]], {}, {"": None}, [1, "x"], "../..", "9" * 400)
BYTES = (b"\0", b"\n", b",", b"nan", b"inf", b"-", b'"', b"\xff", b"1e999", b"9" * 400, b"{", b"[")


def leaves(value, path=()):
    """The paths of all that a JSON document holds."""
    items = (value.items() if isinstance(value, dict) else
             enumerate(value) if isinstance(value, list) else ())
    for key, part in items:
        yield path + (key,)
        yield from leaves(part, path + (key,))


def change_value(chance, document):
    """A copy with another value, or none, at one place."""
    changed = copy.deepcopy(document)
    *path, last = chance.choice(list(leaves(document)))
    at = changed
    for key in path:
        at = at[key]
    if chance.random() < 0.3:
        del at[last]
    else:
        at[last] = chance.choice(ODD)
    return changed


def change_bytes(chance, data):
    at = chance.randrange(len(data))
    more = chance.choice(BYTES)
    return chance.choice((
        lambda: data[:at],
        lambda: data[:at] + more + data[at:],
        lambda: data[:at] + more + data[at + len(more):],
        lambda: data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1:],
        lambda: data[:at] + data[at + chance.randrange(200):],
        lambda: data[:at] + data[max(0, at - 100):],
    ))()


def damage(chance, path):
    data = gwrun.read_bytes(path)
    if path.endswith(".json") and chance.random() < 0.7:
        gwrun.write(path, json.dumps(change_value(chance, json.loads(data))))
    else:
        gwrun.write(path, change_bytes(chance, data))


class Damaged(ReportCase):
    def setUp(self):
        super().setUp()
        self.whole = self.study("whole", blocks=1)
        for folder in (os.path.dirname(path) for path in self.files("run.json")):
            rows = gwrun.read(folder, "batches.csv").splitlines(True)[:1 + 2 * 12]  # 12 steps of 2 ranks do
            gwrun.write(os.path.join(folder, "batches.csv"), "".join(rows))
            info = gwrun.run_json(folder)
            info["results"]["steps"] = 12
            gwrun.write(os.path.join(folder, "run.json"), info)

    def files(self, name):
        return sorted(os.path.join(folder, name) for folder, _, names in os.walk(self.whole)
                      if name in names)

    def one_line(self, text):
        self.assertTrue(text.strip())
        self.assertTrue(text.isprintable(), repr(text))

    def look(self, show, folder):
        """What is shown of a folder goes to a terminal, or into a program that reads JSON."""
        try:
            run = show.read(folder)
        except show.Bad as error:
            self.one_line(str(error))
            return
        self.assertEqual(json.loads(json.dumps(show.document(run, run)))["dir"], folder)
        for line in show.Page([run, run], True, False, 80).lines():
            self.assertEqual(line, show.plain(line))

    def test_reading(self):
        table, show = map(module_of, ("table", "show"))
        first = runs.read_results(self.whole)
        self.assertEqual(len(first[0].cells), 2)
        taken = 0
        for seed in range(ROUNDS):
            chance = random.Random(seed)
            name = chance.choice(("run.json", "run.json", "batches.csv", "epochs.csv",
                                  "experiment.json", "study.json"))
            path = self.files(name)[0]
            shutil.copy(path, self.path("kept"))
            damage(chance, path)
            with self.subTest(seed=seed, file=name):
                results = runs.read_results(self.whole)
                for found in results:
                    for _, why in found.left_out:
                        self.one_line(why)
                self.assertTrue(json.loads(json.dumps(summary.text(results))))
                taken += sum(len(found.cells) for found in results) == 2
                try:
                    if any(found.cells for found in results):
                        sidebyside.compare(results, first, "step", 0.05)
                except sidebyside.BadInput as error:
                    self.one_line(str(error))
                try:
                    table.table({"run": table.read_run(os.path.dirname(self.files("run.json")[0]))}, True)
                except table.Bad as error:
                    self.one_line(str(error))
                self.look(show, os.path.dirname(self.files("run.json")[0]))
            shutil.copy(self.path("kept"), path)
        # Some damage leaves a folder as good as it was, and some does not.
        self.assertGreater(taken, ROUNDS // 10)
        self.assertLess(taken, ROUNDS)
