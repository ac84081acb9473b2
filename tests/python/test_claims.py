"""analysis/claims: criteria, figures of runs and of kept runs, verdicts, and the table of all claims. Step
times and accuracies are set, so that the truth is known."""

import csv
import dataclasses
import os
import re
import shutil
import sys
import unittest

import gwrun
from reportcase import STRATEGIES, ReportCase, call

from reporting import claims, judge, kept, model, page, perrun, runs, verdicts

SIMULATED = "simulated: no rank ran, all times are a model's (gradwire)"
BASE, OTHER = (f"comm={comm}" for comm in STRATEGIES)


def claim_of(figure="speedup", confirmed="1.9..2.1", **more):
    return {"claim": "it is faster", "whose": "A", "theirs": "2", "figure": figure, "cell": OTHER,
            "confirmed": confirmed, **more}


class Criteria(unittest.TestCase):
    def test_verdicts(self):
        for confirmed, direction, low, high, verdict in (
                ("1.7..2.1", None, 1.7, 2.1, "confirmed"), ("1.7..2.1", None, 1.6, 2, "undecided"),
                ("1.7..2.1", None, 1.1, 1.5, "refuted"), ("1.7..2.1", "> 1", 1.1, 1.5, "differs"),
                ("1.7..2.1", "> 1", .9, 1.5, "refuted"), ("1.7..2.1", "> 1", 2.2, 2.5, "differs"),
                ("1.7..2.1", None, 1, 3, "undecided"), (">= 2", None, 2, 9, "confirmed"),
                (">= 2", None, 1, 1.9, "refuted"), (">= 2", None, 1, 2, "undecided"),
                ("> 2", None, 2, 3, "undecided"), ("> 2", None, 1, 2, "refuted"),
                ("<= -1", None, -3, -1, "confirmed"), ("< 0", "< 1", .1, .9, "differs")):
            with self.subTest(confirmed=confirmed, direction=direction, low=low, high=high):
                claim = claim_of(confirmed=confirmed) | ({"direction": direction} if direction else {})
                self.assertEqual(claims.verdict(claim, low, high), verdict)

    def test_figures_have_the_digits_that_decide(self):
        row = claims.row_of(claim_of(confirmed=">= 1.14"), "s", ours=1.15, low=1.1396, high=1.16, unit="times")
        for more, text in (({}, "1.15 (1.1396..1.16) times"), ({"low": 1.14}, "1.15 (1.14..1.16) times"),
                           ({"verdict": claims.SUPERLINEAR, "ours": 2.004, "high": 2.1, "workers": 2}, "2.004 (1.1396..2.1) times"),
                           ({"unit": "s", "confirmed": "< 0.0005", "ours": 4e-4, "low": 3e-4, "high": 5.0004e-4},
                            "0.4 (0.3..0.50004) ms")):
            self.assertEqual(claims.shown(row | more), text)

    def test_what_is_no_criterion(self):
        for text in ("1.7", "2..1", "1..2..3", "=> 1", "about 2", ">= ", "nan..inf"):
            self.assertIsNone(claims.span_of(text), text)


