"""Joules a step, of a made-up tree of powercap whose counter goes round."""

import os

import gwrun

TASK = ("--data", "synthetic:samples=200,features=8,classes=3,seed=1", "--layers", "8", "--batch", 50, "--epochs", 2,
        "--ceilings", "off", "--overhead", 0, "--papi-group", "none")
ROUND, EACH = 10_000_000, 3_000_000  # uJ
# Whoever opens energy_uj finds 3 J more than the last time, and its process is noted.
COUNTS = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
FILE *fopen(const char *path, const char *mode) {{
    FILE *(*open)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
    static unsigned long long reads;
    size_t n = strlen(path);
    if (n > 9 && strcmp(path + n - 9, "energy_uj") == 0 && !strstr(path, "max_")) {{
        char log[4096];
        FILE *to = open(path, "w");
        fprintf(to, "%llu\\n", reads++ * {EACH} % {ROUND});
        fclose(to);
        snprintf(log, sizeof log, "%s.log", path);
        to = open(log, "a");
        fprintf(to, "%d\\n", (int)getpid());
        fclose(to);
    }}
    return open(path, mode);
}}
"""


class Energy(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.zone = self.path("powercap", "intel-rapl:0")
        os.makedirs(self.zone)
        gwrun.write(os.path.join(self.zone, "name"), "package-0\n")
        gwrun.write(os.path.join(self.zone, "max_energy_range_uj"), f"{ROUND}\n")

    def trained(self, env):
        gwrun.ok(2, "train", *TASK, "--out", self.out, env={**env, "GRADWIRE_POWERCAP": self.path("powercap")})
        return gwrun.run_json(self.out)["results"]["energy"]

    def test_one_rank_reads_and_counters_go_round(self):
        found = self.trained(gwrun.preload(self.dir, COUNTS))
        readers = gwrun.read(self.zone, "energy_uj.log").split()
        self.assertEqual(len(set(readers)), 1)  # of two ranks of one node
        self.assertIn("measured: powercap", found["source"])
        counted = found["joules"] / (1e-6 * EACH)  # intervals between two readings; evaluations are left out
        self.assertAlmostEqual(counted, round(counted), 6)
        self.assertTrue(2 <= counted < len(readers) - 1, (counted, readers))
        self.assertGreater(len(readers) * EACH, ROUND)
        self.assertAlmostEqual(found["joules_per_step"], found["joules"] / 8)
        self.assertRegex(gwrun.quiet(gwrun.run(0, "show", self.out)), r"energy: [0-9.]+ J a step of all nodes")
        gwrun.quiet(gwrun.run(0, "report", self.out, "--out", self.path("page.html")))
        self.assertIn("energy of a step (J)", gwrun.read(self.path("page.html")))

    def test_absent(self):
        found = self.trained(os.environ)
        self.assertEqual((found["joules"], found["joules_per_step"]), (None, None))
        self.assertIn("intel-rapl:0/energy_uj: not readable", found["source"])
        self.assertIn("energy: absent: ", gwrun.quiet(gwrun.run(0, "show", self.out)))
