"""A spec in a file of its own, and what is said of it."""

import os
import re
import tempfile
import unittest

import gwrun

from ablation import spec
from ablation.spec import BadInput


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "study.yaml")

    def read(self, text, short=False):
        gwrun.write(self.path, text)
        return spec.read_spec(self.path, short, gwrun.GRADWIRE)

    def located(self, said):
        """(its line, the rest) of what is said of the spec."""
        found = re.fullmatch(rf"{re.escape(self.path)}:(\d+): ([^\n]+)", said)
        self.assertTrue(found, said)
        return int(found[1]), found[2]

    def refusal(self, text, short=False):
        """The line and the message."""
        with self.assertRaises(BadInput) as caught:
            self.read(text, short)
        return self.located(str(caught.exception))

    def marked(self, text, located):
        """What is said of the line that is marked <<."""
        line, said = located
        self.assertEqual([line], [i + 1 for i, one in enumerate(text.split("\n")) if "<<" in one], said)
        return said
