#!/usr/bin/env python3
"""The units for systemd that the package installs: systemd finds no fault in them, and `systemd-analyze security` rates
the exposure of each at most 2.0. Usage: units_test.py PROGRAM, the program that the units start. Exits with 77 where
systemd-analyze is missing."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

UNITS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "package"
MAX_EXPOSURE = 2.0
# What docs/security.md and docs/operations.md promise of both, beside the exposure.
PROMISED = ("Restart=on-failure", "RestartSec=1", "StartLimitIntervalSec=0", "PrivateTmp=yes", "ProtectSystem=strict",
            "NoNewPrivileges=yes", "MemoryDenyWriteExecute=yes", "IPAddressDeny=any", "SystemCallFilter=~@resources")
# What each role calls at its start, beyond the calls of @system-service: the sandbox, and the host's choice of queues.
CALLS = {"splitnic-host@.service": {"seccomp", "bpf"}, "splitnic-iounit@.service": {"seccomp"}}


def analyze(*words):
    return subprocess.run(["systemd-analyze", "--no-pager", *map(str, words)], capture_output=True, text=True, check=False)


def exposure(unit):
    said = analyze("security", "--offline=true", unit)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said.stdout)
    if not found:
        raise AssertionError(f"systemd-analyze rates nothing: {said.stderr or said.stdout}")
    return float(found.group(1))


class Units(unittest.TestCase):
    program = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.units = sorted(UNITS.glob("splitnic-*@.service"))
        self.assertEqual([unit.name for unit in self.units], ["splitnic-host@.service", "splitnic-iounit@.service"])

    def instance(self, template, text=None):
        copy = self.folder / template.name.replace("@.", "@example.")
        copy.write_text((text or template.read_text()).replace("ExecStart=splitnic", f"ExecStart={self.program}"))
        return copy

    def test_the_exposure_of_each_unit_is_small(self):
        for template in self.units:
            self.assertLessEqual(exposure(self.instance(template)), MAX_EXPOSURE, template.name)

    def test_each_has_the_settings_that_the_documentation_promises(self):
        for template in self.units:
            self.assertEqual([line for line in PROMISED if line not in template.read_text().splitlines()], [],
                             template.name)

    def test_each_may_make_the_calls_of_its_role(self):
        for template in self.units:
            permitted = re.search(r"(?m)^SystemCallFilter=@system-service(.*)$", template.read_text()).group(1)
            self.assertEqual(set(permitted.split()), CALLS[template.name], template.name)

    def test_systemd_finds_no_fault(self):
        for template in self.units:
            said = analyze("verify", "--man=no", self.instance(template))
            self.assertEqual((said.returncode, said.stderr), (0, ""), template.name)

    def test_a_setting_that_is_left_out_is_noticed(self):
        for template in self.units:
            text = re.sub(r"(?m)^(CapabilityBoundingSet|NoNewPrivileges|ProtectSystem)=.*\n", "", template.read_text())
            self.assertGreater(exposure(self.instance(template, text)), MAX_EXPOSURE, template.name)


if __name__ == "__main__":
    if shutil.which("systemd-analyze") is None:
        print("skipped: systemd-analyze is not installed (tools/setup.sh test installs it)")
        sys.exit(77)
    Units.program = sys.argv.pop(1)
    unittest.main(verbosity=2)
