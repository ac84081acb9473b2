"""pip, on the source distribution: the package with its library where MPI is, else without.

By an interpreter that has scikit-build-core, which pip would otherwise fetch: $TORCH_PYTHON, else the suite's own."""

import glob
import os
import subprocess
import sys
import tarfile
import unittest

import gwrun

PYTHON = os.environ.get("TORCH_PYTHON", sys.executable)
LACKS = subprocess.run([PYTHON, "-c", "import numpy, pip, scikit_build_core"], capture_output=True, check=False).returncode


@unittest.skipIf(LACKS or gwrun.cached("GW_SANITIZE"), f"{PYTHON} has no scikit-build-core, or a sanitizer is linked")
class Pip(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        gwrun.said(PYTHON, "-c", "import sys, scikit_build_core.build as b; b.build_sdist(sys.argv[1])", cls.dir,
                   cwd=gwrun.SOURCE)
        cls.sdist, = glob.glob(cls.path("gradwire-*.tar.gz"))

    def install(self, name, *settings):
        """The folder that pip has installed it into. Without optimization, which takes most of the time."""
        where = self.path(name)
        words = [f"--config-settings=cmake.define.{setting}" for setting in
                 ("CMAKE_C_FLAGS_RELEASE=-O0", f"MPI_C_COMPILER={gwrun.cached('MPI_C_COMPILER')}", *settings)]
        gwrun.said(PYTHON, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
                   "--target", where, *words, self.sdist, timeout=1200, env=dict(os.environ, CMAKE_BUILD_PARALLEL_LEVEL="2"))
        return where

    def ask(self, where, code, path=""):
        env = {name: value for name, value in os.environ.items() if name != "GRADWIRE_LIBRARY"}
        return gwrun.said(PYTHON, *code, cwd=self.dir, env=dict(env, PYTHONPATH=where, PATH=f"{path}:/usr/bin:/bin"))

    def test_source_distribution(self):
        with tarfile.open(self.sdist) as file:
            names = {name.partition("/")[2] for name in file.getnames()}
        self.assertLessEqual({"CMakeLists.txt", "LICENSE", "comm/strategies.def", "include/gradwire.h",
                              "python/gradwire/analysis/reporting/page.js", "python/gradwire/torch/ddp.py",
                              "src/api/start.c"}, names)
        self.assertEqual([name for name in names if name.startswith((".", "build/", "experiments/results/"))], [])

    def test_with_mpi(self):
        where = self.install("with")
        said = self.ask(where, ["-m", "gradwire.doctor"])
        self.assertIn(f"library   {where}/gradwire/libgradwire.so.0, version ", said)
        self.assertIn(", by the package\n", said)
        self.assertIn(f"mpiexec   {where}/gradwire/mpiexec: its ranks see each other\n", said)

    def test_without_mpi(self):
        where = self.install("without", "CMAKE_DISABLE_FIND_PACKAGE_MPI=ON")
        self.assertEqual(glob.glob(os.path.join(where, "gradwire", "libgradwire*")), [])
        said = self.ask(where, ["-c", "from gradwire import library; print(library.find()[0], library.location())"],
                        os.environ["BUILD"])
        self.assertIn(f"gradwire in PATH {os.path.realpath(os.environ['BUILD'])}/libgradwire.so", said)

