#!/usr/bin/env python3
"""The end of what each test said that failed in the last run of ctest, whose own print is thousands of lines further up.

    tools/failed_tests.py build/release
"""

import sys
from pathlib import Path

LINES = 40


def ends(log, failed, lines=LINES):
    """Of each failed test, its name and the last lines of its output. log, failed: LastTest.log, LastTestsFailed.log."""
    for line in failed.splitlines():
        name = line.partition(":")[2]
        output = log.partition(f" Testing: {name}\n")[2].partition("<end of output>")[0]
        yield name, output.splitlines()[-lines:]


def main():
    folder = Path(sys.argv[1]) / "Testing" / "Temporary"
    log, failed = (folder / name for name in ("LastTest.log", "LastTestsFailed.log"))
    if failed.exists():
        for name, output in ends(log.read_text(errors="replace"), failed.read_text()):
            print("", f"== {name}", *output, sep="\n")


if __name__ == "__main__":
    main()
