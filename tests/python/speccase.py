"""A spec in a file of its own, and what is said of it."""

import os
import re
import sys
import tempfile
import unittest

import gwrun

sys.path.insert(0, os.path.join(gwrun.SOURCE, "experiments"))

from ablation import spec
from ablation.spec import BadInput


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "study.yaml")

    def read(self, text, short=False):
        with open(self.path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return spec.read_spec(self.path, short, gwrun.GRADWIRE)

    def refusal(self, text, short=False):
        """The line and the message."""
        with self.assertRaises(BadInput) as caught:
            self.read(text, short)
        found = re.fullmatch(rf"{re.escape(self.path)}:(\d+): ([^\n]+)", str(caught.exception))
        self.assertTrue(found, str(caught.exception))
        return int(found[1]), found[2]
