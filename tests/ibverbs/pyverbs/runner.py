"""Runs modules of rdma-core's test suite and prints a line for each test: its name, its outcome (ok, skipped, failed),
and why, separated by tabs. Usage: runner.py FOLDER MODULE... --dev DEVICE. FOLDER has the suite as the package `tests`."""

import pathlib
import sys
import unittest

MARK = "\x01result\t"  # the tests print, too


class Lines(unittest.TestResult):
    def line(self, test, outcome, why=""):
        name = test.id().removeprefix("tests.test_")
        print(MARK + "\t".join((name, outcome, why.replace("\t", " ").replace("\n", " | "))), flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line(test, "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line(test, "skipped", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line(test, "failed", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.line(test, "failed", self.errors[-1][1])


def main():
    folder = pathlib.Path(sys.argv[1])
    modules = sys.argv[2:sys.argv.index("--dev")]
    sys.path[:0] = [str(folder / "tests"), str(folder)]
    del sys.argv[1:sys.argv.index("--dev")]
    from args_parser import parser  # of the suite, which wants it before its tests are loaded

    parser.parse_args()
    tests = unittest.defaultTestLoader.loadTestsFromNames(f"tests.test_{module}" for module in modules)
    tests.run(Lines())


main()
