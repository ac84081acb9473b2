"""Charts of where time goes, with a row a configuration: their tables against the rows of real runs, what they say,
and that they are legible, with few and with many configurations."""

import os
import statistics
import warnings

from chartcase import RUNS, ChartCase, drawn, overprints, seconds

import gwrun
import numpy as np

from reporting import efficiency, figure, parts, rows
from reporting.charts import baseline, order, ranks, step_times, time_stack

ALL = (baseline, time_stack, step_times, ranks, order)


class TimeStack(ChartCase):
    def test_parts_add_up_to_the_mean_wall(self):
        chart = self.one(time_stack, *RUNS)
        for row in chart.table.rows:
            wall = self.info[row[0]]["results"]["summary"]["wall_s"]
            titles = [title.rpartition(" (")[0] for title in chart.table.columns[5:-2]]
            found = [seconds(chart.table, row, title) for title in titles]
            self.assertAlmostEqual(seconds(chart.table, row, "step"), wall, delta=1e-9 * wall)
            self.assertAlmostEqual(sum(value for value in found if value is not None), wall,
                                   delta=1e-3 * wall, msg=row[0])

    def test_parts_are_those_of_the_step_time(self):
        chart = self.one(time_stack, "coded")
        row, found = chart.table.rows[0], self.info["coded"]["results"]["summary"]
        divided = found["division"]
        for column, value in (
                ("codec", found["codec_s"]), ("waiting for the last rank", found["waiting_s"]),
                ("exposed communication", found["exposed_s"] - found["waiting_s"]),
                ("core (modelled)", divided["core_s"]),
                ("core or memory-bound, untold (modelled)", divided["core_or_memory_s"]),
                ("memory-bound (modelled)", divided["memory_s"])):
            self.assertAlmostEqual(seconds(chart.table, row, column), value,
                                   delta=1e-6 * found["wall_s"], msg=column)
        self.assertGreater(found["codec_s"], 0)

    def counted(self):
        """A run whose computation counters divide."""
        run = self.run_of("plain")
        run.info["results"]["summary"]["division"] = {
            "source": "ctr", "core_s": 3e-6, "core_or_memory_s": None, "memory_s": 1e-6}
        return run

    def test_counters_are_a_share_of_all_of_computation(self):
        run = self.counted()
        found = parts.parts_of(run)
        compute = sum(run.means[key] for key in ("forward_s", "backward_s", "update_s"))
        self.assertEqual(found.source, parts.COUNTERS)
        self.assertAlmostEqual(found.seconds["memory"], compute / 4)
        self.assertNotIn("either", found.seconds)
        self.assertIn("measured by hardware counters",
                      self.build(time_stack, {"a": [run]}).notes[0])

    def test_what_is_not_known_is_not_there(self):
        chart = self.one(time_stack, "off", "plain")
        off = chart.table.rows[0]
        self.assertIsNone(seconds(chart.table, off, "exposed communication"))
        self.assertIsNone(seconds(chart.table, off, "codec"))
        self.assertIn("--profile off", " ".join(chart.notes))
        bare = self.run_of("plain")
        bare.info["results"]["summary"]["division"] = None
        chart = self.build(time_stack, {"a": [bare]})
        self.assertEqual(chart.table.rows[0][-2], "none")
        self.assertIn("not divided", " ".join(chart.notes))

    def test_repetitions_still_add_up(self):
        walls = {}
        for n in (2, 3, 4):
            several = []
            for i in range(n):
                run = self.run_of("plain" if i % 2 else "coded", str(i))
                run.means = {key: None if value is None else value * (1 + i * i)
                             for key, value in run.means.items()}
                several.append(run)
            walls[n] = statistics.median(run.means["wall_s"] for run in several)
            total = parts.parts_of_cell(several).total()
            self.assertAlmostEqual(total, walls[n], delta=1e-3 * walls[n])

    def test_runs_divided_by_different_sources(self):
        several = [self.counted(), self.run_of("plain")]
        found = parts.parts_of_cell(several)
        self.assertIsNone(found.source)
        self.assertNotIn("memory", found.seconds)
        self.assertAlmostEqual(found.total(), several[0].means["wall_s"],
                               delta=1e-3 * several[0].means["wall_s"])
        with_off = parts.parts_of_cell([self.run_of("off"), self.run_of("plain")])
        self.assertEqual(set(with_off.seconds), {"undivided"})

    def test_bars_are_as_long_as_the_table_says(self):
        chart = self.one(time_stack, "plain", "skew")
        ax = drawn(chart).axes[0]
        lengths = {}
        for patch in ax.patches:
            y = round(patch.get_y(), 3)
            lengths[y] = lengths.get(y, 0) + patch.get_width()
        for length, row in zip([lengths[y] for y in sorted(lengths)], chart.table.rows):
            self.assertAlmostEqual(length, row[2], delta=1e-3 * row[2])

    def test_shares_where_bars_differ_much(self):
        long = self.run_of("plain")
        long.means = {key: None if value is None else 50 * value
                      for key, value in long.means.items()}
        chart = self.build(time_stack, {"a": [self.run_of("plain")], "b": [long]})
        _, shares = drawn(chart).axes
        self.assertAlmostEqual(sum(patch.get_width() for patch in shares.patches), 200, 3)

    def test_means_far_above_medians_are_said_to_be(self):
        mean = self.runs["plain"].means["wall_s"]
        for step_s, said in ((mean, False), (mean / 2, True)):
            chart = self.build(time_stack, {"a": [self.run_of("plain", step_s=step_s)]})
            self.assertEqual("Rare long steps" in " ".join(chart.notes), said)

    def test_oversubscribed_runs_are_marked(self):
        chart = self.build(time_stack, {"a": [self.run_of("plain", marks=["oversubscribed"])],
                                        "b": [self.run_of("plain", marks=[])]})
        self.assertTrue(chart.table.rows[0][0].startswith("*"))
        self.assertFalse(chart.table.rows[1][0].startswith("*"))
        self.assertIn("* oversubscribed: a.", chart.notes)

    def test_hidden_communication(self):
        chart = self.one(time_stack, "plain", "overlapped", "off")
        plain, overlapped, off = (seconds(chart.table, row, "hidden communication, at most") for row in chart.table.rows)
        self.assertAlmostEqual(overlapped, self.info["overlapped"]["results"]["summary"]["hidden_s"], delta=1e-12)
        self.assertEqual(plain, 0)  # blocking: measured
        self.assertIsNone(off)
        drawn_s = max(line.get_xdata()[1] for line in drawn(chart).axes[0].lines if line.get_color() == figure.SERIES[2])
        self.assertAlmostEqual(drawn_s, chart.table.rows[1][-1])
        self.assertTrue(any("of the communication of overlapped ran under" in note for note in chart.notes), chart.notes)


