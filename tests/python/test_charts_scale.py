"""The charts of scaling, learning, bytes and factors: their tables against the files of real runs,
laws and verdicts against runs of known time, and drawings of whatever a study may hold."""

import copy
import dataclasses
import math
import unittest
from types import SimpleNamespace

import numpy
from chartcase import overprints
from chartcase import drawn as drawn_on
from matplotlib.figure import Figure
from reportcase import of_kind
from scalecase import BLOCKS, CODECS, RANKS, Case, row_of, with_cells, workers
from scalecase import setUpModule  # noqa: F401 unittest looks for it in this module

from reporting import efficiency, figure, learning, levels, model, panels, rows, steps, verdicts
from reporting.charts import (accuracy, baseline, effects, final_accuracy, scaling,
                              sweep, traffic)

ALL = (accuracy, effects, final_accuracy, scaling, sweep, traffic)


class Scaling(Case):
    def test_speedup_is_that_of_the_files(self):
        chart = scaling.build(self.results)
        for codec in CODECS:
            ratios = [one / two for one, two in zip(self.steps("1", codec), self.steps("2", codec))]
            found = row_of(chart, line="compress none" if codec == "none" else codec, ranks=2)
            self.assertAlmostEqual(found["speedup"] / math.exp(numpy.mean(numpy.log(ratios))), 1, 6)
            self.assertAlmostEqual(found["efficiency"], found["speedup"] / 2)
            self.assertAlmostEqual(
                found["step (ms)"] / (1e3 * numpy.median(self.steps("2", codec))), 1, 6)
            self.assertLess(found["low"], found["speedup"])
        self.assertTrue(chart.caption.startswith("Strong scaling"))

    def law(self, seconds, report=None, local=None):
        cells = workers(self.results, seconds)
        for cell in cells:
            for run in cell.runs:
                run.info["options"]["local-batch"] = local
        made = with_cells(self.results, cells)
        made.study = {**self.results.study, "report": report or {}}
        return scaling.build(made)

    def test_amdahl_is_found_again(self):
        chart = self.law({p: 1e-3 * (0.1 + 0.9 / p) for p in (1, 2, 4, 8)})
        self.assertIn("Amdahl: serial fraction 10%", chart.notes[0])
        self.assertAlmostEqual(row_of(chart, ranks=8)["speedup"], 1 / (0.1 + 0.9 / 8))

    def test_gustafson_where_the_work_grows(self):
        chart = self.law({p: 1e-3 / (1 - 0.2 + 0.2 / p) for p in (1, 2, 4)}, local=10)
        self.assertTrue(chart.caption.startswith("Weak scaling"), chart.caption)
        self.assertAlmostEqual(row_of(chart, ranks=4)["speedup"], 4 * (1 - 0.2 + 0.2 / 4))
        self.assertIn("Gustafson: serial fraction 20%", chart.notes[0])

    def test_the_study_says_which_law(self):
        chart = self.law({1: 1e-3, 2: 1e-3, 4: 1e-3}, report={"scaling": "weak"})
        self.assertTrue(chart.caption.startswith("Weak scaling (as the study says)"))

    def test_oversubscribed_points_are_marked_and_not_fitted(self):
        cells = workers(self.results, {1: 1e-3, 2: 0.5e-3, 4: 0.25e-3})
        cells += workers(self.results, {8: 1.0}, oversubscribed=True)
        for run in cells[-1].runs:
            run.marks.append("oversubscribed")
        chart = scaling.build(with_cells(self.results, cells))
        self.assertIn("Amdahl: serial fraction 0", chart.notes[0])
        self.assertIn("*", row_of(chart, ranks=8)["configuration"])
        self.assertTrue(any("no law is fitted to them" in note for note in chart.notes))

    def test_without_one_worker_there_is_no_speedup(self):
        with self.assertRaisesRegex(model.NotShown, "no run on 1 worker"):
            scaling.build(with_cells(self.results, workers(self.results, {2: 1e-3, 4: 1e-3})))

    def test_a_factor_of_another_name_may_say_who_computes(self):
        cells = workers(self.results, {1: 1e-3, 2: 0.6e-3})
        for cell, name in zip(cells, ("serial", "two ranks")):
            cell.levels = {"how": name}
        chart = scaling.build(with_cells(self.results, cells))
        self.assertAlmostEqual(row_of(chart, ranks=2)["speedup"], 1 / 0.6)
        for run in cells[1].runs:  # now it says something else, too
            run.info["options"]["comm"] = "ps"
        with self.assertRaises(model.NotShown):
            scaling.build(with_cells(self.results, cells))


