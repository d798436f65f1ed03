#!/usr/bin/env python3
"""The shipped programs and libraries are linked so that a memory fault is harder to exploit. readelf shows it.
Usage: hardened_test.py FILE... , the built programs and shared libraries."""

import re
import subprocess
import sys
import unittest

FILES = []


def readelf(*words):
    return subprocess.run(["readelf", "--wide", *words], capture_output=True, text=True, check=True).stdout


def flaws(header, segments, dynamic):
    """What is missing, by the output of readelf -h, -l and -d."""
    missing = []
    if not re.search(r"Type:\s+DYN", header):
        missing.append("a position-independent file")
    elif "INTERP" in segments and not re.search(r"FLAGS_1.*\bPIE\b", dynamic):
        missing.append("a position-independent program")
    if "GNU_RELRO" not in segments:
        missing.append("read-only relocations")
    if not re.search(r"FLAGS_1.*\bNOW\b", dynamic):
        missing.append("binding at the start")
    if not re.search(r"GNU_STACK.*\bRW\s", segments):
        missing.append("a stack that is not executable")
    return missing


def outputs(file):
    return [readelf(option, file) for option in ("-h", "-l", "-d")]


class Hardened(unittest.TestCase):
    def test_nothing_is_missing(self):
        self.assertGreater(len(FILES), 1)
        for file in FILES:
            self.assertEqual(flaws(*outputs(file)), [], file)

    def test_each_flaw_would_be_seen(self):
        for file in FILES:
            for at, wanted in ((0, r"DYN"), (1, r"GNU_RELRO"), (1, r"\bRW\b"), (2, r"\bNOW\b")):
                said = outputs(file)
                said[at] = re.sub(wanted, "", said[at])
                self.assertNotEqual(flaws(*said), [], f"{file} without {wanted}")


if __name__ == "__main__":
    FILES = sys.argv[1:]
    del sys.argv[1:]
    unittest.main(verbosity=2)
