"""libgradwire.so as its users get it: what it exports, the program in its header, and its folder."""

import concurrent.futures
import os
import re
import subprocess

import gwrun

BUILD, SOURCE = os.environ["BUILD"], os.environ["SOURCE"]
LIBRARY = os.path.join(BUILD, "libgradwire.so")
HEADER = os.path.join(SOURCE, "include", "gradwire.h")
CC = gwrun.cached("CMAKE_C_COMPILER")
# A rank that ends in a way of its own, argv[1], while the others go on. PMI's variables tell a child nothing.
ENDS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gradwire.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static float w[9], grad[9];
static const char *how;

static int check(int e) {
    if (e >= 0)
        return e;
    fprintf(stderr, "%s\\n", gradwire_error());
    exit(3);
}

static int odd(const char *way, int rank) {
    return strcmp(how, way) == 0 && rank == 1;
}

static void step(gradwire *g, int ranks) {
    float *grads[] = {grad};
    int tensor = 0;
    check(gradwire_begin(g, 1, ranks));
    check(gradwire_ready(g, 1, &tensor, grads));
    check(gradwire_finish(g, GRADWIRE_ALL));
    check(gradwire_updated(g, GRADWIRE_ALL));
    check(gradwire_end(g, 1));
}

int main(int argc, char **argv) {
    int rank, ranks;
    gradwire *g;
    how = argc > 1 ? argv[1] : "";
    check(gradwire_start(NULL, &rank, &ranks));
    if (odd("exit before", rank))
        exit(7);
    if (odd("end before", rank))
        exit(0);
    check(gradwire_new(&g, -1, NULL));
    if (odd("exit new", rank))
        exit(0);
    check(gradwire_tensor(g, "w", 0, 9, 0, w));
    check(gradwire_open(g));
    step(g, ranks);
    if (odd("exit", rank))
        exit(0);
    if (odd("abort", rank))
        raise(SIGKILL);
    if (strcmp(how, "return") == 0)
        return 0;
    if (odd("finalize", rank))
        ((int (*)(void))dlsym(RTLD_DEFAULT, "MPI_Finalize"))();
    if (strcmp(how, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) { /* of a copy: nobody waits for it */
            gradwire *other;
            int calls[] = {gradwire_start(NULL, NULL, NULL), gradwire_new(&other, -1, NULL),
                           gradwire_begin(g, 1, ranks), gradwire_leave(g, 0), gradwire_close(g)};
            for (int i = 0; i < 5; i++)
                if (calls[i] >= 0 || gradwire_alone(calls[i]) || !strstr(gradwire_error(), "(fork)"))
                    fprintf(stderr, "call %d: %d: %s\\n", i, calls[i], gradwire_error());
            exit(0);
        }
        waitpid(child, NULL, 0);
    }
    if (odd("exit open", rank))
        exit(5);
    int all = strcmp(how, "leave") == 0, finalize = strcmp(how, "leave finalize") == 0;
    if (all) { /* in a batch that has its gradients */
        int tensor = 0;
        check(gradwire_begin(g, 1, ranks));
        check(gradwire_ready(g, 1, &tensor, NULL));
        check(gradwire_finish(g, GRADWIRE_ALL));
    }
    if (all || finalize || odd("leave early", rank) || odd("leave failed", rank)) {
        check(gradwire_leave(g, 0.5));
        if (finalize)
            ((int (*)(void))dlsym(RTLD_DEFAULT, "MPI_Finalize"))();
        exit(odd("leave failed", rank) ? 4 : 0);
    }
    if (odd("within", rank)) {
        check(gradwire_begin(g, 1, ranks));
        exit(0);
    }
    for (int i = 0; i < (odd("fewer", rank) ? 1 : 3); i++)
        step(g, ranks);
    return check(gradwire_close(g));
}
"""


def seam():
    """The names in the headers of plugins."""
    lists = re.findall(r"foreach\(header ([^)]*)\)\n  list\(APPEND gw_plugin_headers "
                       r"\$\{CMAKE_SOURCE_DIR\}/(src/)?",
                       gwrun.read(os.path.join(SOURCE, "CMakeLists.txt")))
    headers = [os.path.join(SOURCE, room, f"{name}.h")
               for names, room in lists for name in names.split()]
    return {name for header in headers for name in re.findall(r"\bgw_\w+", gwrun.read(header))}


def program(header=HEADER):
    """The C program on the header's first page."""
    page = gwrun.read(header).split("#ifndef")[0]
    lines = [line[8:] for line in page.splitlines() if line.startswith(" *      ") or line == " *"]
    return "\n".join(lines)