class StepTimes(ChartCase):
    def test_quantiles(self):
        chart = self.one(step_times, "plain")
        walls = {}
        for row in gwrun.batches(os.path.join(self.dir, "plain")):
            walls[row["step"]] = max(walls.get(row["step"], 0), float(row["wall_s"]))
        walls = list(walls.values())[10:]
        for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            self.assertAlmostEqual(seconds(chart.table, chart.table.rows[0], name),
                                   np.quantile(walls, q), delta=1e-12)
        self.assertAlmostEqual(seconds(chart.table, chart.table.rows[0], "longest"), max(walls))
        self.assertIn("no interval", " ".join(chart.notes))

    def test_runs_are_the_unit(self):
        """Ten times the steps make no interval narrower and give a run no more weight."""
        noise = np.random.default_rng(1)
        few = [noise.lognormal(-9 + i / 10, 0.1, 300) for i in range(5)]
        charts = [self.build(step_times, {"a": [self.run_of("plain", walls=walls)
                                                for walls in several]})
                  for several in (few, [np.tile(walls, 10) for walls in few])]
        for column in ("p50, 95% from", "p50, 95% to"):
            ends = [seconds(chart.table, chart.table.rows[0], column) for chart in charts]
            self.assertAlmostEqual(ends[0], ends[1], delta=1e-3 * ends[0])

    def test_drift_and_outliers_are_flagged(self):
        noise = np.random.default_rng(1)
        steady = [noise.lognormal(-9, 0.02, 600) for _ in range(7)]
        chart = self.build(step_times, {"a": [
            self.run_of("plain", walls=walls, step_s=float(np.median(walls)), folder=f"run {i}")
            for i, walls in enumerate(steady)]})
        self.assertEqual(chart.notes, [])
        steady[0] = steady[0] * np.linspace(1, 1.5, 600)
        chart = self.build(step_times, {"a": [
            self.run_of("plain", walls=walls, step_s=float(np.median(walls)), folder=f"run {i}")
            for i, walls in enumerate(steady)]})
        said = " ".join(chart.notes)
        self.assertIn("run 0: drift", said)
        self.assertIn("run 0: its step time lies far", said)
        self.assertNotIn("run 1:", said)

    def test_long_tails_make_the_axis_logarithmic(self):
        walls = np.full(1000, 1e-4) * np.linspace(0.99, 1.01, 1000)
        tail = np.append(walls, 0.05)
        for found, scale in ((walls, "linear"), (tail, "log")):
            chart = self.build(step_times, {"a": [self.run_of("plain", walls=found)]})
            self.assertEqual(drawn(chart).axes[0].get_xscale(), scale)


