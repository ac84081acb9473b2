"""What fails during a run: one line, exit status 1, on every number of ranks, and no run.json."""

import os
import re
import subprocess
import tempfile
import unittest

import gwrun

# Takes the place of oneDNN's; fails from the 17th product on: in the fourth step, or in the
# evaluation after three of five products each.
BROKEN = r"""
#include <stdint.h>
#include <string.h>
int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    static int calls;
    for (int64_t i = 0; i < m; i++)
        memset(c + i * ldc, 0, (size_t)n * sizeof *c);
    return ++calls < 17 ? 0 : 1;
}
"""


def uses_dnnl():
    with open(os.path.join(os.environ["BUILD"], "CMakeCache.txt"), encoding="utf-8") as file:
        return re.search(r"^GW_GEMM:\w+=dnnl$", file.read(), re.MULTILINE) is not None


class Failure(unittest.TestCase):
    def test_products(self):
        """The matrix library's failure ends the run; CBLAS has no way to tell one."""
        with tempfile.TemporaryDirectory() as top:
            source, library = os.path.join(top, "broken.c"), os.path.join(top, "broken.so")
            with open(source, "w", encoding="utf-8") as file:
                file.write(BROKEN)
            subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
            env = {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "verify_asan_link_order=0"}
            for ranks, more in ((1, []), (1, ["--steps", "3"]), (2, [])):
                with self.subTest(ranks=ranks, more=more):
                    out = os.path.join(top, f"run{ranks}{len(more)}")
                    done = gwrun.run(ranks, "train", "--data", "synthetic:samples=2000,features=9",
                                     "--layers", "7", "--batch", 8, "--epochs", 1, "--out", out,
                                     *more, env=env)
                    ours = [line for line in done.stderr.splitlines() if "gradwire:" in line]
                    self.assertEqual(done.returncode != 0, uses_dnnl(), done.stderr)
                    self.assertEqual(os.path.exists(os.path.join(out, "run.json")), not uses_dnnl())
                    if uses_dnnl():
                        self.assertEqual(done.returncode, 1, done.stderr)
                        self.assertIn("oneDNN", ours[0])
                        self.assertIn("(out_of_memory)", ours[0])


if __name__ == "__main__":
    unittest.main()
