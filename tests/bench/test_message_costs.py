#!/usr/bin/env python3
"""What a message costs, in instructions of both ends, stays within its budget. Callgrind counts; each run gives the same
count, on a busy machine too. A change that makes messages cheaper lowers the budget here, and docs/performance.md."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = str(Path(os.environ["SPLITNIC_BIN"]) / "bench-message-costs")
# Instructions of a message, a twentieth above what was measured.
BUDGETS = {
    "send_64_lists": 1170,
    "send_64": 6140,
    "datagram_64_lists": 1250,
    "datagram_64": 4110,
    "send_1500": 1890,
    "send_64k": 29380,
    "immediate_64_lists": 1345,
    "read_8": 11990,
    "idle_poll": 385,
}
# Far less was never measured: the program measured nothing, or something else.
LEAST = 0.6


def instructions(task):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", "--collect-atstart=no",
             "--toggle-collect=measured", PROGRAM, task], capture_output=True, text=True, timeout=100, check=True)
    return int(re.search(r"Collected : (\d+)", done.stderr)[1]) / int(done.stdout)


class MessageCosts(unittest.TestCase):
    def test_every_task_has_a_budget(self):
        tasks = subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(tasks, list(BUDGETS))

    def test_a_message_keeps_to_its_budget(self):
        for task, budget in BUDGETS.items():
            with self.subTest(task=task):
                cost = instructions(task)
                print(f"{task}: {cost:.0f} instructions of {budget}", file=sys.stderr)
                self.assertLessEqual(cost, budget)
                self.assertGreaterEqual(cost, LEAST * budget, "the budget can be lowered")

    def test_a_task_that_does_not_exist_is_refused(self):
        done = subprocess.run([PROGRAM, "nothing"], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("send_64_lists", done.stdout)


if __name__ == "__main__":
    if shutil.which("valgrind") is None:
        print("valgrind is not installed (tools/setup.sh test)", file=sys.stderr)
        sys.exit(77)
    unittest.main()
