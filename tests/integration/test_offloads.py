"""Unfinished frames between TAPs and the LAN: whole where the receiver finishes them, finished elsewhere, never damaged."""

import support
from lab import Host, traffic
from lab.capture import Capture

FILE_BYTES = 4 << 20


class Offloads(support.LabTestCase):
    """h1 and h2 have offloads, h3 has none."""

    hosts = 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plain = Host(cls.lab, cls.unit, 3, ("--offloads", "off")).start()
        cls.host.append(cls.plain)
        traffic.reaches(cls.lab, cls.plain.ns, cls.lan.address)

    def counts(self):
        return self.unit.stats()["counts"]

    def transfer(self, server_ns, server_address, client_ns):
        """Every byte of a file arrives as it was."""
        server = traffic.WebServer(self.lab, server_ns, server_address)
        try:
            wanted = server.add("file", FILE_BYTES)
            digest, _ = traffic.Download(self.lab, client_ns, f"{server.url}/file").finish()
            self.assertEqual(digest, wanted)
        finally:
            server.process.stop()

    def test_super_frames_cross_the_unit_whole(self):
        host = self.host[0]
        passed = self.counts()["passed_unfinished"]
        for way, ends in (("rx", (host.ns, host.address, self.lan.ns)),
                          ("tx", (self.lan.ns, self.lan.address, host.ns))):
            before = self.unit.peer(host.name)
            self.transfer(*ends)
            after = self.unit.peer(host.name)
            frames, sent = (after[f"{way}_{what}"] - before[f"{way}_{what}"] for what in ("frames", "bytes"))
            self.assertGreater(sent / frames, 3000, f"{way}: bytes of a frame")
        self.assertGreater(self.counts()["passed_unfinished"], passed)

    def test_hosts_with_and_without_offloads_exchange_every_byte(self):
        first, second, plain = self.host
        for server, client in ((first, second), (first, plain), (plain, first)):
            self.transfer(server.ns, server.address, client.ns)
        self.transfer(plain.ns, plain.address, self.lan.ns)
        self.transfer(self.lan.ns, self.lan.address, plain.ns)
        self.assertGreater(self.counts()["host_segmented"], 0)

    def test_a_udp_super_frame_arrives_as_its_datagrams(self):
        first, second, plain = self.host
        for receiver, address in ((second.ns, second.address), (plain.ns, plain.address),
                                  (self.lan.ns, self.lan.address)):
            self.assertEqual(traffic.udp_segments(self.lab, first.ns, receiver, address, 3, 300), [300] * 3)
        self.assertEqual(traffic.udp_segments(self.lab, self.lan.ns, first.ns, first.address, 3, 300), [300] * 3)

    def test_dhcp(self):
        """Clients and servers of DHCP read frames before the stack has finished them."""
        host = self.host[1]
        server = traffic.DhcpServer(self.lab, self.lan)
        try:
            lease = traffic.dhcp_address(self.lab, host.ns, host.tap)
            host.ns.ip("addr", "del", f"{lease}/24", "dev", host.tap)
        finally:
            server.process.stop()

    def test_an_interface_without_offloads_sends_finished_frames(self):
        host = self.host[0]
        for on in (self.lan.set_offloads, self.lan.set_unit_offloads):
            on(False)
            self.addCleanup(on, True)
        for mtu, address in ((1500, self.lan.address), (1280, self.lan.address6)):
            host.ns.ip("link", "set", host.tap, "mtu", mtu)
            capture = Capture(self.lab, self.lan.ns, self.lan.peer_if, inbound=True, frames=1000)
            traffic.iperf3(self.lab, host.ns, self.lan.ns, address, 1)
            traffic.udp_segments(self.lab, host.ns, self.lan.ns, self.lan.address, 3, 300)
            self.assert_clean(capture, mtu, least_good=100)
        host.ns.ip("link", "set", host.tap, "mtu", 1500)

    def tearDown(self):
        for daemon in (self.unit, *self.host):
            drops = daemon.drops()
            for cause in ("from_host_bad_offload", "lan_bad_offload", "rx_bad_offload", "rx_bad_length",
                          "session_faults", "to_unit_unfinished", "to_unit_too_long", "from_host_too_long"):
                self.assertEqual(drops.get(cause, 0), 0, f"{daemon.name}: {cause}")


if __name__ == "__main__":
    support.main()
