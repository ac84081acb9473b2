"""The documentation: links lead somewhere, and generated tables are those of the program."""

import collections
import json
import os
import re
import shutil
import sys

import gwrun

ROOT, GRADWIRE = os.environ["SOURCE"], os.environ["PROGRAM"]
sys.path.append(os.path.join(ROOT, "docs"))

import figures

FOLDERS = ["", "docs", "experiments", "experiments/peers", "examples", "src/counters/groups"]
LINK = re.compile(r"\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\(([^)\s]+)\)")


def pages(root):
    """Paths of all pages, from `root` on."""
    for folder in FOLDERS:
        for name in sorted(os.listdir(os.path.join(root, folder))):
            if name.endswith(".md"):
                yield os.path.join(folder, name)


def prose(text):
    """Without code, whose brackets are no links."""
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]]", "", code[0]), text)


def anchors(text):
    """The #names of a page, as GitHub makes them of headings, and those set by hand."""
    names, seen = re.findall(r'<a id="([^"]+)">', text), collections.Counter()
    for heading in re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        names.append(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def broken(root):
    """One line for each link that leads nowhere."""
    for page in pages(root):
        for target in LINK.findall(prose(gwrun.read(root, page))):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(os.path.join(root, path)):
                yield f"{page}: {target}: no such file"
            elif anchor and anchor not in anchors(gwrun.read(root, path)):
                yield f"{page}: {target}: no such heading"


class Links(gwrun.Case):
    def test_lead_somewhere(self):
        self.assertEqual(list(broken(ROOT)), [])

    def test_index_names_every_page(self):
        index = LINK.findall(gwrun.read(ROOT, "docs", "README.md"))
        named = {os.path.normpath(os.path.join("docs", target)) for target in index}
        self.assertEqual(set(pages(ROOT)) - named, {"README.md", "docs/README.md"})

    def test_a_broken_link_is_found(self):
        for folder in FOLDERS:
            os.makedirs(self.path(folder), exist_ok=True)
        gwrun.write(self.path("docs", "a.md"),
                    "# One, two\n## Same\n## Same\n[a](#one-two) [b](#same-1) [c](../docs)\n"
                    "```\n# Comment\n[code](none)\n```\n[d](https://example.org/x)\n"
                    "[lost](b.md) [lost](#same-2) [lost](#comment)\n")
        self.assertEqual(list(broken(self.dir)),
                         ["docs/a.md: b.md: no such file", "docs/a.md: #same-2: no such heading",
                          "docs/a.md: #comment: no such heading"])


def copy_pages(root):
    """The pages that docs/tables writes, and what it reads."""
    only = shutil.ignore_patterns("*.svg", "*.html", "__pycache__", "img")
    for folder in ("docs", "analysis", "experiments/results"):
        shutil.copytree(os.path.join(ROOT, folder), os.path.join(root, folder), ignore=only)
    for page in ("README.md", "experiments/README.md"):
        shutil.copy(os.path.join(ROOT, page), os.path.join(root, page))


def tables(root, *words):
    return gwrun.finished([sys.executable, "-B", os.path.join(root, "docs", "tables"), "--gradwire", GRADWIRE, *words])


NUMBER = re.compile(r"(?<!\w)(?<!\d\.)\d+(?:,\d{3})*(?:\.\d+)?(?![\w])")
UNITS = r"\d (?:ms|us|ns|GB/s|GFLOP/s|MB/s|x)\b|\d times as (?:fast|long)"


def holds(number, text):
    """Whether a number of the text rounds to this one."""
    half = 0.5 * 10.0 ** -len(number.partition(".")[2]) + 1e-9
    wanted, *found = (float(one.replace(",", "")) for one in (number, *NUMBER.findall(text)))
    return any(abs(one - wanted) <= half for one in found)


def without_code(text):
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


class Figures(gwrun.Case):
    """Figures are those of kept results, or the page says when they were measured."""

    def test_a_result_that_changed_is_found(self):
        copy_pages(self.dir)
        results = self.path("experiments", "results")
        for study, name, old, new, page in (
                ("codec_accuracy", "summary", ",0.8", ",0.7", "experiments/README.md"),
                ("scale_out", "break_even", "faster at all", "slower at all", "docs/does-it-pay.md"),
                ("checkpoint", "claims", ",1.", ",2.", "experiments/README.md")):
            path = os.path.join(results, study, f"{name}.csv")
            text = gwrun.read(path)
            self.assertIn(old, text)
            gwrun.write(path, text.replace(old, new))
            done = tables(self.dir, "--check")
            self.assertEqual((done.returncode, done.stderr), (1, f"docs/tables: {page} differs from the program or "
                                                                 "the results: run docs/tables\n"))
            self.assertEqual(tables(self.dir).returncode, 0)
            self.assertEqual(tables(self.dir, "--check").returncode, 0)

    def test_a_figure_that_is_not_kept(self):
        for what, why in (("claim none", "no claim 'none' with a figure"), ("step_s of clock=x", "are no levels of method, "),
                          ("hue of method=allreduce", "summary.csv has no hue"), ("sum", "'sum' is unknown")):
            with self.assertRaisesRegex(ValueError, f"<!-- of stragglers: {what} -->: .*{why}"):
                figures.replaced(ROOT, f"It took <!-- of stragglers: {what} -->1<!-- end --> s.")
        with self.assertRaisesRegex(ValueError, "No such file"):
            figures.replaced(ROOT, "<!-- of nothing: made -->1<!-- end -->")

    def test_each_kind_of_figure(self):
        for what, said in (("codec_accuracy: points of codec=topk 1%, no EF against codec=none", r"\d+\.\d"),
                           ("codec_accuracy: test_accuracy of codec=none", r"\d\d\.\d\d \(\d\d\.\d\d\.\.\d\d\.\d\d\)"),
                           ("nesting: found confirmed", r"\d of 6"), ("stragglers: made", r"\d{4}-\d\d-\d\d, .+, \d cores"),
                           ("stragglers: step_s of method=allreduce", r"0\.\d+"), ("stragglers: ms of method=allreduce", r"\d+(\.\d+)?"),
                           ("stragglers: ratio of step_s of method=allreduce against method=allreduce", "1"),
                           ("feedback: time to target of Ok-topk, even", r"0\.\d+ \(0\.\d+\.\.0\.\d+\)"),
                           ("depth_width: range of memory_twin_s in wall_mean_s", r"\S+ to \S+")):
            found = figures.INLINE.fullmatch(figures.replaced(ROOT, f"<!-- of {what} --><!-- end -->"))
            self.assertRegex(found[4], f"^{said}$")

    def test_linked_results_hold_the_numbers(self):
        """`[1.49; 4.0](results-..txt)`: each of them is in that file."""
        seen = 0
        for page in pages(ROOT):
            for words, target in re.findall(r"\[([^\]]*)\]\(([^)\s]*results-\w[\w.-]*\.txt)\)", gwrun.read(ROOT, page)):
                kept = gwrun.read(ROOT, os.path.dirname(page), target)
                for number in NUMBER.findall(words):
                    seen += 1
                    self.assertTrue(holds(number, kept), f"{page}: {number}: not in {target}")
        self.assertGreater(seen, 20)

    def test_tables_of_peers_hold_kept_numbers(self):
        """Each number with a decimal point in a table that has links to results is in one of them."""
        for page in ("experiments/peers/README.md", "examples/README.md"):
            folder = os.path.join(ROOT, "experiments", "peers")
            kept = "\n".join(gwrun.read(folder, name) for name in sorted(os.listdir(folder))
                             if re.match("results-.*txt", name))
            for line in gwrun.read(ROOT, page).splitlines():
                if re.match(r"\|.*\(\d+\.\d+\.\.", line):
                    for number in re.findall(r"(?<![\w.-])\d+\.\d+(?=[ )|;\]]|\.\.|$)|(?<=\.\.)\d+\.\d+", line):
                        self.assertTrue(holds(number, kept), f"{page}: {number}: {line}")

    def test_the_first_page_has_the_peers_figures(self):
        peers = gwrun.read(ROOT, "experiments", "peers", "README.md")
        sentence, = re.findall(r"its exact exchange leaves ([^[]*)\[comparisons\]", gwrun.read(ROOT, "README.md"))
        ratios = re.findall(r"\d+\.\d\d", sentence)
        self.assertEqual(len(ratios), 8)
        for ratio in ratios:
            self.assertIn(ratio, peers)

    def test_other_figures_have_a_date(self):
        """A page with times of a machine says when they were measured, or has a link to results beside each."""
        for page in pages(ROOT):
            paragraphs = re.split(r"\n\s*\n", without_code(gwrun.read(ROOT, page)))
            dated = any(re.search(r"measured\s+once, \d{4}-\d\d-\d\d", paragraph) for paragraph in paragraphs)
            for paragraph in paragraphs:
                if re.search(UNITS, re.sub(r"<!-- (?:table|of) .*?<!-- end -->|`[^`]*`", "", paragraph, flags=re.DOTALL)):
                    linked = re.search(r"results|peers|\d{4}-\d\d-\d\d", paragraph)
                    self.assertTrue(dated or linked or page in UNDATED, f"{page}: no date beside: {paragraph[:200]}")


# Pages whose times are rules or examples of output, and no results.
UNDATED = {"CHANGELOG.md", "CONTRIBUTING.md", "docs/usage.md", "docs/analysis.md", "docs/run-folder.md"}


class Tables(gwrun.Case):
    def test_are_those_of_the_program(self):
        self.assertEqual(gwrun.quiet(tables(ROOT, "--check")), "")

    def test_a_stale_table_is_found_and_rewritten(self):
        copy_pages(self.dir)
        usage = self.path("docs", "usage.md")
        text = gwrun.read(usage)
        self.assertIn("| `topk` |", text)
        gwrun.write(usage, text.replace("| `topk` |", "| `top` |"))
        done = tables(self.dir, "--check")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "docs/tables: docs/usage.md differs from the program or the "
                                      "results: run docs/tables\n")
        self.assertEqual(tables(self.dir).returncode, 0)
        self.assertEqual(gwrun.read(usage), text)

    def test_list_as_json(self):
        """Each registry, and what the tables rest on."""
        listed = json.loads(gwrun.said(GRADWIRE, "list", "--json"))
        for key, file in (("strategies", "comm/strategies.def"), ("algorithms", "comm/algos.def"),
                          ("codecs", "compress/codecs.def"), ("timetables", "comm/pipeline/timetables.def"),
                          ("commands", "src/cli/commands.def")):
            self.assertEqual([e["name"].replace("-", "_") for e in listed[key]], gwrun.names(file))
        self.assertLessEqual({"report", "run"}, {tool["name"] for tool in listed["tools"]})
        self.assertEqual((listed["needs"]["train"]["trace"], listed["excludes"]["train"]["trace"]),
                         (["--out"], ["--profile off"]))
        codecs = {c["name"]: c for c in listed["codecs"]}
        self.assertEqual((codecs["fp16"]["bits_per_element"], codecs["fp16"]["error"]),
                         (16, "rounding"))
        self.assertIsNone(codecs["zlib"]["bits_per_element"])
        self.assertIn({"name": "bits", "value": "N", "default": "8",
                       "help": "bits per element, besides the scales"}, codecs["qsgd"]["options"])
