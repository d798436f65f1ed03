#!/usr/bin/env python3
"""Every class of tests in tests/integration is registered with ctest, or tools/check.sh runs it."""

import ast
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INTEGRATION = ROOT / "tests" / "integration"
LONGER = ("test_bulk.py",)  # only tools/check.sh runs them


def classes_with_tests(text):
    """Those that no other class of the file is derived from."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    bases = {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)}
    return {node.name for node in classes if node.name not in bases
            and any(isinstance(each, ast.FunctionDef) and each.name.startswith("test_") for each in node.body)}


class Registered(unittest.TestCase):
    def test_every_class_is_run(self):
        registered = set(re.findall(r"splitnic_integration_test\((\w+) (\w+) ", (INTEGRATION / "CMakeLists.txt").read_text()))
        found = {(path.stem.removeprefix("test_"), name) for path in INTEGRATION.glob("test_*.py")
                 if path.name not in LONGER for name in classes_with_tests(path.read_text())}
        self.assertGreater(len(found), 30)
        self.assertEqual(found - registered, set())

    def test_longer_checks_run_the_others(self):
        checks = (ROOT / "tools" / "check.sh").read_text()
        self.assertEqual([name for name in LONGER if f"tests/integration/{name}\n" not in checks], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