class Accuracy(Case):
    def test_times_and_bytes_are_those_of_epochs_csv(self):
        target = 0.99 * numpy.median(self.finals("1", "none"))
        chart = accuracy.build(self.results)
        self.assertIn(f"Target: {target:.4g}", chart.caption)
        for codec in CODECS:
            times, sent = [], []
            for lines in self.files("2", codec, "epochs.csv"):
                hit = next((row for row in lines if float(row["test_accuracy"]) >= target), None)
                times.append(float(hit["train_s"]) if hit else math.inf)
                sent.append(float(hit["wire_bytes"]) if hit else math.inf)
            found = row_of(chart, configuration=self.name("2", codec))
            there = sum(map(math.isfinite, times))
            self.assertEqual(found["runs at the target"], f"{there} of {BLOCKS}")
            if there > BLOCKS / 2:
                self.assertAlmostEqual(found["time to target (s)"], numpy.median(times), 6)
                self.assertAlmostEqual(found["bytes to target (MB)"], numpy.median(sent) / 1e6, 9)
            else:
                self.assertEqual(found["time to target (s)"], "not reached")

    def test_modelled_bytes_are_marked(self):
        name, other = self.name("2", "none"), self.name("2", "fp16")
        for source in ("measured: x", "modelled: what the optimal collective sends"):
            for run in self.cell("2", "none").runs:
                run.info["sources"]["wire_bytes"] = source
            for run in self.cell("2", "fp16").runs:
                run.info["sources"]["wire_bytes"] = "measured: x"
            chart = accuracy.build(self.results)
            word = source.partition(":")[0]
            self.assertEqual(row_of(chart, configuration=name)["source of the bytes"], word)
            self.assertEqual(row_of(chart, configuration=other)["source of the bytes"], "measured")
            label = self.cell("2", "none").label
            said = [note for note in chart.notes if note.startswith("Bytes modelled")]
            self.assertEqual(any(label in note for note in said), word == "modelled")
        self.assertIn("bytes modelled", figure.standalone_svg(chart))

    def test_a_run_without_accuracy_costs_the_line_and_is_said(self):
        self.cell("2", "none").runs[0].epochs = []
        notes = accuracy.build(self.results).notes
        self.assertTrue(any("did not test its accuracy" in note
                            and self.cell("2", "none").label in note for note in notes), notes)

    def test_the_studys_target_and_those_that_never_reach_it(self):
        self.results.study["report"]["target_accuracy"] = 1.01
        chart = accuracy.build(self.results)
        self.assertIn("as the study says", chart.caption)
        self.assertEqual({row[6] for row in chart.table.rows}, {"not reached"})
        self.assertTrue(any(note.startswith("Never at the target") for note in chart.notes))

    def test_losses_are_those_of_epochs_csv(self):
        losses = {of: [float(lines[-1][f"{of}_loss"]) for lines in self.files("2", "fp16", "epochs.csv")]
                  for of in ("test", "train")}
        found = row_of(accuracy.build(self.results), configuration=self.name("2", "fp16"))
        self.assertEqual(found["tests"], 2)
        self.assertAlmostEqual(found["test loss at the end, median"], numpy.median(losses["test"]), 6)
        self.assertAlmostEqual(found["least"], min(losses["test"]), 6)
        self.assertAlmostEqual(found["most"], max(losses["test"]), 6)
        self.assertAlmostEqual(found["training loss there"], numpy.median(losses["train"]), 6)
        self.assertNotIn("validation loss there", found)  # no run had such samples

    def test_runs_that_test_their_loss_alone(self):
        for run in self.results.runs:
            for row in run.epochs:
                row["test_accuracy"] = None
        chart = accuracy.build(self.results)
        best = min(self.results.cells, key=lambda cell: cell.middle(lambda run: run.epochs[-1]["test_loss"]))
        self.assertIn(f"the lowest median loss at the end: {best.label}, ", chart.see)
        self.assertEqual({row[5] for row in chart.table.rows}, {None})  # of a target
        self.assertEqual(drawn_on(chart).axes[0].get_ylabel(), "test loss")

    def test_one_of_three_late_runs_leaves_a_median_without_interval(self):
        reach = learning.Reached([1.0, 2.0, math.inf], 2, 3)
        self.assertEqual(learning.summary(reach), (2.0, None, None))
        self.assertEqual(learning.summary(learning.Reached([1.0, math.inf], 1, 2)),
                         (None, None, None))

    def test_diverged_runs_are_said(self):
        gone = self.results.cells.pop(1)
        self.results.lost = [model.Lost("diverged", folder, cell.name, "exit status 1") for folder, cell in
                             (("a", gone), ("b", self.results.cells[1]))]
        for chart, column in ((accuracy.build(self.results), "runs at the target"),
                              (final_accuracy.build(self.results), "verdict")):
            self.assertEqual(row_of(chart, configuration=gone.name)[column], "diverged")
            other = row_of(chart, configuration=rows.label(self.results.cells[1]))
            self.assertEqual(other["diverged"], 1)

    def test_differences_are_points_over_pairs(self):
        base, mine = (self.finals(*cell) for cell in (("1", "none"), ("2", "qsgd")))
        chart = final_accuracy.build(self.results)
        found = row_of(chart, configuration=self.name("2", "qsgd"))
        self.assertAlmostEqual(found["less the baseline's (points)"],
                               100 * numpy.mean(numpy.subtract(mine, base)), 6)
        self.assertAlmostEqual(found["accuracy, median"], numpy.median(mine))

    def test_runs_of_one_seed_are_one_accuracy(self):
        for run in self.results.runs:
            run.info["seed"] = 1
        chart = final_accuracy.build(self.results)
        self.assertIn("1 pair", row_of(chart, configuration=self.name("2", "qsgd"))["verdict"])

    def test_comparisons_stay_within_the_factors_that_the_study_names(self):
        self.hints["compare_within"] = self.read.study["report"]["compare_within"]
        base, mine = (self.finals(*cell) for cell in (("1", "fp16"), ("2", "fp16")))
        found = row_of(final_accuracy.build(self.results), configuration=self.name("2", "fp16"))
        self.assertEqual(found["compared with"], self.cell("1", "fp16").label)
        self.assertAlmostEqual(found["less the baseline's (points)"],
                               100 * numpy.mean(numpy.subtract(mine, base)), 6)
        ratios = [two / one for one, two in zip(self.steps("1", "fp16"), self.steps("2", "fp16"))]
        found = row_of(baseline.build(self.results), configuration=self.name("2", "fp16"))
        self.assertEqual(found["compared with"], self.cell("1", "fp16").label)
        self.assertAlmostEqual(found["ratio"] / math.exp(numpy.mean(numpy.log(ratios))), 1, 6)
        said = [label for label, _ in verdicts.sentences(self.results)]
        self.assertEqual(said, [f"{self.cell('2', codec).label}, against "
                                f"{self.cell('1', codec).label}" for codec in CODECS])

    def test_a_true_difference_is_told_and_noise_is_not(self):
        def ends_at(cell, values):
            for run, value in zip(cell.runs, values):
                run.epochs[-1]["test_accuracy"] = value
        cells = [self.cell("1", "none"), self.cell("1", "fp16"), self.cell("1", "qsgd")]
        for cell, values in zip(cells, ([.80, .82, .84], [.70, .7201, .7402], [.82, .80, .85])):
            ends_at(cell, values)
        chart = final_accuracy.build(with_cells(self.results, cells))
        worse, same = (row_of(chart, configuration=rows.label(cell)) for cell in cells[1:])
        self.assertRegex(worse["verdict"], r"9\.99 points lower \(-10\.\d+\.\.-9\.\d+\)")
        self.assertIn("inside the noise", same["verdict"])
        self.assertLess(same["low (points)"], 0)
        self.assertGreater(same["high (points)"], 0)


