"""Roofline: forward and backward pass against the limits of the machine."""

from collections import namedtuple

from .. import figure, panels, rows, stats
from ..model import Chart, NotShown, Table

TITLE = "Roofline of forward and backward pass"

# A cell, per thread: operations a second (Interval), operations a byte, what the roofs allow at
# its level of the caches; cells of equal `key` do the same work and share a colour.
Point = namedtuple("Point", "cell key rate intensity peak bandwidth level products")
Roof = namedtuple("Roof", "threads peak levels")  # a thread's; levels {name: bytes a second}


def threads(run):
    return run.info["machine"]["threads_per_rank"]


def work_of(run):
    """The run's `work` where it can be drawn; None: absent, nothing was timed, or what the model's own kernels move is
    not known."""
    work = run.info.get("work")
    drawn = work and work["flops_per_s"] and work["flops"] and work["pointwise_bytes"] is not None
    return work if drawn and bytes_of(work) else None


def bytes_of(work):
    """Compulsory bytes of both passes: of products, and of kernels over their results."""
    return work["bytes"] + work["pointwise_bytes"]


def by_thread(value, run):
    return None if value is None else value / threads(run)


def products_of(run, work):
    """[(operations a byte, operations a second of a thread)] of the products measured alone."""
    return [(product["flops"] / product["bytes"],
             by_thread(product["flops"] / product["alone_s"], run))
            for product in work["products"]
            if product["alone_s"] and product["flops"] and product["bytes"]]


def key_of(run, work):
    info = run.info
    layers = [str(info["data"]["features"]),
              str(info["options"].get("layers", "")).replace(",", "-"),
              str(info["data"]["classes"])]
    model = info["options"].get("model", "mlp")
    shape = "-".join(filter(None, layers)) if model == "mlp" else model
    count = threads(run)
    return (f"{shape}, {work['local_batch']} samples"
            + (f", {count} threads" if count > 1 else ""))


def point_of(cell):
    """None if no run of the cell can be drawn."""
    known = [(run, work_of(run)) for run in cell.runs if work_of(run)]
    if not known:
        return None
    run, work = known[0]
    rates = [by_thread(one["flops_per_s"], each) for each, one in known]
    return Point(cell, key_of(run, work), stats.median_ci(rates), work["flops"] / bytes_of(work),
                 by_thread(work["peak_flops_per_s"], run),
                 by_thread(work["bandwidth_bytes_per_s"], run), work["level"],
                 products_of(run, work))


def roofs_of(runs):
    """([Roof of one thread alone, Roof with all at work], their run): of the run with the most
    threads on a host that has as many cores; ([], None): none has ceilings."""
    known = [run for run in runs if all((run.info.get("ceilings") or {}).get(key) for key in
                                        ("fma_flops_per_s", "levels", "all_threads"))]
    if not known:
        return [], None
    run = max(known, key=lambda run: (run.info["ceilings"]["fma_flops_per_s"]["all"] is not None,
                                      run.info["ceilings"]["all_threads"]))
    found, ceilings = [], run.info["ceilings"]
    for which, count in (("one", 1), ("all", ceilings["all_threads"])):
        peak = ceilings["fma_flops_per_s"][which]
        bandwidths = {level["level"]: level["update_bytes_per_s"][which] / count
                      for level in ceilings["levels"] if level["update_bytes_per_s"][which]}
        if peak and bandwidths and (which == "one" or count > 1):
            found.append(Roof(count, peak / count, bandwidths))
    return found, run


def allowed(point):
    """Operations a second that the roofs allow; None: not measured."""
    if point.peak is None or point.bandwidth is None:
        return None
    return min(point.peak, point.intensity * point.bandwidth)


def table_of(points):
    table = Table(["configuration", "work", "operations a byte (modelled)", "Gflop/s a thread",
                   "low", "high", "working set in", "roof there (Gflop/s a thread)",
                   "share of the roof", "products alone (Gflop/s a thread)"], [])
    for point in points:
        roof, rate = allowed(point), point.rate.value
        alone = [rate for _, rate in point.products]
        table.rows.append([
            rows.label(point.cell), point.key, point.intensity, *rows.figures(point.rate, 1e-9),
            point.level, rows.scaled(roof, 1e-9), rate / roof if roof else None,
            f"{min(alone) * 1e-9:.3g} to {max(alone) * 1e-9:.3g}" if alone else None])
    return table


