"""`gradwire report` of a folder of experiments/results: the page is made of the kept figures, drawings and tables alone."""

import html
import os
import re
import shutil
from unittest import mock

import gwrun
from reportcase import call
from test_report import Checker

from reporting import charts, claims, kept, markup

RESULTS = os.path.join(gwrun.SOURCE, "experiments", "results")
ONE = "B"  # a study of runs.csv, time_stack.svg and several kinds of cells


def text_of(cell):
    return html.unescape(re.sub("<[^>]*>", "", cell))


class KeptPages(gwrun.Case):
    def copy(self, study):
        shutil.copytree(os.path.join(RESULTS, study), self.path(study))
        return self.path(study)

    def page_of(self, folder):
        out = self.path("page.html")
        gwrun.quiet(call("report", folder, "--out", out))
        return gwrun.read(out)

    def refused(self, *words):
        return gwrun.refusal(call("report", *words))

    @mock.patch.object(charts, "ORDER", [])
    def test_each_page_has_the_kept_verdicts(self):
        seen = 0
        for name in sorted(os.listdir(RESULTS)):
            if not os.path.exists(os.path.join(RESULTS, name, kept.RUNS)):
                continue
            lines = {text_of(claim): [text_of(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", rest)]
                     for claim, rest in re.findall(r'<tr><th scope="row">([^<]*)</th>((?:<td[^>]*>[^\n]*?</td>){7})</tr>',
                                                   self.page_of(os.path.join(RESULTS, name)))}
            for row in gwrun.rows(RESULTS, name, "claims.csv"):
                said = lines[row["claim"]]
                self.assertEqual((said[2].replace("absent", ""), said[5].lstrip("\u25b2\u25bc "), said[6].replace("absent", "")),
                                 (claims.shown(row), claims.told(row), row["why"]), (name, row["claim"]))
                seen += 1
        self.assertGreater(seen, 20)
        self.assertEqual(os.listdir(self.dir), ["page.html"])  # no summary.csv of what has no runs

    def test_what_was_not_kept_is_said(self):
        page = self.page_of(os.path.join(RESULTS, ONE))
        checker = Checker(page)
        self.assertEqual(checker.faults, [])
        drawn = {name for name in charts.ORDER if f'id="s0-{name}"' in page}
        self.assertLessEqual({"baseline", "time_stack", "order"}, drawn)
        self.assertEqual(page.count("Made when the runs were there"),
                         len([name for name in drawn if name not in kept.CHARTS]))
        self.assertGreater(page.count(kept.NOT_KEPT), 4)  # among them the distribution of steps
        for name in charts.ORDER:
            if name not in kept.CHARTS:
                self.assertEqual(name in drawn, os.path.exists(os.path.join(RESULTS, ONE, f"{name}.svg")), name)
        for row in gwrun.rows(RESULTS, ONE, "summary.csv"):
            self.assertRegex(page, rf"<th[^>]*>(\* )?{re.escape(html.escape(row['label']))}</th>"
                             rf"<td[^>]*>{1e3 * float(row['step_s']):,.4g}</td>")
        self.assertEqual(self.page_of(self.copy(ONE)), page)  # nothing depends on when or where

    @mock.patch.object(charts, "ORDER", ["target", *charts.TABLES])
    def test_kept_tables(self):
        """Beside the drawing, or alone: the files that `report --tables` wrote."""
        page = self.page_of(os.path.join(RESULTS, "methods"))
        drawn, alone = (page.partition(f'id="s0-{name}"')[2].partition("</section>")[0] for name in ("target", "pays"))
        self.assertEqual([part.count("<svg") for part in (drawn, alone)], [1, 0])
        for name, part in (("target", drawn), ("pays", alone)):
            for row in gwrun.rows(RESULTS, "methods", f"{name}.csv"):
                start = f"<tr>{markup.cell(row['configuration'], 'th', scope='row')}{markup.cell(row['compared with'])}"
                self.assertTrue(start in part and markup.cell(row["verdict"]) in part, row)
        even = next(row for row in gwrun.rows(RESULTS, "methods", "pays.csv") if row["pays up to"])
        self.assertTrue(markup.cell(float(even["pays up to"])) in alone, even)
        self.assertFalse('id="s0-break_even"' in page)  # was not kept

    @mock.patch.object(charts, "ORDER", [])
    def test_a_run_without_figures(self):
        folder = self.copy(ONE)
        rows = gwrun.rows(folder, kept.RUNS)
        rows[3].update(state="failed")
        gwrun.write_rows(os.path.join(folder, kept.RUNS), rows)
        page = self.page_of(folder)
        self.assertIn(f"Runs: {len(rows) - 1} done, 1 failed", page)
        self.assertIn("failed: its reason was not kept", page)

    def test_refused(self):
        folder = self.copy(ONE)
        for option in ("--plots", "--tables", "--paper"):
            self.assertIn(f"{option}: needs the folders of the runs", self.refused(folder, option, self.path("new")))
        os.remove(os.path.join(folder, kept.RUNS))
        said = self.refused(folder)
        self.assertIn("its runs were not kept", said)
        self.assertIn("reports/B.yaml", said)
        gwrun.write(os.path.join(folder, "summary.csv"), "study,cell\nnone,a\n")
        self.assertIn("whose spec is not in", self.refused(folder))
        os.remove(os.path.join(folder, "summary.csv"))
        self.assertIn("no run of gradwire", self.refused(folder))
        for text, why in (("a,b\n1,2\n", "is not a table"), ("study,cell\n", "is not a table")):
            shutil.copy(os.path.join(RESULTS, ONE, "summary.csv"), folder)
            gwrun.write(os.path.join(folder, kept.RUNS), text)
            self.assertIn(why, self.refused(folder))
