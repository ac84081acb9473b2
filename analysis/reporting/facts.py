"""What `gradwire show` says of a run below its table: facts of run.json, one line each. `run` is show's
Run. Python's own library only."""

import math

from .info import LABELLED, items, link_warned, look, number, unmet
from .base import plain

WIDEST_OVERHEAD = 20  # percent of a step: an interval that says more of the machine than of probes


def ratio(a, b):
    return a / b if b else math.nan


def times(n):
    return "" if n == 1 else "s"


MEMORY = ("setup", "training", "evaluation", "total")


def mib(size):
    return "absent" if math.isnan(size) else f"{size / (1 << 20):.1f} MiB"


def memory_line(run):
    """Of a simulated run there is none."""
    if not isinstance(look(run.info, "results.peak_bytes"), dict):
        return
    rank, everyone = ([run.number(f"results.{key}.{phase}") for phase in MEMORY]
                      for key in ("peak_bytes", "peak_sum_bytes"))
    phases = "phases absent" if math.isnan(rank[1]) else ", ".join(
        f"{phase} {mib(size)}" for phase, size in zip(MEMORY[:-1], rank))
    line = f"resident memory: a rank at most {mib(rank[-1])} ({phases})"
    yield line + ("" if run.ranks == 1 else f"; all ranks {mib(everyone[-1])}, pages that a node's "
                  "ranks share counted once")


def test_line(run):
    seconds, rate, forward = (run.number(f"results.test_{key}") for key in
                              ("s", "samples_per_s", "forward_s"))
    scores = [run.number(f"results.{key}") for key in ("precision", "recall", "f1")]
    if math.isnan(seconds):
        return
    yield (f"test: {1e3 * seconds:.2f} ms, {rate:.0f} samples/s, "
           + ("forward passes absent" if math.isnan(forward) else f"forward passes {1e3 * forward:.2f} ms")
           + "; accuracy {:.4f}, macro precision {:.4f}, recall {:.4f}, F1 {:.4f}".format(
               run.number("results.test_accuracy"), *scores))


def best_line(run):
    epoch, loss, accuracy, test = (run.number(f"results.best.{key}") for key in (
        "epoch", "validation_loss", "validation_accuracy", "test_accuracy"))
    if math.isnan(epoch):
        return
    saved = "; model.gw is its model" if run.text("options.save-model") == "best" else ""
    yield (f"best epoch: {epoch:.0f}, with the least validation loss, {loss:.4f} (accuracy "
           f"{accuracy:.4f}; test accuracy {test:.4f}){saved}")


def partition(run):
    samples, skew = items(run.info, "data.partition.samples"), run.number("data.partition.mean_label_skew")
    if samples:
        yield (f"partition: --partition {run.text('options.partition')}: {min(samples)} to {max(samples)} samples a "
               f"rank, whose labels lie {skew:.3f} from those of all (total variation, mean over the ranks)")


def straggler(run):
    rank = run.number("results.straggler.rank")
    if run.ranks == 1:
        return
    if math.isnan(rank):
        measured = any(number(row, "waited_for_s") >= 0 for row in items(run.info, "results.ranks"))
        yield f"straggler: {'none noticeable' if measured else 'not measured'}"
        return
    waited, of_step, of_waiting = (run.number(f"results.straggler.{key}")
                                   for key in ("waited_s", "of_step", "of_waiting"))
    share = "" if math.isnan(of_waiting) else f", {100 * of_waiting:.0f}% of all waiting for late ranks"
    yield (f"straggler: rank {rank:.0f}; each other rank waited {1e6 * waited:.1f} us per step for it "
           f"({100 * of_step:.1f}% of the step){share}, by means over all steps, rare long ones included")


def pop_line(run):
    share = {name: "absent" if math.isnan(value) else f"{100 * value:.1f}%" for name, value in run.pop[0].items()}
    line = "POP: parallel efficiency " + share["parallel"]
    if share["parallel"] != "absent":
        line += " = load balance {load_balance} x communication {communication}".format(**share)
        line += " (serialisation {serialisation} x transfer {transfer})".format(**share)
    yield line + ("" if run.pop[1] is None else f"; {run.pop[1]}")


def energy_line(run):
    """Of a simulated run there is none."""
    source, joules = run.text("results.energy.source", None), run.number("results.energy.joules_per_step")
    if source is not None:
        yield ("energy: " + (source if math.isnan(joules) else f"{joules:.4g} J a step of all nodes, by means over all "
                             f"steps ({source})"))


