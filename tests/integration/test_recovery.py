"""kill -9 of the host driver, the I/O unit, and both, in the middle of a transfer; and both orders of starting.

Other tests run at the same time, so the limit on the time to the first ping holds for that time less what the drivers
waited for a processor meanwhile (Linux's run delay), as in test_kills.py, and less the time in which the machine stood
still."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import support
from lab import Host, IoUnit, traffic, wait_until

FILE_BYTES = 30_000_000
LIMIT_RATE = "10M"


# Attaches to a TAP, as a driver that was killed still does until all its processes have ended.
HOLD = """
import fcntl, struct, sys, time
tun = open("/dev/net/tun", "r+b", buffering=0)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", sys.argv[1].encode(), 0x1002))
print("attached", flush=True)
time.sleep(86400)
"""


class Recovery(support.LabTestCase):
    hosts = 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.web = traffic.WebServer(cls.lab, cls.lan.ns, cls.lan.address)
        cls.web.add("file", FILE_BYTES)

    def setUp(self):
        for daemon, state in ((self.unit, "serving"), *((host, "up") for host in self.host)):
            if not daemon.process.running():
                daemon.launch()
            daemon.wait_state(state)
        for host in self.host:
            host.configure()
            self.assert_reaches(host, self.lan.address)

    @contextlib.contextmanager
    def transfer_and_pings(self):
        """Runs a download by h1 with the accident in the middle, and a ping by each host; checks both at the end."""
        victim = self.host[0]
        self.pings = [traffic.Ping(self.lab, host.ns, self.lan.address) for host in self.host]
        for ping in self.pings:
            ping.wait_replies(10)
        download = traffic.Download(self.lab, victim.ns, f"{self.web.url}/file", limit_rate=LIMIT_RATE)
        wait_until(lambda: download.bytes() > FILE_BYTES / 6, 20, "the transfer to be in the middle")
        with support.Waiting(self.unit, *self.host) as self.waiting:
            yield
            self.assertTrue(download.process.running(), "the transfer is to be in the middle")
            resumed = time.time()
            for ping in self.pings:
                wait_until(lambda p=ping: p.between(resumed, float("inf")), support.RECOVERY_SECONDS, "the next ping")
        wait_until(lambda: victim.state() == "up", support.RECOVERY_SECONDS, "the session to be up again")
        self.assertEqual(download.finish(60)[0], self.web.hashes["file"])
        self.reports = [ping.finish() for ping in self.pings]

    def set_by_hand(self):
        """The settings of an administrator on h1's interface, which must be the same afterwards."""
        host = self.host[0]
        host.ns.ip("addr", "replace", "10.99.0.1/24", "dev", host.tap)
        host.ns.ip("route", "replace", "10.98.0.0/16", "via", self.lan.address, "dev", host.tap)
        host.ns.ip("link", "set", host.tap, "mtu", "1400")
        self.addCleanup(host.ns.ip, "link", "set", host.tap, "mtu", "1500")
        return lambda: (host.ns.addresses(host.tap), host.ns.routes(), host.ns.mtu(host.tap), host.ns.mac(host.tap))

    def footprint(self, *daemons):
        """Resources that may not grow: shared memory, files next to the sockets, descriptors of the surviving daemons."""
        sockets = sorted(path.name for path in self.lab.dir.iterdir() if path.suffix in (".sock", ".ctl"))
        return set(os.listdir("/dev/shm")), sockets, [daemon.process.descriptors() for daemon in daemons]

    def assert_as_before(self, before, *survivors):
        found = []

        def same():
            shared, *rest = self.footprint(*survivors)
            found[:] = [(shared | before[0], *rest)]  # what others have removed from there is no fault
            return found[0] == before
        try:
            wait_until(same, 10, "descriptors, sockets and shared memory to be as before")
        except support.LabError:
            self.assertEqual(found[0], before)

    def assert_back_soon(self, report, restart):
        seconds = report.first_after(restart)
        self.assertLess(seconds - self.waiting.seconds, support.RESUME_SECONDS,
                        f"until the first ping after the restart, less {self.waiting.waited} of waiting and "
                        f"{self.waiting.stood_still} in which the machine stood still; with both {seconds}")
        self.assertLess(report.longest_gap(restart + report.first_after(restart)), support.RECOVERY_SECONDS)

    def test_kill_9_of_the_host(self):
        victim, other = self.host
        settings = self.set_by_hand()
        self.assert_reaches(victim, self.lan.address)
        wanted, before = settings(), self.footprint(self.unit, other)
        with self.transfer_and_pings():
            victim.kill9()
            restart = time.time()
            victim.launch()
        self.assert_back_soon(self.reports[0], restart)
        self.assertEqual(self.reports[1].missing, [], "the other host lost nothing")
        self.assertEqual(settings(), wanted)
        self.assert_as_before(before, self.unit, other)

    def test_kill_9_of_the_unit(self):
        settings = self.set_by_hand()
        wanted, before = settings(), self.footprint(*self.host)
        with self.transfer_and_pings():
            self.unit.kill9()
            restart = time.time()
            self.unit.launch()
        for report in self.reports:
            self.assert_back_soon(report, restart)
        self.assertEqual(settings(), wanted)
        self.assert_as_before(before, *self.host)

    def test_kill_9_of_both(self):
        for first_back in ("unit", "host"):
            with self.subTest(first_back=first_back):
                self.setUp()
                self.kill_both(first_back)

    def kill_both(self, first_back):
        settings = self.set_by_hand()
        wanted, before = settings(), self.footprint(self.host[1])
        with self.transfer_and_pings():
            self.unit.kill9()
            self.host[0].kill9()
            for daemon in (self.unit, self.host[0]) if first_back == "unit" else (self.host[0], self.unit):
                daemon.launch()
            restart = time.time()  # of both: nothing can arrive while one of them is missing
        for report in self.reports:
            self.assert_back_soon(report, restart)
        self.assertEqual(settings(), wanted)
        self.assert_as_before(before, self.host[1])

    def test_restarts_in_a_row_leave_nothing_behind(self):
        before = self.footprint(self.unit, self.host[1])
        memory = self.unit.process.memory_bytes()
        ping = traffic.Ping(self.lab, self.host[1].ns, self.lan.address)
        ping.wait_replies(3)
        for _ in range(10):
            self.host[0].kill9()
            self.host[0].launch().wait_state("up")
        self.assertEqual(ping.finish().missing, [], "the other host lost nothing")
        self.assert_as_before(before, self.unit, self.host[1])
        self.assertLess(self.unit.process.memory_bytes() - memory, 8 << 20)

    def test_clean_ends_remove_what_they_made(self):
        host = self.host[0]
        self.assertEqual(host.stop(), 0)
        self.assertNotIn(host.tap, host.ns.links())
        self.assertEqual(self.unit.stop(), 0)
        self.assertFalse(self.unit.socket.exists())
        self.assertFalse(self.unit.control.exists())
        self.assertFalse(host.control.exists())

    def test_a_tap_that_was_there_before_is_used_and_left(self):
        guest = Host(self.lab, self.unit, 9, name="guest")
        guest.ns.ip("tuntap", "add", "dev", guest.tap, "mode", "tap")
        guest.start()
        self.assert_reaches(guest, self.lan.address)
        self.assertEqual(guest.stop(), 0)
        self.assertIn(guest.tap, guest.ns.links())

    def test_a_tap_that_another_program_gives_up_in_time_is_awaited(self):
        guest = Host(self.lab, self.unit, 7, name="patient")
        guest.ns.ip("tuntap", "add", "dev", guest.tap, "mode", "tap")
        holder = self.lab.start("holder", ["python3", "-c", HOLD, guest.tap], guest.ns)
        holder.wait_for_text("attached")
        started = time.monotonic()
        guest.launch()
        self.assertEqual(guest.process.wait(5), 1)
        self.assertGreater(time.monotonic() - started, 0.5)
        self.assertIn(f"the TAP {guest.tap} is busy: another program is attached to it", guest.process.text())

        guest.launch()
        wchan = Path(f"/proc/{guest.process.pid}/wchan")
        wait_until(lambda: "nanosleep" in wchan.read_text(), 5, "the driver to wait for the TAP")
        holder.kill9()
        guest.wait_state("up")
        self.assertEqual(guest.stop(), 0)

    def test_the_host_may_start_first(self):
        early_unit = IoUnit(self.lab, self.lan, name="late")
        host = Host(self.lab, early_unit, 8, name="early").launch()
        wait_until(lambda: host.stats() is not None, 5, "the early host's control socket")
        self.assertNotEqual(host.state(), "up")
        wait_until(lambda: host.tap in host.ns.links(), 5, "the early host's TAP")
        host.ns.ip("link", "set", host.tap, "up")
        self.assertFalse(host.ns.carrier(host.tap))
        early_unit.start()
        host.wait_state("up", support.RECOVERY_SECONDS)
        host.configure()
        self.assert_reaches(host, self.lan.address)
        host.stop()
        early_unit.stop()


