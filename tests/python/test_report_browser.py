"""The report as a reader sees it: headless Chromium, on screens of 400 to 1920 pixels, light, dark
and printed."""

import base64
import csv
import glob
import os
import re
import shutil
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from unittest import mock

import gwrun
from reportcase import call, cell_of, write_study
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait
from reporting import charts, figure, paper

SLOW = 300  # seconds: of a machine on which all else runs, too

# Runs that fill every chart, in each block of the study; the links are said to have a rate, and none is emulated.
TASK = ("--data", "synthetic:samples=1200,features=16,classes=4,seed=1", "--layers", "16", "--batch",
        "40", "--epochs", "2", "--overhead", "0")
OVERLAPPED, BLOCKING = ("--comm", "iallreduce:bucket=1K"), ("--comm", "allreduce:algo=sra")
CELLS = {("2", "overlapped", "1gbit"): OVERLAPPED,
         ("1", "overlapped", "1gbit"): OVERLAPPED,
         ("2", "blocking", "1gbit"): (*BLOCKING, "--forecast"),
         ("2", "stages", "1gbit"): ("--mesh", "pipe=2", "--microbatches", "4"),
         ("2", "overlapped", "2gbit"): OVERLAPPED,
         ("2", "blocking", "2gbit"): BLOCKING}
BLOCKS = 2
ODD = r"[50%] & #1_{x} $ a\b^c~ <a>|b -- 'c' ``d''"  # for LaTeX


def make_study(folder):
    """A study below `folder`, as the runner leaves it; the blocks are copies."""
    cells = [cell_of(ranks=ranks, mode=mode, rate=rate) for ranks, mode, rate in CELLS]

    def make(cell, block, out):
        if block:
            shutil.copytree(os.path.join(folder, f"b00-s1/{cell['id']}"), out)
        else:
            rate = 10 ** 9 * int(cell["levels"]["rate"].removesuffix("gbit"))
            with mock.patch.dict(os.environ, {"GRADWIRE_TESTBED": "1", "GRADWIRE_LINK_RATE": str(rate)}):
                gwrun.train(cell["ranks"], out, *TASK, *CELLS[tuple(cell["levels"].values())])
    write_study(folder, "all", cells, BLOCKS, make, source=None, claim="Two are faster than one.",
                report={"x": "ranks", "target_accuracy": 0.5, "compare_within": ["rate"],
                        "expect": {"ranks=1": "slower"}})


# The last: A4 less its margins, at 96 pixels an inch.
VIEWS = [(400, "dark", "screen"), (800, "light", "screen"), (1300, "dark", "screen"),
         (1920, "light", "screen"), (718, "dark", "print")]

# What there is of each drawing: its box, and which of its texts leave it or lie over each other.
DRAWINGS = """
return [...document.querySelectorAll("section.chart:has(svg)")].map(section => {
  const drawing = section.querySelector("svg"), box = drawing.getBoundingClientRect();
  const boxes = [...drawing.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
  const out = boxes.filter(([, of]) => of.left < box.left - 3 || of.right > box.right + 3 || of.top < box.top - 3
    || of.bottom > box.bottom + 3).map(([text]) => text);
  const sizes = [...drawing.querySelectorAll("text")].map(
    text => parseFloat(getComputedStyle(text).fontSize) * box.width / drawing.viewBox.baseVal.width);
  const over = boxes.flatMap(([one, a], i) => boxes.slice(i + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4).map(([other]) => `${one} | ${other}`));
  return {name: section.id, over: over, width: box.width, height: box.height, out: out,
          marks: drawing.querySelectorAll("path, use").length, least: Math.min(...sizes)};
});"""

# This finds the tables without a drawing, which are not folded.
ALONE = """
return [...document.querySelectorAll("section.chart:not(:has(svg)) > .data table")].filter(
  table => table.getClientRects().length).map(table => table.closest("section").id);"""

OVERFLOW = """
const page = document.documentElement;
return {page: page.scrollWidth, window: page.clientWidth, wide: page.scrollWidth <= page.clientWidth
  ? [] : [...document.querySelectorAll("body *")].filter(
    element => element.getBoundingClientRect().right > page.clientWidth + 1
               && !element.closest(".scroll, .drawing, pre")).slice(0, 5).map(
    element => element.tagName + "." + element.className)};"""

# Opens all that is folded; and the tables that do not fit their box.
UNFOLD = 'document.querySelectorAll("details").forEach(details => { details.open = true; });'
CLIPPED = """
return [...document.querySelectorAll(".scroll")].filter(
  box => box.scrollWidth > box.clientWidth + 1).map(box => box.getAttribute("aria-label"));"""