class Traffic(Case):
    def test_bytes_are_those_of_run_json(self):
        chart = traffic.build(self.results)
        for codec, bits in (("none", 32), ("fp16", 16)):
            found = row_of(chart, configuration=self.name("2", codec))
            info = self.cell("2", codec).runs[0].info
            self.assertAlmostEqual(found["bits an element"], bits)
            self.assertEqual(found["wire bytes a rank and step"],
                             info["results"]["summary"]["wire_bytes"])
            self.assertEqual(found["source"], info["sources"]["wire_bytes"].partition(":")[0])
        self.assertEqual({self.source("none"), self.source("qsgd")}, {"modelled", "measured"})
        self.assertTrue(any(note.startswith("Modelled") for note in chart.notes))
        quantised = row_of(chart, configuration=self.name("2", "qsgd"))
        self.assertGreater(quantised["bits an element"], 8)
        self.assertLess(quantised["bits an element"], 9)

    def source(self, codec):
        return self.cell("2", codec).runs[0].info["sources"]["wire_bytes"].partition(":")[0]

    def test_one_rank_sends_nothing_and_has_no_bits(self):
        found = row_of(traffic.build(self.results), configuration=self.name("1", "fp16"))
        self.assertEqual(found["wire bytes a rank and step"], 0)
        self.assertIsNone(found["bits an element"])
        self.assertIsNone(found["bus bandwidth (GB/s)"])

    def test_bus_bandwidth_of_a_blocking_exchange(self):
        run = self.cell("2", "qsgd").runs[0]
        took = sum(run.means[name] for name in ("encode_s", "decode_s", "mpi_post_s", "mpi_poll_s",
                                                "transfer_s"))
        self.assertAlmostEqual(traffic.busbw(run) * took / run.means["logical_bytes"], 1)
        run.info["comm"]["strategy"] = "iallreduce"
        self.assertIsNone(traffic.busbw(run))

    def test_uncounted_bytes_are_absent(self):
        for run in self.cell("2", "fp16").runs:
            run.means["wire_bytes"] = None
        found = row_of(traffic.build(self.results), configuration=self.name("2", "fp16"))
        self.assertIsNone(found["wire bytes a rank and step"])
        self.assertIsNone(found["source"])


