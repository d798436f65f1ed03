#!/usr/bin/env python3
"""`splitnic-bench nic` measures both contestants and reports in its schema's form. How fast they are, is not checked."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import jsonschema

SPLITNIC_BENCH = str(Path(os.environ["SPLITNIC_BIN"]) / "splitnic-bench")
SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs/schemas/bench-nic.schema.json").read_text())
SKIPPED = 77
METRICS = ["tcp_to_lan", "tcp_to_host", "tcp_request_response", "udp_to_lan", "udp_to_lan_lost", "udp_to_host",
           "udp_to_host_lost", "ping", "ping_after_pause"]


def bench(*arguments):
    return subprocess.run([SPLITNIC_BENCH, "nic", *arguments], capture_output=True, text=True, timeout=120)


class BenchNic(unittest.TestCase):
    def test_both_contestants_are_measured_with_and_without_offloads(self):
        done = bench("--runs", "1", "--seconds", "0.1", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        jsonschema.validate(report, SCHEMA)
        self.assertEqual([result["name"] for result in report["results"]], METRICS)
        for result in report["results"]:
            for pair in (result["plain"], result["offloads"]):
                if not result["name"].endswith("lost"):
                    self.assertGreater(pair["split"]["median"], 0)
                    self.assertGreater(pair["forwarder"]["median"], 0)
                if "goal" in pair:
                    self.assertEqual(pair["met"], pair["ratio"] >= pair["goal"])

    def test_a_contestant_that_is_no_program_is_named(self):
        done = bench("--forwarder", "/nowhere/forwarder")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith("splitnic-bench: /nowhere/forwarder is no program"), done.stderr)
        done = bench("--splitnic", "/nowhere/splitnic", "--runs", "1", "--seconds", "0.1")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("/nowhere/splitnic", done.stderr)


if __name__ == "__main__":
    if subprocess.run(["unshare", "-n" if os.getuid() == 0 else "-Urn", "true"]).returncode != 0:
        print("no network namespaces here")
        sys.exit(SKIPPED)
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        print("no TAPs here")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
