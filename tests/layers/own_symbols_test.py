#!/usr/bin/env python3
"""The layers' libraries export their own symbols alone (tools/cmake/exports.map). A program that is run on splitnic's
libibverbs.so.1 loads them beside its own libraries. If both had the same template of Boost, the loader would give one
side that of the other; Ceph's client then freed memory that was not its own.
Usage: own_symbols_test.py LIBRARY... , the built shared libraries."""

import subprocess
import sys
import unittest

FILES = []
# The names of Cap'n Proto's schemas are numbers of their own; Boost.JSON is compiled into common, once for all.
OWN = ("8splitnic", "5capnp7schemas", "5boost4json")


def foreign(symbols):
    return sorted(name for name in symbols if not any(own in name for own in OWN))


def exported(file):
    output = subprocess.run(["nm", "--dynamic", "--defined-only", "--format=posix", file], capture_output=True,
                            text=True, check=True).stdout
    return [line.split()[0] for line in output.splitlines()]


class OwnSymbols(unittest.TestCase):
    def test_libraries(self):
        self.assertTrue(FILES)
        for file in FILES:
            with self.subTest(file):
                symbols = exported(file)
                self.assertGreater(len(symbols), 50, "the output of nm was not understood")
                self.assertEqual(foreign(symbols), [])

    def test_a_foreign_symbol_is_noticed(self):
        own = "_ZN8splitnic2os9EventLoopC1ERN5boost4asio10io_contextE"
        other = "_ZN5boost4asio6detail10call_stackINS1_14thread_contextENS1_16thread_info_baseEE4top_E"
        self.assertEqual(foreign([own, other]), [other])


if __name__ == "__main__":
    FILES = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
