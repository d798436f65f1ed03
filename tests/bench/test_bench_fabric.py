#!/usr/bin/env python3
"""`splitnic-bench fabric` runs, measures everything that was asked for, compares what arrived byte by byte, and leaves
nothing behind. How fast it is, is not checked."""

import json
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import jsonschema

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from lab.process import children, ended, wait_until  # noqa: E402

SPLITNIC_BENCH = str(Path(os.environ["SPLITNIC_BIN"]) / "splitnic-bench")
SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs/schemas/bench-fabric.schema.json").read_text())
PING_PONGS = {"send": ["segmented"], "datagram": ["segmented"], "write": ["segmented", "direct"],
              "write-immediate": ["segmented", "direct"]}
PATHS = {**PING_PONGS, "read": ["segmented", "direct"]}
SECONDS = 60
TABLE_SIZES = [10, 1000, 100_000, 1_000_000]


def bench(*arguments):
    return subprocess.run([SPLITNIC_BENCH, "fabric", *arguments], capture_output=True, text=True, timeout=120)


class BenchFabric(unittest.TestCase):
    def report(self, *arguments):
        done = bench("--json", "--runs", "1", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "run 1 of 1\n")
        report = json.loads(done.stdout)
        jsonschema.validate(report, SCHEMA)
        return report

    def assert_summary(self, summary, runs=1):
        self.assertEqual(len(summary["runs"]), runs)
        self.assertGreater(summary["min"], 0)
        self.assertLessEqual(summary["min"], summary["median"])
        self.assertLessEqual(summary["median"], summary["max"])

    def test_everything_is_measured(self):
        report = self.report("--seconds", "0.05", "--sizes", "8,4096", "--operations", ",".join([*PATHS, "compare-swap"]))
        self.assertEqual(report["benchmark"], "fabric")
        self.assertEqual(report["waiting"], "spin")
        self.assertGreaterEqual(report["machine"]["cores"], 1)
        for yardstick in ("cache_line_us", "socket_us", "memcpy_bytes_per_second"):
            self.assert_summary(report["yardsticks"][yardstick])

        def rows(part):
            return [(row["operation"], row["path"], row["bytes"]) for row in report[part]]
        swap = [("compare-swap", "segmented", 8)]
        self.assertEqual(rows("latency"), [(verb, path, 8) for verb in PATHS for path in PATHS[verb]] + swap)
        self.assertEqual(rows("rate"), [(verb, path, size) for verb in PATHS if verb != "datagram" for path in PATHS[verb]
                                        for size in (8, 4096)] + swap)
        for row in report["latency"]:
            self.assert_summary(row["median_us"])
            self.assertGreaterEqual(row["percentile_99_us"]["median"], row["median_us"]["median"])
            self.assertEqual(row["half_round_trip"], row["operation"] in PING_PONGS)
            self.assertGreater(row["times_yardstick"], 0)
        for row in report["rate"]:
            self.assert_summary(row["per_second"])

    def test_the_cost_of_the_table_by_its_size(self):
        report = self.report("--seconds", "0.01", "--operations", "tables")
        self.assertNotIn("latency", report)
        self.assertEqual([row["operation"] for row in report["tables"]],
                         ["look_up_same", "bind", "fast_register", "look_up_any", "register",
                          "register_by_verbs", "bare_read"])
        for row in report["tables"]:
            self.assertEqual([cost["entries"] for cost in row["costs"]], TABLE_SIZES)
            for cost in row["costs"]:
                self.assert_summary(cost["ns"])
            self.assertGreater(row["largest_to_smallest"], 0)

    def test_ends_that_sleep_and_sizes_that_fill_no_word(self):
        report = self.report("--seconds", "0.02", "--sleep", "--sizes", "13,1500,1048576", "--operations",
                             "send,write,write-immediate,read")
        self.assertEqual(report["waiting"], "sleep")
        self.assertEqual({row["bytes"] for row in report["latency"]}, {13, 1500})
        self.assertEqual({row["bytes"] for row in report["rate"]}, {13, 1500, 1048576})
        for row in report["rate"]:
            self.assertEqual("share_of_memcpy" in row, row["bytes"] >= 65536)

    def test_larger_cells(self):
        report = self.report("--seconds", "0.02", "--cell-bytes", "4096", "--sizes", "65536", "--operations", "send")
        self.assertEqual(report["cell_bytes"], 4096)
        self.assertEqual(len(report["rate"]), 1)

    def test_a_table_for_people(self):
        done = bench("--runs", "2", "--seconds", "0.02", "--sizes", "64", "--operations", "write,compare-swap")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("machine", "yardsticks", "latency", "rate", "compare-swap", "direct"):
            self.assertIn(word, done.stdout)

    def test_what_cannot_be_measured_is_refused(self):
        for wrong in (["--sizes", "7"], ["--sizes", "1048577"], ["--operations", "receive"], ["--runs", "0"],
                      ["--cell-bytes", "100"], ["--seconds", "0"]):
            done = bench(*wrong)
            self.assertEqual(done.returncode, 2, wrong)
            self.assertTrue(done.stderr.startswith("splitnic-bench: "), done.stderr)

    def start_two(self, *arguments):
        """A benchmark that runs, until the test ends at the latest; and the pid of its second process."""
        process = subprocess.Popen([SPLITNIC_BENCH, "fabric", *arguments, "--operations", "send"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, wait_until(lambda: children(process.pid), SECONDS, "a second process")[0]

    def test_the_other_process_ends_with_the_first(self):
        for waiting in ("--spin", "--sleep"):
            process, child = self.start_two(waiting, "--seconds", "20")
            process.kill()
            process.wait()
            wait_until(lambda child=child: ended(child), SECONDS, "its end")

    def test_the_first_process_says_that_the_other_one_is_gone(self):
        process, child = self.start_two("--sleep", "--seconds", "1")
        os.kill(child, signal.SIGKILL)
        self.assertIn("splitnic-bench: the other process is gone", process.communicate(timeout=SECONDS)[1])
        self.assertEqual(process.returncode, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
