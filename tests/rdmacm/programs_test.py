#!/usr/bin/env python3
"""Debian's programs for librdmacm between two processes on the fabric, as root and as an ordinary user. Each run has a
deadline, and both ends must end with 0. Usage: programs_test.py [Root|OrdinaryUser]."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "ibverbs"))
import pairs  # noqa: E402
from pairs import SECONDS, SPLITNIC  # noqa: E402

# The server's words and the client's.
PAIRS = (
    ("rping -s -C 1000 -v", "rping -c -a 127.0.0.1 -C 1000 -v"),
    ("rping -s -C 50 -V -S 5000 -a ::1", "rping -c -a ::1 -C 50 -V -S 5000"),
    ("rping -s -q -C 10", "rping -c -q -a 127.0.0.1 -C 10"),
    ("ucmatose -c 5 -C 20 -S 1000", "ucmatose -s 127.0.0.1 -c 5 -C 20 -S 1000"),
    ("udaddy -c 3 -C 20", "udaddy -s 127.0.0.1 -c 3 -C 20"),
    ("rdma_server", "rdma_client -s 127.0.0.1"),
    ("rdma_xserver -c r", "rdma_xclient -s 127.0.0.1 -c r"),
    ("rdma_xserver -c x", "rdma_xclient -s 127.0.0.1 -c x"),
    ("ib_send_lat -R -n 200", "ib_send_lat -R -n 200 127.0.0.1"),
    ("ib_send_bw -R -n 200", "ib_send_bw -R -n 200 127.0.0.1"),
    ("ib_write_bw -R -n 100 -q 2", "ib_write_bw -R -n 100 -q 2 127.0.0.1"),
    ("ib_read_bw -R -n 200", "ib_read_bw -R -n 200 127.0.0.1"),
)

# Programs for rsockets, and one for plain sockets with the system's librspreload.so.
SOCKETS = ("rstream -T v -S 3000 -I 50 -C 1", "rstream -T a -T v -S 100000 -I 5 -C 2", "rstream -T b -T v -i 0 -S 3000 -I 20 -C 3",
           "rstream -T r -T b -k 10 -B 20000 -S 70000 -I 5 -C 1", "riostream -T v -S 10000 -I 10 -C 2",
           "riostream -T b -T v -i 0 -S 10000 -I 10 -C 2")
PRELOAD = pathlib.Path("/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so")


class Programs(pairs.OnFabric):
    needs = ("rping", "ib_send_lat")

    @property
    def directory(self):
        """Where the endnodes of the fabric find each other."""
        return self.fabric.folder / "splitnic" / "fabric-default"

    def start(self, words):
        """Output goes to a file: nobody reads while both ends run."""
        output = tempfile.TemporaryFile("w+")
        self.addCleanup(output.close)
        process = self.fabric.start(words.split(), output)
        process.output = output
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()

    @staticmethod
    def text_of(process):
        # pread: the process and this one share the place in the file.
        return os.pread(process.output.fileno(), 1 << 20, 0).decode()

    def finish(self, process, what):
        try:
            code = process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.end(process)
            self.fail(f"{what}: not done after {SECONDS} s\n{self.text_of(process)[-2000:]}")
        return code, self.text_of(process)

    def wait_for(self, condition, process, what):
        limit = time.monotonic() + SECONDS
        while not condition():
            self.assertIsNone(process.poll(), f"{what}: it ended")
            self.assertLess(time.monotonic(), limit, f"{what}: it took too long")
            time.sleep(0.01)

    def wait_for_text(self, text, process):
        self.wait_for(lambda: text in self.text_of(process), process, f'"{text}"')

    def start_server(self, words):
        """Until it listens. What killed servers have left is not its socket."""
        before = self.sockets()
        server = self.start(words)
        self.wait_for(lambda: self.sockets() - before, server, f"{words} listens")
        return server

    def sockets(self):
        """Names, with what tells a new socket from one that was there before."""
        found = set()
        for path in self.directory.glob("cm-*") if self.directory.exists() else ():
            try:
                found.add((path.name, path.stat().st_ctime_ns))
            except FileNotFoundError:
                pass  # removed meanwhile
        return found

    def test_pairs(self):
        for server_words, client_words in PAIRS:
            with self.subTest(server_words):
                _, server_said = self.run_pair(server_words, client_words)
                if "-v" in server_words.split():
                    self.assertEqual(len(re.findall("ping data: rdma-ping-", server_said)), 1000)
        # They have left nothing on the fabric.
        self.assertEqual(self.sockets(), set())
        code, output = self.finish(self.start("--list"), "verbs-run --list")
        self.assertEqual((code, output), (0, ""))

    def run_pair(self, server_words, client_words):
        """Both end with 0. Returns what they said. The server listens on the fabric alone."""
        for _ in range(pairs.CLOCK_TRIES):
            server = self.start_server(server_words)
            client = self.start(client_words)
            ends = [self.finish(client, f"client of {server_words}"), self.finish(server, server_words)]
            if not pairs.clock_unknown(*(output for _, output in ends)):
                break
        self.assertEqual([code for code, _ in ends], [0, 0], f"{server_words}\n{ends[0][1]}\n{ends[1][1]}")
        return ends[0][1], ends[1][1]

    def test_sockets(self):
        for words in SOCKETS:
            with self.subTest(words):
                self.run_pair(words, words.replace("stream", "stream -s 127.0.0.1", 1))

    def test_datagrams(self):
        self.start_server("udpong -b 127.0.0.1 -T b")
        for options in ("-T b -T e", "-T a -T e", "-T b"):
            code, output = self.finish(self.start(f"udpong -s 127.0.0.1 {options} -C 100 -S 2000"), f"udpong {options}")
            self.assertEqual(code, 0, output)
            self.assertRegex(output, r"custom\s+1.9k")

    def test_a_file_is_copied(self):
        folder = self.fabric.folder
        source, copy = folder / "source", folder / "copy"
        source.write_bytes(os.urandom(1_500_000))
        self.fabric.give(source)
        self.start_server("rcopy")
        code, output = self.finish(self.start(f"rcopy {source} 127.0.0.1:{copy}"), "rcopy")
        self.assertEqual(code, 0, output)
        self.assertEqual(copy.read_bytes(), source.read_bytes())

    @unittest.skipUnless(PRELOAD.exists() and shutil.which("iperf3"), "needs librspreload.so and iperf3")
    def test_programs_for_plain_sockets(self):
        preload = f"env LD_PRELOAD={PRELOAD} "
        self.run_pair(preload + "rstream -T s -T b -T v -I 50 -C 1", preload + "rstream -s 127.0.0.1 -T s -T b -T v -I 50 -C 1")
        port = pairs.free_port()
        server = preload + f"iperf3 -s -1 -B 127.0.0.1 -p {port}"
        client_said, server_said = self.run_pair(server, preload + f"iperf3 -c 127.0.0.1 -p {port} -n 5M -P 2")
        self.assertIn("iperf Done", client_said)
        self.assertRegex(server_said, r"SUM.*MBytes")

    def test_the_peer_of_a_socket_that_is_killed_sees_the_end(self):
        for victim in (0, 1):
            ends = [self.start_server("rstream -T b -S 100 -I 100000000"),
                    self.start("rstream -T b -S 100 -I 100000000 -s 127.0.0.1")]
            # A server that watches the client's process may not have accepted it yet, and waits for another one if it goes.
            self.wait_for(lambda: self.has_connection(ends[0]), ends[0], "a connection")
            self.wait_for(self.fabric.exchanges, ends[0], "data on the connection")
            ends[victim].send_signal(signal.SIGKILL)
            code, output = self.finish(ends[1 - victim], "the end that is left")
            self.assertNotEqual(code, -signal.SIGKILL, output)
            self.finish(ends[victim], "the killed end")

    @staticmethod
    def has_connection(process):
        """splitnic verbs-run becomes the program."""
        targets = set()
        for link in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                targets.add(os.readlink(link))
            except FileNotFoundError:
                pass  # closed meanwhile
        return "anon_inode:[pidfd]" in targets

    def test_a_persistent_server_outlives_clients_that_are_killed(self):
        server = self.start_server("rping -s -P")
        client = self.start("rping -c -a 127.0.0.1 -v")
        self.wait_for_text("rdma-ping-0", client)
        client.send_signal(signal.SIGKILL)
        for _ in range(2):
            code, output = self.finish(self.start("rping -c -a 127.0.0.1 -C 10"), "the next client")
            self.assertEqual(code, 0, output)
        self.assertIsNone(server.poll())

    def test_each_end_learns_that_the_other_one_was_killed(self):
        for victim in (0, 1):
            ends = [self.start_server("rping -s -v"), self.start("rping -c -a 127.0.0.1 -v")]
            self.wait_for_text("rdma-ping-0", ends[1])
            ends[victim].send_signal(signal.SIGKILL)
            _, output = self.finish(ends[1 - victim], "the end that is left")
            # By the event, or by a request that failed before.
            self.assertRegex(output, "DISCONNECT EVENT|cq completion failed status")
        # The number that the killed server had is free.
        self.finish(ends[1], "the killed client")
        server = self.start_server("rping -s -C 5")
        code, output = self.finish(self.start("rping -c -a 127.0.0.1 -C 5"), "the client of its successor")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.finish(server, "the successor")[0], 0)

    def members(self):
        """How many memberships are held on the fabric: locks on its file behind those of the local IDs."""
        path = self.directory / "local-ids"
        if not path.exists():
            return 0
        locks = [line.split() for line in pathlib.Path("/proc/locks").read_text().splitlines()]
        inode = f":{path.stat().st_ino}"
        return sum(1 for words in locks if words[1] == "POSIX" and words[5].endswith(inode) and int(words[6]) > 65535)

    def start_members(self, *programs):
        """Until all have joined their group. What mckey prints is seen only when it ends."""
        before = self.members()
        started = [self.start(words) for words in programs]
        self.wait_for(lambda: self.members() == before + len(programs), started[-1], f"{programs} have joined")
        return started

    def test_a_group(self):
        # Bound by a route or by loopback; IPv4, IPv6 and a group's own name; with joins that only send.
        groups = ("-m 239.1.2.3", "-m 239.1.2.6 -b 127.0.0.1 -C 100 -S 1024", "-m ff12::7 -b ::1 -c 3",
                  "-m ff12:a01b:fe80::5 -b ::1", "-m 224.0.0.9 -b 127.0.0.1 -o")
        # All at a time, because mckey sleeps for seconds.
        receivers = self.start_members(*["mckey " + group.replace(" -o", "") for group in groups * 2])
        senders = [self.start(f"mckey {group} -s") for group in groups]
        for group, *processes in zip(groups, senders, receivers, receivers[len(groups):]):
            with self.subTest(group):
                ends = [self.finish(process, "a member") for process in processes]
                self.assertEqual([code for code, _ in ends], [0, 0, 0], f"{group}\n{ends}")
                for _, output in ends:
                    self.assertIn("data transfers complete", output)

    def test_a_member_of_a_group_that_is_killed_takes_nothing_from_the_others(self):
        words = "mckey -m 239.1.2.4 -b 127.0.0.1 -C 100 -S 1024"
        killed, receiver, sender = self.start_members(words, words, words + " -s")
        killed.send_signal(signal.SIGKILL)
        code, output = self.finish(receiver, "the receiver that lives")
        self.assertEqual(code, 0, output)
        code, output = self.finish(sender, "the sender")
        self.assertEqual(code, 0, output)

    def test_a_receiver_alone_waits_and_can_be_killed(self):
        """Nothing of it is left: the next ones find the fabric as if it had not been there."""
        receiver, = self.start_members("mckey -m 239.1.2.5 -b 127.0.0.1")
        receiver.send_signal(signal.SIGKILL)
        receiver.wait()
        self.assertEqual(self.members(), 0)
        code, output = self.finish(self.start("mckey -m 239.1.2.5 -b 127.0.0.1 -s"), "a sender without receivers")
        self.assertEqual(code, 0, output)
        code, output = self.finish(self.start("--list"), "verbs-run --list")
        self.assertEqual((code, output), (0, ""))

    def test_a_client_without_a_server_is_refused(self):
        code, output = self.finish(self.start("ucmatose -s 127.0.0.1"), "ucmatose")
        self.assertNotEqual(code, 0)
        self.assertIn("RDMA_CM_EVENT_REJECTED, error: 8", output)


Root, OrdinaryUser = pairs.for_both_users(Programs)
del Programs

if __name__ == "__main__":
    pairs.run_tests()
