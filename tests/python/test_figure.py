"""analysis/reporting/figure.py: drawings that can stand together in a page, and colours that keep
apart for all eyes."""

import collections
import itertools
import os
import re
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.environ["SOURCE"], "analysis"))
from reporting import figure, model


def draw(fig):
    lines, bars = fig.subplots(2, 1)
    for i, colour in enumerate(figure.SERIES):
        lines.plot([1, 10, 300], [i + 1, 2, 500], color=colour, marker="o", label=f"$x_{i}$ <&>")
    lines.set_xscale("log")
    lines.grid(True)
    lines.legend()
    for i, colour in enumerate(figure.PART.values()):
        bars.barh(['name="a" id="b"', "url(#c)"], [1, 2], left=2 * i, color=colour,
                  **figure.MODELLED if i % 2 else dict(figure.MODELLED, hatch="xxx"))
    bars.text(0, 0, "no colour named")
    bars.plot([0, 1], [0, 1], "k:")


def chart(name):
    return model.Chart('Title "&"', "Caption <b>.", draw, model.Table([], []), name=name)


class Drawing(unittest.TestCase):
    def test_two_in_a_page(self):
        page = figure.inline_svg(chart("one")) + figure.inline_svg(chart("two"))
        tags = " ".join(re.findall(r"<[^>]*>", page))
        ids = re.findall(r'\bid="([^"]*)"', tags)
        self.assertGreater(len(ids), 8)
        self.assertEqual([name for name, n in collections.Counter(ids).items() if n > 1], [])
        uses = re.findall(r"url\(#([^)]*)\)", tags) + re.findall(r'href="#([^"]*)"', tags)
        self.assertGreater(len(uses), 8)
        self.assertEqual(set(uses), set(ids))
        self.assertNotIn("http", page)
        self.assertEqual(page.count("<svg"), 2)
        self.assertEqual(page.count('role="img"'), 2)
        self.assertIn("$x_0$ &lt;&amp;&gt;", page)
        self.assertIn('name="a" id="b"', page)
        self.assertRegex(page, r"<text[^>]*>100</text>")  # no formula on a logarithmic axis

    def test_every_colour_is_a_variable(self):
        page = figure.inline_svg(chart("one"))
        styles = "".join(re.findall(r'style="([^"]*)"', page))
        self.assertEqual(re.findall(r"#[0-9a-f]{6}\b", styles), [])
        for name in set(re.findall(r"var\(--([^)]*)\)", page)):
            self.assertGreaterEqual(figure.CSS.count(f"--{name}:"), 1, name)

    def test_same_bytes_again(self):
        self.assertEqual(figure.inline_svg(chart("one")), figure.inline_svg(chart("one")))
        alone = figure.standalone_svg(chart("one"))
        self.assertEqual(alone, figure.standalone_svg(chart("one")))
        self.assertNotIn("var(", alone)
        self.assertNotIn("dc:date", alone)


# Linear RGB as seen without one kind of cones, severity 1: Machado, Oliveira and Fernandes, "A
# physiologically-based model for simulation of color vision deficiency", IEEE TVCG 2009.
EYES = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}


def linear(colour):
    part = np.array([int(colour[i:i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def oklab(rgb):
    """Ottosson's OKLab, in which distances are about as large as they look."""
    lms = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
           [0.0883024619, 0.2817188376, 0.6299787005]] @ rgb
    return [[0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660]] @ np.cbrt(lms)


def contrast(one, two):
    low, high = sorted(linear(colour) @ [0.2126, 0.7152, 0.0722] for colour in (one, two))
    return (high + 0.05) / (low + 0.05)


def least_distance(colours):
    return min((float(np.linalg.norm(oklab(np.clip(eye @ linear(one), 0, 1))
                                     - oklab(np.clip(eye @ linear(two), 0, 1)))), name, one, two)
               for name, eye in ((name, np.array(eye)) for name, eye in EYES.items())
               for one, two in itertools.combinations(colours, 2))


class Colours(unittest.TestCase):
    """On both grounds."""

    def side(self, side, prefix):
        return [pair[side] for name, pair in figure.COLOURS.items() if name.startswith(prefix)]

    def test_contrast(self):
        for side in (0, 1):
            ground, ink, faint = (figure.COLOURS[name][side] for name in ("ground", "ink", "faint"))
            self.assertGreater(contrast(ink, ground), 12)
            self.assertGreater(contrast(faint, ground), 4.5)
            for colour in self.side(side, "series-") + self.side(side, "part-"):
                self.assertGreater(contrast(colour, ground), 3, colour)

    def test_apart(self):
        for side in (0, 1):
            for prefix in ("series-", "part-"):
                distance, *which = least_distance(self.side(side, prefix))
                self.assertGreater(distance, 0.1, which)

    def test_one_name_a_colour(self):
        light = [pair[0] for pair in figure.COLOURS.values()]
        self.assertEqual(len(set(light)), len(light))
