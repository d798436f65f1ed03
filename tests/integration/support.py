"""The common part of the integration tests: one laboratory per class, the daemons' logs with every failure, and exit
code 77 if the system permits no namespaces."""

import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from lab import Host, IoUnit, Lab, LabError, traffic, wait_until  # noqa: E402,F401
from lab.laboratory import not_permitted  # noqa: E402

# The limit for a restarted driver's session to be up: a second, times three, because a shared machine may pause.
RECOVERY_SECONDS = 3.0
# The limit for traffic to flow again, or for a setting to have its effect: 0.3 s, times three.
RESUME_SECONDS = 0.9
# For a UDP flow that loses little: long enough that the programs have run side by side for a second on a busy machine.
UDP_SECONDS = 30.0
EXIT_SKIPPED = 77


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
        """One of the runs loses so little. On a busy machine UDP is lost while a program waits and its buffers fill."""
        give_up = time.monotonic() + UDP_SECONDS
        shares = []
        while not shares or (shares[-1] > most_lost and time.monotonic() < give_up):
            flow = traffic.iperf3(self.lab, host.ns, self.lan.ns, self.lan.address, seconds, udp_bits=bits,
                                  length=length, **options)
            shares.append(flow.lost_share)
        self.assertLessEqual(shares[-1], most_lost, f"lost, run by run: {shares}")

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


def main():
    reason = not_permitted()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(EXIT_SKIPPED)
    binary = Lab().splitnic
    if not binary.exists():
        sys.exit(f"{binary} is not built (cmake --build --preset release)")
    unittest.main(verbosity=2)