class Factors(Case):
    def grid(self, slow=1.0):
        """Step times that are products of a number a level; the last cell `slow` times as long."""
        for cell in self.results.cells:
            for i, run in enumerate(cell.runs):
                run.step_s = (1 + i) * {"1": 1.0, "2": 3.0}[cell.levels["ranks"]] \
                    * {"none": 1.0, "fp16": 0.5, "qsgd": 2.0}[cell.levels["compress"]]
        for run in self.results.cells[-1].runs:
            run.step_s *= slow
        return effects.build(self.results)

    def test_effects_of_a_grid_of_products(self):
        chart = self.grid()
        self.assertAlmostEqual(row_of(chart, level="2")["over the reference"], 3)
        found = row_of(chart, level="qsgd")
        self.assertAlmostEqual(found["over the reference"], 2)
        self.assertAlmostEqual(found["low"], 2)  # equal in each block, however the blocks differ
        self.assertEqual(found["compared"], 2)
        self.assertIn("beyond the noise: compress 4 times, ranks 3 times.", chart.see)
        self.assertIn("within 0.00%", chart.notes[0])

    def test_levels_of_marked_runs_are_starred(self):
        for run in self.cell("2", "none").runs:
            run.marks = ["oversubscribed"]
        names = [row[1] for row in effects.build(self.results).table.rows if row[0] == "ranks"]
        self.assertEqual(sorted(names), ["* 2", "1 (reference)"])

    def test_a_baseline_without_twins_is_no_reference(self):
        """Of 2 ranks only one codec is left, and it is the baseline: ranks 1 still has effects."""
        keep = [self.cell("2", "none")] + [self.cell("1", codec) for codec in CODECS[1:]]
        base = keep[0]
        self.results.cells, self.results.baseline = keep, base
        found = [row for row in effects.build(self.results).table.rows if row[0] == "compress"]
        self.assertEqual([row[1] for row in found], ["fp16 (reference)", "qsgd"])
        self.assertIsNotNone(found[1][6])

    def test_what_does_not_multiply_is_named(self):
        chart = self.grid(slow=3.0)
        # Least squares leave (1 - 1/2)(1 - 1/3) of the logarithm of 3, with either sign.
        self.assertRegex(chart.notes[0], "44% slower|31% faster")

    def test_one_factor_at_a_time_cannot_tell_an_interaction(self):
        self.results.cells = [cell for cell in self.results.cells
                              if cell.levels["ranks"] == "1" or cell.levels["compress"] == "none"]
        chart = effects.build(self.results)
        self.assertIn("Interaction is unknown", chart.notes[0])
        # The codecs' cells on 1 rank have no like on 2.
        self.assertEqual(row_of(chart, level="1 (reference)")["configurations"], 1)
        self.assertEqual(row_of(chart, level="none (reference)")["configurations"], 1)

    def test_sweep_has_the_steps_of_the_files(self):
        chart = sweep.build(self.results)
        for ranks in RANKS:
            found = row_of(chart, ranks=ranks, configuration=self.name(ranks, "qsgd"))
            self.assertAlmostEqual(
                found["step (ms)"] / (1e3 * numpy.median(self.steps(ranks, "qsgd"))), 1, 6)

    def test_sweep_calls_none_of_two_kinds_the_quickest(self):
        chart = sweep.build(self.results)
        self.assertIn("at 1 the least measured is", chart.see)
        played = next(cell for cell in self.results.cells if cell.levels["ranks"] == "1")
        played.runs = [dataclasses.replace(run, info=of_kind(run.info, steps.SIMULATED)) for run in played.runs]
        self.assertIn("at 1 step times of two kinds", sweep.build(self.results).see)

    def test_sweep_needs_numbers(self):
        self.results.study["report"] = {"x": "compress"}
        with self.assertRaisesRegex(model.NotShown, "levels of compress are not numbers"):
            sweep.build(self.results)
        self.results.study["report"] = {}
        with self.assertRaisesRegex(model.NotShown, "names no factor"):
            sweep.build(self.results)

    def test_levels_as_numbers(self):
        def values(*texts):
            return {text: number.value for text, number in levels.numbers(texts).items()}
        self.assertEqual(values("64K", "1M"), {"64K": 65536, "1M": 1048576})
        self.assertEqual(values("none", "100mbit", "1gbit"), {"100mbit": 1e8, "1gbit": 1e9})
        self.assertEqual(values("784", "3136"), {"784": 784, "3136": 3136})
        self.assertEqual(values("topk:ratio=0.01", "topk:ratio=0.1"),
                         {"topk:ratio=0.01": 0.01, "topk:ratio=0.1": 0.1})
        self.assertEqual(values("1e-3", "0.1"), {"1e-3": 1e-3, "0.1": 0.1})
        self.assertEqual(values("256,128", "512,256"), {})
        self.assertEqual(values("qsgd", "none"), {})
        self.assertEqual(values("1gbit", "none"), {})
        self.assertEqual(levels.numbers(["a:b=64K", "a:b=1M"])["a:b=1M"].text, "1M")