class Ranks(ChartCase):
    def late(self):
        """A run that named rank 1 as late; whether one does depends on the load of the machine."""
        run = self.run_of("skew")
        run.info["results"]["straggler"] = {"rank": 1, "last_share": 0.9, "waited_s": 1e-3,
                                            "of_step": 0.5}
        return run

    def test_the_late_rank_is_named(self):
        chart = self.build(ranks, {"skew": [self.late()], "off": [self.run_of("off")]})
        self.assertIn("skew: the straggler is rank 1.", chart.notes)
        late = [row for row in chart.table.rows if row[:2] == ["skew", "1"]][0]
        of_run = self.info["skew"]["results"]["ranks"][1]
        for column, key in (("computation", "compute_s"), ("waiting", "waiting_s"),
                            ("transfer", "transfer_s"), ("waited for", "waited_for_s")):
            self.assertAlmostEqual(seconds(chart.table, late, column), of_run[key], delta=1e-12)
        off = [row for row in chart.table.rows if row[0] == "off"]
        self.assertIsNone(seconds(chart.table, off[0], "computation"))
        texts = [text.get_text() for text in drawn(chart).axes[0].texts]
        self.assertTrue(any("rank 1 lags" in text for text in texts), texts)
        self.assertIn("absent", texts)

    def test_only_some_runs_have_one(self):
        none = self.run_of("skew")
        none.info["results"]["straggler"] = None
        chart = self.build(ranks, {"a": [none, none, self.late()]})
        self.assertIn("a: the straggler is rank 1 (1 of 3 runs).", chart.notes)
        self.assertIn("Runs of a name a straggler, but", chart.see)
        self.assertIn("No run names a straggler", self.build(ranks, {"a": [none, none]}).see)
        for row in none.info["results"]["ranks"]:
            row["waited_for_s"] = None
        chart = self.build(ranks, {"a": [none]})
        self.assertIn("No run measured how long", chart.see)
        self.assertEqual(chart.table.rows[0][-1], "not measured")
        self.assertFalse(any("lags" in text.get_text()
                             for text in drawn(chart).axes[0].texts))

    def test_many_ranks_become_quantiles(self):
        run = self.run_of("plain")
        base = run.info["results"]["ranks"][0]
        run.info["results"]["ranks"] = [dict(base, rank=rank, compute_s=1e-6 * (rank + 1))
                                        for rank in range(512)]
        chart = self.build(ranks, {"a": [run]})
        found = {row[1]: seconds(chart.table, row, "computation") for row in chart.table.rows}
        self.assertEqual(len(found), 5)
        self.assertAlmostEqual(found["least of 512"], 1e-6)
        self.assertAlmostEqual(found["median of 512"], 256.5e-6)
        self.assertAlmostEqual(found["largest of 512"], 512e-6)
        self.assertLess(len(drawn(chart).axes[0].lines), 10)

    def test_not_shown(self):
        self.assertIn("--profile off", self.reason(ranks, {"a": [self.run_of("off")]}))
        alone = self.run_of("plain")
        alone.info["results"]["ranks"] = alone.info["results"]["ranks"][:1]
        self.assertIn("one rank", self.reason(ranks, {"a": [alone]}))


