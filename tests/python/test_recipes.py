"""docs/python.md: its recipes for accelerate, Lightning and Hugging Face's Trainer, and its table of what of
PyTorch is carried. The interpreter is $TORCH_PYTHON, as for test_torch.py."""

import json
import os
import re
import subprocess
import unittest

import gwrun
from test_torch import HERE, NONE, OLD, PYTHON, VERSION, told

RANK = os.path.join(HERE, "carried_rank.py")
LONGEST = 10


def page():
    with open(os.path.join(gwrun.SOURCE, "docs", "python.md"), encoding="utf-8") as file:
        return file.read()


def has(package):
    return VERSION and subprocess.run([PYTHON, "-c", f"import importlib.util as u; exit(u.find_spec({package!r}) is None)"],
                                      check=False).returncode == 0


class Page(unittest.TestCase):
    def test_recipes_are_short(self):
        found = re.findall(r"<!-- recipe: (\w+) -->\n```python\n(.*?)```", page(), re.DOTALL)
        self.assertEqual([name for name, _ in found], ["accelerate", "lightning", "transformers"])
        for name, text in found:
            self.assertLessEqual(len(text.splitlines()), LONGEST, name)


@unittest.skipIf(VERSION is None or VERSION < (2, 1), NONE if VERSION is None else OLD.format("State"))
class Recipes(unittest.TestCase):
    def runs(self, name):
        if not has(name):
            self.skipTest(f"{PYTHON} has no {name}")
        one, two = told(2, "recipe", name, script=RANK)
        self.assertEqual(one["apart"], two["apart"])
        for found in one, two:
            self.assertGreater(found["moved"], 1e-5)
            self.assertLess(found["apart"], found["moved"] / 100)
            self.assertGreater(found["sent"], 0)
            self.assertEqual(found["ranks"], 2)

    def test_accelerate(self):
        self.runs("accelerate")

    def test_lightning(self):
        self.runs("lightning")

    def test_transformers(self):
        self.runs("transformers")


@unittest.skipIf(VERSION is None or VERSION < (2, 1), NONE if VERSION is None else OLD.format("State"))
class Carried(unittest.TestCase):
    def test_table(self):
        text = re.search(r"<!-- carried -->\n(.*?)\n\n", page(), re.DOTALL)[1]
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
        cells = [[row[0], head[column].strip("`"), row[column]] for row in rows for column in (1, 2) if row[column]]
        for found in told(2, "carried", json.dumps([cell[:2] for cell in cells]), script=RANK):
            self.assertEqual([row[0] for row in rows], found["rows"])
            for (row, way, says), does in zip(cells, found["cells"], strict=True):
                with self.subTest(row=row, way=way):
                    self.assertNotIn("\n", does)
                    if says.startswith("yes"):
                        self.assertEqual(does, "yes")
                    else:
                        self.assertIn(says, does)
