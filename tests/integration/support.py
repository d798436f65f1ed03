"""The common part of the integration tests: one laboratory per class, the daemons' logs with every failure, and exit
code 77 if the system permits no namespaces."""

import os
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from lab import Host, IoUnit, Lab, LabError, Standstill, traffic, wait_until  # noqa: E402,F401
from lab.laboratory import not_permitted  # noqa: E402
from lab.process import waited_seconds  # noqa: E402

# The limit for a restarted driver's session to be up: a second, times three, because a shared machine may pause.
RECOVERY_SECONDS = 3.0
# The limit for traffic to flow again, or for a setting to have its effect: 0.3 s, times three.
RESUME_SECONDS = 0.9
# For a UDP flow that loses little: long enough that the programs have run side by side for a second on a busy machine.
UDP_SECONDS = 30.0
# What the unit drops when a program that takes frames waits for a processor.
DROPS_OF_WAITING = ("lan_kernel_drops", "to_host_no_element")
GUEST = 65534  # an ordinary user
EXIT_SKIPPED = 77


def need_other_users():
    """Skips the test, or the class, in a user namespace that has root alone."""
    with open("/proc/self/uid_map", encoding="ascii") as ids:
        if int(ids.read().split()[2]) <= GUEST:
            raise unittest.SkipTest("this user namespace has no second user")


class Waiting:
    """While it is entered, how long the daemons waited for a processor (Linux's run delay), and how long the machine
    stood still. The daemons may be killed and started meanwhile. own: with the waiting of this program."""

    def __init__(self, *daemons, own=False):
        self.waited = self.stood_still = 0.0
        self._daemons, self._own = daemons, own
        self._standstill = Standstill()

    @property
    def seconds(self):
        return self.waited + self.stood_still

    def __enter__(self):
        self._before = self._by_pid()
        self._standstill.__enter__()
        return self

    def __exit__(self, *exception):
        self._standstill.__exit__(*exception)
        self.stood_still = self._standstill.seconds
        self.waited = sum(seconds - self._before.get(pid, 0.0) for pid, seconds in self._by_pid().items())

    def _by_pid(self):
        pids = [daemon.process.pid for daemon in self._daemons] + ([os.getpid()] if self._own else [])
        return {pid: waited_seconds(pid) for pid in pids}


