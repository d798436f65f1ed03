#!/usr/bin/env python3
"""Which files the linter checks, in a small repository: the changed ones always, each of the others in its third."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import tidy_files  # noqa: E402

OLD = [f"common/old_{number}.cpp" for number in range(30)]
FILES = {
    **{name: "int f();" for name in OLD},
    "common/alone.h": "int alone();",
    "common/pair.h": "int pair();",
    "common/pair.cpp": '#include "common/pair.h"',
    "host/user.cpp": '#include "common/alone.h"\n#include "common/pair.h"',
}
SOURCES = len(OLD) + 2


def git(root, *words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Choice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.original = pathlib.Path(folder.name) / "original"
        for name, text in FILES.items():
            (cls.original / name).parent.mkdir(parents=True, exist_ok=True)
            (cls.original / name).write_text(text, encoding="utf-8")
        git(cls.original, "init", "-q")
        git(cls.original, "add", "-A")
        for _ in range(tidy_files.COMMITS + 1):
            git(cls.original, "commit", "-q", "--allow-empty", "-m", "a change")

    def setUp(self):
        self.root = self.original.with_name(self.id())
        shutil.copytree(self.original, self.root)

    def write(self, name, text):
        (self.root / name).write_text(text, encoding="utf-8")
        git(self.root, "add", name)

    def changed(self, since=""):
        return tidy_files.changed(self.root, tidy_files.base_of(self.root, since),
                                  tidy_files.files(self.root, ".cpp"))

    def test_without_changes_a_third_is_left(self):
        self.assertEqual(self.changed(), set())
        self.assertTrue(0 < len(tidy_files.chosen(self.root)) < len(OLD))

    def test_three_hashes_choose_every_file_once(self):
        thirds = [tidy_files.third(set(OLD), f"{number:08x}ab") for number in range(3)]
        self.assertEqual(sorted(name for part in thirds for name in part), sorted(OLD))

    def test_changes_are_chosen_committed_or_not(self):
        self.write(OLD[3], "int g();")
        git(self.root, "commit", "-q", "-m", "a change")
        self.write(OLD[4], "int g();")
        self.assertEqual(self.changed(), {OLD[3], OLD[4]})
        self.assertEqual(self.changed("HEAD"), {OLD[4]})
        self.assertLessEqual({OLD[3], OLD[4]}, set(tidy_files.chosen(self.root)))
        self.assertEqual(tidy_files.chosen(self.root)[:2], sorted([OLD[3], OLD[4]]), "the changed files come first")

    def test_a_header_is_checked_through_a_source(self):
        self.write("common/pair.h", "int pair(int);")
        self.assertEqual(self.changed(), {"common/pair.cpp"})
        self.write("common/alone.h", "int alone(int);")
        self.assertEqual(self.changed(), {"common/pair.cpp", "host/user.cpp"})

    def test_a_new_configuration_checks_every_file(self):
        self.write(".clang-tidy", "Checks: -*")
        self.assertEqual(len(self.changed()), SOURCES)

    def test_a_clone_without_history_checks_every_file(self):
        clone = self.root / "clone"
        git(self.root, "clone", "-q", "--depth", "1", f"file://{self.root}", str(clone))
        self.assertEqual(len(tidy_files.chosen(clone)), SOURCES)

    def test_what_is_not_built_is_left_out(self):
        database = [{"directory": str(self.root / "build"), "file": f"../{OLD[1]}"},
                    {"directory": str(self.root), "file": str(self.root / "host/user.cpp")}]
        names = ["host/user.cpp", OLD[0], OLD[1]]
        self.assertEqual(tidy_files.built(self.root, names, json.dumps(database)), ["host/user.cpp", OLD[1]])

    def test_a_base_that_does_not_exist_is_an_error(self):
        with self.assertRaises(SystemExit):
            tidy_files.chosen(self.root, "nowhere")


if __name__ == "__main__":
    unittest.main()