class Library(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}

    def build(self, text):
        source, client = (self.path(name) for name in ("client.c", "client"))
        gwrun.write(source, text)
        sanitize = [f"-fsanitize={what}" for what in [gwrun.cached("GW_SANITIZE")] if what]
        subprocess.run([CC, "-Wall", "-Wextra", "-Werror", *sanitize, "-I", os.path.dirname(HEADER),
                        source, "-o", client, "-L", BUILD, "-lgradwire", f"-Wl,-rpath,{BUILD}"],
                       check=True)
        return client

    def start(self, ranks, client, words="", *arguments, **more):
        return gwrun.finished([gwrun.MPIEXEC, "-n", str(ranks), client, *arguments],
                              env={**os.environ, "GRADWIRE": words, **more})

    def test_exports(self):
        out = gwrun.said("nm", "-D", "--defined-only", LIBRARY, env=self.env)
        names = {line.split()[-1] for line in out.splitlines()}
        versions = {name.partition("@@")[::2] for name in names if "@@" in name}
        names = {name for name, _ in versions}
        functions = set(re.findall(r"^(?:const )?\w+ \*?(gradwire_\w+)\(", gwrun.read(HEADER), re.MULTILINE))
        self.assertGreater(len(functions), 20)
        self.assertEqual(functions - names, set())
        allowed = seam()
        self.assertEqual({n for n in names - functions if n not in allowed}, {"GRADWIRE_1",
                         "GRADWIRE_PLUGIN_1"} & names)
        self.assertIn("gw_encoder_encode", names)
        self.assertEqual({v for n, v in versions if n in functions}, {"GRADWIRE_1"})
        dynamic = gwrun.said("readelf", "-d", LIBRARY, env=self.env)
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
            out = self.path(f"run{ranks}")
            self.assertEqual(gwrun.quiet(self.start(ranks, client, f"--out {out} --collectives --trace")), "")
            rows = gwrun.batches(out)
            self.assertEqual(len(rows), 200 * ranks)
            losses = [float(row["loss"]) for row in rows if row["rank"] == "0"]
            self.assertLess(sum(losses[-20:]), 0.1 * sum(losses[:20]))
            run = gwrun.run_json(out)
            self.assertEqual((run["program"], run["comm"]["strategy"]), ("library", "sharded"))
            self.assertEqual(run["command"], client)
            self.assertNotIn("data", run)
            shown = gwrun.clean(1, "show", out)
            self.assertIn("sharded", shown.stdout)
            for name in ("collectives.csv", "trace.json", "matrix.csv", "epochs.csv"):
                self.assertTrue(os.path.exists(os.path.join(out, name)), name)

    def test_plugin(self):
        client = self.build(program())
        out = self.path("plugin")
        gwrun.quiet(self.start(2, client, f"--comm {BUILD}/tests/libplugin_example.so --compress none --out {out}"))
        comm = gwrun.run_json(out)["comm"]
        self.assertEqual((comm["strategy"], comm["codec"]), ("halves", "none"))

    def test_refusals(self):
        client = self.build(program())
        out = self.path("twice")
        self.assertEqual(self.start(2, client, f"--out {out}").returncode, 0)
        done = self.start(2, client, f"--out {out}")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(set(done.stderr.splitlines())), 1, done.stderr)
        self.assertIn("holds a run already", done.stderr)

    def end(self, client, how, says):
        """A timeout as short as the machine is fast: what comes before it must not take as long."""
        for timeout in (3, 12, 48) if "no progress" in says else (600,):
            done = self.start(2, client, f"--hang-timeout {timeout}", how)
            if re.search(says, done.stderr):
                break
        return done

    def test_ends(self):
        """No end of a rank looks like success, or leaves the others waiting; a child of a rank may end."""
        client = self.build(ENDS)
        opened = r"gradwire: rank 1: .* with a handle open, after {} batches: .*: call gradwire_close "
        stuck = r"gradwire: rank 0 .*: no progress for .*: in gradwire_{}, {} steps done"
        ends = {"well": r"\A\Z", "fork": r"\A\Z", "exit": opened.format(1), "exit new": opened.format(0),
                "within": opened.format(2), "finalize": "MPI_Finalize was called with a handle open, after 1 ",
                "return": opened.format(1), "abort": "(?s).*", "fewer": stuck.format("finish", 2),
                "exit before": "rank 1: ends with exit status 7, and others do not end",
                "exit open": "rank 1: ends with exit status 5, and others do not end",
                "leave failed": "rank 1: ends with exit status 4, and others do not end",
                "leave early": "(?s)rank 1: the program has ended, and waits for other ranks.*rank 1 .*: no progress for "
                               ".*: in gradwire_leave, 1 steps done",
                "leave": r"\A\Z", "leave finalize": r"\A\Z", "end before": stuck.format("new", 0)}
        with concurrent.futures.ThreadPoolExecutor(len(ends)) as pool:
            done = dict(zip(ends, pool.map(lambda how: self.end(client, how, ends[how]), ends)))
        for how, says in ends.items():
            with self.subTest(how=how):
                status, errors = done[how].returncode, done[how].stderr
                self.assertEqual(status == 0, says == r"\A\Z", errors)
                self.assertRegex(errors, says)
                ours = [line for line in errors.splitlines() if "gradwire: rank" in line]
                if "no progress" not in says and how != "return":  # where all ranks speak
                    self.assertEqual(len(ours), 0 if status == 0 or how == "abort" else 1, errors)
        for how, status in ("exit before", 7), ("exit open", 5), ("leave failed", 4):
            self.assertEqual(done[how].returncode, status, how)
        out = self.path("left")
        gwrun.quiet(self.start(2, client, f"--out {out}", "leave"))
        self.assertEqual([row["loss"] for row in gwrun.batches(out)], ["1", "1", "0.5", "0.5"])
        self.assertEqual(gwrun.run_json(out)["results"]["steps"], 2)
        alone = self.start(1, client, "", "return")
        self.assertNotEqual(alone.returncode, 0)
        self.assertIn("rank 0: the program ends", alone.stderr)

    def test_ranks_that_differ(self):
        client = self.build(ENDS)
        train = [gwrun.GRADWIRE, "train", "--data", "synthetic:samples=100"]
        for first, second, says in (
                (["env", "GRADWIRE=--seed 1", client], ["env", "GRADWIRE=--seed 2", client],
                 "gradwire_new: rank 1 has --seed '2', and rank 0 --seed '1': "),
                (["env", "GW_SIMD=scalar", client], [client], "gradwire_start: rank 1 has no $GW_SIMD, and"),
                (train, [client], "rank 1 has command 'a program of its own', and rank 0 command 'train'")):
            with self.subTest(says=says):
                done = gwrun.finished([gwrun.MPIEXEC, "-n", "1", *first, ":", "-n", "1", *second])
                self.assertNotEqual(done.returncode, 0)
                said = {line.removeprefix("gradwire: ").partition(": ")[2] for line in done.stderr.splitlines()}
                self.assertEqual(len(said), 1, done.stderr)
                self.assertIn(says, done.stderr)

    def test_launcher(self):
        done = self.start(1, self.build(ENDS), WORLD_SIZE="2")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"\AMPI has 1 rank, but WORLD_SIZE=2 says that torchrun started several: .*\n\Z")
