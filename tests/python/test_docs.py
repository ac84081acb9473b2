"""The documentation: links lead somewhere, and generated tables are those of the program."""

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, GRADWIRE = os.environ["SOURCE"], os.environ["PROGRAM"]
FOLDERS = ["", "docs", "experiments", "experiments/peers", "examples", "src/counters/groups"]
LINK = re.compile(r"\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\(([^)\s]+)\)")


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def pages(root):
    """Paths of all pages, from `root` on."""
    for folder in FOLDERS:
        for name in sorted(os.listdir(os.path.join(root, folder))):
            if name.endswith(".md"):
                yield os.path.join(folder, name)


def prose(text):
    """Without code, whose brackets are no links."""
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]]", "", code[0]), text)


def anchors(text):
    """The #names of a page, as GitHub makes them of headings, and those set by hand."""
    names, seen = re.findall(r'<a id="([^"]+)">', text), collections.Counter()
    for heading in re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        names.append(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def broken(root):
    """One line for each link that leads nowhere."""
    for page in pages(root):
        for target in LINK.findall(prose(read(root, page))):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(os.path.join(root, path)):
                yield f"{page}: {target}: no such file"
            elif anchor and anchor not in anchors(read(root, path)):
                yield f"{page}: {target}: no such heading"


class Links(unittest.TestCase):
    def test_lead_somewhere(self):
        self.assertEqual(list(broken(ROOT)), [])

    def test_index_names_every_page(self):
        index = LINK.findall(read(ROOT, "docs", "README.md"))
        named = {os.path.normpath(os.path.join("docs", target)) for target in index}
        self.assertEqual(set(pages(ROOT)) - named, {"README.md", "docs/README.md"})

    def test_a_broken_link_is_found(self):
        with tempfile.TemporaryDirectory() as root:
            for folder in FOLDERS:
                os.makedirs(os.path.join(root, folder), exist_ok=True)
            with open(os.path.join(root, "docs", "a.md"), "w", encoding="utf-8") as file:
                file.write("# One, two\n## Same\n## Same\n[a](#one-two) [b](#same-1) [c](../docs)\n"
                           "```\n# Comment\n[code](none)\n```\n[d](https://example.org/x)\n"
                           "[lost](b.md) [lost](#same-2) [lost](#comment)\n")
            self.assertEqual(list(broken(root)),
                             ["docs/a.md: b.md: no such file", "docs/a.md: #same-2: no such heading",
                              "docs/a.md: #comment: no such heading"])


class Tables(unittest.TestCase):
    def tables(self, root, *words):
        return subprocess.run([sys.executable, "-B", os.path.join(root, "docs", "tables"),
                               "--gradwire", GRADWIRE, *words],
                              text=True, capture_output=True, check=False)

    def test_are_those_of_the_program(self):
        done = self.tables(ROOT, "--check")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_stale_table_is_found_and_rewritten(self):
        with tempfile.TemporaryDirectory() as root:
            shutil.copytree(os.path.join(ROOT, "docs"), os.path.join(root, "docs"))
            shutil.copy(os.path.join(ROOT, "README.md"), root)
            usage = os.path.join(root, "docs", "usage.md")
            text = read(usage)
            self.assertIn("| `topk` |", text)
            with open(usage, "w", encoding="utf-8") as file:
                file.write(text.replace("| `topk` |", "| `top` |"))
            done = self.tables(root, "--check")
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr, "docs/tables: docs/usage.md differs from the program: run "
                                          "docs/tables\n")
            self.assertEqual(self.tables(root).returncode, 0)
            self.assertEqual(read(usage), text)

    def test_list_as_json(self):
        """Each registry, and what the tables rest on."""
        done = subprocess.run([GRADWIRE, "list", "--json"], check=True, capture_output=True)
        listed = json.loads(done.stdout)
        for key, file in (("strategies", "comm/strategies.def"), ("algorithms", "comm/algos.def"),
                          ("codecs", "compress/codecs.def"), ("timetables", "comm/timetables.def"),
                          ("commands", "src/cli/commands.def")):
            names = re.findall(r"^X\((\w+)\)", read(ROOT, file), re.MULTILINE)
            self.assertEqual([e["name"].replace("-", "_") for e in listed[key]], names)
        self.assertLessEqual({"report", "run"}, {tool["name"] for tool in listed["tools"]})
        self.assertEqual((listed["needs"]["train"]["trace"], listed["excludes"]["train"]["trace"]),
                         (["--out"], ["--profile off"]))
        codecs = {c["name"]: c for c in listed["codecs"]}
        self.assertEqual((codecs["fp16"]["bits_per_element"], codecs["fp16"]["error"]),
                         (16, "rounding"))
        self.assertIsNone(codecs["zlib"]["bits_per_element"])
        self.assertIn({"name": "bits", "value": "N", "default": "8",
                       "help": "bits per element, besides the scales"}, codecs["qsgd"]["options"])


if __name__ == "__main__":
    unittest.main()