WORK = {"local_batch": 40, "flops": 2e6, "bytes": 8e5, "pointwise_bytes": 2e5, "flops_per_s": 4e9,
        "peak_flops_per_s": 1e10, "level": "L2", "bandwidth_bytes_per_s": 1e9,
        "products": [{"operands": "nn", "m": 40, "n": 16, "k": 16, "flops": 20480.0,
                      "bytes": 8704.0, "alone_s": 1e-5}]}


class Roofline(Case):
    def row(self, ranks, codec):
        return row_of(SimpleNamespace(table=efficiency.table_of(self.results)[0]), configuration=self.name(ranks, codec))

    def give(self, cells):
        for cell in cells:
            for run in cell.runs:
                run.info.update(work=copy.deepcopy(WORK))

    def test_the_work_is_that_of_the_layers(self):
        samples = 20  # of the 40 of a step, on each of two ranks
        products = [(samples, 16, 16), (16, 16, samples),  # into the hidden layer, and its gradient
                    (samples, 4, 16), (16, 4, samples), (samples, 16, 4)]  # out of it, and back
        flops = sum(2 * m * n * k for m, n, k in products)
        moved = sum(4 * (m * k + k * n + 2 * m * n) for m, n, k in products)
        found = self.row("2", "qsgd")
        works = [run.info["work"] for run in self.cell("2", "qsgd").runs]
        self.assertEqual({(work["flops"], work["bytes"]) for work in works}, {(flops, moved)})
        self.assertAlmostEqual(found["operations a byte (modelled)"],
                               flops / (moved + works[0]["pointwise_bytes"]))
        self.assertAlmostEqual(
            found["Gflop/s a thread"],
            numpy.median([flops / work["compute_s"] for work in works]) / 1e9, 6)
        self.assertNotIn("roof there (Gflop/s a thread)", found)  # --ceilings off

    def test_share_of_the_roof(self):
        self.give(self.results.cells)
        found = self.row("2", "qsgd")
        self.assertAlmostEqual(found["operations a byte (modelled)"], 2)
        self.assertAlmostEqual(found["Gflop/s a thread"], 4)
        self.assertAlmostEqual(found["roof there (Gflop/s a thread)"], 2)  # by bandwidth
        self.assertAlmostEqual(found["share of the roof"], 2)  # not clamped

    def test_threads_of_a_rank_share_its_work(self):
        self.give(self.results.cells)
        for run in self.cell("1", "none").runs:
            run.info["machine"]["threads_per_rank"] = 4
        found = self.row("1", "none")
        self.assertAlmostEqual(found["Gflop/s a thread"], 1)

    def test_some_runs_without_work(self):
        self.give(self.results.cells[:1])
        for cell in self.results.cells[1:]:
            for run in cell.runs:
                run.info["work"] = None
        self.assertEqual([self.row("1", codec)["Gflop/s a thread"] for codec in CODECS], [4, None, None])
        for run in self.results.cells[0].runs:
            run.info["work"] = None
        self.assertNotIn("Gflop/s a thread", self.row("1", "none"))


