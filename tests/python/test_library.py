"""libgradwire.so as its users get it: what it exports, the program in its header, and its folder."""

import os
import re
import subprocess
import tempfile
import unittest

import gwrun

BUILD, SOURCE = os.environ["BUILD"], os.environ["SOURCE"]
LIBRARY = os.path.join(BUILD, "libgradwire.so")
HEADER = os.path.join(SOURCE, "include", "gradwire.h")
CC = gwrun.cached("CMAKE_C_COMPILER")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def seam():
    """The names in the headers of plugins."""
    lists = re.findall(r"foreach\(header ([^)]*)\)\n  list\(APPEND gw_plugin_headers "
                       r"\$\{CMAKE_SOURCE_DIR\}/(src/)?",
                       read(os.path.join(SOURCE, "CMakeLists.txt")))
    headers = [os.path.join(SOURCE, room, f"{name}.h")
               for names, room in lists for name in names.split()]
    return {name for header in headers for name in re.findall(r"\bgw_\w+", read(header))}


def program():
    """The C program on the header's first page."""
    page = read(HEADER).split("#ifndef")[0]
    lines = [line[8:] for line in page.splitlines() if line.startswith(" *      ") or line == " *"]
    return "\n".join(lines)


class Library(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}

    def build(self, text):
        source, client = (os.path.join(self.dir.name, name) for name in ("client.c", "client"))
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        sanitize = [f"-fsanitize={what}" for what in [gwrun.cached("GW_SANITIZE")] if what]
        subprocess.run([CC, "-Wall", "-Wextra", "-Werror", *sanitize, "-I", os.path.dirname(HEADER),
                        source, "-o", client, "-L", BUILD, "-lgradwire", f"-Wl,-rpath,{BUILD}"],
                       check=True)
        return client

    def start(self, ranks, client, words=""):
        return subprocess.run([gwrun.MPIEXEC, "-n", str(ranks), client], text=True, check=False,
                              capture_output=True, timeout=gwrun.HANG_S,
                              env={**os.environ, "GRADWIRE": words})

    def test_exports(self):
        out = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], text=True, check=True,
                             capture_output=True, env=self.env).stdout
        names = {line.split()[-1] for line in out.splitlines()}
        versions = {name.partition("@@")[::2] for name in names if "@@" in name}
        names = {name for name, _ in versions}
        functions = set(re.findall(r"^(?:const )?\w+ \*?(gradwire_\w+)\(", read(HEADER), re.MULTILINE))
        self.assertGreater(len(functions), 20)
        self.assertEqual(functions - names, set())
        allowed = seam()
        self.assertEqual({n for n in names - functions if n not in allowed}, {"GRADWIRE_1",
                         "GRADWIRE_PLUGIN_1"} & names)
        self.assertIn("gw_lane_encode", names)
        self.assertEqual({v for n, v in versions if n in functions}, {"GRADWIRE_1"})
        dynamic = subprocess.run(["readelf", "-d", LIBRARY], text=True, check=True,
                                 capture_output=True, env=self.env).stdout
        self.assertIn("[libgradwire.so.0]", dynamic)
        for other in ("papi", "dnnl", "blas"):
            self.assertNotIn(other, dynamic)

    def test_header_alone(self):
        for compiler in ([CC, "-std=c99", "-pedantic", "-x", "c"], ["c++", "-std=c++11", "-x", "c++"]):
            subprocess.run([*compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", HEADER],
                           check=True, env=self.env)

    def test_first_page(self):
        text = program()
        self.assertIn("int main(void)", text)
        client = self.build(text)
        for ranks in (1, 2):
            out = os.path.join(self.dir.name, f"run{ranks}")
            done = self.start(ranks, client, f"--out {out} --collectives --trace")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            rows = gwrun.batches(out)
            self.assertEqual(len(rows), 200 * ranks)
            losses = [float(row["loss"]) for row in rows if row["rank"] == "0"]
            self.assertLess(sum(losses[-20:]), 0.1 * sum(losses[:20]))
            run = gwrun.run_json(out)
            self.assertEqual((run["program"], run["comm"]["strategy"]), ("library", "sharded"))
            self.assertEqual(run["command"], client)
            self.assertNotIn("data", run)
            shown = gwrun.run(1, "show", out)
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertIn("sharded", shown.stdout)
            for name in ("collectives.csv", "trace.json", "matrix.csv", "epochs.csv"):
                self.assertTrue(os.path.exists(os.path.join(out, name)), name)

    def test_plugin(self):
        client = self.build(program())
        for words, codec in ((f"--comm {BUILD}/tests/libplugin_example.so --compress none", "none"),):
            out = os.path.join(self.dir.name, "plugin")
            done = self.start(2, client, f"{words} --out {out}")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            comm = gwrun.run_json(out)["comm"]
            self.assertEqual((comm["strategy"], comm["codec"]), ("halves", codec))

    def test_refusals(self):
        client = self.build(program())
        out = os.path.join(self.dir.name, "twice")
        self.assertEqual(self.start(2, client, f"--out {out}").returncode, 0)
        done = self.start(2, client, f"--out {out}")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(set(done.stderr.splitlines())), 1, done.stderr)
        self.assertIn("holds a run already", done.stderr)


if __name__ == "__main__":
    unittest.main()
