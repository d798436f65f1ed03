#!/usr/bin/env python3
"""`splitnic-bench verbs`: ratios are those of the figures, goals are judged by them, and programs that are not there or
fail are named. UCX and libfabric are stand-ins; the program on the C verbs also runs as it is."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

BINARIES = Path(os.environ["SPLITNIC_BIN"])
# Answers with figures that are nobody's: latencies of LATENCY, rates of RATE.
STAND_IN = """#!/bin/sh
echo "ready {operations}"
while read -r operation kind bytes list seconds; do
  case $kind in latency) echo "ok {latency} {latency}" ;; *) echo "ok {rate} {rate}" ;; esac
done
"""
OPERATIONS = {"bench-peer-verbs": "send write-shared write-private write-process", "bench-peer-ucx": "active-message put",
              "bench-peer-libfabric": "send"}


class Verbs(unittest.TestCase):
    def setUp(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("two cores are needed")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def stand_in(self, program, latency=1e-6, rate=1e6):
        path = self.folder / program
        path.write_text(STAND_IN.format(operations=OPERATIONS[program], latency=latency, rate=rate))
        path.chmod(0o755)

    def measure(self, *rows, rounds=4):
        done = subprocess.run([BINARIES / "splitnic-bench", "verbs", "--json", "--rounds", str(rounds), "--seconds", "0.01",
                               "--peers", self.folder, "--rows", ",".join(rows)], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def judged(self, report):
        """Those goals that have a ratio, in whichever placement the cores had."""
        return [goal for row in report["rows"] for placement in ("apart", "neighbours", "sharing")
                for goal in row[placement]["goals"] if "ratio" in goal]

    def test_ratios_and_verdicts_are_those_of_the_figures(self):
        self.stand_in("bench-peer-verbs", latency=1.5e-6, rate=2e5)
        self.stand_in("bench-peer-ucx", latency=1e-6, rate=1e5)
        self.stand_in("bench-peer-libfabric", latency=1.2e-6, rate=4e5)
        report = self.measure("write_64_shared", "write_64_private", "write_64k_shared", "write_64k_process", rounds=8)
        self.assertEqual(report["skipped"], {})
        goals = self.judged(report)
        self.assertTrue(goals)
        for goal in goals:
            expected = {("ucx_put", 1.55): (1.5, "holds"), ("ucx_put", 1.0): (2.0, "holds")}
            expected |= {("libfabric", 1.0): (None, "missed")}
            ratio, verdict = expected[(goal["against"], goal["bound"])]
            self.assertIn(round(goal["ratio"], 6), (1.25, 0.5) if ratio is None else (ratio,))
            self.assertEqual(goal["verdict"], verdict)

    def test_a_program_that_is_missing_or_fails_is_named(self):
        self.stand_in("bench-peer-verbs")
        (self.folder / "bench-peer-ucx").write_text("#!/bin/sh\necho it has no memory >&2\nexit 1\n")
        (self.folder / "bench-peer-ucx").chmod(0o755)
        report = self.measure("write_64_shared", "write_64_private")
        self.assertEqual(sorted(report["skipped"]), ["bench-peer-libfabric", "bench-peer-ucx"])
        self.assertIn("it has no memory", report["skipped"]["bench-peer-ucx"])
        self.assertEqual(self.judged(report), [])

    def test_the_program_on_the_c_verbs_measures_every_operation(self):
        (self.folder / "bench-peer-verbs").symlink_to(BINARIES / "bench-peer-verbs")
        self.stand_in("bench-peer-ucx")
        self.stand_in("bench-peer-libfabric")
        report = self.measure("write_64_shared", "write_64_process", "write_64_private", "send_64k")
        self.assertEqual(report["skipped"], {})
        self.assertGreaterEqual(report["samples"] + report["moved"], 4 * 10)


if __name__ == "__main__":
    unittest.main()