# Of words and figures in a table, those that lie in more than one line: words may part at a soft hyphen alone.
PARTED = """
document.querySelectorAll("details").forEach(details => { details.open = true; });
const range = document.createRange(), parted = [];
for (const cell of document.querySelectorAll("thead th, td.number, .answer td")) {
  const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walk.nextNode())
    for (const word of walk.currentNode.data.matchAll(/[^\\s\\u00ad-]+/g)) {
      const behind = walk.currentNode.data[word.index - 1] === "\\u00ad";  // the first letter has the hyphen's box, too
      range.setStart(walk.currentNode, word.index + behind);
      range.setEnd(walk.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) parted.push(word[0]);
    }
}
return parted;"""

# What paper must not part from what follows it, or within.
HELD = """
const style = element => getComputedStyle(element);
return [...document.querySelectorAll("h2, h3, .see, summary")].filter(one => style(one).breakAfter !== "avoid").concat(
  [...document.querySelectorAll(".drawing, tr, li, p")].filter(one => style(one).breakInside !== "avoid")).map(
  one => one.outerHTML.slice(0, 60));"""

COLOURS = """
const text = document.querySelector("section.chart svg text");
return [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
        text ? getComputedStyle(text).fill : null];"""


def open_browser(profile):
    options = Options()
    for word in ("--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                 "--disable-dev-shm-usage", f"--user-data-dir={profile}"):
        options.add_argument(word)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # it refuses root a sandbox
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = "/usr/bin/chromium"
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


def charts_ground():
    return f'<rect width="100%" height="100%" fill="{figure.GROUND}"/>'


def luminance(colour):
    """Of `rgb(r, g, b)`, as WCAG defines it."""
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1:-1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, two):
    low, high = sorted(map(luminance, (one, two)))
    return (high + 0.05) / (low + 0.05)


