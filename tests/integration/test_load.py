"""Idle daemons sleep; a host that is stopped under load disturbs no other host."""

import time

import support
from lab import Host, IoUnit, traffic, wait_until

IDLE_SHARE = 0.01
MEMORY_SLACK_BYTES = 2 << 20
MOST_LOST = 0.01


class Idle(support.LabTestCase):
    """Two hosts with one queue and one with four; and a unit to which no host has come."""

    hosts = 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.host.append(Host(cls.lab, cls.unit, 3, ("--queues", "4")).start())
        cls.alone = IoUnit(cls.lab, cls.lab.lan(number=2), name="alone").start()

    def test_idle_daemons_use_less_than_a_hundredth_of_a_core(self):
        wait_until(lambda: self.unit.peer(self.host[-1].name)["messages"]["queues"] == 4, support.RECOVERY_SECONDS,
                   "four queues")
        daemons = [self.unit, *self.host, self.alone]
        shares = {}

        def quiet():
            before = [daemon.process.cpu_seconds() for daemon in daemons]
            started = time.monotonic()
            time.sleep(3)
            passed = time.monotonic() - started
            for daemon, spent in zip(daemons, before):
                shares[daemon.name] = (daemon.process.cpu_seconds() - spent) / passed
            return max(shares.values()) < IDLE_SHARE
        try:
            wait_until(quiet, 12, "idle daemons")
        except support.LabError:
            self.assertLess(max(shares.values()), IDLE_SHARE, str(shares))


class Counters(support.LabTestCase):
    """Losses are counted where they happen, reported to the daemon that they concern, and cleared on request."""

    hosts = 1
    host_args = ("--pool-elements", "4")  # soon exhausted

    def test_losses_are_reported_and_counters_cleared(self):
        host = self.host[0]
        with traffic.udp_flood(self.lab, self.lan.ns, host.address, "200M", length=200):
            host.process.wait_for_text("the I/O unit says: frames come faster than this host takes them")
        wait_until(lambda: self.of_unit(host.stats()) > 0, 10, "the unit's counters with the host")
        counts = []

        def flood_is_over():  # what the kernel has kept of it is still on its way
            of_host = self.unit.stats()["peers"][0]
            counts.append((of_host["tx_frames"], of_host["drops"]))
            return counts[-1:] == counts[-2:-1]
        wait_until(flood_is_over, 10, "the rest of the flood")
        before = host.stats(clear=True)
        self.assertGreater(before["peers"][0]["rx_frames"], 100)
        wait_until(lambda: self.of_unit(host.stats()) == 0, 5, "the unit's counters to be cleared")
        self.assert_reaches(host, self.lan.address)
        after = host.stats()
        self.assertLess(after["peers"][0]["rx_frames"], 100)
        self.assertGreaterEqual(after["peers"][0]["rx_frames"], 1)
        self.assertEqual(after["epoch"], before["epoch"])

        own = self.unit.stats(clear=True)["peers"][0]  # the unit has its own counts, and its own clear
        self.assertGreater(own["drops"]["to_host_no_element"], 0)
        self.assertGreater(own["messages"]["CfgUtilRequest_rx"], 1)
        self.assertEqual(self.unit.stats()["peers"][0]["drops"]["to_host_no_element"], 0)

    def test_cleared_counters_stay_cleared_when_the_session_ends(self):
        host = self.host[0]
        self.assert_pings(host, self.lan.address)
        sent = host.stats(clear=True)["peers"][0]["tx_frames"]
        self.assertGreaterEqual(sent, 20)
        self.unit.stats(clear=True)
        self.assertEqual(self.unit.peer(host.name)["messages"]["queues"], 1)
        self.assertEqual(host.stats()["peers"][0]["messages"]["queues"], 1)
        self.unit.stop()
        try:
            host.wait_state("connecting")
            after = host.stats()["peers"][0]
            self.assertEqual(after["messages"]["queues"], 0)
            self.assertLess(after["tx_frames"], sent)
        finally:
            self.unit.start()
            host.wait_state("up")

    @staticmethod
    def of_unit(stats):
        return stats["peers"][0]["drops"].get("unit_to_host_no_element", -1)


class StoppedHost(support.LabTestCase):
    hosts = 3

    def test_a_stopped_host_under_load_costs_the_others_nothing_and_the_unit_no_memory(self):
        victim, second, third = self.host
        self.lan.ns.ip("neigh", "replace", victim.address, "lladdr", victim.ns.mac(victim.tap), "dev",
                       self.lan.peer_if, "nud", "permanent")
        with traffic.udp_flood(self.lab, self.lan.ns, victim.address, "80M"):
            running = self.assert_tcp(second, seconds=2)
            memory, dropped = self.unit.process.memory_bytes(), self.drops_for(victim)
            victim.suspend()
            try:
                wait_until(lambda: self.drops_for(victim) > dropped, 5, "drops counted for the stopped host")
                # A busy machine costs frames too (the kernel's backlog overflows while nobody runs), now and then. What
                # the stopped host costs is there every time.
                costs = []
                for _ in range(3):
                    costs.append(self.cost(second, third, running.bits_per_second))
                    if not costs[-1]:
                        break
                self.assertEqual(costs[-1], [], f"three times in a row: {costs}")
                self.assertLess(self.unit.process.memory_bytes() - memory, MEMORY_SLACK_BYTES)
            finally:
                victim.resume()
            wait_until(lambda: victim.state() == "up", 10, "the host to be up again")
        self.assert_reaches(victim, self.lan.address, 10)

    def cost(self, second, third, bits_per_second):
        """What the others lose while the victim stands still: a list of complaints."""
        dropped_for_third = self.drops_for(third)
        ping = traffic.Ping(self.lab, third.ns, self.lan.address)
        flow = self.assert_tcp(second, seconds=2)
        self.assert_tcp(second, reverse=True)
        between = traffic.answered(self.lab, second.ns, third.address)
        report = ping.finish()
        found = {
            f"{len(report.missing)} of {report.sent} pings": len(report.missing) > report.sent * MOST_LOST,
            f"{len(between.missing)} of {between.sent} pings between hosts":
                len(between.missing) > between.sent * MOST_LOST,
            f"TCP at {flow.bits_per_second:.3g} after {bits_per_second:.3g} b/s":
                flow.bits_per_second < bits_per_second * 0.6,
            "frames dropped for the third host": self.drops_for(third) != dropped_for_third,
        }
        return [complaint for complaint, is_one in found.items() if is_one]

    def drops_for(self, host):
        peer = self.unit.peer(host.name)
        return sum(peer["drops"].values()) if peer else 0


if __name__ == "__main__":
    support.main()
