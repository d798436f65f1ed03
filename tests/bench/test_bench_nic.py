#!/usr/bin/env python3
"""`splitnic-bench nic` measures every contender and reports in its schema's form. How fast they are, is not checked."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import jsonschema

SPLITNIC_BENCH = str(Path(os.environ["SPLITNIC_BIN"]) / "splitnic-bench")
SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs/schemas/bench-nic.schema.json").read_text())
SKIPPED = 77
METRICS = ["tcp_to_lan", "tcp_to_host", "tcp_four_to_lan", "tcp_to_lan_cpu", "tcp_to_host_cpu", "tcp_request_response",
           "tcp_request_response_p99", "tcp_request_response_cpu", "udp_to_lan", "udp_to_lan_lost", "udp_to_host",
           "udp_to_host_lost", "ping", "ping_each_millisecond", "ping_after_pause"]
CONTENDERS = {"plain": ("split", "forwarder", "bridge"), "offloads": ("split", "forwarder", "small_split", "bridge")}
SEVERAL_HOSTS = {"four_hosts": ("four_streams_gbits", "one_stream_gbits"),
                 "requests_beside_2_idle_hosts": ("requests_beside_idle_hosts", "requests_alone")}
TESTPMD = shutil.which("dpdk-testpmd") is not None


def bench(*arguments):
    return subprocess.run([SPLITNIC_BENCH, "nic", *arguments], capture_output=True, text=True, timeout=120)


class BenchNic(unittest.TestCase):
    def test_every_contender_is_measured_with_and_without_offloads_and_so_are_several_hosts(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        picture = Path(folder.name) / "nic.svg"
        done = bench("--runs", "1", "--seconds", "0.1", "--idle-hosts", "2", "--json", "--svg", str(picture))
        self.assertEqual(done.returncode, 0, done.stderr)
        if not TESTPMD:
            self.assertIn("left out: dpdk-testpmd is not installed", done.stderr)
        report = json.loads(done.stdout)
        jsonschema.validate(report, SCHEMA)
        self.assertEqual([result["name"] for result in report["results"]], METRICS)
        medians = {}
        for result in report["results"]:
            for condition, contenders in CONTENDERS.items():
                for contender in contenders:
                    for cores, summary in result[condition][contender].items():
                        medians[result["name"], condition, contender, cores] = (summary["median"], result["better"])
                        if not result["name"].endswith("lost"):
                            self.assertGreater(summary["median"], 0)
        self.check_picture(picture, medians)
        testpmd = any("testpmd" in result["plain"] for result in report["results"])
        self.assertNotEqual(testpmd, "left out: " in done.stderr)
        # A measurement is missing only if the cores moved in each of its three tries.
        tried = {key[:3] for key in medians}
        self.assertGreaterEqual(len(tried) + report["moved"] // 3 * 3, len(METRICS) * sum(map(len, CONTENDERS.values())))
        several = report["several_hosts"]
        self.assertEqual(several["idle_hosts"], 2)
        self.assertLess(several["idle_unit_percent"], 100)
        for name in (name for names in SEVERAL_HOSTS.values() for name in names):
            for summary in several[name].values():
                self.assertGreater(summary["min"], 0)
        self.assertGreater(len(report["goals"]), 3)
        for goal in report["goals"]:
            self.assertEqual(goal["met"], goal["ratio"] >= goal["at_least"])
            self.assertGreater(goal.get("aim", 9), goal["at_least"])
            if "cores" not in goal:
                continue
            if goal["goal"] in SEVERAL_HOSTS:
                own, other = (several[name][goal["cores"]]["median"] for name in SEVERAL_HOSTS[goal["goal"]])
                self.assertAlmostEqual(goal["ratio"], own / other, places=6)
                continue
            name, condition = goal["goal"].split(" ")
            own, better = medians[name, condition.strip("()"), "split", goal["cores"]]
            other, _ = medians[name, condition.strip("()"), goal["against"], goal["cores"]]
            self.assertAlmostEqual(goal["ratio"], other / own if better == "less" else own / other, places=6)
        self.assertEqual(report["goals_met"], sum(goal["met"] for goal in report["goals"]))

    def check_picture(self, picture, medians):
        root = xml.etree.ElementTree.parse(picture).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        dots = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
        # Each contender that was compared with a bridge in the same placement has a dot.
        compared = [key for key, (median, _) in medians.items()
                    if not key[0].endswith("lost") and (key[0], key[1], "bridge", key[3]) in medians]
        for contender in CONTENDERS["offloads"]:
            self.assertEqual(sum(dot.startswith(contender + ": ") for dot in dots),
                             sum(key[2] == contender for key in compared))

    def test_a_part_of_it_is_measured_alone(self):
        done = bench("--runs", "1", "--seconds", "0.1", "--rows", "udp_to_host", "--contenders", "bridge", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        jsonschema.validate(report, SCHEMA)
        self.assertNotIn("several_hosts", report)
        measured = {(result["name"], contender) for result in report["results"] for condition in CONTENDERS
                    for contender, cores in result[condition].items() if cores}
        self.assertLessEqual(measured, {(name, contender) for name in ("udp_to_host", "udp_to_host_lost")
                                        for contender in ("split", "bridge")})
        self.assertTrue(measured or report["moved"] >= 3 * len(CONTENDERS))
        for wrong in (("--rows", "udp"), ("--contenders", "split"), ("--svg", "nic.svg", "--contenders", "forwarder")):
            done = bench(*wrong)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(wrong[-2], done.stderr)

    def test_a_picture_that_cannot_be_written_is_an_error_at_once(self):
        done = bench("--svg", "/nowhere/nic.svg")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("/nowhere/nic.svg can't be written", done.stderr)

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