class Judged(ReportCase):
    def results(self, *wanted, factor=0.5, blocks=5, **more):
        """A study whose second cell takes `factor` times as long, with noise within the blocks alone."""
        self.studies = getattr(self, "studies", 0) + 1
        found, = runs.read_results(self.study(f"s{self.studies}", blocks, claims=list(wanted), **more))
        for cell in found.cells:
            for i, run in enumerate(cell.runs):
                drift = 1 + 0.2 * i  # of a block, so that pairs alone see the ratio
                noise = 1 if cell.baseline else factor * (1 + 0.001 * (i % 3 - 1))
                run.step_s = 1e-3 * drift * noise
                run.info["seed"], run.marks = i, []
                run.info["results"]["test_accuracy"] = 0.8 + 0.01 * i + (0 if cell.baseline else 0.05)
                run.means["wall_s"], run.means["forward_s"] = run.step_s, 0.25 * run.step_s
        return found

    def row(self, claim, **more):
        row, = judge.of_results(self.results(claim, **more))
        return row

    def test_figures(self):
        for figure, confirmed, against, value, unit in (
                ("speedup", "1.9..2.1", BASE, 2, "times"), ("step_s", "0.49..0.51", BASE, .5, "times"),
                ("efficiency", "1.9..2.1", BASE, 2, ""), ("points", "4.9..5.1", BASE, 5, "points"),
                ("cost", "-0.51..-0.49", BASE, -.5, ""),
                ("forward_s / wall_s", "0.25..0.25", None, .25, ""),
                ("test_accuracy", "0.8..1", None, .87, "")):
            with self.subTest(figure=figure):
                row = self.row(claim_of(figure, confirmed, **({"against": against} if against else {})))
                self.assertEqual((row["verdict"], row["unit"]), ("confirmed", unit), row)
                self.assertAlmostEqual(row["ours"], value, 2)
                self.assertTrue(row["low"] <= row["ours"] <= row["high"])
        self.assertRegex(row["machine"], r".+, \d+ cores$")
        self.assertRegex(row["date"], r"^\d{4}-\d\d-\d\d$")

    def test_a_ratio_beside_another(self):
        """Of two factors: 2 ranks gain 2 times with one strategy, 1.5 times with the other."""
        found = self.results()
        found.factors = {"ranks": ["1", "2"], "comm": ["a", "b"]}
        walls = {("1", "a"): 1.0, ("2", "a"): 0.5, ("1", "b"): 3.0, ("2", "b"): 2.0}
        first = found.cells[0]
        made = [type(first)(ranks + comm, ranks + comm, {"ranks": ranks, "comm": comm}, [
            dataclasses.replace(run, step_s=wall * (1 + .1 * i)) for i, run in enumerate(first.runs)])
            for (ranks, comm), wall in walls.items()]
        found.cells, found.study["baseline"] = made, "1a"
        found.study["cells"] = [{"id": cell.name, "levels": cell.levels} for cell in made]
        found.study["claims"] = [claim_of(confirmed="1.3..1.4", than="comm=b", against="ranks=1", cell="ranks=2")]
        row, = judge.of_results(found)
        self.assertAlmostEqual(row["ours"], 2 / 1.5)
        self.assertEqual((row["verdict"], row["unit"]), ("confirmed", "times"))
        found.study["claims"] = [claim_of("cost", "2.9..3.1", than="comm=b", against="ranks=2", cell="ranks=1"),
                                 claim_of("cost", "0..1", than="comm=b", against="ranks=2", cell="ranks=1")]
        made[2].runs, made[3].runs = ([dataclasses.replace(run, step_s=wall * (1 + .1 * i)) for i, run in enumerate(first.runs)]
                                      for wall in (4.0, 3.0))  # a third longer, where that of `a` is as long again
        row, other = judge.of_results(found)
        self.assertAlmostEqual(row["ours"], 3)
        self.assertEqual((row["verdict"], row["unit"], other["verdict"]), ("confirmed", "times", "refuted"))

    def test_a_pair_by_itself_and_among_all(self):
        """A claim of a difference says if the study's comparisons, one family, call the same pair inside the noise."""
        found = self.results(claim_of(confirmed=">= 1.03", against=BASE), claim_of("step_s", "0.8..1.2", against=BASE))
        for run, noise in zip(found.cells[1].runs, (.83, .86, .88, .92, .94), strict=True):
            run.step_s = found.cells[0].runs[int(run.block)].step_s * noise
        self.assertEqual([row["why"] for row in judge.of_results(found)], ["", ""])
        plain = found.cells[0]
        found.cells += [type(plain)(f"more{i}", f"more{i}", {"comm": f"more{i}"}, [
            dataclasses.replace(run, cell=f"more{i}") for run in plain.runs]) for i in range(9)]
        rows = judge.of_results(found)
        self.assertEqual([(row["verdict"], row["why"]) for row in rows], [("confirmed", judge.ALONE), ("confirmed", "")])

    def test_marks_of_what_a_verdict_rests_on(self):
        found = self.results(claim_of("logical_bytes", "1..1", against=BASE), claim_of("forward_s", "0..1", against=BASE))
        self.assertEqual([row["why"] for row in judge.of_results(found)], [judge.ARITHMETIC, ""])
        level = found.cells[1].levels["comm"]
        found.study["tune"] = {"factor": "comm", "options": {"lr": ["0.1", "0.2", "0.4"], "activation": ["relu", "tanh"]}}
        for chosen, mark in (("0.4", "tuned to the end of its grid: lr 0.4 of 0.1 to 0.4"), ("0.2", None)):
            found.study["tuned"] = [{"comm": level, "lr": lr, "activation": word, "chosen": str(int(lr == chosen and word == "tanh"))}
                                    for lr in ("0.1", "0.2", "0.4") for word in ("relu", "tanh")]
            self.assertEqual([row["marks"] for row in judge.of_results(found)], [mark or ""] * 2)
            self.assertEqual([text for text in verdicts.warnings(found) if "its grid" in text],
                             [f"{level}: {mark}."] if mark else [])

    def test_what_cannot_be_judged(self):
        claim = claim_of(against=BASE)
        self.assertEqual(self.row(claim, blocks=2)["why"], "2 pairs: at least 3 are needed to know the spread")
        found = self.results(claim, claim_of("memory_ctr_s", "0..1"), claim_of(cell="comm=ring", against=BASE),
                             {"claim": "b", "whose": "A", "theirs": "x", "not testable": "no GPU"})
        found.cells[1].runs[0].marks = ["oversubscribed"]
        here = claims.not_here(found.runs[0].info["machine"]["cores_usable"])
        self.assertRegex(here, r"^not testable here \(\d+ cores?\)$")
        said = [(row["verdict"], row["why"]) for row in judge.of_results(found)]
        self.assertEqual(said, [(here, "oversubscribed"), ("undecided", "no run has this figure"),
                                ("not measured yet", "the study has no such cell"),
                                ("not testable here", "no GPU")])
        found.study["claims"] = [claim, claim_of("points", "4.9..5.1", against=BASE)]
        self.assertEqual([row["verdict"] for row in judge.of_results(found)], [here, "confirmed"])
        found.cells[1].runs[0].marks = [SIMULATED]
        rows = judge.of_results(found)
        self.assertEqual([claims.told(row) for row in rows], ["confirmed (simulated)", "confirmed"])
        self.assertEqual([row["why"] for row in rows], [judge.UNSHARED, ""])
        found.empty.append(found.cells.pop())
        found.empty[0].runs.clear()
        self.assertRegex(judge.of_results(found)[0]["why"], "^no finished run of iallreduce")

    def with_share(self, share_factor, **more):
        """4 ranks are as fast as said against one, and one alone takes share_factor times as long for a quarter."""
        claim = claim_of(confirmed=">= 3.6", against="ranks=1", cell="ranks=4", **more)
        found = self.results(claim, blocks=5)
        times = {("1", "all"): 1.0, ("4", "all"): 1 / 4.4, ("1", "quarter"): share_factor}
        first, made = found.cells[0], []
        for (ranks, work), seconds in times.items():
            runs_of = []
            for i, run in enumerate(first.runs):
                info_of = {**run.info, "machine": {**run.info["machine"], "ranks": int(ranks), "threads_per_rank": 1}}
                runs_of.append(dataclasses.replace(run, info=info_of, cell=ranks + work, marks=[],
                                                   step_s=seconds * (1 + .01 * (i % 3))))
            made.append(type(first)(ranks + work, ranks + work, {"ranks": ranks, "work": work}, runs_of))
        made[0].baseline = True
        found.factors, found.cells, found.baseline = {"ranks": ["1", "4"], "work": ["all", "quarter"]}, made, made[0]
        found.study["baseline"], found.study["cells"] = "1all", [
            {"id": cell.name, "levels": cell.levels} for cell in made]
        return found

    def test_faster_than_the_workers_account_for(self):
        """A speedup above the number of ranks is never confirmed alone: the share on one rank shows why, or not."""
        for share, factor, why, alone in (
                ({"share": "work=quarter"}, 1 / 5, r"the share fits the caches: one rank alone takes 1.01e\+03 ms for the "
                 r"whole and 202 ms for the share, 5 \(", 5),
                ({"share": "work=quarter"}, 1 / 3, "not explained by the share's size: one rank alone takes ", 3),
                ({}, 1 / 5, "no run of the share on one rank was kept", None)):
            found = self.with_share(factor, **share)
            row, = judge.of_results(found)
            self.assertEqual((row["verdict"], row["workers"]), ("superlinear", 4))
            self.assertRegex(row["why"], f"^faster than 4 times as many workers account for: {why}")
            self.assertEqual(row["alone"] and round(row["alone"], 3), alone)
        for figure, confirmed in (("step_s", "<= 0.3"), ("efficiency", ">= 0.9")):
            found.study["claims"] = [claim_of(figure, confirmed, against="ranks=1", cell="ranks=4")]
            self.assertEqual(judge.of_results(found)[0]["verdict"], "superlinear")
        spread = self.with_share(1 / 5, share="work=quarter")
        spread.study["report"] = {}
        for run, noise in zip(spread.cells[1].runs, (.86, .93, 1, 1.07, 1.14), strict=True):
            run.step_s *= noise  # 4.4 as before, but its interval has 4 in it
        row, = judge.of_results(spread)
        self.assertTrue(row["low"] < 4 < row["ours"] < row["high"])
        self.assertEqual(row["verdict"], "confirmed")
        self.assertRegex(row["why"], "^one rank alone takes ")
        self.assertFalse([text for text in verdicts.warnings(spread) if text.startswith("Superlinear")])
        for run in found.cells[1].runs:
            run.step_s *= 1.15  # 3.83 of 4
        found.study["claims"] = self.with_share(1 / 4, share="work=quarter").study["claims"]
        row, = judge.of_results(found)
        self.assertEqual(row["verdict"], "confirmed")
        self.assertRegex(row["why"], "^one rank alone takes 1.01e.03 ms for the whole and 202 ms for the share, 5 ")

    def test_a_report_warns_of_what_its_workers_do_not_account_for(self):
        found = self.with_share(1 / 5, share="work=quarter")
        found.study["report"] = {}
        said = [text for text in verdicts.warnings(found) if text.startswith("Superlinear")]
        self.assertEqual(len(said), 1)
        self.assertIn(": 4all (4.4 times on 4 times the workers). ", said[0])  # the quarter has the whole's batch
        for run in found.cells[2].runs:
            run.info = {**run.info, "options": {**run.info["options"], "batch": "10"}}  # of 40
        said = [text for text in verdicts.warnings(found) if text.startswith("Superlinear")]
        self.assertIn("the workers; one alone takes 1.01e+03 ms for the whole and 202 ms for a part, 5 times as long)", said[0])
        for run in found.cells[1].runs:
            run.info = {**run.info, "parameters": 1}  # another network's step
        self.assertFalse([text for text in verdicts.warnings(found) if text.startswith("Superlinear")])

    def test_kept_runs_give_the_same_rows(self):
        """runs.csv of experiments/results, written by `export --compact`, is judged as the runs were."""
        wanted = (claim_of(against=BASE), claim_of("points", ">= 2", against=BASE), claim_of("elapsed_s", "> 0"),
                  claim_of("forward_s / wall_s", "0.2..0.3"), claim_of("memory_ctr_s", "0..1"),
                  claim_of("peak_bytes.total", "> 0"), claim_of("run_wire_bytes", "> 0"))
        found = self.results(*wanted)
        found.lost.append(model.Lost("failed", "b09", found.cells[1].name, "signal 9"))
        found.missing.append("b10")
        rows = list(csv.DictReader(perrun.csv_text(kept.compact(perrun.of_all([found]), judge.MEANS)).splitlines()))
        self.assertEqual([row["state"] for row in rows], ["done"] * 10 + ["failed"])
        again = judge.of_results(kept.results_of(rows, claims=list(wanted)))
        for row, other in zip(judge.of_results(found), again, strict=True):
            self.assert_same(row, other)

    def assert_same(self, row, other):
        for key, value in row.items():
            if key in claims.FIGURES_OF_ROW and value is not None:
                self.assertAlmostEqual(value, other[key], delta=1e-6 * abs(value) + 1e-6, msg=key)
            else:
                self.assertEqual(value or "", other[key] or "", key)

    def test_page_and_damaged_claims(self):
        found = self.results(claim_of(against=BASE))
        self.assertRegex(page.claims_of(found), r"2 \(2\.\.2\) times.*\u25b2 confirmed")
        self.assertEqual(page.claims_of(self.results()), "")
        for bad in ({"claim": "a"}, claim_of(), claim_of(confirmed="x", against=BASE)):
            self.studies += 1
            one, = runs.read_results(self.study(f"s{self.studies}", claims=[bad]))
            self.assertIsNone(one.study)
            self.assertTrue(any("study.json: claims: " in why for _, why in one.left_out))


