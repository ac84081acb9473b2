"""Run folders for the tests of the report: real runs of gradwire, some of them damaged."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import gwrun

sys.path.insert(0, os.path.join(gwrun.SOURCE, "analysis"))

ANALYSIS = os.path.join(gwrun.SOURCE, "analysis")
TASK = ("--data", "synthetic:samples=1200,features=16,classes=4,seed=1", "--layers", "16",
        "--batch", "40", "--ceilings", "off", "--overhead", "0")
STRATEGIES = ("allreduce", "iallreduce:algo=sra")


def call(tool, *words):
    """A tool of analysis/ in this process, which has its modules already."""
    loader = importlib.machinery.SourceFileLoader(f"tool_{tool}", os.path.join(ANALYSIS, tool))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    out, err, status = io.StringIO(), io.StringIO(), 0
    with mock.patch.object(sys, "argv", [tool, *words]), contextlib.redirect_stdout(out), \
            contextlib.redirect_stderr(err):
        try:
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            module.call(tool, module.main)
        except SystemExit as ended:
            status = ended.code or 0
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def dump(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))


class FolderCase(unittest.TestCase):
    """A test with a temporary folder of its own."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = holder.name

    def path(self, *names):
        return os.path.join(self.dir, *names)


class ReportCase(FolderCase):
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

    def change(self, folder, change):
        """run.json of a folder after change(it)."""
        info = load(os.path.join(folder, "run.json"))
        change(info)
        dump(os.path.join(folder, "run.json"), info)

    def study(self, name="demo", blocks=2, **more):
        """A study of both strategies below folder `name`, as the runner leaves it; its path."""
        cells = [{"id": f"comm={comm.partition(':')[0]}", "levels": {"comm": comm}, "ranks": 2,
                  "testbed": None} for comm in STRATEGIES]
        runs = [{"folder": f"b{block:02d}-s1/{cell['id']}", "cell": cell["id"], "block": block}
                for block in range(blocks) for cell in cells]
        for planned, run in enumerate(runs):
            levels = next(cell["levels"] for cell in cells if cell["id"] == run["cell"])
            folder = self.copy(os.path.join(name, run["folder"]), run["cell"].partition("=")[2])
            dump(os.path.join(folder, "experiment.json"), {
                "schema": 1, "study": name, "cell": run["cell"], "levels": levels,
                "baseline": run["cell"] == cells[0]["id"], "repetition": run["block"] + 1,
                "seed": 1, "block": run["block"], "planned": planned, "state": "done",
                "attempts": [{"started_utc": "2026-11-21T16:00:34Z", "seconds": 1.5, "status": 0,
                              "signal": None, "timed_out": False, "message": ""}],
                "command": [], "environment": {}, "launcher": "mpiexec", "jobs": 1,
                "testbed": None})
        dump(self.path(name, "study.json"), {
            "schema": 1, "name": name, "claim": "Overlap <hides> communication.", "source": ["A"],
            "spec": {"file": f"{name}.yaml", "sha256": "0" * 64, "text": "claim: ..."},
            "short": False, "design": "grid", "factors": {"comm": list(STRATEGIES)},
            "baseline": cells[0]["id"], "report": {}, "cells": cells, "runs": runs,
            "blocks": [{"repetition": block + 1, "seed": 1} for block in range(blocks)],
            "order_seed": 1, "launcher": "mpiexec", "jobs": 1,
            "created_utc": "2026-11-21T16:00:30Z",
            "gradwire": {"version": "0.1.0", "commit": "abc"}, **more})
        return self.path(name)

