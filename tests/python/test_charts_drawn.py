"""Charts with a row a configuration: legible, wide and narrow, with few and with many of them."""


from chartcase import EITHER_WAY, ChartCase, drawn

from reporting import figure, rows
from reporting.charts import baseline, forecast, order, overlap, ranks, step_times, time_stack

ALL = (baseline, time_stack, overlap, step_times, ranks, forecast, order)


class Legible(ChartCase):
    """Texts lie within the drawing, and labels of rows do not overlap."""

    LONG = "iallreduce:algo=sra,bucket=256K,progress=thread, qsgd:bits=8+zlib:shuffle=on, threads "

    def many(self, n):
        made = {}
        for i in range(n):
            name = ("plain", "paired", "auto", "skew", "off")[i % 5]
            made[f"{self.LONG if i % 2 else 'threads '}{i}"] = [
                self.run_of(name, str(block), marks=["oversubscribed"] if i % 3 == 0 else [],
                            step_s=self.runs[name].step_s * (1 + block / 50)) for block in range(3)]
        return made

    def check(self, chart, narrow):
        """Pixels; those of a figure of 100 an inch."""
        fig = drawn(chart, narrow)
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
            for narrow in EITHER_WAY:
                with self.subTest(chart=module.TITLE, narrow=narrow):
                    self.check(chart, narrow)
        said = time_stack.build(self.results(cells, last)).notes
        self.assertIn("3 of 28 configurations are in the table only.", said)

    def test_one_configuration(self):
        for module in (time_stack, overlap, step_times, ranks, forecast):
            chart = self.one(module, "auto")
            for narrow in EITHER_WAY:
                with self.subTest(chart=module.TITLE, narrow=narrow):
                    self.check(chart, narrow)

    def test_as_svg(self):
        cells = {"a<b & c": [self.run_of("paired", str(i)) for i in range(2)],
                 "base": [self.run_of("auto", str(i)) for i in range(2)]}
        for module in ALL:
            with self.subTest(chart=module.TITLE):
                text = figure.inline_svg(self.build(module, cells, "base"))
                self.assertEqual(text.count("<svg"), 2)

    def test_labels(self):
        for letters in (rows.WRAP_WIDE, rows.WRAP_NARROW):
            for lines in (rows.row_lines(self.LONG * 3 + "\n- inside the noise", letters),
                          rows.row_lines("x" * 200, letters), rows.row_lines("", letters)):
                self.assertTrue(all(len(line) <= letters for line in lines), lines)
        self.assertEqual(rows.row_lines(self.LONG * 3 + "\n- 5% slower", 40)[-1], "- 5% slower")
        self.assertEqual(rows.row_lines("sra\n- 5% slower", 40), ["sra - 5% slower"])

    def test_the_baseline_is_never_left_out(self):
        cells = self.results(self.many(40), list(self.many(40))[39]).cells
        shown, notes = rows.chosen(cells, cells[39])
        self.assertEqual(len(shown), rows.MOST)
        self.assertIn(cells[39], shown)
        self.assertEqual(len(notes), 1)
