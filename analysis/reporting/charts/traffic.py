"""Bytes sent in a step, relative to the gradient, beside their cost."""

from collections import namedtuple

from .. import figure, panels, rows, stats
from ..model import Chart, NotShown, Table

TITLE = "Bytes on the wire, and what they cost"

# A cell, medians over its runs; bytes per rank and step, `bits` per element, `busbw` bytes/second; `uplink`: of
# the wire's bytes those to other racks.
Traffic = namedtuple("Traffic", "cell wire logical modelled bits busbw step codec uplink")


def optimum(run):
    """The least bytes that a rank sends for each byte of an exact allreduce: 2(P-1)/P. Over a mesh P are
    its replicas, who exchange the gradients."""
    ranks = (run.info.get("mesh") or {}).get("data") or run.info["machine"]["ranks"]
    return 2 * (ranks - 1) / ranks


def bits(run):
    """Bits per element: 32 for floats in an exchange that sends no more than an allreduce must."""
    wire = run.means.get("data_bytes", run.means.get("wire_bytes"))  # the first: over a mesh
    logical = run.means.get("logical_bytes")
    if wire is None or not logical or not optimum(run):
        return None
    return 32 * wire / logical / optimum(run)


def codec_s(run):
    parts = [run.means.get(name) for name in ("encode_s", "decode_s")]
    return None if None in parts else sum(parts)


def busbw(run):
    """As nccl-tests define it, of the exchange within a step, with the codec and without waiting
    for the last rank. None if computation overlaps it, since then no time is the exchange's
    alone."""
    parts = [run.means.get(name) for name in ("mpi_post_s", "mpi_poll_s", "transfer_s")]
    parts.append(codec_s(run))
    logical = run.means.get("logical_bytes")
    if run.info["comm"]["strategy"] != "allreduce" or "data_bytes" in run.means or None in parts or not logical \
            or run.info["options"].get("update") != "eager" or not sum(parts):
        return None
    return logical * optimum(run) / sum(parts) or None


def traffic_of(cell):
    def mean(name):
        return cell.middle(lambda run: run.means.get(name))
    return Traffic(cell, mean("wire_bytes"), mean("logical_bytes"),
                   any(map(rows.modelled_bytes, cell.runs)), cell.middle(bits), cell.middle(busbw),
                   stats.median_ci([run.step_s for run in cell.runs]), cell.middle(codec_s),
                   mean("uplink_bytes"))


def table_of(found):
    lines, racks = [], any(one.uplink is not None for one in found)
    for one in found:
        comm, absent = one.cell.runs[0].info["comm"], one.wire is None
        lines.append([
            rows.label(one.cell), comm["codec"], comm["strategy"], comm["algorithm"], one.wire,
            None if absent else "modelled" if one.modelled else "measured", one.logical,
            None if absent or not one.logical else one.wire / one.logical, one.bits,
            *rows.figures(one.step, 1e3), rows.scaled(one.codec, 1e3), rows.scaled(one.busbw, 1e-9),
            *[one.uplink] * racks])
    return Table(["configuration", "codec", "strategy", "algorithm", "wire bytes a rank and step",
                  "source", "bytes of the spans exchanged", "wire / spans", "bits an element",
                  "step (ms)", "low (ms)", "high (ms)", "codec (ms)", "bus bandwidth (GB/s)",
                  *["bytes to other racks"] * racks], lines)


def amount(one, factor, unit):
    text = f"{one.wire * factor:.3g} {unit}" if one.wire else "0"
    return text if one.bits is None else f"{text}, {one.bits:.3g} bits"


def see(found):
    counted = sorted((one for one in found if one.wire), key=lambda one: one.wire)
    least, most = counted[0], counted[-1]
    if least.wire == most.wire:
        return f"All that communicate send {amount(least, *rows.bytes_unit([least.wire]))} a rank and step."
    modelled = [one.cell.label for one in (least, most) if one.modelled]
    return (f"{least.cell.label} sends least, {most.wire / least.wire:.3g} times less than "
            f"{most.cell.label}" + f" (modelled: {', '.join(modelled)})" * bool(modelled) + "; beside the bytes stands what the step takes.")


def draw(fig, found):
    """One row per configuration: bytes; beside them the step and the codec's part of it."""
    entries = [figure.patch("bytes on the wire", figure.SERIES[0])]
    if any(one.modelled and one.wire for one in found):
        entries.append(figure.patch("modelled", figure.SERIES[0], **figure.MODELLED))
    entries += [figure.patch("step", figure.GRID), figure.patch("codec", figure.PART["codec"])]
    wire = rows.bytes_unit([one.wire for one in found])
    factor, unit = rows.unit([one.step.value for one in found])
    most = max(one.step.value for one in found) * factor * 1.12
    # Beyond `most` there is room for the figures.
    grid = rows.Rows(fig, [rows.label(one.cell) for one in found],
                     [f"bytes a rank and step ({wire[1]})", f"time of a step ({unit})"], entries)
    left, right = grid.axes
    left.set_xlim(0, max((one.wire for one in found if one.wire), default=1) * wire[0] * 1.75)
    right.set_xlim(0, most * 1.2)
    panels.few_ticks(left.xaxis, 4)
    panels.few_ticks(right.xaxis)
    for i, one in enumerate(found):
        y = grid.at(i)
        right.barh(y, one.step.value * factor, rows.THICK, color=figure.GRID, linewidth=0)
        right.barh(y, (one.codec or 0) * factor, rows.THICK, color=figure.PART["codec"],
                   linewidth=0)
        rows.measured(right, y, one.step.value, one.step, factor, most)
        if one.wire is None:
            grid.absent(left, i)
            continue
        left.barh(y, one.wire * wire[0], rows.THICK, facecolor=figure.SERIES[0],
                  **figure.MODELLED if one.modelled else {})
        panels.figure_at(left, one.wire * wire[0], y, amount(one, *wire))


def build(results):
    found = [traffic_of(cell) for cell in results.cells]
    if not any(one.wire for one in found):
        raise NotShown("No run sent anything, or none counted what it sent.")
    visible, notes = rows.chosen(found, results.baseline)
    caption = ("Bytes that a rank hands to MPI in a step, mean over ranks and steps, median over "
               "runs, and bits per element: these bytes over those of the spans exchanged, times "
               "32, over 2(P-1)/P, so that floats in an allreduce that sends no more than it must "
               "are 32 on any number of ranks P. Beside them the step time with its 95% interval "
               "over runs and the mean time in the codec, measured. The table has the bus "
               "bandwidth of blocking allreduces: bytes of the spans times 2(P-1)/P over the time "
               "in MPI and codec, without waiting for the last rank.")
    if any(one.modelled and one.wire for one in found):
        notes.append("Modelled (hatched): MPI does not say what its own collectives send; the "
                     "figure is that of the bandwidth-optimal algorithm.")
    return Chart(TITLE, caption, lambda fig: draw(fig, visible),
                 table_of(found),
                 notes + rows.repetitions(results.cells) + rows.remarks(results.cells), see(found))
