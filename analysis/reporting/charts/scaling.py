"""Speedup and efficiency over the number of workers."""

from collections import namedtuple
from dataclasses import replace

import numpy

from .. import figure, fits, levels, panels, rows, stats, verdicts
from ..model import Chart, NotShown, Table
from ..shape import is_number

TITLE = "Speedup and efficiency"

PLACEMENT = ("ranks", "threads", "hosts", "per-host")
# What may differ between one worker and many: who computes, and how much there is to do.
GROWS = {"out", "overwrite", "quiet", "seed", "threads", "batch", "local-batch", "data", "steps",
         "epochs", "overhead", "trace", "collectives", "ceilings"}
KINDS = {"ranks": "ranks", "threads": "threads of one rank", "hybrid": "ranks of several threads"}

Point = namedtuple("Point", "cell cores speedup step")  # `speedup`, `step`: Intervals
Line = namedtuple("Line", "label base points fit why")  # `fit` None: `why` there is none


def cores(run):
    machine = run.info["machine"]
    return machine["ranks"] * machine["threads_per_rank"]


def samples(run):
    """Samples of a step, over all ranks; of a program over the library, which has no such options, the mean."""
    batch, local = (run.info["options"].get(name) for name in ("batch", "local-batch"))
    if run.info.get("program") == "library" and run.means.get("samples"):
        return run.means["samples"] * run.info["machine"]["ranks"]
    if not is_number(local) and not is_number(batch):
        raise NotShown("Some runs lack the number of samples of a step.")
    whole = local * run.info["machine"]["workers"] if is_number(local) else batch
    return min(whole, run.info.get("data", {}).get("train", whole))


def rate(run):
    return samples(run) / run.step_s


def kind(run):
    machine = run.info["machine"]
    if machine["threads_per_rank"] == 1:
        return "ranks"
    return "threads" if machine["ranks"] == 1 else "hybrid"


def work(run):
    """The options that say what is computed, not who computes it."""
    return tuple((name, str(value)) for name, value in sorted(run.info["options"].items())
                 if name not in GROWS)


def is_placement(factor, cells):
    """Whether the factor's levels say only who computes: by its name, as `ranks` and `threads`, or
    because they change the cores and no other option."""
    if factor in PLACEMENT:
        return True
    groups = [group for _, group in levels.group_cells(cells, (factor,)) if len(group) > 1]
    spread = [len({cores(cell.runs[0]) for cell in group}) > 1 for group in groups]
    same = [len({work(cell.runs[0]) for cell in group}) == 1 for group in groups]
    return any(spread) and all(same)


def law_of(results, groups):
    """("strong", "weak" or None, why): as the study says, else by how the samples of a step grow
    within each group of cells."""
    said = results.hints.get("scaling")
    if said in ("strong", "weak"):
        return said, "as the study says"
    groups = [[cell.runs[0] for cell in group] for group in groups]
    if all(len({samples(run) for run in group}) == 1 for group in groups):
        return "strong", "the samples of a step stay the same"
    if all(len({samples(run) / cores(run) for run in group}) == 1 for group in groups):
        return "weak", "the samples of a step grow with the workers"
    return None, "the samples of a step grow, but not in proportion to the workers"


def pairs(cell, base, value):
    """(figures of the cell, of the base, paired): paired by block if all runs have one."""
    mine, theirs = ({run.block: value(run) for run in one.runs} for one in (cell, base))
    if None in mine or None in theirs:
        return [value(run) for run in cell.runs], [value(run) for run in base.runs], False
    shared = [block for block in mine if block in theirs]
    return [mine[block] for block in shared], [theirs[block] for block in shared], True


def speedup_of(results, cell, base):
    """Interval of the ratio of rates: by the verdict on both step times, if there is one, else its own of 95%."""
    shares = {samples(run) for run in cell.runs}, {samples(run) for run in base.runs}
    verdict = verdicts.family_of(results).of(cell, base)
    if verdict is None or any(len(share) > 1 for share in shares):
        return stats.ratio_ci(*pairs(cell, base, rate))
    more = shares[0].pop() / shares[1].pop()
    found = verdict.interval.of(lambda ratio: more / ratio)
    return replace(found, low=found.high, high=found.low)


def point_of(results, cell, base):
    return Point(cell, cores(cell.runs[0]), speedup_of(results, cell, base),
                 stats.median_ci([run.step_s for run in cell.runs]))


def fit_of(law, base, points):
    """(Fit, "") or (None, why not). Seconds are per sample and worker (weak) or per sample
    (strong), so a batch that cannot be divided evenly does no harm."""
    if law is None:
        return None, "neither law describes it"
    if len({point.cores for point in points}) < len(points):
        return None, "several configurations have the same number of workers"
    seconds = {cores(cell.runs[0]): [(cores(run) if law == "weak" else 1) / rate(run)
                                     for run in cell.runs]
               for cell in [base] + [point.cell for point in points]}
    over = [point.cores for point in points if point.cell.oversubscribed]
    try:
        return (fits.gustafson if law == "weak" else fits.amdahl)(seconds, over), ""
    except fits.NotFitted as reason:
        return None, str(reason).rstrip(".")