def bubble_line(run):
    """Measured, and simulated at the run's own pace."""
    bubble, share = run.time.bubble_s, run.number("results.summary.bubble_share")
    if math.isnan(bubble):
        return
    simulated, of, step = (run.number(f"results.simulated.{key}") for key in
                           ("bubble_s", "bubble_share", "step_s"))
    beside = "simulated: absent" if math.isnan(step) else (
        f"simulated at the medians of its actions and hops {1e6 * simulated:.1f} us "
        f"({100 * of:.1f}%) of a step of {1e6 * step:.1f} us")
    yield f"bubble: {1e6 * bubble:.1f} us a step ({100 * share:.1f}%); {beside}"


def bound_line(run):
    if run.bound_s is None:
        yield "bound of a step: absent (train --bound measures it)"
        return
    compute, wire, transport = (1e6 * run.number(f"bound.{key}_s")
                                for key in ("computation", "wire", "transport"))
    yield (f"bound of a step ({run.text('bound.mode', 'mode absent')}): {1e6 * run.bound_s:.1f} us, of "
           f"computation {compute:.1f} us, wire {wire:.1f} us, transport "
           f"{'absent' if math.isnan(transport) else f'{transport:.1f} us'}; the step takes "
           f"{run.of_bound:.2f} times that")


def ceilings(run):
    achieved, ceiling = run.products()
    if math.isnan(ceiling):
        yield "ceilings: absent"
        return
    drifted = ", but the machine has DRIFTED since" if run.true("ceilings.drifted") else ""
    yield (f"ceilings ({run.text('ceilings.source', 'source absent')}{drifted}): forward and backward "
           f"{achieved / 1e9:.1f} of {ceiling / 1e9:.1f} GFLOP/s a rank "
           f"({100 * ratio(achieved, ceiling):.1f}%)")


def links(run):
    """The time of the wire bytes at the rate of the slowest link, the least that an exchange takes."""
    betas = [number(link, "beta_s_per_byte") for link in items(run.info, "ceilings.links")]
    slowest = max((beta for beta in betas if beta > 0), default=0)
    if slowest and not math.isnan(run.time.wire_bytes):
        yield (f"slowest link: {1e-9 / slowest:.2f} GB/s; a rank's wire bytes take it "
               f"{run.time.wire_bytes * slowest * 1e6:.1f} us")
    if not run.true("link.emulated"):
        return
    cores = run.number("link.cost.cores_per_rank")
    if math.isnan(cores):
        yield "emulated link: what it took of the cores is absent"
        return
    warning = " (overlap looks worse)" if link_warned(run.info) else ""
    system = ratio(run.number("link.cost.ranks_system_s"), run.number("link.cost.seconds"))
    yield (f"emulated link: interrupts took {100 * cores:.1f}% of a core for each rank that "
           f"trains{warning}; the ranks' own system time {system:.2f} cores in all")


def overhead(run):
    low, middle, high = (100 * (run.number(f"overhead.{key}") - 1) for key in ("ci_low", "ratio", "ci_high"))
    why = run.text("overhead.why", None)
    if math.isnan(middle):
        yield f"own overhead: absent{f': {why}' if why is not None else ''}"
        return
    pairs = f"{run.number('overhead.pairs'):.0f} pairs of steps with and without probes"
    if high - low > WIDEST_OVERHEAD:
        yield (f"own overhead: not measurable here: {pairs} differ by too much; repeat on a quieter machine, "
               "or with more (--overhead PAIRS)")
        return
    yield f"own overhead: {middle:+.2f}% of a step (95%: {low:+.2f}% .. {high:+.2f}%), {pairs}"


def checks(run):
    compared, frames, out, step, rank, layer = (run.number(f"results.checks.{key}") for key in (
        "replicas", "wire.frames", "nan.left_out", "nan.first.step", "nan.first.rank", "nan.first.layer"))
    if math.isnan(compared):
        yield "checks: absent"
        return
    line = f"checks: replicas compared {compared:.0f} time{times(compared)}"
    line += "" if math.isnan(frames) else f", {frames:.0f} frames whole"
    if out > 0:
        line += (f"; {out:.0f} step{times(out)} LEFT OUT, the first: step {step:.0f}, rank {rank:.0f}, "
                 + ("the loss" if math.isnan(layer) else f"layer {layer:.0f}"))
    yield line


def not_met(run):
    """What stands at the run's name already is left out."""
    yield from (f"not met: {option}: {what}: {why}" for what, option, why in unmet(run.info)
                if what not in LABELLED)


def sources(run):
    yield f"where from: core and memory: {run.time.split or 'absent'}"
    found = look(run.info, "sources")
    for key, value in found.items() if isinstance(found, dict) else ():
        if isinstance(value, str):
            yield f"            {plain(key)}: {plain(value)}"


def facts(run):
    for fact in (test_line, best_line, memory_line, partition, straggler, pop_line, energy_line, bubble_line, bound_line,
                 ceilings, links, overhead, checks, not_met, sources):
        yield from fact(run)
