#!/usr/bin/env python3
"""rdma-core's own test suite (Debian: python3-pyverbs) on the fabric, as root and as an ordinary user. A failed test fails
this one, and so do a skipped test that pyverbs/skips.txt does not list and a listed one that is not skipped.
Usage: pyverbs_test.py [Root|OrdinaryUser]. MODULES: only these, for example "cq mr"; otherwise all."""

import fnmatch
import gzip
import os
import pathlib
import subprocess
import sys
import unittest

import pairs

SUITE = pathlib.Path("/usr/share/doc/rdma-core/tests")
OWN = pathlib.Path(__file__).with_name("pyverbs")
PYTHON = "/usr/bin/python3"  # for which Debian's package is
MARK = "\x01result\t"
SECONDS = 120  # for a module
VENDORS = ("mlx5_", "efa")
# The suite runs the connection manager's tests only if the device's folder names a network interface.
SHOW_INTERFACE = ("mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/splitnic0/device/net/lo && "
                  'exec "$@"')


def expected_skips():
    """Pattern of names -> whether the machine decides, which its name in the file says with a question mark."""
    lines = (line.split("#")[0].split() for line in (OWN / "skips.txt").read_text().splitlines())
    return {words[0].removesuffix("?"): words[0].endswith("?") for words in lines if words}


def unpack(folder):
    """Debian compresses the longer ones."""
    tests = folder / "tests"
    tests.mkdir()
    for path in SUITE.iterdir():
        if path.suffix == ".gz":
            (tests / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.suffix == ".py":
            (tests / path.name).write_bytes(path.read_bytes())
    (tests / "runner.py").write_bytes((OWN / "runner.py").read_bytes())
    return sorted(path.stem.removeprefix("test_") for path in tests.glob("test_*.py"))


class Suite(pairs.OnFabric):
    @classmethod
    def setUpClass(cls):
        if subprocess.run([PYTHON, "-c", "import pyverbs.device"], capture_output=True, check=False).returncode != 0:
            raise unittest.SkipTest("python3-pyverbs is not installed")
        super().setUpClass()
        users = ("--user", "--map-root-user") if cls.fabric.uid != 0 else ()
        cls.fabric.prefix = ("unshare", *users, "--mount", "sh", "-c", SHOW_INTERFACE, "sh")
        if cls.fabric.run(["true"])[0] != 0:
            raise unittest.SkipTest("namespaces are not permitted here")
        cls.modules = unpack(cls.fabric.folder)

    def chosen(self):
        """Modules that run in one process: the vendors' together, because each of their tests is skipped at once."""
        only = os.environ.get("MODULES", "").split() or self.modules
        vendors = [module for module in only if module.startswith(VENDORS)]
        own = [[module] for module in only if module not in vendors]
        return own + ([vendors] if vendors else [])

    def outcomes(self, modules):
        folder = self.fabric.folder
        process = self.fabric.start([PYTHON, "-B", folder / "tests" / "runner.py", folder, *modules, "--dev",
                                     "splitnic0"])
        code, output = self.fabric.finish(process, " ".join(modules), SECONDS)
        self.assertEqual(code, 0, output)
        lines = [line.partition(MARK)[2] for line in output.splitlines() if MARK in line]
        self.assertNotEqual(lines, [], output)
        return [line.split("\t") for line in lines]

    def test_suite(self):
        skips = expected_skips()
        used = set()
        ran = 0
        chosen = self.chosen()
        for modules in chosen:
            with self.subTest(" ".join(modules)):
                for name, outcome, why in self.outcomes(modules):
                    patterns = [pattern for pattern in skips if fnmatch.fnmatch(name, pattern)]
                    if outcome == "skipped":
                        used.update(patterns)
                    else:
                        ran += 1
                    with self.subTest(name):
                        self.assertNotEqual(outcome, "failed", why)
                        if outcome == "skipped":
                            self.assertNotEqual(patterns, [], f"skipped, and not in skips.txt: {why}")
        print(f"{ran} tests of rdma-core ran")
        if not os.environ.get("MODULES"):
            left = [pattern for pattern, optional in skips.items() if not optional and pattern not in used]
            self.assertEqual(left, [], "in skips.txt, and not skipped")
        self.assertEqual(self.fabric.run(["--list"])[1], "")  # they have left nothing on the fabric


Root, OrdinaryUser = pairs.for_both_users(Suite)
del Suite

if __name__ == "__main__":
    pairs.run_tests()
