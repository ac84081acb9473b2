"""An optimizer or a model that the tree does not know, loaded by its path: what each must do."""

import re

import gwrun

HALF = 30  # steps: within the second epoch of 24


class Plugin(gwrun.Case):
    """Its file has train(ranks, *words), which returns the folder of a run."""

    def check_resumes_to_the_bit(self, ranks, *words):
        with self.subTest(ranks=ranks, words=words):
            whole = self.train(ranks, *words)
            half = self.train(ranks, *words, "--steps", HALF, "--checkpoint-every", 1000)
            rest = self.train(ranks, *words, "--resume", half, "--resume-strict")
            self.assertEqual(gwrun.model(rest), gwrun.model(whole))

    def check_measured(self, *words):
        """A step that is rehearsed or predicted leaves it as it is."""
        words = (2, *words, "--steps", 12, "--comm", "iallreduce")
        whole = self.train(*words)
        for more in (("--bound",), ("--compress", "auto:codecs=none,budget=0.1")):
            with self.subTest(more=more):
                self.assertEqual(gwrun.model(self.train(*words, *more)), gwrun.model(whole))

    def check_page(self, kind, name):
        """docs/extend-KIND.md shows the file that is tested here, as it would be within the tree."""
        shown = re.search(r"^```c\n(.*?)^```", gwrun.read(gwrun.SOURCE, "docs", f"extend-{kind}.md"),
                          re.MULTILINE | re.DOTALL)[1]
        self.assertEqual(shown.replace(f"gw_{kind}_{name}", f"gw_{kind}_plugin"),
                         gwrun.read(gwrun.SOURCE, "tests", f"plugin_{name}.c"))