class Forecast(ChartCase):
    def test_figures(self):
        table, said = efficiency.table_of(self.results({name: [self.run_of(name)] for name in ("auto", "plain")}))
        auto, plain = (dict(zip(table.columns, row)) for row in table.rows)
        found = self.info["auto"]["forecast"]
        self.assertAlmostEqual(auto["predicted step, modelled (ms)"], 1e3 * found["predicted_step_s"])
        self.assertAlmostEqual(auto["measured step (ms)"], 1e3 * found["measured_step_s"])
        self.assertAlmostEqual(auto["predicted / measured"], found["predicted_step_s"] / found["measured_step_s"])
        self.assertIsNone(plain["predicted / measured"])
        self.assertIn("The prediction was made", " ".join(said))

    def test_not_shown(self):
        table, said = efficiency.table_of(self.results({"a": [self.run_of("plain")]}))
        self.assertNotIn("predicted / measured", table.columns)
        self.assertNotIn("The prediction was made", " ".join(said))


class Baseline(ChartCase):
    def cells(self, factors, n=6):
        """Configurations whose steps take so many times the baseline's, in n noisy blocks."""
        noise = np.random.default_rng(3)
        blocks = noise.lognormal(0, 0.2, n)  # what pairs take out
        return {label: [self.run_of("plain", str(i), step_s=1e-3 * factor * blocks[i]
                                    * noise.lognormal(0, 0.01)) for i in range(n)]
                for label, factor in factors.items()}

    def test_equal_steps(self):
        same = {label: [self.run_of("plain", str(i), step_s=1e-3) for i in range(2)]
                for label in ("base", "same")}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            low, high = drawn(self.build(baseline, same, "base")).axes[0].get_xlim()
        self.assertLess(low, 1)
        self.assertGreater(high, 1)

    def test_verdicts(self):
        chart = self.build(baseline, self.cells({"base": 1, "slow": 1.2, "fast": 0.8, "same": 1}),
                           "base")
        verdicts = {row[0]: row[-1] for row in chart.table.rows}
        self.assertIn("slower", verdicts["slow"])
        self.assertIn("faster", verdicts["fast"])
        self.assertIn("inside the noise", verdicts["same"])
        self.assertIn("Inside the noise, which is not the same as equal: same.", chart.notes)
        ratios = {row[0]: row[chart.table.columns.index("ratio")] for row in chart.table.rows}
        self.assertAlmostEqual(ratios["slow"], 1.2, delta=0.03)
        fig = drawn(chart)
        colours = {line.get_color() for line in fig.axes[0].lines if line.get_marker() == "o"}
        self.assertEqual(colours, {figure.SERIES[1], figure.SERIES[2], figure.FAINT})

    def test_unpaired_runs(self):
        cells = self.cells({"base": 1, "slow": 3})
        for found in cells.values():
            for run in found:
                run.block = None
        chart = self.build(baseline, cells, "base")
        self.assertIn("not paired", " ".join(chart.notes))
        self.assertIn("slower", chart.table.rows[0][-1])

    def test_too_few_runs_say_so(self):
        chart = self.build(baseline, self.cells({"base": 1, "slow": 2}, n=1), "base")
        self.assertIn("cannot be told", chart.table.rows[0][-1])
        self.assertIn("Not enough repetitions for a verdict: slow.", chart.notes)
        self.assertIn("cannot be told", chart.see)
        self.assertNotIn("noise", chart.see)

    def test_not_shown(self):
        self.assertIn("no baseline", self.reason(baseline, {"a": [self.run_of("plain")]}))
        self.assertIn("nothing beside", self.reason(baseline, {"a": [self.run_of("plain")]}, "a"))


