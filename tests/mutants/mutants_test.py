#!/usr/bin/env python3
"""The mutation tool must refuse what it can't use: a mutant that is not there, a test that is not there."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import mutants  # noqa: E402

GOOD = """[[mutant]]
name = "off_by_one"
file = "common/a.cpp"
find = "i < n"
replace = "i <= n"
tests = ["unit_common: counts, and stops"]
why = "the usual one"
"""


class Refusals(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("common/a.cpp", "while (i < n) {}")
        self.write("tests/unit/common/a_test.cpp", 'TEST_CASE("counts, "\n  "and stops", "[common]") {}')
        self.write("tests/integration/test_x.py", "class Xs:\n    def test_it(self):\n        pass\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def complaints(self, old="", new=""):
        self.write("mutants/common.toml", GOOD.replace(old, new))
        return mutants.verify(self.root, mutants.read_mutants(self.root / "mutants"))

    def test_a_good_mutant_is_planted(self):
        self.assertEqual(self.complaints(), [])
        [mutant] = mutants.read_mutants(self.root / "mutants")
        self.assertEqual(mutant.planted(self.root), "while (i <= n) {}")

    def test_text_that_is_not_there_once(self):
        self.assertIn("found 0 times", self.complaints("i < n", "j < n")[0])
        self.write("common/a.cpp", "while (i < n || i < n) {}")
        self.assertIn("found 2 times", self.complaints()[0])
        self.assertIn("no file", self.complaints("a.cpp", "b.cpp")[0])

    def test_what_a_bug_leaves_unused_compiles(self):
        self.write("common/a.cpp", "int f(int n) { const int m = n + 1; return m; }\n")
        mutant = mutants.Mutant("unused", "common/a.cpp", "return m;", "return 0;", ("a: test",), "forgotten")
        flags = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only", "-xc++", "-"]
        for text, works in ((mutant.planted(self.root), False), (mutant.to_compile(self.root), True)):
            outcome = subprocess.run(["g++", *flags], input=text, capture_output=True, text=True, check=False)
            self.assertEqual(outcome.returncode == 0, works, outcome.stderr)

    def test_tests_that_do_not_exist(self):
        for absent in ("unit_common: counts", "unit_host: counts, and stops", "test_x.py: Xs.test_other",
                       "test_y.py: Xs.test_it", "splitnic_sim: --sees 4"):
            with self.subTest(absent):
                self.assertIn("no such test", self.complaints("unit_common: counts, and stops", absent)[0])
        for present in ("test_x.py: Xs.test_it", "splitnic_sim: --seed 4"):
            with self.subTest(present):
                self.assertEqual(self.complaints("unit_common: counts, and stops", present), [])

    def test_tables_that_lack_something(self):
        for old, new in (('why = "the usual one"', ""), ("why", "reason"), ('["unit_common: counts, and stops"]', "[]")):
            with self.subTest(new), self.assertRaises(mutants.Wrong):
                self.complaints(old, new)
        self.write("mutants/more.toml", GOOD)
        with self.assertRaises(mutants.Wrong):
            self.complaints()

    def test_a_survivor_may_name_no_test(self):
        self.assertEqual(self.complaints('tests = ["unit_common: counts, and stops"]', 'tests = []\nsurvives = "so"'), [])

    def test_the_draw_follows_the_hash(self):
        many = [mutants.Mutant(str(n), "a", "b", "c", ("d",), "e", "so" if n == 0 else "") for n in range(40)]
        drawn = mutants.draw(many, 8, "commit one")
        self.assertEqual(len(drawn), 8)
        self.assertEqual(drawn, mutants.draw(many, 8, "commit one"))
        self.assertNotEqual(drawn, mutants.draw(many, 8, "commit two"))
        self.assertEqual(len(mutants.draw(many, 99, "commit one")), 39)  # never the known survivor


if __name__ == "__main__":
    unittest.main()
