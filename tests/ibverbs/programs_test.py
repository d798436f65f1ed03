#!/usr/bin/env python3
"""Debian's verbs programs between two processes on the fabric, as root and as an ordinary user. Each run has a deadline,
and both ends must end with 0. Usage: programs_test.py [Root|OrdinaryUser]."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SPLITNIC = pathlib.Path(os.environ.get("SPLITNIC_BIN", "build/release/bin")) / "splitnic"
SECONDS = 30
NOBODY = 65534

PAIRS = (
    "ibv_rc_pingpong -c",
    "ibv_rc_pingpong -e -N",
    "ibv_rc_pingpong -t -o",
    "ibv_uc_pingpong -c",
    "ibv_ud_pingpong -e",
    "ibv_srq_pingpong -c",
    "ib_send_lat -n 200",
    "ib_send_lat -e -n 200 -c UD",
    "ib_send_bw -n 200 -s 100000 --use-srq",
    "ib_send_bw -n 200 -c UC -b",
    "ib_write_lat -n 200 -c UC",
    "ib_write_bw -n 100 -s 8388608 -b",
    "ib_read_lat -n 200 -e",
    "ib_read_bw -n 200 -q 8",
    "ib_atomic_lat -n 200 -A CMP_AND_SWAP",
    "ib_atomic_bw -n 200 -A FETCH_AND_ADD",
)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    """Without a connection, which the server would take for its client."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                return True
    return False


class Programs(unittest.TestCase):
    uid = 0

    @classmethod
    def setUpClass(cls):
        for program in ("ibv_rc_pingpong", "ib_send_lat"):
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"{program} is not installed")
        if cls.uid != 0 and os.getuid() != 0:
            cls.uid = os.getuid()  # nobody else to become
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        os.chmod(cls.folder, 0o700)
        if os.getuid() == 0:
            os.chown(cls.folder, cls.uid, cls.uid)
        cls.environment = {**os.environ, "XDG_RUNTIME_DIR": cls.folder}

    def start(self, words):
        user = {"user": self.uid, "group": self.uid, "extra_groups": []} if os.getuid() == 0 and self.uid else {}
        return subprocess.Popen([SPLITNIC, "verbs-run", *words], env=self.environment, cwd="/", text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **user)

    def finish(self, process, what):
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            self.fail(f"{what}: not done after {SECONDS} s\n{output}")
        return process.returncode, output

    def run_pair(self, words):
        port = str(free_port())
        server = self.start([*words, "-p", port])
        try:
            limit = time.monotonic() + SECONDS
            while not listens(int(port)):
                self.assertIsNone(server.poll(), f"{words}: the server ended")
                self.assertLess(time.monotonic(), limit, f"{words}: the server does not listen")
                time.sleep(0.01)
            client = self.start([*words, "-p", port, "127.0.0.1"])
            ends = [self.finish(client, f"client of {words}"), self.finish(server, f"server of {words}")]
        finally:
            if server.poll() is None:
                server.kill()
                server.communicate()
        self.assertEqual([code for code, _ in ends], [0, 0], f"{words}\n{ends[0][1]}\n{ends[1][1]}")

    def test_device(self):
        code, output = self.finish(self.start(["ibv_devices"]), "ibv_devices")
        self.assertEqual(code, 0, output)
        self.assertIn("splitnic0", output)
        code, output = self.finish(self.start(["ibv_devinfo", "-v"]), "ibv_devinfo")
        self.assertEqual(code, 0, output)
        self.assertIn("PORT_ACTIVE", output)
        self.assertIn("fe80:", output)

    def test_pairs(self):
        for words in PAIRS:
            with self.subTest(words):
                self.run_pair(words.split())
        # They have left nothing on the fabric.
        code, output = self.finish(self.start(["--list"]), "verbs-run --list")
        self.assertEqual((code, output), (0, ""))

    def test_check(self):
        code, output = self.finish(self.start(["--check"]), "verbs-run --check")
        self.assertEqual(code, 0, output)
        self.assertIn(self.folder, output)

    def test_a_program_that_is_not_there(self):
        code, output = self.finish(self.start(["no-such-program"]), "no-such-program")
        self.assertEqual(code, 127, output)
        self.assertIn("no-such-program", output)


class Root(Programs):
    uid = 0


class OrdinaryUser(Programs):
    uid = NOBODY


del Programs

if __name__ == "__main__":
    if sys.argv[1:2] == ["Root"] and os.getuid() != 0:
        print("needs root")
        sys.exit(77)
    result = unittest.main(exit=False).result
    skipped = len(result.skipped) != 0 and result.testsRun == 0
    sys.exit(77 if skipped else 0 if result.wasSuccessful() else 1)