class Browser(unittest.TestCase):
    """One study, one page and one browser for all tests."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(holder.cleanup)
        cls.folder, cls.saved = (os.path.join(holder.name, name) for name in ("all", "saved"))
        make_study(cls.folder)
        done = call("report", cls.folder)
        if done.returncode != 0:
            raise AssertionError(f"report: {done.returncode}: {done.stderr}")
        cls.driver = open_browser(os.path.join(holder.name, "profile"))
        cls.addClassCleanup(cls.driver.quit)
        cls.driver.set_page_load_timeout(SLOW)
        cls.driver.set_script_timeout(SLOW)
        cls.url = "file://" + os.path.join(cls.folder, "report.html")

    def show(self, width, scheme="light", media="screen", url=None):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.driver.get(url or self.url)
        # A browser that is just starting may hand over a page that it still reads.
        WebDriverWait(self.driver, SLOW).until(
            lambda driver: driver.execute_script("return document.readyState") == "complete")

    def look_at_drawings(self):
        found = self.driver.execute_script(DRAWINGS)
        self.assertEqual(sorted(drawing["name"] for drawing in found),
                         sorted(f"s0-{name}" for name in charts.ORDER if name not in charts.TABLES))
        for drawing in found:
            self.assertGreater(drawing["width"], 200, drawing)
            self.assertGreater(drawing["height"], 80, drawing)
            self.assertGreater(drawing["marks"], 5, drawing)
            self.assertGreater(drawing["least"], 8, drawing)  # pixels of the least letters
            self.assertEqual(drawing["out"], [], drawing)  # nothing is cut off
            self.assertEqual(drawing["over"], [], drawing)  # nor printed over something else
        self.assertEqual(self.driver.execute_script(ALONE), ["s0-pays"])  # break-even is of simulated studies

    def test_every_view(self):
        """Every chart is drawn, nothing is wider than the screen or clipped, nothing is complained of."""
        for width, scheme, media in VIEWS:
            with self.subTest(width=width, scheme=scheme, media=media):
                self.show(width, scheme, media)
                self.look_at_drawings()
                self.assertEqual(self.driver.execute_script(UNFOLD + CLIPPED), [])
                found = self.driver.execute_script(OVERFLOW)
                self.assertLessEqual(found["page"], found["window"], found)
                self.assertEqual(self.driver.get_log("browser"), [])

    def test_paper_parts_no_headings_and_no_figures(self):
        for width in (718, 740):  # of A4 and of US letter, less their margins
            self.show(width, "light", "print")
            self.assertEqual(self.driver.execute_script(PARTED), [])
            self.assertEqual(self.driver.execute_script(HELD), [])
            tallest = self.driver.execute_script(
                "return Math.max(...[...document.querySelectorAll('.drawing')].map(one => one.getBoundingClientRect().height));")
            self.assertLess(tallest, 700)  # with its heading it fits on a page of 27 cm

    def pages(self, details):
        """How many take what is printed, with all details or without."""
        self.driver.execute_script("document.querySelector('[data-print]').checked = arguments[0]", details)
        done = self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
        return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(done["data"])))

    def test_many_runs_print_on_few_pages(self):
        """69 runs of 23 configurations: what comes first, their table and the charts; the rest if the reader asks."""
        many = os.path.join(os.path.dirname(self.folder), "many")
        made = sorted(glob.glob(os.path.join(self.folder, "b00-s1", "*")))
        cells = [cell_of(ranks="2", bucket=str(number)) for number in range(23)]
        write_study(many, "many", cells, 3, lambda cell, block, out: shutil.copytree(
            made[(cells.index(cell) + block) % len(made)], out), source=None, report={"x": "bucket"})
        self.assertEqual(call("report", many).stderr, "")
        self.show(718, media="print", url=f"file://{many}/report.html")
        few, all_of_them = self.pages(False), self.pages(True)
        self.assertLessEqual(few, 15)
        self.assertGreater(all_of_them, 2 * few)
        self.driver.execute_script("document.querySelector('[data-print]').checked = false; dispatchEvent(new Event('beforeprint'));")
        self.assertEqual(self.driver.execute_script(CLIPPED), [])
        shown = self.driver.execute_script("""
            const shown = selector => [...document.querySelectorAll(selector)].filter(one => one.getClientRects().length);
            return [shown(".answer table").map(table => table.tBodies[0].rows.length), shown(".detail").length,
                    shown(".chart").length > 8];""")
        self.assertEqual(shown, [[len(cells)], 0, True])

    def test_the_answer_comes_first(self):
        self.show(1300)
        found = self.driver.execute_script("""
            const top = selector => document.querySelector(selector).getBoundingClientRect().top;
            const columns = document.querySelector(".answer table").tHead.rows[0].cells.length;
            return [columns, top(".claim"), top(".badge"), top(".answer"), top(".chart"), innerHeight];""")
        self.assertLessEqual(found[0], 6)
        self.assertEqual(found[1:], sorted(found[1:]))

    def test_buttons_save_files(self):
        self.show(1300, "dark")
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior",
                                    {"behavior": "allow", "downloadPath": self.saved})
        self.driver.execute_script("""
            document.querySelectorAll("details").forEach(details => { details.open = true; });
            const chart = document.querySelector("#s0-traffic");
            const rows = chart.querySelector("table").tBodies[0].rows;
            rows[0].cells[0].textContent = arguments[0];
            rows[1].cells[0].textContent = "=1+1";
            rows[2].cells[0].textContent = "-0.15";
            for (const kind of ["svg", "csv", "tex", "md"])
              chart.querySelector(`[data-save=${kind}]`).click();""", ODD)
        wanted = [os.path.join(self.saved, f"s0-traffic.{kind}") for kind in ("csv", "md", "svg", "tex")]
        WebDriverWait(self.driver, SLOW).until(lambda _: sorted(glob.glob(self.saved + "/*")) == wanted)
        texts = []
        for path in wanted:
            texts.append(gwrun.read(path))
        table, markdown, drawing, latex = texts
        rows = list(csv.reader(table.splitlines()))
        self.assertEqual(rows[0][0], "configuration")
        self.assertEqual(len(rows), 1 + len(CELLS))
        self.assertEqual({len(row) for row in rows}, {len(rows[0])})
        self.assertEqual([row[0] for row in rows[1:4]], [ODD, "'=1+1", "-0.15"])
        self.assertEqual(len(markdown.splitlines()), 2 + len(CELLS))
        self.assertEqual(latex.count(r"\\"), 1 + len(CELLS))
        self.assertIn("{}" + paper.latex(ODD, len(ODD))[0] + " & ", latex)
        self.assertEqual(sum(line.startswith("{}") for line in latex.splitlines()), 1 + len(CELLS))
        root = ElementTree.fromstring(drawing)
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        self.assertNotIn("var(", drawing)
        self.assertIn(charts_ground(), drawing)  # light, whatever the reader's screen is

    def test_light_and_dark(self):
        grounds = []
        for scheme in ("light", "dark"):
            self.show(1400, scheme)
            ground, *texts = self.driver.execute_script(COLOURS)
            grounds.append(luminance(ground))
            for text in texts:
                self.assertGreater(contrast(ground, text), 7, (scheme, ground, text))
        self.assertGreater(grounds[0], 0.9)
        self.assertLess(grounds[1], 0.1)
        self.show(718, "dark", "print")
        self.assertEqual(luminance(self.driver.execute_script(COLOURS)[1]) < 0.1, True)

    def test_prints(self):
        self.show(1400)
        done = self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
        self.assertTrue(base64.b64decode(done["data"]).startswith(b"%PDF-"))

    def test_what_scrolls_is_reached_by_keyboard(self):
        self.show(1400)
        boxes = self.driver.execute_script(
            "return [...document.querySelectorAll('.scroll, .drawing, pre')].map(box => box.tabIndex)")
        self.assertGreater(len(boxes), 0)
        self.assertEqual(set(boxes), {0})
