"""What the files of a run folder must look like. They may come from anywhere: whatever is not as
described is refused here, with its place in the file, so later code can rely on the types.

A shape is one of the kinds below; a dict (an object that has these keys, those that end in ? if it
likes, and any others); a list with one shape (of its members); Map(shape), an object with any keys;
Maybe(shape), which may be null; a pair of shapes, the second for objects; or a set of texts."""

import json
import math
import os
import re
import stat
from dataclasses import dataclass

from .base import BadInput

LIMIT = 16 << 20  # bytes of a JSON file
LARGEST = 1e60  # number: far above every count and time

TEXT, NUMBER, COUNT, YES_NO, SCALAR = "a text", "a number", "a whole number from 0 on", \
    "true or false", "a text, a number, true, false or null"

# No page and no drawing can hold these.
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@dataclass
class Map:
    of: object


@dataclass
class Maybe:
    of: object


class Bad(BadInput):
    """Why a file or a folder is not what it should be: one line."""


def printable(text):
    """The same with what cannot be shown spelled out; for names of files."""
    return UNPRINTABLE.sub(lambda hit: f"\\x{ord(hit[0]):02x}", text.replace("\n", "\\n"))


def open_regular(path, links=False):
    """A file object of bytes. In results that were searched for runs, links are not followed: they may
    lead out of them."""
    name = os.path.basename(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC |
                     (0 if links else os.O_NOFOLLOW))
    except ValueError as error:  # a zero byte in the path
        raise Bad(f"{name}: {error}") from error
    except OSError as error:
        raise Bad(f"{name}: a link, not followed" if os.path.islink(path) and not links
                  else f"{name}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Bad(f"{name}: not a file")
    return os.fdopen(fd, "rb")


def finite(text):
    """JSON has no NaN, no Infinity and nothing like 1e999."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a number")
    return value


def load_json(path, links=False):
    """What a file holds, of whatever type."""
    name = os.path.basename(path)
    with open_regular(path, links) as file:
        text = file.read(LIMIT + 1)
    if len(text) > LIMIT:
        raise Bad(f"{name}: longer than {LIMIT >> 20} MiB")
    try:
        return json.loads(text.decode("utf-8"), parse_constant=finite, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise Bad(f"{name}: not valid JSON ({error})") from error


def read_json(path, schema, shape):
    """The object in a file of this schema, checked."""
    name, value = os.path.basename(path), load_json(path)
    if not isinstance(value, dict) or "schema" not in value:
        raise Bad(f"{name}: has no schema: not written by gradwire")
    if value["schema"] != schema or isinstance(value["schema"], bool):
        raise Bad(f"{name}: schema {short(value['schema'])}, this analysis reads schema {schema}")
    check_texts(value, name)
    check(value, shape, name)
    return value


def short(value):
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def check_texts(value, name):
    """Checks all keys and texts, since some that no shape names are shown, too."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left += item.keys()
            left += item.values()
        elif isinstance(item, list):
            left += item
        elif isinstance(item, str) and UNPRINTABLE.search(item):
            raise Bad(f"{name}: control characters in a text")


def is_number(value):
    """Finite, and so that products and squares of a few are finite, too."""
    try:
        return not isinstance(value, bool) and math.isfinite(value) and abs(value) <= LARGEST
    except (TypeError, OverflowError):
        return False


KINDS = {
    TEXT: lambda value: isinstance(value, str),
    NUMBER: is_number,
    COUNT: lambda value: isinstance(value, int) and not isinstance(value, bool)
    and 0 <= value < 1 << 63,
    YES_NO: lambda value: isinstance(value, bool),
    SCALAR: lambda value: value is None or isinstance(value, (str, bool)) or is_number(value),
}


def check(value, shape, where):
    """Raises Bad with the first place at which they disagree."""
    if isinstance(shape, Maybe):
        if value is not None:
            check(value, shape.of, where)
    elif isinstance(shape, tuple):
        check(value, shape[isinstance(value, dict)], where)
    elif isinstance(shape, set):
        if not isinstance(value, str) or value not in shape:
            raise Bad(f"{where} is {short(value)}, not one of {', '.join(sorted(shape))}")
    elif isinstance(shape, list):
        demand(isinstance(value, list), value, "a list", where)
        for i, item in enumerate(value):
            check(item, shape[0], f"{where}[{i}]")
    elif isinstance(shape, (dict, Map)):
        demand(isinstance(value, dict), value, "an object", where)
        check_keys(value, shape, where)
    else:
        demand(KINDS[shape](value), value, shape, where)


def demand(true, value, kind, where):
    if not true:
        raise Bad(f"{where} is {short(value)}, not {kind}")


def check_keys(value, shape, where):
    if isinstance(shape, Map):
        for key, item in value.items():
            check(item, shape.of, f"{where}: {key[:40]}")
        return
    for key, of in shape.items():
        name = key.rstrip("?")
        if name in value:
            check(value[name], of, f"{where}: {name}")
        elif name == key:
            raise Bad(f"{where} lacks {name}")


_PRODUCT = {"operands": TEXT, "m": COUNT, "n": COUNT, "k": COUNT}
_MEMORY = Maybe({f"{phase}?": Maybe(NUMBER) for phase in ("setup", "training", "evaluation", "total")})
_BOTH = {"one": Maybe(NUMBER), "all": Maybe(NUMBER)}

# What tells an emulated link from another.
LINK = {"rate_bits_per_s": NUMBER, "slow_hosts?": Maybe(TEXT), "host_rates?": Maybe([[NUMBER]]),
        "racks?": Maybe({"count": COUNT, "uplink_bits_per_s": NUMBER, "ranks_per_host": COUNT})}

RUN_SCHEMA = 3
RUN = {
    "version": TEXT, "commit": Maybe(TEXT), "command": TEXT, "started_utc": TEXT,
    "options": Map(SCALAR), "seed": COUNT, "parameters": COUNT,
    "program?": TEXT,  # "train", if there is none
    "data?": {"name": TEXT, "source": TEXT, "hash": TEXT, "features": COUNT, "classes": COUNT,
              "train": COUNT, "validation": COUNT, "test": COUNT,
              "partition?": Maybe({"samples": [COUNT], "label_skew": [NUMBER], "mean_label_skew": NUMBER})},
    "replay?": {"profile": {"model": TEXT, "device": TEXT, "machine": TEXT, "batch": COUNT},
                "compute": TEXT, "speed": NUMBER, "gradients": TEXT, "data_dependent": YES_NO},
    "simulated?": Maybe({"engine": TEXT, "network": Map((SCALAR, Map(SCALAR))), "step?": Map(SCALAR), "rows_of_ranks?": COUNT,
                         "train?": YES_NO}),  # without it a profile was played, and nothing learnt
    "comm": {"strategy": TEXT, "algorithm": TEXT, "codec": TEXT, "error_feedback": YES_NO,
             "warning": Maybe(TEXT),
             "unmet?": [{"option": TEXT, "value": TEXT, "what": TEXT, "why": TEXT}],
             "encoded?": [{"codec": TEXT, "floats": COUNT, "bytes": COUNT}],
             "layers": Maybe([{"layer": COUNT, "codec": TEXT, "samples": COUNT,
                               "relative_error": Maybe(NUMBER), "cosine": Maybe(NUMBER),
                               "bits_per_element": Maybe(NUMBER)}])},
    "mpi": {"library": TEXT, "thread_level": TEXT, "environment": Maybe(Map(SCALAR))},
    "mesh?": Maybe({"data": COUNT, "pipe": COUNT, "tensor": COUNT, "timetable": TEXT,
                    "microbatches": COUNT}),
    "machine": {"hosts": [TEXT], "cpu": TEXT, "cpus_usable": COUNT, "cores_usable": COUNT,
                "ranks": COUNT, "workers": COUNT, "nodes": COUNT, "threads_per_rank": COUNT,
                "helper_threads_per_rank?": COUNT, "oversubscribed": YES_NO, "gemm?": TEXT,
                "busy?": Maybe(dict.fromkeys(("before", "during"), Maybe(
                    {"warned": YES_NO, "text": TEXT, "lack": Maybe(NUMBER)}))),
                "gemm_warning?": Maybe(TEXT), "clock": TEXT},
    "link": Maybe({**LINK, "emulated": YES_NO, "hosts": COUNT,
                   "piece?": Maybe({"packets": COUNT, "mtu": COUNT}),
                   "cost?": {"seconds": Maybe(NUMBER), "interrupts_s": Maybe(NUMBER),
                             "ranks_system_s": Maybe(NUMBER), "cores_per_rank": Maybe(NUMBER),
                             "warned?": YES_NO}}),
    "ceilings?": Maybe({
        "fma_flops_per_s?": Maybe(_BOTH), "copy_bytes_per_s?": Maybe(_BOTH),
        "levels?": [{"level": TEXT, "working_set_bytes": NUMBER, "read_bytes_per_s": _BOTH,
                     "update_bytes_per_s": _BOTH}],
        "all_threads?": COUNT,
        "products?": [{**_PRODUCT, "s": Maybe(NUMBER), "flops_per_s": Maybe(NUMBER)}],
        "links?": [{"from": COUNT, "to": COUNT, "over": TEXT, "alpha_s": Maybe(NUMBER),
                    "beta_s_per_byte": Maybe(NUMBER)}],
        "drift?": Maybe(NUMBER), "drifted?": Maybe(YES_NO)}),
    "work?": Maybe({
        "local_batch": COUNT, "flops": NUMBER, "bytes": NUMBER, "pointwise_bytes": Maybe(NUMBER),
        "products": [{**_PRODUCT, "flops": NUMBER, "bytes": NUMBER, "alone_s": Maybe(NUMBER)}],
        "flops_per_s": Maybe(NUMBER), "peak_flops_per_s": Maybe(NUMBER), "level": Maybe(TEXT),
        "bandwidth_bytes_per_s": Maybe(NUMBER)}),
    "sources": {"phases": TEXT, "waiting_s": TEXT, "hidden_s": TEXT, "memory_s": TEXT,
                "wire_bytes": TEXT, "peak_bytes?": TEXT},
    "forecast?": Maybe({"predicted_step_s": Maybe(NUMBER), "measured_step_s": Maybe(NUMBER)}),
    "bound?": Maybe({"bound_s": NUMBER}),
    "overhead?": Maybe({"ratio": Maybe(NUMBER), "ci_low": Maybe(NUMBER),
                        "ci_high": Maybe(NUMBER)}),
    "checkpoints?": Maybe({"written": COUNT, "failed": COUNT, "ledger_s": Maybe(NUMBER)}),
    "resumed?": Maybe({"step": COUNT, "from_ranks": COUNT, "dropped": [TEXT]}),
    "interruptions?": [{"event": TEXT}],
    "results": {
        "steps": COUNT, "stopped_by": TEXT, "train_loss": Maybe(NUMBER),
        "test_loss": Maybe(NUMBER), "test_accuracy": Maybe(NUMBER),
        "validation_accuracy": Maybe(NUMBER),
        **dict.fromkeys(("precision?", "recall?", "f1?", "test_s?", "test_samples_per_s?",
                         "test_forward_s?"), Maybe(NUMBER)),
        "best?": Maybe({"epoch": COUNT, **dict.fromkeys(
            ("validation_loss", "validation_accuracy", "test_accuracy"), Maybe(NUMBER))}),
        "peak_bytes?": _MEMORY, "peak_sum_bytes?": _MEMORY, "elapsed_s": NUMBER, "train_s": NUMBER,
        "wire_bytes": Maybe(NUMBER), "replica_hash?": TEXT,
        "summary": {"batches": COUNT, "statistic?": TEXT, "period?": COUNT, "counted?": COUNT, "interrupted?": Maybe(NUMBER),
                    "spread?": {"p10_s": Maybe(NUMBER), "p90_s": Maybe(NUMBER)},
                    "halves?": {**dict.fromkeys(("odd_s", "even_s", "first_s", "last_s", "apart"),
                                                Maybe(NUMBER)), "warned": YES_NO},
                    "division?": Maybe(
                        {f"{part}_s": Maybe(NUMBER) for part in ("core", "core_or_memory", "memory")}),
                    "wall_s": Maybe(NUMBER), "compute_s": Maybe(NUMBER),
                    "exposed_s": Maybe(NUMBER), "waiting_s": Maybe(NUMBER),
                    "transfer_s": Maybe(NUMBER), "hidden_s": Maybe(NUMBER),
                    "codec_s": Maybe(NUMBER), "wire_bytes": Maybe(NUMBER),
                    "logical_bytes": Maybe(NUMBER), "phases": Map(Maybe(NUMBER)),
                    "dimensions?": Maybe(Map({
                        "ranks": COUNT, **dict.fromkeys(("comm_s", "waiting_s", "bytes", "messages"),
                                                        Maybe(NUMBER))})),
                    "bubble_s?": Maybe(NUMBER), "bubble_share?": Maybe(NUMBER)},
        "simulated?": Maybe({"bubble_s": Maybe(NUMBER), "bubble_share": Maybe(NUMBER)}),
        "ranks": Maybe([{"rank": COUNT, "wall_s": Maybe(NUMBER), "compute_s": Maybe(NUMBER),
                         "waiting_s": Maybe(NUMBER), "transfer_s": Maybe(NUMBER),
                         "last_share": Maybe(NUMBER), "waited_for_s": Maybe(NUMBER),
                         "peak_bytes?": _MEMORY, "shared_bytes?": _MEMORY}]),
        "straggler": Maybe({"rank": COUNT, "of_waiting?": NUMBER, "last_share": Maybe(NUMBER),
                            "waited_s": NUMBER, "of_step": NUMBER}),
    },
}

# Hints of the study's author; experiments/README.md has them.
REPORT = {"x?": TEXT, "scaling?": {"strong", "weak"}, "target_accuracy?": NUMBER, "target_loss?": NUMBER,
          "compare_within?": [TEXT], "expect?": Map(TEXT)}

STUDY_SCHEMA = 1
STUDY = {
    "name": TEXT, "spec": {"file": TEXT, "sha256": TEXT, "text": TEXT}, "claim": TEXT,
    "source": Maybe([SCALAR]), "short": YES_NO, "design": TEXT, "factors": Map([TEXT]),
    "baseline": Maybe(TEXT), "report": REPORT, "claims?": [Map(TEXT)],
    "blocks": [{"repetition": COUNT, "seed": COUNT}],
    "cells": [{"id": TEXT, "levels": Map(TEXT), "ranks": COUNT}],
    "runs": [{"folder": TEXT, "cell": TEXT, "block": COUNT}],
    "created_utc": TEXT, "gradwire": {"version": Maybe(TEXT), "commit": Maybe(TEXT)},
    "trials?": YES_NO, "tune?": {"factor": TEXT, "options": Map([TEXT]), "seeds": [COUNT], "by": TEXT},
    "tuned?": [Map(TEXT)],
}

CUT_SHORT = ("SIGTERM", "SIGINT")  # results.stopped_by of a run that a signal ended

STATES = {"running", "done", "diverged", "failed", "interrupted"}
EXPERIMENT_SCHEMA = 1
EXPERIMENT = {
    "study": TEXT, "cell": TEXT, "levels": Map(TEXT), "baseline": YES_NO, "repetition": COUNT,
    "seed": COUNT, "block": COUNT, "planned": COUNT, "state": STATES,
    "attempts": [{"started_utc": TEXT, "seconds": Maybe(NUMBER), "status": Maybe(NUMBER),
                  "signal": Maybe(TEXT), "timed_out": YES_NO, "interrupted?": Maybe(YES_NO),
                  "message": TEXT, "cause?": TEXT}],
}