class Axes(unittest.TestCase):
    def test_logarithmic_over_whatever_was_read(self):
        for low, high in ((1e-300, 1e60), (5e-324, 1.0), (1.0, 1.0), (2.0, 3.0)):
            ax = Figure().subplots()
            panels.log_axis(ax, "x", [0, None, low, high])
            left, right = ax.get_xlim()
            self.assertTrue(0 < left < right < math.inf and left < high < right, (low, high))


class Drawings(Case):
    def draw(self, results):
        """Names of the charts that could be drawn."""
        drawn = set()
        for module in ALL:
            try:
                chart = module.build(results)
            except model.NotShown as reason:
                self.assertRegex(str(reason), r"^[A-Z].*\.$")
                continue
            self.assertEqual(overprints(drawn_on(chart)), [], chart.title)
            self.assertEqual({len(row) for row in chart.table.rows}, {len(chart.table.columns)})
            drawn.add(module.__name__.rpartition(".")[2])
        return drawn

    def many(self, count, words="configuration number"):
        cells = []
        for i in range(count):
            cells.append(model.Cell(f"c{i}", f"{words} {i}", {"batch": f"{10 * (i + 1)}"}, list(self.results.cells[-1].runs)))
        made = with_cells(self.results, cells)
        made.study = {**self.results.study, "report": {"x": "batch"}}
        return made

    def test_the_study(self):
        self.assertEqual(self.draw(self.results),
                         {"accuracy", "effects", "final_accuracy", "scaling", "sweep", "traffic"})

    def test_a_single_configuration(self):
        self.assertEqual(self.draw(self.many(1)), {"accuracy", "final_accuracy", "traffic"})

    def test_many_configurations_with_long_names(self):
        drawn = self.draw(self.many(26, "a name that is far too long for any axis, and then some: "
                                    "iallreduce:algo=sra,bucket=256K"))
        self.assertEqual(drawn, {"accuracy", "effects", "final_accuracy", "sweep", "traffic"})

    def test_single_repetitions(self):
        for cell in self.results.cells:
            del cell.runs[1:]
        self.assertIn("scaling", self.draw(self.results))
        for module in (accuracy, final_accuracy, scaling, sweep, traffic):
            notes = module.build(self.results).notes
            self.assertTrue(any("a single run" in note for note in notes), module.TITLE)

    def test_figures_that_are_absent(self):
        for run in self.results.runs:
            run.means = {"wall_s": run.means["wall_s"]}
            run.info["results"]["summary"]["exposed_s"] = None
            for row in run.epochs:
                row["wire_bytes"] = None
        self.assertEqual(self.draw(self.results), {"accuracy", "effects", "final_accuracy", "scaling", "sweep"})
        for run in self.results.runs:
            run.epochs = []  # run.json still has the last accuracy
        self.assertEqual(self.draw(self.results), {"effects", "final_accuracy", "scaling", "sweep"})

    def test_no_blocks_and_no_baseline(self):
        for cell in self.results.cells:
            cell.baseline = False
            for run in cell.runs:
                run.block = None
        self.results.baseline = None
        self.assertEqual(self.draw(self.results),
                         {"accuracy", "effects", "final_accuracy", "scaling", "sweep", "traffic"})