class LabTestCase(unittest.TestCase):
    """One LAN, I/O unit and `hosts` hosts (h1, h2, ...) for all tests of a class."""

    hosts = 2
    unit_args = ()
    host_args = ()
    lan_mtu = 1500
    unit = None  # until setUpClass has started it; classes that start their own daemons leave both so
    host = ()
    rings_doorbells = True  # False: the class damages what doorbells depend on

    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.lab.__enter__()
        cls.addClassCleanup(cls.lab.close)
        try:
            cls.lan = cls.lab.lan(cls.lan_mtu)
            cls.unit = IoUnit(cls.lab, cls.lan, cls.unit_args).start()
            cls.host = [Host(cls.lab, cls.unit, n + 1, cls.host_args).start() for n in range(cls.hosts)]
            for host in cls.host:
                traffic.reaches(cls.lab, host.ns, cls.lan.address)
        except BaseException:
            print(cls.lab.log_tails(), file=sys.stderr)
            raise

    @classmethod
    def tearDownClass(cls):
        """Nobody was woken by the look every 100 ms that a doorbell should have woken."""
        for daemon in (cls.unit, *cls.host) if cls.rings_doorbells else ():
            if daemon and daemon.process.running():
                drops = daemon.drops()
                left_out = drops.get("doorbells_left_out", 0) + drops.get("departed_doorbells_left_out", 0)
                assert left_out == 0, f"{daemon.name}: {left_out} doorbells were left out"

    def run(self, result=None):
        def faults():
            return len(result.failures) + len(result.errors)
        before = faults() if result else 0
        started = time.time()
        outcome = super().run(result)
        if result and faults() > before:
            print(self.lab.log_tails(started), file=sys.stderr)
        return outcome

    # Traffic in this class's laboratory.

    def ping(self, host, target, **options):
        return traffic.ping(self.lab, host.ns, target, **options)

    def assert_pings(self, host, target, **options):
        report = traffic.answered(self.lab, host.ns, target, **options)
        self.assertEqual(report.missing, [], f"{host.name} to {target}: {report.received} of {report.sent}")

    def assert_reaches(self, host, target, seconds=RECOVERY_SECONDS):
        traffic.reaches(self.lab, host.ns, target, seconds)

    def assert_tcp(self, host, seconds=1, least_bits=1e6, **options):
        flow = traffic.iperf3(self.lab, host.ns, self.lan.ns, self.lan.address, seconds, **options)
        self.assertGreater(flow.bits_per_second, least_bits)
        return flow

    def assert_udp(self, host, bits="20M", length=1400, most_lost=0.01, seconds=1, **options):
        """Two runs of three lose so little. A run that loses more says nothing if frames were dropped where they wait for
        a program: on a busy machine programs wait, and buffers fill meanwhile."""
        give_up = time.monotonic() + UDP_SECONDS
        shares = []  # run by run
        good = bad = 0
        while not shares or (max(good, bad) < 2 and time.monotonic() < give_up):
            before = self.dropped_by_waiting(host)
            flow = traffic.iperf3(self.lab, host.ns, self.lan.ns, self.lan.address, seconds, udp_bits=bits,
                                  length=length, **options)
            shares.append(flow.lost_share)
            if flow.lost_share <= most_lost:
                good += 1
            elif self.dropped_by_waiting(host) == before:
                bad += 1
        self.assertGreater(good, bad, f"lost, run by run: {shares}")

    def dropped_by_waiting(self, host):
        """What has been dropped between the host's stack and the LAN's because a queue was full."""
        drops = self.unit.drops()
        return (sum(drops.get(cause, 0) for cause in DROPS_OF_WAITING) +
                host.ns.dropped(host.tap) + self.lan.unit_ns.dropped(self.lan.unit_if) +
                self.lan.ns.dropped(self.lan.peer_if) + host.ns.udp_dropped() + self.lan.ns.udp_dropped())

    def assert_clean(self, capture, mtu=1500, least_good=1):
        """tshark finds no frame of the capture wrong or too long, and enough frames whose checksums it checked."""
        verdict = capture.finish().verdict(mtu)
        faults = verdict.faults()
        self.assertEqual(faults[:5], [], f"{len(faults)} of {verdict.frames} in {capture.path.name}")
        self.assertGreaterEqual(verdict.good, least_good)


class UndisturbedTestCase(LabTestCase):
    """The tests must not disturb the I/O unit: its host loses no ping, it keeps serving, and it leaks no descriptor."""

    hosts = 1

    def setUp(self):
        self.descriptors_before = self.unit.process.descriptors()
        self.steady_ping = traffic.Ping(self.lab, self.host[0].ns, self.lan.address)
        self.steady_ping.wait_replies(3)

    def tearDown(self):
        self.steady_ping.wait_replies(5)
        self.assertEqual(self.steady_ping.finish().missing, [])
        wait_until(lambda: self.unit.process.descriptors() == self.descriptors_before, 10, "descriptors as before")
        self.assertEqual(self.unit.state(), "serving")


def exit_code(result):
    """Of a program with these results: 77 if all tests were skipped. A class whose set-up skips it counts as a skip, and
    not as a test."""
    if not result.wasSuccessful():
        return 1
    return EXIT_SKIPPED if result.skipped and len(result.skipped) >= result.testsRun else 0


def main():
    reason = not_permitted()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(EXIT_SKIPPED)
    binary = Lab().splitnic
    if not binary.exists():
        sys.exit(f"{binary} is not built (cmake --build --preset release)")
    sys.exit(exit_code(unittest.main(exit=False, verbosity=2).result))
