"""Simulated studies: the table of break-even rates, its figures against the runs' and by hand, and claims of one run."""

import math
import os

import gwrun
from reporting import judge, runs
from reporting.charts import break_even
from reporting.model import NotShown

SPEC = """\
claim: x
command: gradwire simulate
base: --bytes 1M --steps 2
factors:
  codec: {exact: {}, coded: {compress: bf16, coding-ns: 2}}
  ranks: [2, 4]
  links of: {slow: {link: "1gbit,5us,1us"}, fast: {link: "100gbit,5us,1us"}}
baseline: {codec: exact}
report: {compare_within: [ranks, links of]}
source: A
claims:
  - claim: the codec pays
    whose: A
    theirs: x
    figure: speedup
    cell: codec=coded,ranks=2,links of=slow
    against: codec=exact
    confirmed: "> 1"
"""


class BreakEven(gwrun.Case):
    def test_of_a_study(self):
        spec = self.write("even.yaml", SPEC.replace("base: ", "base: --comm allreduce:algo=ring "))
        gwrun.said(os.path.join(gwrun.SOURCE, "experiments", "run"), spec, "--build", os.path.dirname(gwrun.GRADWIRE),
                   "--out", self.out)
        results, = runs.read_results(self.out)
        chart = break_even.build(results)
        step = {tuple(cell.levels.values()): cell.step_s for cell in results.cells}
        self.assertEqual([row[:3] for row in chart.table.rows], [["coded", "exact", 2], ["coded", "exact", 4]])
        for row in chart.table.rows:
            slow, fast = (step["coded", str(row[2]), rate] / step["exact", str(row[2]), rate] for rate in ("slow", "fast"))
            self.assertEqual(row[3:5], [slow, fast])
            self.assertTrue(slow < 1 < fast)  # bytes decide over the one, the codec over the other
            share = math.log(slow) / (math.log(slow) - math.log(fast))
            self.assertAlmostEqual(row[5], 100 ** share, delta=1e-6 * row[5])
            self.assertIn("faster below", row[6])
        self.assertIn("simulated", " ".join(chart.notes).lower())
        row, = judge.of_results(results)  # of one run a cell, which repeats exactly
        speedup = step["exact", "2", "slow"] / step["coded", "2", "slow"]
        for end in ("ours", "low", "high"):
            self.assertAlmostEqual(row[end], speedup, delta=1e-9 * speedup)
        self.assertEqual(row["verdict"], "confirmed")
        results.runs[0].marks = [f"{mark}, and delays are drawn" for mark in results.runs[0].marks]
        self.assertEqual(judge.of_results(results)[0]["verdict"], "undecided")
        results.cells = [cell for cell in results.cells if cell.levels["ranks"] == "2"]
        self.assertRaises(NotShown, break_even.build, results)

    def test_points(self):
        for ratios, text, rate in (((0.5, 0.9), "faster at all", None), ((1.1, 2), "slower at all", None),
                                   ((1.01, 0.5), "faster from 100gbit", None), ((0.5, 0.97), "faster to 1gbit", None),
                                   ((1.04, 0.96), "within 5% at all", None), ((0.5, 1.04, 2), "faster below 31.6gbit", 10 ** 10.5),
                                   ((0.5, 2), "faster below 10gbit", 1e10), ((2, 0.5), "faster above 10gbit", 1e10),
                                   ((0.5, 2, 0.5), "crosses more than once", None)):
            found = break_even.point(8, dict(zip((1e9, 1e11, 1e12), ratios)))
            self.assertEqual(found.text, text)
            self.assertEqual(found.rate is None, rate is None)
            self.assertAlmostEqual(found.rate or 0, rate or 0, delta=1e3)