def lines_of_group(results, label, group, law):
    """A Line each for ranks, threads and both, of cells that differ in the workers alone."""
    base = next(cell for cell in group if cores(cell.runs[0]) == 1)
    by_kind = {}
    for cell in group:
        if cell is not base:
            by_kind.setdefault(kind(cell.runs[0]), []).append(point_of(results, cell, base))
    found = []
    for name, points in by_kind.items():
        title = label
        if len(by_kind) > 1 or not label:
            title = ", ".join(filter(None, [label, KINDS[name]]))
        points.sort(key=lambda point: point.cores)
        found.append(Line(title, base, points, *fit_of(law, base, points)))
    return found


def lines_of(results):
    """(lines, the law, why this law, labels of groups without a run on 1 worker)."""
    cells = results.cells
    factors = [name for name in results.factors if is_placement(name, cells)]
    groups = [(rest, group) for rest, group in levels.group_cells(cells, factors)
              if len({cores(cell.runs[0]) for cell in group}) > 1]
    if not groups:
        raise NotShown("No two configurations differ in their number of workers alone.")
    law, why = law_of(results, [group for _, group in groups])
    lines, without = [], []
    for rest, group in groups:
        label = levels.rest_label(rest, cells)
        if any(cores(cell.runs[0]) == 1 for cell in group):
            lines += lines_of_group(results, label, group, law)
        else:
            without.append(label or "all")
    if not lines:
        raise NotShown("There is no run on 1 worker, the reference of speedups.")
    return lines, law, why, without


def table_of(lines):
    table = Table(["configuration", "line", "ranks", "threads", "nodes", "workers", "step (ms)",
                   "samples/s", "speedup", "low", "high", "efficiency"], [])
    for line in lines:
        one = Point(line.base, 1, stats.Interval(1.0, None, None, len(line.base.runs), "base"),
                    stats.median_ci([run.step_s for run in line.base.runs]))
        for point in [one] + line.points:
            machine = point.cell.runs[0].info["machine"]
            table.rows.append([
                rows.label(point.cell), line.label, machine["ranks"], machine["threads_per_rank"],
                machine["nodes"], point.cores, point.step.value * 1e3, point.cell.middle(rate),
                *rows.figures(point.speedup), rows.scaled(point.speedup.value, 1 / point.cores)])
    return table


class Drawing:
    """Speedup, and beside it the efficiency; for weak scaling the time of a step."""

    def __init__(self, lines, law):
        self.law = law
        self.lines, self.others = lines[:panels.MOST], len(lines) - panels.MOST
        self.cores = sorted({1} | {point.cores for line in lines for point in line.points})
        most = max(point.step.value for line in lines for point in line.points)
        self.factor, self.unit = rows.unit([most])

    def __call__(self, fig):
        entries = [figure.line(line.label, figure.SERIES[i], marker="o")
                   for i, line in enumerate(self.lines)]
        entries.append(figure.line("ideal", figure.FAINT, linestyle=":"))
        if any(line.fit for line in self.lines):
            entries.append(figure.line("fitted law", figure.FAINT, linestyle="--"))
        entries += panels.hollow(point.cell for line in self.lines for point in line.points)
        left, right = panels.panels(fig, 2, entries)
        for ax in (left, right):
            self.workers_axis(ax)
        left.plot(self.cores, self.cores, ":", color=figure.FAINT)
        self.panel(left, "scaled speedup" if self.law == "weak" else "speedup", lambda line: 1,
                   lambda point: point.speedup, self.cores)
        self.fitted(left, False)
        if self.law == "weak":
            self.panel(right, f"time of a step ({self.unit})",
                       lambda line: line.base.step_s * self.factor,
                       lambda point: point.step.of(lambda s: s * self.factor))
        else:
            self.panel(right, "efficiency", lambda line: 1,
                       lambda point: point.speedup.of(lambda s: s / point.cores))
            self.fitted(right, True)

    def workers_axis(self, ax):
        labels = {count: str(count) for count in self.cores}
        if self.cores[-1] > 16:
            panels.log_axis(ax, "x", self.cores, labels=labels)
        else:
            ax.set_xlim(0, self.cores[-1] * (1.06 + 0.01 * len(self.lines)))
            ax.set_xticks(self.cores, labels.values())
        ax.set_xlabel("workers (ranks x threads)")

    def plot(self, ax, i, first, figures):
        """One line, from its value on 1 worker through the intervals at more."""
        colour, line = figure.SERIES[i], self.lines[i]
        values = [first] + [numpy.nan if interval.value is None else interval.value
                            for interval in figures]
        at = [self.aside(i, count) for count in [1] + [point.cores for point in line.points]]
        ax.plot(at, values, color=colour, zorder=3)
        ax.plot(at[0], first, "o", color=colour, zorder=4)
        for x, point, interval in zip(at[1:], line.points, figures):
            panels.point(ax, x, interval, point.cell, colour)
        return values

    def aside(self, i, count):
        """x of line i: lines are a little apart, so that their bars do not overlap."""
        return count * (1 + 0.02 * (i - (len(self.lines) - 1) / 2)) if count > 1 else count

    def fitted(self, ax, divide):
        """The fitted laws, over the workers of their fits."""
        for i, line in enumerate(self.lines):
            if line.fit:
                x = numpy.linspace(1, max(line.fit.points), 60)
                y = line.fit.speedup(x)
                ax.plot(x, y / x if divide else y, "--", color=figure.SERIES[i], linewidth=0.9)

    def panel(self, ax, label, first, interval, ideal=()):
        """Each line from first(line), which is ideal where no `ideal` values are drawn, through the
        interval of each point. The limits are by the points; the interval of few runs may be far
        longer, and is cut."""
        drawn = list(ideal)
        for i, line in enumerate(self.lines):
            if not ideal:
                ax.axhline(first(line), color=figure.FAINT, linestyle=":")
            drawn += self.plot(ax, i, first(line), list(map(interval, line.points)))
        ax.set_ylabel(label)
        if ideal and self.cores[-1] > 16:
            panels.log_axis(ax, "y", drawn)
        else:
            ax.set_ylim(0, 1.12 * numpy.nanmax(drawn))
        panels.figures_at(ax, [(self.aside(i, point.cores), interval(point).value,
                                f"{interval(point).value:.3g}") for i, line in enumerate(self.lines)
                               for point in line.points if interval(point).value is not None])


