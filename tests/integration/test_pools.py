"""Buffer pools between real daemons, by what both count: asked for, given back, and too large for the bridge's memory."""

import support
from lab import traffic, wait_until


class Pools(support.LabTestCase):
    """Pools of sixteen elements, which a burst exhausts."""

    hosts = 1
    unit_args = host_args = ("--pool-elements", "16")

    def counted(self, daemon, message):
        return daemon.messages().get(message, 0)

    def test_a_burst_asks_for_pools_and_quiet_gives_them_back(self):
        host = self.host[0]
        ends = ((host, self.unit), (self.unit, host))
        self.assert_tcp(host)
        self.assert_tcp(host, reverse=True)
        for user, owner in ends:
            self.assertGreater(self.counted(user, "BufferRecvPoolGet_tx"), 0, f"{user.name} asks for elements")
            self.assertGreater(self.counted(owner, "BufferRecvPoolGet_rx"), 0)
            self.assertGreater(self.counted(owner, "BufferRecvPool_tx"), 1, f"{owner.name} gives more than the first")
            self.assertEqual(self.counted(owner, "BufferRecvPool_tx"), self.counted(user, "BufferRecvPool_rx"))
        # Ten seconds without use, and the users give the extra pools back.
        wait_until(lambda: all(self.counted(user, "BufferPoolFlushReply_rx") > 0 for user, _ in ends), 20,
                   "both users to give their extra pools back")
        for user, owner in ends:
            for message in ("BufferPoolFlushRequest", "BufferPoolFlushReply"):
                sender, receiver = (user, owner) if message.endswith("Request") else (owner, user)
                self.assertEqual(self.counted(sender, message + "_tx"), self.counted(receiver, message + "_rx"))
            self.assertEqual(user.drops().get("session_faults", 0), 0)
            self.assertEqual(user.drops().get("stray_replies", 0), 0)
        self.assert_pings(host, self.lan.address)

    def test_each_end_reports_the_others_statistics(self):
        host = self.host[0]
        self.assert_pings(host, self.lan.address)

        def reported(daemon, prefix):
            return {name: count for name, count in daemon.messages().items() if name.startswith(prefix)}
        for daemon, prefix in ((host, "unit_"), (self.unit, "host_")):
            wait_until(lambda d=daemon, p=prefix: reported(d, p).get(p + "to_interface_frames", 0) > 0, 10,
                       f"{daemon.name} to have the other end's statistics")
            for flow in ("from_peer", "to_peer", "from_interface", "to_interface"):
                self.assertGreater(reported(daemon, prefix)[f"{prefix}{flow}_frames"], 0, flow)
                self.assertGreaterEqual(reported(daemon, prefix)[f"{prefix}{flow}_bytes"],
                                        14 * reported(daemon, prefix)[f"{prefix}{flow}_frames"])
            before = reported(daemon, prefix)[prefix + "counted_ms"]
            daemon.stats(clear=True)
            wait_until(lambda d=daemon, p=prefix, b=before: reported(d, p)[p + "counted_ms"] < b, 10,
                       f"the other end of {daemon.name} to count anew")


class EndOfTheUnit(support.LabTestCase):
    """An owner that ends takes its elements back first; the user's counters outlive the session."""

    hosts = 1

    def test_the_unit_takes_its_elements_back(self):
        host = self.host[0]
        before = host.messages()
        self.assertEqual(self.unit.stop(), 0)
        wait_until(lambda: host.state() != "up", 10, "the session to end")
        after = host.messages()
        for message in ("BufferPoolFlushRequest_rx", "BufferPoolFlushReply_tx"):
            self.assertEqual(after.get(message, 0) - before.get(message, 0), 1, message)
        self.unit.launch().wait_state("serving")
        host.wait_state("up")
        self.assert_reaches(host, self.lan.address)
        again = host.messages()
        for message in filter(lambda name: not name.startswith("unit_"), after):
            self.assertGreaterEqual(again[message], after[message], message)
        self.assertEqual(again["BufferPoolFlushRequest_rx"], after["BufferPoolFlushRequest_rx"])
        self.assertEqual(host.drops().get("stray_replies", 0), 0)