class Tool(ReportCase):
    def test_study(self):
        claim = claim_of("logical_bytes", "> 0")
        folder = self.study(blocks=5, claims=[claim])
        said = gwrun.quiet(call("claims", folder))
        self.assertRegex(said, r"(?m)^confirmed +A +2 +[\d,]+ \([\d,.]+\) bytes +> 0 +it is faster \(arithmetic: .*\)$")
        row, = gwrun.rows(folder, "claims.csv")
        self.assertEqual(tuple(row), claims.ROW)
        self.assertEqual((row["verdict"], row["unit"], row["study"]), ("confirmed", "bytes", "demo"))
        info = gwrun.run_json(folder, "b00-s1", "comm=allreduce")
        self.assertIn(info["machine"]["cpu"], row["machine"])

    def test_mistakes(self):
        plain = self.study()
        gwrun.write(self.path("summary.csv"), "a,b\n1,2\n")
        for words, why in (([plain], "states no claims"), ([self.path()], "is not a summary"),
                           ([self.path("none")], "No such file"), ([plain, "--check"], "about the table")):
            done = call("claims", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertRegex(done.stderr, f"^claims: .*{why}.*\n$")


class Table(gwrun.Case):
    """The table of experiments/README.md, in a copy."""

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("docs"))
        shutil.copy(os.path.join(gwrun.SOURCE, "docs", "README.md"), self.path("docs"))
        for folder in ("analysis", "experiments"):
            shutil.copytree(os.path.join(gwrun.SOURCE, folder), self.path(folder),
                            ignore=shutil.ignore_patterns("*.svg", "__pycache__", "peers"))

    def claims(self, *words, root=None):
        return gwrun.finished([sys.executable, "-B", os.path.join(root or self.dir, "analysis", "claims"), *words])

    def change(self, name, old, new):
        path = self.path("experiments", name)
        text = gwrun.read(path)
        self.assertIn(old, text)
        gwrun.write(path, text.replace(old, new, 1))
        return text

    def test_is_up_to_date(self):
        self.assertEqual(gwrun.quiet(self.claims("--check", root=gwrun.SOURCE)), "")

    def test_each_kept_claim_is_computed_again(self):
        """From its runs.csv."""
        results = self.path("experiments", "results")
        for name in sorted(os.listdir(results)):
            folder = os.path.join(results, name)
            with self.subTest(study=name):
                before = gwrun.rows(folder, "claims.csv")
                gwrun.quiet(call("claims", folder))
                for row, other in zip(before, gwrun.rows(folder, "claims.csv"), strict=True):
                    self.assertEqual(tuple(row), claims.ROW)
                    for key in claims.ROW:
                        if key in claims.FIGURES_OF_ROW and row[key]:
                            self.assertAlmostEqual(float(row[key]), float(other[key]), delta=1e-7 * abs(float(row[key])))
                        else:
                            self.assertEqual(row[key], other[key])

    def test_a_figure_that_was_changed_by_hand_is_found(self):
        folder = self.path("experiments", "results", "strong_scaling")
        before = gwrun.rows(folder, "claims.csv")[0]
        self.change("results/strong_scaling/claims.csv", before["ours"], "1.99")
        call("claims", folder)
        self.assertEqual(gwrun.rows(folder, "claims.csv")[0], before)

    def test_totals_count_each_verdict(self):
        text, index = (gwrun.read(gwrun.SOURCE, folder, "README.md") for folder in ("experiments", "docs"))
        total, = re.findall(r"(?m)^Of (\d+) claims: (.*)\.$", text)
        self.assertEqual([total], re.findall(r"(?m)^Of (\d+) claims: (.*)\.$", index))
        parts = {}
        for part in total[1].split(", "):
            count, verdict, simulated = re.fullmatch(r"(\d+) (.+?)(?: \((\d+) simulated\))?", part).groups()
            parts[verdict], parts[f"{verdict} (simulated)"] = int(count), int(simulated or 0)
            parts[verdict] -= parts[f"{verdict} (simulated)"]
        self.assertEqual(int(total[0]), sum(parts.values()))
        for verdict, count in parts.items():
            self.assertEqual(len(re.findall(rf"\| \**{re.escape(verdict)}\**(?=:| \|)", text)), count, verdict)
        self.assertTrue(any(verdict.startswith("not testable here (") for verdict in parts))

    def test_is_rewritten(self):
        text = self.change("README.md", "| **confirmed**", "| **refuted**")
        done = self.claims("--check")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^claims: .*README.md differs .*: run analysis/claims\n$")
        self.assertEqual(self.claims().returncode, 0)
        self.assertEqual(gwrun.read(self.dir, "experiments", "README.md"), text)

    def test_another_criterion_than_was_judged(self):
        self.change("strong_scaling.yaml", 'confirmed: "1.72..2.10"', 'confirmed: "1.5..2.10"')
        done = self.claims()
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "^claims: .*strong_scaling.yaml: the claim .* another criterion.*\n$")

    def test_rows_of_one_sentence_stand_together(self):
        rows = re.findall(r"(?m)^\| ([^|]*?)(?: \([^|]*)? \| ([^|]*) \|", gwrun.read(gwrun.SOURCE, "experiments", "README.md"))
        rows = rows[rows.index(("claim", "whose")) + 2:]
        said = [row for i, row in enumerate(rows) if row != rows[i - 1]]
        self.assertLess(len(said), len(rows))
        self.assertEqual(len(set(said)), len(said))

    def test_many_are_judged(self):
        page = gwrun.read(gwrun.SOURCE, "experiments", "README.md")
        verdicts = re.findall(r"\| \*\*(confirmed|refuted|differs)\*\*", page)
        self.assertGreaterEqual(len(verdicts), 20)
