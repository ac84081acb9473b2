"""Amdahl's and Gustafson's laws: fits of known serial fractions, and what must not be fitted."""

import unittest

import numpy as np
import statsim
from reporting import fits


class Exact(unittest.TestCase):
    def test_amdahl(self):
        # 10 s, of which 1 s is serial: 1 + 9/2 and 1 + 9/4 s on 2 and 4 workers.
        fit = fits.amdahl({1: [10.0], 2: [5.5], 4: [3.25]})
        self.assertAlmostEqual(fit.serial.value, 0.1, 12)
        self.assertAlmostEqual(fit.misfit, 0, 12)
        self.assertAlmostEqual(fit.points[4], 10 / 3.25, 12)
        self.assertAlmostEqual(float(fit.speedup(1e12)), 10, 6)  # Amdahl's limit, 1/f
        self.assertAlmostEqual(fit.speedup([1, 2])[0], 1, 12)

    def test_gustafson(self):
        # f = 0.2: on 4 workers 4 - 0.2 * 3 = 3.4 times the work a second of 1 worker.
        fit = fits.gustafson({1: [1.0], 2: [2 / 1.8], 4: [4 / 3.4]})
        self.assertAlmostEqual(fit.serial.value, 0.2, 12)
        self.assertAlmostEqual(fit.points[4], 3.4, 12)
        self.assertAlmostEqual(float(fit.speedup(8)), 8 - 0.2 * 7, 12)

    def test_published_runs(self):
        """60,000 images of MNIST on 1 to 8 processes (Liu and Lin), by hand: for f of a = E (P - 1)
        and l = 1 - E, sum(a l) / sum(a a). E = 0.918, 0.737, 0.598, 0.496; a = 0.918, 2.212, 2.990,
        3.471; l = 0.082, 0.263, 0.402, 0.504; 3.609 / 26.72 = 0.135."""
        fit = fits.amdahl({1: [43.67], 2: [23.79], 4: [14.81], 6: [12.17], 8: [11.01]})
        self.assertAlmostEqual(fit.serial.value, 0.135, 3)
        self.assertLess(fit.misfit, 0.05)

    def test_faster_than_linear(self):
        fit = fits.amdahl({1: [1.0], 2: [0.45], 4: [0.2]})
        self.assertLess(fit.serial.value, 0)
        self.assertIn("faster than linear", fit.text)

    def test_slower_than_one(self):
        # (1.5 - 0.5) / (1 - 0.5) = 2, (1.75 - 0.25) / (1 - 0.25) = 2
        fit = fits.amdahl({1: [1.0], 2: [1.5], 4: [1.75]})
        self.assertIn("serial fraction 200%; ", fit.text)
        self.assertIn("slower than 1 worker", fit.text)


class Refused(unittest.TestCase):
    def why(self, seconds, oversubscribed=()):
        with self.assertRaises(fits.NotFitted) as caught:
            fits.amdahl(seconds, oversubscribed)
        return str(caught.exception)

    def test_too_few_points(self):
        self.assertIn("No number of workers above 1", self.why({1: [1.0]}))
        self.assertIn("No runs on 1 worker", self.why({2: [1.0], 4: [0.6]}))
        self.assertIn("No runs", self.why({}))
        self.assertIn("No number of workers above 1", self.why({1: [1.0], 4: [None]}))
        self.assertIn("One number of workers above 1: ", self.why({1: [1.0], 2: [0.6]}))

    def test_oversubscribed(self):
        """On two cores 4 workers are no faster; that must not count as a serial part."""
        seconds = {1: [1.0], 2: [0.5], 4: [0.7], 8: [0.9]}
        self.assertIn("oversubscribed", self.why(seconds, {2, 4, 8}))
        self.assertIn("One number of workers above 1, without", self.why(seconds, {4, 8}))
        seconds[3] = [1 / 3]
        fit = fits.amdahl(seconds, {4, 8})
        self.assertAlmostEqual(fit.serial.value, 0, 12)
        self.assertEqual(sorted(fit.points), [2, 3])

    def test_no_interval_from_few_runs(self):
        fit = fits.amdahl({1: [1.0, 1.0], 2: [0.6, 0.6], 4: [0.4, 0.4]})
        self.assertIsNone(fit.serial.low)
        self.assertIn("2 runs", fit.serial.reason)


class Simulated(unittest.TestCase):
    def test_coverage(self):
        for law in fits.LAWS:
            for n in (3, 5, 10):
                with self.subTest(law=law, runs=n):
                    for workers in ((1, 2, 4), (1, 2, 4, 8)):
                        held = statsim.serial_coverage(law, 0.08, n, workers, 150)
                        self.assertGreaterEqual(held, 0.86 if n == 3 else 0.92)

    def test_interval_narrows(self):
        random = np.random.default_rng(1)

        def width(n):
            seconds = {p: (0.1 + 0.9 / p) * np.exp(0.02 * random.standard_normal(n))
                       for p in (1, 2, 4)}
            interval = fits.amdahl(seconds).serial
            return interval.high - interval.low

        self.assertLess(width(40), width(5))
