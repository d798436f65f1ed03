"""tshark checks the frames from the hosts to the LAN: no wrong checksum, no frame beyond the MTU. Without --offloads it
also checks those through each TAP. The LAN's peer has its checksum and segmentation offloads on and off."""

import support
from lab import traffic
from lab.capture import Capture

FRAMES_JUDGED = 8000
BULK_FRAMES_JUDGED = 3000  # all alike, and tshark takes longer than the traffic


class Checksums(support.LabTestCase):
    hosts = 2
    unit_args = host_args = ("--offloads", "off")
    taps_too = True  # with offloads, a TAP carries frames that nobody has finished yet

    def captures(self, frames):
        """Captures the incoming frames at the LAN's peer, and both directions of each TAP."""
        lan = Capture(self.lab, self.lan.ns, self.lan.peer_if, inbound=True, frames=frames)
        taps = self.host if self.taps_too else []
        return [lan] + [Capture(self.lab, host.ns, host.tap, frames=frames) for host in taps]

    def judged(self, traffic_to_make, frames=FRAMES_JUDGED, mtu=1500):
        captures = self.captures(frames)
        traffic_to_make()
        for capture in captures:
            self.assert_clean(capture, mtu)

    def mixed_traffic(self):
        """Sends a little of every kind first, so that a capture that ends at its frame limit contains all kinds."""
        for host, other in (self.host, reversed(self.host)):
            for target in (self.lan.address, self.lan.address6, other.address, other.address6):
                self.assert_pings(host, target, count=3)
                self.assert_pings(host, target, count=2, size=4000)
        # Datagrams beyond the MTU travel in fragments. The first has the checksum, which covers all of them.
        for length in (5000, 17):
            self.assert_udp(self.host[0], bits="500K", most_lost=0.2, length=length)
            self.assert_udp(self.host[0], bits="500K", most_lost=0.2, length=length, reverse=True)
        self.dhcp()

    def bulk_traffic(self):
        first, second = self.host
        self.assert_tcp(first)
        self.assert_tcp(first, reverse=True)
        traffic.iperf3(self.lab, first.ns, second.ns, second.address, 1)
        traffic.iperf3(self.lab, first.ns, self.lan.ns, self.lan.address6, 1)
        traffic.iperf3(self.lab, first.ns, self.lan.ns, self.lan.address6, 1, reverse=True)

    def dhcp(self):
        server = traffic.DhcpServer(self.lab, self.lan)
        try:
            host = self.host[0]
            lease = traffic.dhcp_address(self.lab, host.ns, host.tap)
            host.ns.ip("addr", "del", f"{lease}/24", "dev", host.tap)
        finally:
            server.process.stop()

    def check_with_offloads(self, on):
        self.lan.set_offloads(on)
        self.judged(self.mixed_traffic)
        self.judged(self.bulk_traffic, BULK_FRAMES_JUDGED)

    def test_with_the_peers_offloads_on(self):
        self.check_with_offloads(True)

    def test_with_the_peers_offloads_off(self):
        self.addCleanup(self.lan.set_offloads, True)
        self.check_with_offloads(False)


    def test_a_udp_super_frame_of_the_lan_arrives_as_its_datagrams(self):
        self.lan.set_offloads(True)
        host = self.host[0]
        segmented = self.unit.stats()["counts"]["lan_segmented"]
        self.assertEqual(traffic.udp_segments(self.lab, self.lan.ns, host.ns, host.address, 3, 300),
                         self.datagrams)
        if self.datagrams == [300, 300, 300]:
            self.assertEqual(self.unit.stats()["counts"]["lan_segmented"], segmented + 1)

    datagrams = [300, 300, 300]
    engine = "packet"

    def test_the_engine_is_reported(self):
        self.assertEqual(self.unit.stats()["lan_engine"], self.engine)


class ChecksumsWithLibpcap(Checksums):
    """With offloads between the unit and its hosts, which end at libpcap."""

    unit_args = ("--lan-engine", "pcap")
    host_args = ()
    taps_too = False
    datagrams = [900]  # libpcap does not know where one ends
    engine = "pcap"
    test_with_the_peers_offloads_off = None  # nothing for an engine to complete


class ChecksumsOfJumboFrames(support.LabTestCase):
    hosts = 1
    lan_mtu = 9000
    unit_args = host_args = ("--mtu", "9000")

    def test_mtu_9000(self):
        host = self.host[0]
        self.assertEqual(host.ns.mtu(host.tap), 9000)
        self.lan.set_offloads(False)
        self.lan.set_unit_offloads(False)
        lan = Capture(self.lab, self.lan.ns, self.lan.peer_if, inbound=True, frames=FRAMES_JUDGED)
        self.assert_pings(host, self.lan.address, size=8972, dont_fragment=True)
        self.assert_pings(host, self.lan.address6, size=8952, dont_fragment=True)
        self.assertEqual(self.ping(host, self.lan.address, count=2, size=8973, dont_fragment=True).received, 0)
        self.assert_tcp(host)
        self.assert_tcp(host, reverse=True)
        # A receive buffer holds 13 such datagrams: at a higher rate a busy machine loses many of them, and it is tshark
        # that judges those which arrive.
        self.assert_udp(host, bits="10M", most_lost=0.2, length=8900)
        self.assert_udp(host, bits="10M", most_lost=0.2, length=8900, reverse=True)
        self.assert_clean(lan, 9000)
        self.assertGreater(self.unit.stats()["counts"]["passed_unfinished"], 0)


if __name__ == "__main__":
    support.main()
