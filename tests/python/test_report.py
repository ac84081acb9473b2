"""analysis/report: the page, summary.csv, plots, and how it ends."""

import csv
import html.parser
import os
import re
import shutil
import statistics
import sys
import types
from unittest import mock

import gwrun
from reportcase import ANALYSIS, ReportCase, call

from reporting import charts, failed, markup, model, page, paper, runs, summary, verdicts
from reporting.charts import step_times

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Checker(html.parser.HTMLParser):
    """Tags balanced, ids unique and found, nothing from outside."""

    def __init__(self, text):
        super().__init__()
        self.open, self.faults, self.ids, self.links, self.seen = [], [], [], [], []
        self.feed(text)
        self.close()
        self.faults += [] if f"<script>{markup.SCRIPT}</script></body>" in text else ["no script"]
        self.faults += [f"<{name}> stays open" for name in self.open]
        self.faults += [f"id {name} twice" for name in set(self.ids) if self.ids.count(name) > 1]
        self.faults += [f"#{name} leads nowhere" for name in set(self.links) - set(self.ids)]

    def handle_starttag(self, tag, attrs):
        self.look(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.look(tag, attrs)

    def look(self, tag, attrs):
        self.seen.append(tag)
        if tag in ("link", "img", "iframe", "object", "base") or \
                tag == "script" and (attrs or self.seen.count("script") > 1):
            self.faults.append(f"<{tag}>")
        for key, value in attrs:
            if key == "id":
                self.ids.append(value)
            if key in ("href", "src", "xlink:href"):
                self.faults += [] if value.startswith("#") else [f"{key}={value}"]
                self.links.append(value[1:])
            if key.startswith("on"):
                self.faults.append(key)
            for target in re.findall(r"url\(([^)]*)\)", value or ""):
                self.links.append(target[1:])

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")


def module(name, build):
    """A chart of the test's own, as the report finds them."""
    made = types.ModuleType(f"reporting.charts.{name}")
    made.TITLE, made.build = f"Chart <{name}>", build
    return made


def draw(fig):
    axes = fig.subplots()
    axes.bar(["<b>", "$x$"], [1, 2], hatch="//")


def good(results):
    table = model.Table(["what", "s"], [["<i>", 1.5], ["none", None], ["many", 1234567]])
    return model.Chart("Good & <well>", f"Of {results.name}.", draw, table, ["A note."])


def absent(results):
    raise model.NotShown("no <rank> has it.")


def faulty(results):
    return results.nothing_of_the_kind


class Page(ReportCase):
    def render(self, **modules):
        """(text, [Drawn]) of self.dir, with these charts."""
        made = {f"reporting.charts.{name}": module(name, build) for name, build in modules.items()}
        with mock.patch.dict(sys.modules, made), mock.patch.object(charts, "ORDER", [*modules]):
            text, drawn = page.render(runs.read_results(self.dir), "here")
        checker = Checker(text)
        self.assertEqual(checker.faults, [])
        self.seen = checker.seen
        return text, drawn

    def test_study(self):
        self.study()
        text, drawn = self.render(good=good, absent=absent, faulty=faulty)
        for words in ("Overlap &lt;hides&gt; communication.", "Good &amp; &lt;well&gt;",
                      "no &lt;rank&gt; has it.", "error: AttributeError", "A note.", "1,234,567",
                      '<td class="absent">absent</td>', "Runs: 4 done, of 4 planned.", "first 10 steps", "demo.yaml", "MPICH",
                      "iallreduce:algo=sra</strong>: cannot be told"):
            self.assertTrue(words in text, words)  # without a page of HTML in the message
        self.assertEqual(self.seen.count("svg"), 1)
        self.assertEqual([name for name, _ in drawn[0].errors], ["faulty"])

    def test_several_studies_with_the_same_charts(self):
        self.study("one")
        self.study("two", blocks=1)
        self.copy("alone")
        self.render(good=good)
        self.assertEqual(self.seen.count("svg"), 3)
        self.assertEqual(self.seen.count("h2"), 3)

    def test_bound(self):
        """Beside the step of each run and configuration that measured it; of runs the median."""
        folder = self.study()
        for block, bound_s in enumerate((1e-5, 3e-5)):
            gwrun.change(os.path.join(folder, f"b{block:02d}-s1", "comm=allreduce"),
                        lambda info, s=bound_s: info.update(bound={"bound_s": s}))
        found, = runs.read_results(self.dir)
        step_s = found.cells[0].runs[0].step_s
        ratio = (step_s / 1e-5 + step_s / 3e-5) / 2
        table = step_times.build(found).table
        of_base, of_other = (dict(zip(table.columns, row)) for row in table.rows)
        unit, = {name.partition(" (")[2] for name in of_base if name.startswith("bound (")}
        p50 = statistics.median(found.cells[0].runs[0].walls)
        self.assertAlmostEqual(of_base[f"p50 ({unit}"] / of_base[f"bound ({unit}"], p50 / 2e-5)
        self.assertAlmostEqual(of_base["of bound"], ratio)
        self.assertEqual((of_other[f"bound ({unit}"], of_other["of bound"]), (None, None))
        base, other = csv.DictReader(summary.text([found]).splitlines())
        self.assertAlmostEqual(float(base["bound_s"]), 2e-5)
        self.assertAlmostEqual(float(base["of_bound"]), ratio, delta=1e-6 * ratio)
        self.assertEqual((other["bound_s"], other["of_bound"]), ("", ""))
        html = page.provenance(found)
        for titled in ("bound (ms)", "of bound"):
            self.assertIn(f'<th scope="col">{titled}</th>', html)
        for value in (1e-2, 3e-2, step_s / 1e-5, step_s / 3e-5):
            self.assertIn(f">{markup.number(value)}</td>", html)

    def test_what_is_not_there(self):
        folder = self.study()
        for name, state in (("b00-s1", "failed"), ("b01-s1", "diverged")):
            self.record(f"demo/{name}/comm=allreduce", state=state, attempts=[
                {"started_utc": "", "seconds": 1, "status": 1, "signal": None, "timed_out": False,
                 "message": "<script>alert(1)</script>"}])
        gwrun.write(os.path.join(folder, "b00-s1/comm=iallreduce/run.json"), "{}")
        text, _ = self.render(good=good)
        for words in ("Runs: 1 done, 1 diverged, 1 failed, 1 left out, of 4 planned.", "&lt;script&gt;alert",
                      "run.json: has no schema", "A single configuration"):
            self.assertTrue(words in text, words)
        gwrun.write(os.path.join(folder, "b01-s1/comm=iallreduce/run.json"), "{}")
        self.assertIn("No finished run.", self.render(good=good)[0])

    def test_what_failed_comes_first(self):
        folder = self.study(blocks=5, report={"expect": {"comm=iallreduce:algo=sra": "100 times as fast"}})
        self.assertIn("Nothing failed: no run, no statement, no claim.", page.failed_of({failed.FAILED: []}))
        for block in (0, 1):
            self.record(f"demo/b{block:02d}-s1/comm=allreduce", state="failed", attempts=[
                {"started_utc": "", "seconds": 1, "status": 1, "signal": None, "timed_out": False,
                 "message": f"gradwire: step {block}: <no memory>"}])
        self.record("demo/b03-s1/comm=allreduce", state="running")
        shutil.rmtree(os.path.join(folder, "b04-s1", "comm=allreduce"))
        gwrun.write(os.path.join(folder, "b03-s1/comm=iallreduce/run.json"), "{}")
        unmet = {"option": "compress", "value": "topk", "what": "nothing is compressed", "why": "of one rank"}
        gwrun.change(os.path.join(folder, "b02-s1/comm=iallreduce"), lambda info: info["comm"].update(unmet=[unmet]))
        text, _ = self.render(good=good, faulty=faulty)
        first = text[text.index("What failed"):text.index('<p class="claim">')]
        of_failed, *others = re.split("Not finished|Not done as asked", first)
        for words, where in zip(("unfinished: still running, or killed with its runner", "1 planned run not made",
                                 "nothing is compressed"), (others[0], others[0], others[1])):
            self.assertIn(words, where)
            self.assertNotIn(words, of_failed)
        for words in ("2 runs failed: exit status 1: gradwire: step 0: &lt;no memory&gt; (demo/b00-s1/comm=allreduce; "
                      "demo/b01-s1/comm=allreduce)", "1 folder left out: run.json: has no schema",
                      "1 planned run not made: b04-s1/comm=allreduce",
                      "--compress topk, in 1 of 5 runs: nothing is compressed: of one rank (iallreduce:algo=sra",
                      "the chart Chart &lt;faulty&gt; could not be drawn: AttributeError"):
            self.assertIn(words, first)

    def test_refuted_statements_and_claims_are_what_failed(self):
        claim = {"claim": "B is quick", "whose": "A", "theirs": "100", "figure": "speedup", "cell": "comm=iallreduce:algo=sra",
                 "against": "comm=allreduce", "confirmed": ">= 100"}
        self.study(blocks=5, report={"expect": {"comm=iallreduce:algo=sra": "100 times as fast"}}, claims=[claim])
        found, = runs.read_results(self.dir)
        for block, run in enumerate(run for cell in found.cells for run in cell.runs):
            run.step_s = 1e-3 * (1 + block / 1000)
        first, second = failed.lines(found, [])[failed.FAILED]
        self.assertRegex(first, "^1 of 1 statement refuted: iallreduce:algo=sra, expected 100 times as fast: ")
        self.assertRegex(second, r"^1 of 1 claim (refuted|of another size): B is quick \(here ")

    def test_a_configuration_without_a_finished_run(self):
        self.study()
        for block, state in enumerate(("failed", "diverged")):
            self.record(f"demo/b{block:02d}-s1/comm=allreduce", state=state)
        text, _ = self.render(good=good)
        for words in ("Without a finished run, and so in no chart of times: allreduce, 1 diverged, "
                      "1 failed.", "<dd>allreduce, without a finished run</dd>"):
            self.assertTrue(words in text, words)
        with_runs, without = csv.DictReader(summary.text(runs.read_results(self.dir)).splitlines())
        self.assertEqual((with_runs["runs"], with_runs["failed"]), ("2", "0"))
        told = ("cell", "level.comm", "baseline", "runs", "failed", "diverged", "step_s", "ratio")
        self.assertEqual([without[name] for name in told],
                         ["comm=allreduce", "allreduce", "1", "0", "1", "1", "", ""])

    def test_a_baseline_without_a_finished_run(self):
        self.study()
        for block in range(2):
            self.record(f"demo/b{block:02d}-s1/comm=allreduce", state="failed")
        found, = runs.read_results(self.dir)
        found.cells.append(found.cells[0])
        self.assertIn("The baseline has no finished run", page.against_baseline(found))

    def test_hostile_text_stays_text(self):
        evil = '"><script>alert(1)</script><img src=http://example.org/x onerror="x">'
        folder = self.copy("<b>&amp;")
        gwrun.change(folder, lambda info: (info.update(command=evil, commit=evil),
                                          info["machine"].update(cpu=evil, hosts=[evil]),
                                          info["options"].update(comm=evil)))
        self.copy("other")
        self.render(good=good)

    def test_warnings(self):
        folder = self.study()
        gwrun.change(os.path.join(folder, "b00-s1/comm=allreduce"),
                    lambda info: (info["machine"].update(oversubscribed=True),
                                  info.update(commit="another")))
        text, _ = self.render(good=good)
        for words in ("Oversubscribed: 1 of 4 runs (allreduce).", "1 of 4 oversubscribed",
                      "The runs come from 2 commits: "):
            self.assertTrue(words in text, words)

    def test_tables_name_their_columns_and_rows(self):
        made = markup.table(["what", "s"], [["<a>", 1 / 3], [7, None]], "Data", "mine")
        for words in ('<th scope="col">s</th>', '<th scope="row">&lt;a&gt;</th>',
                      '<td class="number" data-v="0.333333333">0.3333</td>',
                      'data-save="csv" data-name="mine"',
                      '<th class="number" data-v="7" scope="row">7</th><td class="absent">absent</td>'):
            self.assertIn(words, made)

    def test_better_and_worse_are_told_without_colour(self):
        for value, better, shown in ((0.5, True, 'class="number better" data-v="0.5">\u25b2 0.5<'),
                                     ("2x", False, 'class="worse">\u25bc 2x<')):
            self.assertIn(shown, markup.cell(model.judged(value, better)))
        self.assertEqual(markup.cell(model.judged("2x", None)), "<td>2x</td>")

    def test_numbers(self):
        for value, shown in ((0.000123456, "0.0001235"), (1234.5678, "1,235"), (3, "3"),
                             (0.0, "0"), (1e-9, "1e-09"), (1e20, "1e+20")):
            self.assertEqual(markup.number(value), shown)
        self.assertEqual(markup.cell(float("nan")), '<td class="absent">absent</td>')
        self.assertIn('data-v="12345678901"', markup.cell(12345678901))


class Verdicts(ReportCase):
    """Step times are set, so that what is said of them is known."""

    def results(self, factor):
        found, = runs.read_results(self.study(f"by{factor}", blocks=5))
        for cell in found.cells:
            for i, run in enumerate(cell.runs):
                noise = 1 + 0.001 * ((i * 7) % 5 - 2)
                run.step_s = 1e-3 * (1 + i / 10) * noise * (1 if cell.baseline else factor / noise)
        return found

    def test_said(self):
        (label, text), = verdicts.sentences(self.results(0.88))
        self.assertEqual(label, "iallreduce:algo=sra")
        self.assertRegex(text, r"^12% faster \(1[12]\.\.12%\), 5 pairs of runs\.$")
        (_, text), = verdicts.sentences(self.results(1.0001))
        self.assertIn("inside the noise", text)

    def test_oversubscribed_sentences_say_so(self):
        found = self.results(0.88)
        found.cells[1].runs[0].marks.append("oversubscribed")
        (label, _), = verdicts.sentences(found)
        self.assertEqual(label, "iallreduce:algo=sra (oversubscribed)")

    def test_summary_names_what_a_ratio_is_to(self):
        found = self.results(0.88)
        twins = []
        for cell in found.cells:
            cell.levels = {**cell.levels, "size": "small"}
            twins.append(model.Cell(cell.name + "-2", cell.label + " 2",
                                    {**cell.levels, "size": "large"}, cell.runs))
        found.cells += twins
        found.study["report"] = {"compare_within": ["size"]}
        rows = list(csv.DictReader(summary.text([found]).splitlines()))
        self.assertEqual([row["compared_with"] for row in rows],
                         ["", found.cells[0].name, "", found.cells[2].name])

    def test_drift_is_over_the_order_of_the_starts(self):
        found, = runs.read_results(self.study(blocks=6))
        for cell in found.cells:
            for i, run in enumerate(cell.runs):
                run.step_s = (1 + i) * 1e-3
                run.walls = run.walls[:0]
                # As planned, times rise; as started (two were made anew at the end) they do not.
                run.info["started_utc"] = f"2026-11-21T16:0{(5, 1, 4, 2, 0, 3)[i]}:00Z"
        self.assertFalse([said for said in verdicts.warnings(found) if said.startswith("Drift")])
        for cell in found.cells:
            for i, run in enumerate(cell.runs):
                run.info["started_utc"] = f"2026-11-21T16:0{i}:00Z"
        self.assertTrue([said for said in verdicts.warnings(found) if said.startswith("Drift")])

    def test_summary(self):
        found = self.results(0.88)
        base, other = csv.DictReader(summary.text([found]).splitlines())
        self.assertEqual((base["baseline"], base["ratio"], base["verdict"]), ("1", "", ""))
        self.assertAlmostEqual(float(other["ratio"]), 0.88, delta=0.001)
        self.assertIn("12% faster", other["verdict"])
        self.assertEqual(other["level.comm"], "iallreduce:algo=sra")
        self.assertEqual((other["runs"], other["failed"], other["ranks"]), ("5", "0", "2"))
        self.assertEqual(other["memory_ctr_s"], "")
        self.assertEqual(base["wire_source"], "modelled")
        self.assertEqual(other["wire_source"], "measured")
        phases = ["data_s", "compute_s", "codec_s", "exposed_s", "checkpoint_s", "other_s"]
        wall = float(other["wall_mean_s"])
        self.assertAlmostEqual(sum(float(other[name]) for name in phases), wall, delta=1e-4 * wall)


FEW = ["baseline", "traffic"]  # charts that a test of the command needs


class Command(ReportCase):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(charts, "ORDER", FEW)
        patch.start()
        self.addCleanup(patch.stop)

    def refused(self, word, *words):
        gwrun.refusal(call("report", *words), word)

    def test_writes(self):
        folder = self.study()
        self.assertIn("4 runs", gwrun.quiet(call("report", folder, "--plots", self.path("plots"),
                                                 "--tables", self.path("tables"))))
        first = gwrun.read(self.dir, "demo", "report.html")
        checker = Checker(first)
        self.assertEqual(checker.faults, [])
        self.assertEqual(sorted(os.listdir(self.path("plots"))), sorted(f"{name}.svg" for name in FEW))
        self.assertEqual(sorted(os.listdir(self.path("tables"))), sorted(f"{name}.csv" for name in FEW))
        rows = gwrun.rows(self.path("tables"), "baseline.csv")
        self.assertEqual(len(rows), 1)
        self.assertGreater(float(rows[0]["ratio"]), 0)
        self.assertEqual(len(FEW), checker.seen.count("svg"))
        self.assertEqual(len(gwrun.read(self.dir, "demo", "summary.csv").splitlines()), 3)
        self.assertEqual(call("report", folder).returncode, 0)
        self.assertEqual(gwrun.read(self.dir, "demo", "report.html"), first)  # nothing depends on when or where

    def test_baseline(self):
        self.copy("a")
        self.copy("b", "iallreduce")
        for name in ("a", "comm=allreduce"):
            gwrun.quiet(call("report", self.dir, "--baseline", name))
            self.assertIn("against the baseline (a)", gwrun.read(self.dir, "report.html"))
        self.refused("did you mean comm=allreduce?", self.dir, "--baseline", "comm=allreduse")

    @mock.patch.object(charts, "ORDER", [])
    def test_expectations(self):
        folder = self.study()
        gwrun.quiet(call("report", folder, "--expect", "comm=iallreduce:algo=sra: not slower"))
        self.assertIn("? undecided", gwrun.read(self.dir, "demo", "report.html"))  # two runs have no interval
        self.refused("must be faster", folder, "--expect", "comm=iallreduce:algo=sra: quick")
        self.refused("no such levels", folder, "--expect", "comm=ring: faster")

    def test_paper(self):
        folder, made = self.study(), self.path("paper")
        gwrun.quiet(call("report", folder, "--paper", made))
        found = {os.path.relpath(os.path.join(at, name), made)
                 for at, _, names in os.walk(made) for name in names}
        self.assertEqual(found, {
            *(f"figures/demo-{name}.{kind}" for name in FEW for kind in ("svg", "pdf")),
            *(f"tables/demo-{name}.tex" for name in ["answer", *FEW]), "specs/demo.yaml",
            "raw/runs.csv", "raw/summary.csv", "raw/demo-steps.csv", "provenance.json", "README.md"})
        self.assertTrue(gwrun.read_bytes(made, "figures", "demo-traffic.pdf").startswith(b"%PDF"))
        of = gwrun.read_json(made, "provenance.json")["runs"]
        self.assertEqual(len(of), 4)
        info = gwrun.run_json(folder, of[0]["folder"])
        self.assertEqual((of[0]["commit"], of[0]["machine"], of[0]["command"]),
                         (info["commit"], info["machine"], info["command"]))
        steps = list(csv.DictReader(gwrun.read(self.dir, "paper", "raw", "demo-steps.csv").splitlines()))
        self.assertEqual(len(steps), 4 * (info["results"]["steps"] - 10))
        self.assertEqual(gwrun.read(self.dir, "paper", "tables", "demo-answer.tex").count("\\\\\n"), 3)

    def test_papers_tables_and_names(self):
        rows = [["* busy", None, None, True, "none"], ["[x]", 2.5, float("nan"), False, "rank 1"]]
        made = paper.latex_table(model.Table(["a", "b", "no figure", "c", "a longer heading"], rows))
        self.assertIn(r"\begin{tabular}{lrrl}", made)
        self.assertIn("{}a & {}b & {}c & \\begin{tabular}[b]{@{}l@{}}{}a longer\\\\{}heading\\end{tabular} \\\\\n"
                      "\\midrule\n{}* busy & {}-- & {}yes & {}none \\\\\n"
                      "{}[x] & {}2.5 & {}no & {}rank 1 \\\\\n\\bottomrule", made)
        for value, wanted in ((-1234.5, "$-$1,234"), (1.5e-7, r"1.5$\cdot 10^{-7}$"),
                              (float("inf"), r"$\infty$"), ("50% & #1_{x} $", r"50\% \& \#1\_\{x\} \$"),
                              ("a\\b^c~", r"a\textbackslash{}b\textasciicircum{}c$\sim$"),
                              ('<a>|"b"', r"\textless{}a\textgreater{}\textbar{}\char34{}b\char34{}"),
                              ("--comm ``x''", "-{}-comm `{}`x'{}'"), ("", "")):
            self.assertEqual(paper.latex(value, 99), [wanted])
        self.assertEqual(paper.stack(paper.latex("[a] [bb--bb] " + 9 * "d", 8), "[t]{l}"),
                         r"\begin{tabular}[t]{l}{}[a]\\{}[bb-{}-bb]\\{}dddddddd\\{}d\end{tabular}")
        several = [types.SimpleNamespace(name=name, runs=[], cells=[], study={"claim": "C"})
                   for name in ("x", "x-2", "x", "x", "x y", "x_y")]
        names = paper.names_of(several)
        self.assertEqual(names, ["x", "x-2", "x-3", "x-4", "x_y", "x_y-2"])
        self.assertEqual(re.findall("specs/(.*).yaml", paper.studies_text(several, names)), names)

    @mock.patch.object(charts, "ORDER", [])
    def test_mistakes(self):
        self.copy("a")
        os.mkdir(self.path("empty"))
        self.refused("No such file", self.path("nowhere"))
        self.refused("Not a directory", self.path("a", "run.json"))
        self.refused("no run of gradwire", self.path("empty"))
        self.refused("No such file", self.path("a"), "--out", self.path("no", "where.html"))
        self.refused("--plots", self.path("a"), "--plots", self.path("a", "run.json"))
        self.refused("--paper", self.path("a"), "--paper", self.path("a", "run.json"))
        self.refused("RESULTS_DIR")
        self.refused("--bas", self.path("a"), "--bass", "x")

    def test_fault_of_a_chart_is_told(self):
        with mock.patch.dict(sys.modules, {"reporting.charts.bad": module("bad", lambda _: 1 / 0)}), \
                mock.patch.object(charts, "ORDER", ["bad"]):
            done = call("report", self.copy("a"))
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "report: chart bad: ZeroDivisionError: division by zero\n")
        self.assertTrue(os.path.exists(self.path("a", "report.html")))


SPEC = """\
claim: A learning rate can be too large.
base: --data synthetic:samples=1200,features=64,classes=4 --layers 64,32 --batch 60 --ceilings off
factors: {lr: [0.1, 1e6]}
baseline: {lr: 0.1}
repetitions: 2
"""


class Runner(ReportCase):
    """What experiments/run leaves is what the report reads."""

    def test_study_with_diverged_and_missing_runs(self):
        gwrun.write(self.path("rate.yaml"), SPEC)
        done = gwrun.finished(
            [os.path.join(gwrun.SOURCE, "experiments", "run"), self.path("rate.yaml"), "--build",
             os.path.dirname(gwrun.GRADWIRE), "--out", self.path("out")])
        shutil.rmtree(self.path("out", "b01-s1", "lr=0.1"))
        found, = runs.read_results(self.path("out"))
        self.assertEqual(found.counts, {"done": 1, "diverged": 2, "not run": 1}, done)
        self.assertEqual(found.study["claim"], "A learning rate can be too large.")
        self.assertRegex(found.lost[0].why, "^exit status 1: gradwire: .*is no longer finite")
        self.assertTrue(found.baseline)
        gwrun.quiet(gwrun.finished([os.path.join(ANALYSIS, "report"), self.path("out")]))