# Watches until SIGUSR1 and prints for how long the machine stood still.
WATCH = """
import signal
from lab import Standstill
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
with Standstill() as standstill:
    print("watching", flush=True)
    signal.sigwait({signal.SIGUSR1})
print(standstill.seconds)
"""


class Standstills(unittest.TestCase):
    def watched(self, accident):
        """The seconds that a program noticed which watched during the accident. accident: gets its pid."""
        tools = Path(traffic.__file__).parents[1]
        with subprocess.Popen([sys.executable, "-B", "-c", WATCH], cwd=tools, stdout=subprocess.PIPE, text=True) as watch:
            self.assertEqual(watch.stdout.readline(), "watching\n")
            accident(watch.pid)
            watch.send_signal(signal.SIGUSR1)
            return float(watch.stdout.readline())

    @staticmethod
    def stop(pid):
        os.kill(pid, signal.SIGSTOP)
        ends = time.monotonic() + 0.5
        wait_until(lambda: time.monotonic() > ends, 5, "half a second")
        os.kill(pid, signal.SIGCONT)

    def test_a_machine_that_stands_still_is_noticed(self):
        self.assertGreater(self.watched(self.stop), 0.4)

    def test_what_takes_no_time_is_none(self):
        self.assertLess(self.watched(lambda _: None), 0.1)


if __name__ == "__main__":
    support.main()