CAPTION = {
    "strong": "Strong scaling ({why}): speedup is samples per second over those of 1 worker; "
              "efficiency is speedup over workers.",
    "weak": "Weak scaling ({why}): scaled speedup is samples per second over those of 1 worker, on "
            "more work; beside it the time of a step, which would ideally stay that of 1 worker.",
    None: "Scaling, neither strong nor weak ({why}): speedup is samples per second over those of 1 "
          "worker; efficiency is speedup over workers.",
}


def notes_of(drawing, lines, without):
    notes = rows.capped([f"{line.label}: {line.fit.text}." for line in lines if line.fit])
    reasons = {}
    for line in lines:
        if not line.fit:
            reasons.setdefault(line.why, []).append(line.label)
    notes += [f"No law is fitted to {rows.listed(labels, len(lines))}: {why}."
              for why, labels in reasons.items()]
    if drawing.others > 0:
        notes.append(f"{drawing.others} of {len(lines)} lines are in the table only.")
    notes += rows.noted(("Without a run on 1 worker, and so without a speedup", without))
    cells = [point.cell for line in lines for point in line.points]
    if any(cell.oversubscribed for cell in cells):
        notes.append("Oversubscribed points (hollow) have more threads than cores: they show how "
                     "ranks take turns, not how training scales, and no law is fitted to them.")
    cells += [line.base for line in lines]
    return notes + rows.repetitions(cells) + rows.remarks(cells)


def told(speedup):
    """What follows a speedup that is not told from 1."""
    if speedup.low is None:
        return " (not to be told from these runs)"
    return " (inside the noise)" if speedup.low <= 1 <= speedup.high else ""


def see(lines):
    """The best at the most workers that have a core each."""
    points = [(line, point) for line in lines for point in line.points
              if point.speedup.value is not None]
    fair = [pair for pair in points if not pair[1].cell.oversubscribed] or points
    if not fair:
        return ""
    most = max(point.cores for _, point in fair)
    at = sorted(((point.speedup.value, line.label, told(point.speedup)) for line, point in fair
                 if point.cores == most))
    (low, worst, of_worst), (high, best, of_best) = at[0], at[-1]
    return (f"On {most} workers {best} is {high:.3g} times as fast as on 1{of_best}"
            + (f", {worst} {low:.3g} times{of_worst}" if len(at) > 1 else "") + "; the dotted line is ideal.")


def build(results):
    lines, law, why, without = lines_of(results)
    drawing = Drawing(lines, law)
    caption = CAPTION[law].format(why=why) + (
        " Measured, from the step time of each run; geometric mean over pairs of runs of the "
        "same block. The bars are intervals over repetitions, cut where they leave the chart: those "
        "of the verdicts on these pairs, which are judged together (of pairs that no verdict "
        "compares, 95%).")
    if any(line.fit for line in lines):
        caption += (" Dashed: Gustafson's law." if law == "weak" else " Dashed: Amdahl's law.")
    return Chart(TITLE, caption, drawing, table_of(lines),
                 notes_of(drawing, lines, without), see(lines))
