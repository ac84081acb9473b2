"""The report as a reader sees it: headless Chromium, on screens of 400 and 1400 pixels, light, dark
and printed."""

import base64
import itertools
import os
import subprocess
import sys
import tempfile
import unittest

import gwrun
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

sys.path.insert(0, os.path.join(gwrun.SOURCE, "analysis"))
from reporting import charts


WIDTHS, SCHEMES = (400, 1400), ("light", "dark")
# The last: A4 less its margins, at 96 pixels an inch.
VIEWS = [*itertools.product(WIDTHS, SCHEMES, ["screen"]), (718, "dark", "print")]

# What there is of each drawing that is shown: its box, and which of its texts leave it.
DRAWINGS = """
return [...document.querySelectorAll("section.chart")].map(section => {
  const shown = [...section.querySelectorAll("svg")].filter(svg => svg.getClientRects().length);
  const box = shown.length ? shown[0].getBoundingClientRect() : {width: 0, height: 0};
  const out = shown.length ? [...shown[0].querySelectorAll("text")].filter(text => {
    const of = text.getBoundingClientRect();
    return of.left < box.left - 3 || of.right > box.right + 3 || of.top < box.top - 3
      || of.bottom > box.bottom + 3;
  }).map(text => text.textContent) : [];
  const sizes = shown.length ? [...shown[0].querySelectorAll("text")].map(
    text => parseFloat(getComputedStyle(text).fontSize) * box.width
            / shown[0].viewBox.baseVal.width) : [];
  return {name: section.id, shown: shown.length, width: box.width, height: box.height, out: out,
          marks: shown.length ? shown[0].querySelectorAll("path, use").length : 0,
          least: Math.min(...sizes)};
});"""

OVERFLOW = """
const page = document.documentElement;
return {page: page.scrollWidth, window: page.clientWidth, wide: page.scrollWidth <= page.clientWidth
  ? [] : [...document.querySelectorAll("body *")].filter(
    element => element.getBoundingClientRect().right > page.clientWidth + 1
               && !element.closest(".scroll, pre")).slice(0, 5).map(
    element => element.tagName + "." + element.className)};"""

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


def luminance(colour):
    """Of `rgb(r, g, b)`, as WCAG defines it."""
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1:-1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, two):
    low, high = sorted(map(luminance, (one, two)))
    return (high + 0.05) / (low + 0.05)


class Browser(unittest.TestCase):
    """On the short form of the study that fills every chart."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        folder = os.path.join(holder.name, "quick")
        for words in (("experiments/run", "experiments/quick.yaml", "--short", "--build",
                       os.path.dirname(gwrun.GRADWIRE), "--out", folder),
                      ("analysis/report", folder)):
            done = subprocess.run([os.path.join(gwrun.SOURCE, words[0]), *words[1:]], text=True,
                                  capture_output=True, check=False, cwd=gwrun.SOURCE)
            if done.returncode != 0:
                raise AssertionError(f"{words[0]}: {done.returncode}: {done.stderr}")
        cls.driver = open_browser(os.path.join(holder.name, "profile"))
        cls.addClassCleanup(cls.driver.quit)
        cls.url = "file://" + os.path.join(folder, "report.html")

    def show(self, width, scheme="light", media="screen"):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.driver.get(self.url)
        # A browser that is just starting may hand over a page that it still reads.
        WebDriverWait(self.driver, 60).until(
            lambda driver: driver.execute_script("return document.readyState") == "complete")

    def each_view(self, look):
        for width, scheme, media in VIEWS:
            with self.subTest(width=width, scheme=scheme, media=media):
                self.show(width, scheme, media)
                look()

    def test_every_chart_is_drawn(self):
        def look():
            found = self.driver.execute_script(DRAWINGS)
            self.assertEqual([drawing["name"] for drawing in found],
                             [f"s0-{name}" for name in charts.ORDER])
            for drawing in found:
                self.assertEqual(drawing["shown"], 1, drawing)
                self.assertGreater(drawing["width"], 200, drawing)
                self.assertGreater(drawing["height"], 80, drawing)
                self.assertGreater(drawing["marks"], 5, drawing)
                self.assertGreater(drawing["least"], 8, drawing)  # pixels of the least letters
                self.assertEqual(drawing["out"], [], drawing)  # nothing is cut off

        self.each_view(look)

    def test_no_horizontal_scroll(self):
        def look():
            found = self.driver.execute_script(OVERFLOW)
            self.assertLessEqual(found["page"], found["window"], found)

        self.each_view(look)

    def test_nothing_in_the_console(self):
        self.each_view(lambda: self.assertEqual(self.driver.get_log("browser"), []))

    def test_light_and_dark(self):
        grounds = []
        for scheme in SCHEMES:
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

    def test_tables_are_reached_by_keyboard(self):
        self.show(1400)
        boxes = self.driver.execute_script(
            "return [...document.querySelectorAll('.scroll, pre')].map(box => box.tabIndex)")
        self.assertGreater(len(boxes), 0)
        self.assertEqual(set(boxes), {0})


if __name__ == "__main__":
    unittest.main()