class Drawing:
    """Both axes logarithmic, everything a thread."""

    def __init__(self, points, roofs):
        self.points, self.roofs = points, roofs
        keys = list(dict.fromkeys(point.key for point in points))
        self.keys, self.others = keys[:panels.MOST], len(keys) - panels.MOST
        alone = [pair for point in points for pair in point.products]
        self.x = [point.intensity for point in points] + [x for x, _ in alone]
        self.y = [point.rate.value * 1e-9 for point in points] + [y * 1e-9 for _, y in alone]
        for roof in roofs:
            self.x += [roof.peak / bandwidth for bandwidth in roof.levels.values()]
            self.y.append(roof.peak * 1e-9)

    def colour(self, key):
        return figure.SERIES[self.keys.index(key)] if key in self.keys else figure.FAINT

    def legend(self):
        entries = [figure.dot(key, self.colour(key)) for key in self.keys]
        if self.others > 0:
            entries.append(figure.dot(f"{self.others} others", figure.FAINT))
        if any(point.products for point in self.points):
            entries.append(figure.dot("a product alone", figure.FAINT, marker="x"))
        entries += panels.hollow(point.cell for point in self.points)
        return entries + [figure.line(roof_label(roof), figure.INK, linestyle=style, linewidth=1)
                          for roof, style in zip(self.roofs, ("-", "--"))]

    def __call__(self, fig):
        ax = panels.panels(fig, 1, self.legend(), 3.8)[0]
        panels.log_axis(ax, "x", [min(self.x) / 1.6, max(self.x) * 1.6], most=7)
        panels.log_axis(ax, "y", [min(self.y) / 1.6, max(self.y) * 1.6], most=7)
        ax.set_xlabel("operations a byte (modelled)")
        ax.set_ylabel("Gflop/s a thread")
        for roof, style in zip(self.roofs, ("-", "--")):
            self.roof(ax, roof, style)
        for point in self.points:
            self.point(ax, point)

    def roof(self, ax, roof, style):
        """Slopes up to the flat part, named once, by the first roof."""
        left, right = ax.get_xlim()
        bottom = ax.get_ylim()[0]
        ax.plot([min(roof.peak / b for b in roof.levels.values()), right], [roof.peak * 1e-9] * 2,
                style, color=figure.INK, linewidth=1, zorder=1)
        for level, bandwidth in roof.levels.items():
            ridge = roof.peak / bandwidth
            ax.plot([left, ridge], [left * bandwidth * 1e-9, roof.peak * 1e-9], style,
                    color=figure.INK, linewidth=1, zorder=1)
            if roof is self.roofs[0]:
                x = max(left * 1.02, 1.5 * bottom / (bandwidth * 1e-9))
                ax.text(x, x * bandwidth * 1e-9, " " + level, color=figure.INK, fontsize=7.5,
                        ha="left", va="top", zorder=6)
        if roof is self.roofs[0]:
            ax.text(right, roof.peak * 1e-9 * 1.05, "fused multiply-adds ", color=figure.INK,
                    fontsize=7.5, ha="right", va="bottom")

    def point(self, ax, point):
        colour = self.colour(point.key)
        for x, y in point.products:
            ax.plot(x, y * 1e-9, "x", color=colour, markersize=3.5, markeredgewidth=0.8, alpha=0.7,
                    zorder=2)
        panels.point(ax, point.intensity, point.rate.of(lambda rate: rate * 1e-9), point.cell,
                     colour)


def roof_label(roof):
    return "one thread alone" if roof.threads == 1 else f"each of {roof.threads} threads at work"


def roof_text(roof):
    bandwidths = [f"{level} {bandwidth * 1e-9:.3g} GB/s"
                  for level, bandwidth in roof.levels.items()]
    return f"{roof_label(roof)} {roof.peak * 1e-9:.3g} Gflop/s, " + ", ".join(bandwidths)


def notes_of(roofs, run, runs, absent):
    notes = []
    if not roofs:
        notes.append("No run measured ceilings (--ceilings off, or without --out): no roofs.")
    else:
        notes.append(f"Roofs: {run.info['machine']['cpu']}, measured by {run.folder}; bandwidths "
                     f"of a += s b: {'; '.join(map(roof_text, roofs))}.")
    machines = {each.info["machine"]["cpu"] for each in runs}
    if len(machines) > 1:
        notes.append("The runs are of several kinds of processor; the roofs are of one.")
    if absent:
        notes.append(f"{absent} configurations without a point: they did not time their passes.")
    return notes


def see(points):
    shares = [(point.rate.value / allowed(point), point.cell.label) for point in points
              if allowed(point)]
    if not shares:
        return "How fast the passes compute; without ceilings nothing says how fast they could."
    (low, worst), (high, best) = min(shares), max(shares)
    return (f"The passes reach {low:.0%} ({worst}) to {high:.0%} ({best}) of what the roofs allow."
            if len(shares) > 1 else f"The passes reach {high:.0%} of what the roofs allow.")


def build(results):
    cells = results.cells
    points = [point for point in map(point_of, cells) if point]
    if not points:
        raise NotShown("No run has the work and time of its passes (`work` in run.json).")
    roofs, run = roofs_of(results.runs)
    caption = ("Williams, Waterman and Patterson, Roofline, Communications of the ACM 2009. A dot "
               "is a configuration: operations per second and thread in forward and backward pass, "
               "measured, median over runs with the 95% interval, over operations per byte. "
               "Operations are those of the matrix products; bytes are modelled as compulsory "
               "(each operand read once, each result fetched and written): the true traffic is "
               "larger if caches hold less than the step touches. Crosses are the products measured "
               "alone, on hot operands. The roofs are measured: fused multiply-adds, and the "
               "bandwidth of each level.")
    return Chart(TITLE, caption, Drawing(points, roofs), table_of(points),
                 notes_of(roofs, run, results.runs, len(cells) - len(points))
                 + rows.repetitions(cells) + rows.remarks(cells), see(points))
