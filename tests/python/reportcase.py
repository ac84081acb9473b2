"""Run folders for the tests of the report: real runs of gradwire, some of them damaged."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import gwrun

ANALYSIS = os.path.join(gwrun.SOURCE, "analysis")
TASK = ("--data", "synthetic:samples=1200,features=16,classes=4,seed=1", "--layers", "16",
        "--batch", "40", "--ceilings", "off", "--overhead", "0", "--papi-group", "none")
STRATEGIES = ("allreduce", "iallreduce:algo=sra")


def of_kind(info, statistic):
    """run.json of a run whose step time is of another kind."""
    results = info["results"]
    return {**info, "results": {**results, "summary": {**results["summary"], "statistic": statistic}}}


def module_of(tool):
    """A tool of analysis/ as a module."""
    loader = importlib.machinery.SourceFileLoader(f"tool_{tool}", os.path.join(ANALYSIS, tool))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def call(tool, *words, draws=None):
    """A tool of analysis/ in this process, which has its modules already. `draws`: the charts of a page, which take
    most of its time; None: all."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    some = contextlib.nullcontext() if draws is None else mock.patch("reporting.charts.ORDER", draws)
    with mock.patch.object(sys, "argv", [tool, *words]), contextlib.redirect_stdout(out), \
            contextlib.redirect_stderr(err), some:
        try:
            module = module_of(tool)
            module.call(tool, module.main)
        except SystemExit as ended:
            status = ended.code or 0
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


def write_study(folder, name, cells, blocks, make, seeds=False, **more):
    """A study below `folder`, as the runner leaves it; make(cell, block, out) leaves the files of a run in `out`.
    `seeds`: each block has its own. `more`: what else study.json has."""
    def seed_of(block):
        return block + 1 if seeds else 1
    planned = []
    for block in range(blocks):
        for cell in cells:
            place = f"b{block:02d}-s{seed_of(block)}/{cell['id']}"
            out = os.path.join(folder, place)
            os.makedirs(os.path.dirname(out), exist_ok=True)
            make(cell, block, out)
            gwrun.write(os.path.join(out, "experiment.json"), {
                "schema": 1, "study": name, "cell": cell["id"], "levels": cell["levels"],
                "baseline": cell is cells[0], "repetition": block + 1, "seed": seed_of(block), "block": block,
                "planned": len(planned), "state": "done",
                "attempts": [{"started_utc": "2026-11-21T16:00:34Z", "seconds": 1.5, "status": 0,
                              "signal": None, "timed_out": False, "message": ""}],
                "command": [], "environment": {}, "launcher": "mpiexec", "jobs": 1, "testbed": None})
            planned.append({"folder": place, "cell": cell["id"], "block": block})
    gwrun.write(os.path.join(folder, "study.json"), {
        "schema": 1, "name": name, "claim": "Overlap <hides> communication.", "source": ["A"],
        "spec": {"file": f"{name}.yaml", "sha256": "0" * 64, "text": "claim: ..."}, "short": False,
        "design": "grid", "factors": {factor: list(dict.fromkeys(cell["levels"][factor] for cell in cells))
                                      for factor in cells[0]["levels"]},
        "baseline": cells[0]["id"], "report": {}, "cells": cells, "runs": planned,
        "blocks": [{"repetition": block + 1, "seed": seed_of(block)} for block in range(blocks)], "order_seed": 1,
        "launcher": "mpiexec", "jobs": 1, "created_utc": "2026-11-21T16:00:30Z",
        "gradwire": {"version": "0.1.0", "commit": "abc"}, **more})


def cell_of(**levels):
    """As study.json has it."""
    return {"id": ",".join(f"{factor}={level}" for factor, level in levels.items()), "levels": levels,
            "ranks": int(levels.get("ranks", 2)), "testbed": None}


class ReportCase(gwrun.Case):
    """`real`: a folder with a run of 50 steps a strategy, by the strategy's name, made once for a file
    of tests."""

    real = None

    @classmethod
    def setUpClass(cls):
        if ReportCase.real is not None:
            return
        holder = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(holder.cleanup)
        ReportCase.real = holder.name
        for comm in STRATEGIES:
            gwrun.train(2, os.path.join(cls.real, comm.partition(":")[0]), *TASK, "--comm", comm,
                        "--epochs", "2")

    def copy(self, name, strategy="allreduce"):
        """A copy of a real run as folder `name`; its path."""
        shutil.copytree(os.path.join(self.real, strategy), self.path(name))
        return self.path(name)

    def record(self, folder, **changes):
        """Changes what the runner noted of a run."""
        path = self.path(folder, "experiment.json")
        gwrun.write(path, {**gwrun.read_json(path), **changes})

    def study(self, name="demo", blocks=2, **more):
        """A study of both strategies below folder `name`; its path."""
        cells = [cell_of(comm=comm) | {"id": f"comm={comm.partition(':')[0]}"} for comm in STRATEGIES]
        write_study(self.path(name), os.path.basename(name), cells, blocks, lambda cell, _, out: shutil.copytree(
            os.path.join(self.real, cell["id"].partition("=")[2]), out), **more)
        return self.path(name)


class StudyCase(ReportCase):
    """`real_study`: a study of one block, made once for a class of tests."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case = cls("setUp")
        case.setUp()
        cls.addClassCleanup(case.doCleanups)
        cls.real_study = case.study(blocks=1)