class Order(ChartCase):
    def cells(self, value, n=8):
        """Two configurations in turns; value(place) is what a step takes."""
        made = {"a": [], "b": []}
        noise = np.random.default_rng(5)
        for place in range(2 * n):
            run = self.run_of("plain", str(place // 2), experiment={"planned": place},
                              folder=f"run {place}",
                              step_s=1e-4 * value(place) * noise.lognormal(0, 0.005))
            run.info["started_utc"] = "2026-11-21T16:00:00Z"
            made["ab"[place % 2]].append(run)
        return made

    def test_steady(self):
        chart = self.build(order, self.cells(lambda place: 1))
        self.assertIn("No drift beyond the noise", chart.notes[0])
        self.assertEqual([row[1] for row in chart.table.rows], [f"run {i}" for i in range(16)])
        self.assertEqual({row[-1] for row in chart.table.rows}, {"no"})

    def test_drift(self):
        chart = self.build(order, self.cells(lambda place: 1 + place / 50))
        self.assertIn("Drift", chart.notes[0])
        self.assertIn("drift", [text.get_text() for text in
                                drawn(chart).legends[0].get_texts()])

    def test_outlier(self):
        chart = self.build(order, self.cells(lambda place: 2 if place == 6 else 1))
        flagged = [row[1] for row in chart.table.rows if row[-1] == "yes"]
        self.assertEqual(flagged, ["run 6"])
        self.assertIn("Outlier: run 6", " ".join(chart.notes))

    def test_not_shown(self):
        self.assertIn("more than once", self.reason(order, {"a": [self.run_of("plain")]}))


class Legible(ChartCase):
    """Texts lie within the drawing, and labels of rows do not overlap."""

    LONG = "iallreduce:algo=sra,bucket=256K,progress=thread, qsgd:bits=8+zlib:shuffle=on, threads "

    def many(self, n):
        made = {}
        for i in range(n):
            name = ("plain", "overlapped", "auto", "skew", "off")[i % 5]
            made[f"{self.LONG if i % 2 else 'threads '}{i}"] = [
                self.run_of(name, str(block), marks=["oversubscribed"] if i % 3 == 0 else [],
                            step_s=self.runs[name].step_s * (1 + block / 50)) for block in range(3)]
        return made

    def check(self, chart):
        """Pixels; those of a figure of 100 an inch."""
        fig = drawn(chart)
        self.assertEqual(overprints(fig), [])
        width, height = fig.canvas.get_width_height()
        for ax in fig.axes:
            texts = [text for text in ax.texts if text.get_text() != "absent"]
            boxes = [text.get_window_extent() for text in texts if text.get_gid() != "figure"]
            figures = [text.get_window_extent() for text in texts if text.get_gid() == "figure"]
            low, high = ax.get_xlim()
            ticks = [tick.label1.get_window_extent() for tick in ax.xaxis.get_major_ticks()
                     if tick.label1.get_text() and low <= tick.get_loc() <= high]
            for box in boxes + figures + [ax.xaxis.label.get_window_extent()]:
                self.assertGreaterEqual(box.x0, -1)
                self.assertLessEqual(box.x1, width + 1)
                self.assertGreaterEqual(box.y0, -1)
                self.assertLessEqual(box.y1, height + 1)
            for one, other in zip(boxes, boxes[1:]):
                self.assertGreaterEqual(one.y0, other.y1 - 1)
            for one, other in zip(ticks, ticks[1:]):
                self.assertLess(one.x1, other.x0)
            for box in ticks:
                self.assertLessEqual(box.x1, width + 1)

    def test_many_configurations_with_long_names(self):
        cells = self.many(28)
        last = list(cells)[-1]
        for module in ALL:
            chart = self.build(module, cells, last)
            with self.subTest(chart=module.TITLE):
                self.check(chart)
        said = time_stack.build(self.results(cells, last)).notes
        self.assertIn("3 of 28 configurations are in the table only.", said)

    def test_one_configuration(self):
        for module in (time_stack, step_times, ranks):
            chart = self.one(module, "auto")
            with self.subTest(chart=module.TITLE):
                self.check(chart)

    def test_as_svg(self):
        cells = {"a<b & c": [self.run_of("overlapped", str(i)) for i in range(2)],
                 "base": [self.run_of("auto", str(i)) for i in range(2)]}
        for module in ALL:
            with self.subTest(chart=module.TITLE):
                text = figure.inline_svg(self.build(module, cells, "base"))
                self.assertEqual(text.count("<svg"), 1)

    def test_labels(self):
        for lines in (rows.row_lines(self.LONG * 3 + "\n- inside the noise", rows.WRAP),
                      rows.row_lines("x" * 200, rows.WRAP), rows.row_lines("", rows.WRAP)):
            self.assertTrue(all(len(line) <= rows.WRAP for line in lines), lines)
        self.assertEqual(rows.row_lines(self.LONG * 3 + "\n- 5% slower", 40)[-1], "- 5% slower")
        self.assertEqual(rows.row_lines("sra\n- 5% slower", 40), ["sra - 5% slower"])

    def test_the_baseline_is_never_left_out(self):
        cells = self.results(self.many(40), list(self.many(40))[39]).cells
        shown, notes = rows.chosen(cells, cells[39])
        self.assertEqual(len(shown), rows.MOST)
        self.assertIn(cells[39], shown)
        self.assertEqual(len(notes), 1)
