"""A program of the trainer's layers, data and optimizer on the public header of the library comes to
the bits of `gradwire train`, with every strategy and codec."""

import json
import os

import gwrun

SEAM = os.path.join(os.environ["BUILD"], "tests", "seam")
STEPS, RATE = 4, 0.1


def listed(kind):
    return [one["name"] for one in json.loads(gwrun.run(1, "list", "--json").stdout)[kind]]


# The trainer's matrix products add directly to the residual of these codecs, while the library adds a
# finished gradient: the two round differently.
FED = ("topk", "threshold", "randomk", "chunktopk")


# These scale by the sides of a matrix. The trainer's has a row for each input, the library's for each output.
SIDES = ("dion",)


def words():
    """Each strategy with three codecs, and each codec with two strategies."""
    strategies, codecs = [comm for comm in listed("strategies") if comm not in SIDES], listed("codecs")
    for comm in strategies:
        for codec in codecs:
            if codec in ("none", "topk", "qsgd") or comm in ("allreduce", "sparse"):
                yield f"--comm {comm} --compress {codec}" + " --error-feedback off" * (codec in FED)
    for comm in strategies:
        yield f"--comm {comm} --compress {'topk' if comm == 'sparse' else 'none'} --error-feedback off --update lazy"


def train(ranks, out, line):
    return gwrun.run(ranks, "train", "--data", "synthetic:samples=192,features=16,classes=3",
                     "--layers", "12", "--batch", 32, "--lr", RATE, "--steps", STEPS, "--gemm", "cblas",
                     "--overhead", 0, "--ceilings", "off", "--profile", "timers", "--out", out,
                     *line.split())


class Seam(gwrun.Case):
    def compare(self, ranks):
        lines, hashes = [], []
        for i, line in enumerate(words()):
            out = self.path(str(i))
            done = train(ranks, out, line)
            if done.returncode == 2:  # a combination that cannot be
                continue
            self.assertEqual((done.returncode, done.stderr), (0, ""), line)
            lines.append(line)
            hashes.append(gwrun.run_json(out)["results"]["replica_hash"])
        self.assertGreater(len(lines), 25)
        said = gwrun.quiet(gwrun.finished([gwrun.MPIEXEC, "-n", str(ranks), SEAM, str(STEPS), str(RATE),
                                           *(f"{line} --gradient scaled --profile off" for line in lines)],
                                          env={**os.environ, "GRADWIRE": ""}))
        found = said.split()
        self.assertEqual(len(found), len(lines))
        self.assertEqual([line for line, own, theirs in zip(lines, found, hashes) if own != theirs], [])

    def test_two_ranks(self):
        self.compare(2)