class EndOfTheHost(support.LabTestCase):
    """A host that ends takes its elements back first, too; the unit keeps the counts of its session."""

    hosts = 1

    def test_the_host_takes_its_elements_back(self):
        host = self.host[0]
        self.assert_pings(host, self.lan.address)
        messages = ("BufferPoolFlushRequest_rx", "BufferPoolFlushReply_tx", "RDMAWriteImmediate_tx")
        for round_of in (1, 2):
            before = self.unit.stats()["counts"]
            attached = self.unit.messages()
            self.assertEqual(host.stop(), 0)
            wait_until(lambda: not self.unit.stats()["peers"], 10, "the unit to forget the host")
            after = self.unit.stats()
            taken = {name: after["counts"]["departed_" + name] - before["departed_" + name] for name in messages}
            self.assertEqual(taken["BufferPoolFlushRequest_rx"], attached["BufferPoolFlushRequest_rx"] + 1, round_of)
            self.assertEqual(taken["BufferPoolFlushReply_tx"], attached["BufferPoolFlushReply_tx"] + 1, round_of)
            self.assertGreaterEqual(taken["RDMAWriteImmediate_tx"], attached["RDMAWriteImmediate_tx"])
            for cause in ("stray_replies", "bad_messages"):
                self.assertEqual(after["drops"]["departed_" + cause], 0, cause)
            host.start()
            self.assert_reaches(host, self.lan.address)


class JumboWindow(support.LabTestCase):
    """MTU 9000 in windows of 1 MiB: the pool is smaller than asked for, and still written directly."""

    hosts = 1
    lan_mtu = 9000
    host_args = ("--mtu", "9000")
    unit_args = ("--window-bytes", "1048576")
    taken, not_taken = "DirectWrite_tx", "SegmentedWrite_tx"

    def test_frames_take_the_way_that_fits_the_window(self):
        host = self.host[0]
        self.assert_pings(host, self.lan.address, size=self.lan_mtu - 28)
        self.assert_tcp(host)
        self.assert_tcp(host, reverse=True)
        for daemon in (host, self.unit):
            messages = daemon.messages()
            self.assertGreater(messages.get(self.taken, 0), 0, daemon.name)
            self.assertEqual(messages.get(self.not_taken, 0), 0, daemon.name)
            self.assertEqual(daemon.drops().get("session_faults", 0), 0)


class SegmentedPools(JumboWindow):
    """Elements of 60000 bytes: fewer than sixteen fit the window, so that the pools lie in process memory."""

    lan_mtu = 60000
    host_args = ("--mtu", "60000")
    taken, not_taken = "SegmentedWrite_tx", "DirectWrite_tx"


class LargestMtu(support.LabTestCase):
    """MTU 65535 on the LAN; at h1 the largest of a TAP, whose frame has at most 65535 bytes; at h2 the smallest of IPv6."""

    lan_mtu = 65535
    tap_mtu = 65535 - 14
    unit_args = ("--mtu", "65535")
    host_args = ("--mtu", str(tap_mtu))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.large, cls.small = cls.host
        cls.small.ns.ip("link", "set", cls.small.tap, "mtu", 1280)

    def test_frames_of_every_size_arrive_at_hosts_of_the_largest_and_the_smallest_mtu(self):
        self.assertEqual(self.large.ns.mtu(self.large.tap), self.tap_mtu)
        self.assert_pings(self.large, self.lan.address, size=self.tap_mtu - 28, dont_fragment=True)
        for size in (56, 1252, 8972, 9001, 32768):
            self.assert_pings(self.large, self.lan.address, size=size, count=5)
        self.assert_pings(self.small, self.lan.address, size=1252, dont_fragment=True)
        for host in self.host:
            self.assert_tcp(host)
            self.assert_tcp(host, reverse=True)
        flow = traffic.iperf3(self.lab, self.large.ns, self.small.ns, self.small.address, 1)
        self.assertGreater(flow.bits_per_second, 1e6)
        for daemon in (*self.host, self.unit):
            self.assertEqual(daemon.drops().get("session_faults", 0), 0, daemon.name)


class LargestMtuWithoutOffloads(LargestMtu):
    unit_args = (*LargestMtu.unit_args, "--offloads", "off")
    host_args = (*LargestMtu.host_args, "--offloads", "off")


class LargestMtuInMessages(LargestMtu):
    unit_args = (*LargestMtu.unit_args, "--mode", "s")
    host_args = (*LargestMtu.host_args, "--mode", "s")


class LargestMtuThroughLibpcap(LargestMtu):
    unit_args = (*LargestMtu.unit_args, "--lan-engine", "pcap")


if __name__ == "__main__":
    support.main()
