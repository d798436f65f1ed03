"""An I/O unit with two threads: hosts of different threads, the LAN, and everything that concerns both threads."""

import itertools
import tempfile
import time
from pathlib import Path

import support
import test_queues
from lab import Host, frames, traffic, wait_until

SETTLE_SECONDS = 5
GROUP, GROUP_PORT = "239.77.3.4", 7703


class Threads(support.LabTestCase):
    hosts = 3  # and a fourth one, with four queues
    wait_for_queues = test_queues.Queues.wait_for_queues
    flows = test_queues.Queues.flows

    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory(prefix="splitnic-threads-")
        cls.addClassCleanup(place.cleanup)
        cls.rules = Path(place.name) / "rules.toml"
        cls.rules.write_text("")
        cls.unit_args = ("--threads", "2", "--policy", cls.rules)
        super().setUpClass()
        many = Host(cls.lab, cls.unit, 4, ("--queues", "4")).start()
        cls.host.append(many)
        traffic.reaches(cls.lab, many.ns, cls.lan.address)

    def handed(self):
        return self.unit.stats()["counts"]["handover_frames"]

    def test_hosts_of_all_threads_reach_each_other_and_the_lan(self):
        stats = self.unit.stats()
        self.assertEqual((stats["threads"], stats["lan_engine"]), (2, "packet"))
        self.assertIn(", 2 threads, ", self.lab.run_splitnic("status", "--control", self.unit.control).stdout)
        for host in self.host:
            host.ns.ip("neigh", "flush", "dev", host.tap)  # so that ARP and neighbour discovery cross the threads
            self.assert_pings(host, self.lan.address)
            self.assert_pings(host, self.lan.address6)
        for one, other in itertools.permutations(self.host, 2):
            self.assert_pings(one, other.address, count=3)
        self.assert_pings(self.host[0], self.host[1].address6, count=3)

    def test_tcp_between_threads_stays_off_the_lan(self):
        crossed = []
        for first, second in itertools.product(self.host[:1], self.host[1:]):
            before = self.handed()
            with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan:
                way = b"".join(frames.mac_bytes(host.ns.mac(host.tap)) for host in (second, first))
                lan.drain()
                flow = traffic.iperf3(self.lab, first.ns, second.ns, second.address, 1)
                self.assertGreater(flow.bits_per_second, 1e6)
                self.assertEqual([raw for raw in lan.received() if raw[:12] == way], [])
            crossed.append(self.handed() - before > 50)
        # The fourth host counts for each queue, so the first one never has a thread alone.
        self.assertEqual(set(crossed), {True, False})
        for host in self.host[1::2]:
            self.assert_tcp(host)
            self.assert_tcp(host, reverse=True)
        self.check_sum()

    def check_sum(self):
        """Nothing is lost without a cause, over both threads, as soon as no frame is under way."""
        def differs():
            stats = self.unit.stats()
            count, drops = stats["counts"].get, stats["drops"]
            into = sum(count(name, 0) for name in ("lan_rx_frames", "copies", "handover_copies", "departed_rx_frames"))
            into += sum(peer["rx_frames"] for peer in stats["peers"])
            out = sum(count(name, 0) for name in ("lan_tx_frames", "departed_tx_frames", "lan_merged", "to_lan_merged"))
            out += sum(peer["tx_frames"] for peer in stats["peers"]) + drops["departed_drops"]
            out += drops["handover_full"] + drops["handover_refused"]
            # The sums of docs/operations.md.
            out += sum(lost for cause, lost in drops.items() if cause.startswith("lan_") and cause not in
                       ("lan_tx_errors", "lan_truncated", "lan_undescribed", "lan_kernel_drops"))
            out += sum(lost for peer in stats["peers"] for cause, lost in peer["drops"].items()
                       if cause.startswith(("from_host_", "to_host_")))
            return into - out
        wait_until(lambda: differs() == 0, SETTLE_SECONDS, "the sum of both threads' counters")

    def test_groups_reach_members_at_both_threads_once(self):
        members = [frames.MulticastMember(host.ns, host.tap, GROUP, GROUP_PORT) for host in self.host[:2]]
        for member in members:
            self.addCleanup(member.leave)
        wanted = frames.mac_bytes(frames.multicast_mac(GROUP))
        senders = [frames.MulticastSender(self.lan.ns, self.lan.peer_if, GROUP, GROUP_PORT),
                   frames.MulticastSender(self.host[2].ns, self.host[2].tap, GROUP, GROUP_PORT)]
        for number, sender in enumerate(senders):
            self.addCleanup(sender.close)
            for host in self.host[:2]:
                with frames.RawPort(host.ns, host.tap) as port:
                    # Each datagram differs from all before it, copies of which may come late.
                    words = (f"group {number} at {host.name}: {copy:06}".encode() for copy in itertools.count())

                    def send(sender=sender, words=words):
                        sent = next(words)
                        sender.send(sent)
                        return lambda raw: raw[:6] == wanted and sent in raw

                    wait_until(lambda port=port, send=send: port.expect(send(), 0.1), SETTLE_SECONDS,
                               f"the group at {host.name}")
                    is_last = send()
                    self.assertTrue(port.expect(is_last, SETTLE_SECONDS), f"the group at {host.name}")
                    self.assertEqual(port.count(is_last, 0.2), 0, "a second copy")

    def test_frames_of_a_flow_stay_in_order_between_threads_and_with_the_lan(self):
        self.wait_for_queues(self.host[3])
        self.host_queues()
        flows = self.flows(self.host[0], self.host[3], range(7800, 7808), True)
        flows += self.flows(self.host[1], self.host[0], range(7808, 7812), True)
        flows += self.flows(self.host[3], self.lan, range(7812, 7820), True)
        test_queues.Queues.check_order(self, flows)

    def host_queues(self):
        """The other hosts have one queue."""
        for host in self.host[:3]:
            self.assertEqual(self.unit.peer(host.name)["messages"]["queues"], 1)

    def test_a_killed_host_is_back_with_its_address(self):
        for host in (self.host[0], self.host[1]):
            address = host.ns.mac(host.tap)
            host.kill9()
            host.start(addresses=False)
            self.assertEqual(host.ns.mac(host.tap), address)
            self.assert_reaches(host, self.lan.address)
            for other in self.host:
                if other is not host:
                    self.assert_reaches(other, host.address)
            wait_until(lambda h=host: self.unit.peer(h.name)["state"] == "up", SETTLE_SECONDS, "one peer of its name")

    def test_a_name_and_an_address_are_given_once(self):
        twin = Host(self.lab, self.unit, 7, name="twin")
        twin.port_name = "h1"
        twin.launch()
        self.addCleanup(twin.stop)
        wait_until(lambda: "a host named h1 is here already" in twin.process.text(), SETTLE_SECONDS, "the refusal")
        thief = Host(self.lab, self.unit, 8, ("--mac", self.host[0].ns.mac(self.host[0].tap)), name="thief")
        thief.launch()
        self.addCleanup(thief.stop)
        wait_until(lambda: "is host h1's" in thief.process.text(), SETTLE_SECONDS, "the refusal")
        self.assert_pings(self.host[0], self.lan.address)

    def test_a_reloaded_policy_holds_at_both_threads(self):
        epochs = [host.stats()["epoch"] for host in self.host]
        self.rules.write_text("".join(f"[[host]]\nname = '{host.name}'\nmulticast = false\n"
                                      for host in self.host[:2]))
        self.addCleanup(self.reload, "")
        self.reload()
        for host in self.host[:2]:
            before = self.unit.peer(host.name)["drops"].get("from_host_group", 0)
            group = frames.frame("01:00:5e:01:02:03", host.ns.mac(host.tap), b"group".ljust(46))

            def refused(host=host, before=before, group=group):
                with frames.RawPort(host.ns, host.tap) as tap:
                    tap.send(group)
                return self.unit.peer(host.name)["drops"].get("from_host_group", 0) > before
            wait_until(refused, SETTLE_SECONDS, f"the rule for {host.name}")
        self.assertEqual([host.stats()["epoch"] for host in self.host], epochs)

    def reload(self, text=None):
        if text is not None:
            self.rules.write_text(text)
        done = self.lab.run_splitnic("policy", "reload", "--control", self.unit.control)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_interface_that_vanishes_is_found_again_by_both_threads(self):
        self.lan.remove_interface()
        try:
            for host in self.host:
                wait_until(lambda h=host: not h.ns.carrier(h.tap), SETTLE_SECONDS, f"carrier loss at {host.name}")
            self.assertEqual(self.unit.state(), "serving")
        finally:
            self.lan.restore_interface()
        for host in self.host:
            wait_until(lambda h=host: h.ns.carrier(h.tap), SETTLE_SECONDS, f"the carrier of {host.name}")
            host.ns.ip("neigh", "flush", "dev", host.tap)
            self.assert_reaches(host, self.lan.address, SETTLE_SECONDS)
            # Flows to all threads' sockets, each frame once.
            report = self.ping(host, self.lan.address, count=20)
            self.assertEqual(len(report.arrivals), report.received)

    def test_the_end_by_sigterm_leaves_nothing(self):
        self.assertEqual(self.unit.stop(), 0)
        self.assertFalse(self.unit.socket.exists())
        self.assertFalse(self.unit.control.exists())
        started = time.monotonic()
        self.unit.start()
        for host in self.host:
            self.assert_reaches(host, self.lan.address)
        self.assertLess(time.monotonic() - started, support.RECOVERY_SECONDS * 3)


if __name__ == "__main__":
    support.main()
