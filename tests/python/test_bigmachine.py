"""experiments/bigmachine: which runs it makes of how many cores. The studies themselves are the runner's tests."""

import importlib.machinery
import importlib.util
import os

import gwrun
import speccase

TOOL = os.path.join(gwrun.SOURCE, "experiments", "bigmachine")


def tool():
    loader = importlib.machinery.SourceFileLoader("bigmachine", TOOL)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bigmachine", loader))
    loader.exec_module(module)
    return module


class Specs(speccase.Case):
    def setUp(self):
        super().setUp()
        self.tool = tool()

    def test_the_runner_takes_them(self):
        """Of one core and of many; the dry run has the short ones."""
        for cores in (1, 96):
            for spec in (self.tool.layouts(cores), self.tool.report_b(cores), self.tool.report("D", cores)):
                self.assertTrue(self.read(self.tool.text_of(spec)).claims)

    def test_cuts(self):
        levels = self.tool.layouts(12)["factors"]["layout"]
        self.assertEqual(set(levels), {"1x1", "1x12", "2x6", "3x4", "4x3", "6x2", "12x1"})

    def test_ranks_with_a_core_are_real(self):
        for cores, b, d in ((2, {"MPI 4", "MPI 8", "hybrid 2 x 2"}, {"4", "6", "8"}),
                            (6, {"MPI 8"}, {"8"}), (8, set(), set())):
            b, d = b | {"serial, simulated", "MPI 2, simulated"}, d | {"1 simulated", "2 simulated"}
            found = [{name for name, level in levels.items() if "simulate" in level}
                     for levels in (self.tool.report_b(cores)["factors"]["way"],
                                    self.tool.report("D", cores)["factors"]["ranks"])]
            self.assertEqual(found, [b, d], cores)

    def test_threads_with_a_core(self):
        """B's claims of threads are tested where there are cores for them."""
        for cores, ways, open_claims in ((2, {"OpenMP 2", "MPI 2"}, 2), (4, {"OpenMP 2", "MPI 2", "OpenMP 4"}, 2),
                                         (8, {"OpenMP 2", "MPI 2", "OpenMP 4", "OpenMP 8", "hybrid 2 x 4"}, 0)):
            spec = self.tool.report_b(cores)
            real = {name for name in spec["factors"]["way"] if name.startswith("OpenMP") or name in ("MPI 2", "hybrid 2 x 4")}
            self.assertEqual(real, ways)
            self.assertEqual(sum("not testable" in claim for claim in spec["claims"]), open_claims)


class DryRun(gwrun.Case):
    def test_writes_nothing(self):
        out = self.path("out")
        said = gwrun.said(TOOL, "--dry-run", "--quick", "--cores", "2", "--out", out, "--build", os.environ["BUILD"])
        self.assertFalse(os.path.exists(out))
        self.assertEqual([line for line in said.splitlines() if line.startswith("bigmachine: ")],
                         ["bigmachine: layouts", "bigmachine: B", "bigmachine: D"])
        self.assertEqual(said.count("nothing was run or written"), 3)

    def test_refusals(self):
        for words, reason in ((("--cores", "0"), "1 to 4096"), (("--out", ""), "--out is empty")):
            done = gwrun.finished([TOOL, "--dry-run", *words])
            self.assertEqual(done.returncode, 2)
            self.assertIn(reason, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
