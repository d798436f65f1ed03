"""`ip link set` on the host's interface, and the LAN's carrier, have the same effects as with a real NIC."""

import time

import support
from lab import frames, traffic, wait_until
from lab.capture import Capture

SETTLE_SECONDS = 5


class Interface(support.LabTestCase):
    hosts = 2
    unit_args = ("--allow-promiscuous",)

    def setUp(self):
        self.subject = self.host[0]
        self.ns, self.tap = self.subject.ns, self.subject.tap
        self.assert_reaches(self.subject, self.lan.address)

    def sees(self, port, destination):
        """True if a frame from the LAN's peer to a MAC address comes out of the host's interface."""
        marker = str(time.monotonic_ns()).encode()
        raw = frames.frame(destination, self.lan.ns.mac(self.lan.peer_if), marker.ljust(46, b"."))
        with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan:
            lan.send(raw)
        return port.expect(lambda seen: marker in seen, 0.15)

    def test_a_new_address_takes_over_and_the_old_one_is_gone(self):
        old, new = self.ns.mac(self.tap), "02:77:00:00:be:ef"
        self.ns.ip("link", "set", self.tap, "address", new)
        self.addCleanup(self.restore_address, old)
        self.assertEqual(self.ns.mac(self.tap), new)
        self.assert_reaches(self.subject, self.lan.address, SETTLE_SECONDS)
        with frames.RawPort(self.ns, self.tap) as port:
            wait_until(lambda: self.sees(port, new), SETTLE_SECONDS, "frames to the new address")
            wait_until(lambda: not self.sees(port, old), SETTLE_SECONDS, "frames to the old address to end")
        wait_until(lambda: self.subject.stats()["mac"] == new, SETTLE_SECONDS, "the new address in the statistics")

    def restore_address(self, old):
        self.ns.ip("link", "set", self.tap, "address", old)
        self.lan.ns.ip("neigh", "flush", "dev", self.lan.peer_if)
        self.host[1].ns.ip("neigh", "flush", "dev", self.tap)
        self.assert_reaches(self.subject, self.lan.address, SETTLE_SECONDS)

    def test_promiscuous_mode_shows_other_peoples_frames_and_only_then(self):
        foreign = "02:77:00:00:00:99"
        with frames.RawPort(self.ns, self.tap) as port:
            wait_until(lambda: not self.sees(port, foreign), SETTLE_SECONDS, "no foreign frame")
            self.ns.ip("link", "set", self.tap, "promisc", "on")
            try:
                wait_until(lambda: self.sees(port, foreign), SETTLE_SECONDS, "foreign frames")
            finally:
                self.ns.ip("link", "set", self.tap, "promisc", "off")
            wait_until(lambda: not self.sees(port, foreign), SETTLE_SECONDS, "foreign frames to end")

    def test_down_stops_traffic_and_up_brings_it_back(self):
        self.ns.ip("link", "set", self.tap, "down")
        with frames.RawPort(self.lan.ns, self.lan.peer_if):
            self.assertEqual(traffic.ping(self.lab, self.lan.ns, self.subject.address, count=3).received, 0)
        self.assert_pings(self.host[1], self.lan.address)
        self.subject.configure()
        self.assert_reaches(self.subject, self.lan.address, SETTLE_SECONDS)

    def test_mtu_1280(self):
        self.ns.ip("link", "set", self.tap, "mtu", "1280")
        self.addCleanup(self.ns.ip, "link", "set", self.tap, "mtu", "1500")
        # So that the capture has what the kernel makes of super-frames.
        self.lan.set_unit_offloads(False)
        self.addCleanup(self.lan.set_unit_offloads, True)
        capture = Capture(self.lab, self.lan.ns, self.lan.peer_if, inbound=True, frames=10000)
        self.assert_pings(self.subject, self.lan.address, size=1252, dont_fragment=True)
        self.assert_pings(self.subject, self.lan.address6, size=1232)
        self.assertEqual(self.ping(self.subject, self.lan.address, count=2, size=1253, dont_fragment=True).received, 0)
        self.assert_tcp(self.subject)
        self.assert_tcp(self.subject, reverse=True)
        self.assert_clean(capture, 1280)
        self.assertEqual(self.ns.mtu(self.tap), 1280)

    def test_an_mtu_beyond_the_units_is_set_back_with_one_log_line(self):
        lines_before = len(self.mtu_lines())
        self.ns.ip("link", "set", self.tap, "mtu", "2000")
        wait_until(lambda: self.ns.mtu(self.tap) == 1500, SETTLE_SECONDS, "the MTU to be set back")
        wait_until(lambda: len(self.mtu_lines()) > lines_before, SETTLE_SECONDS, "a log line about it")
        self.assert_pings(self.subject, self.lan.address)
        self.assertEqual(len(self.mtu_lines()), lines_before + 1)

    def mtu_lines(self):
        return [line for line in self.subject.process.text().splitlines() if "2000" in line and "mtu" in line.lower()]

    def test_a_short_dip_of_the_lans_mtu_needs_no_operator(self):
        other = self.host[1]
        # What a host's operator has chosen is within the dip, and stays.
        other.ns.ip("link", "set", other.tap, "mtu", "1300")
        self.addCleanup(other.ns.ip, "link", "set", other.tap, "mtu", "1500")
        self.addCleanup(self.lan.set_mtu, 1500)
        self.lan.set_mtu(1400)
        wait_until(lambda: self.ns.mtu(self.tap) == 1400, SETTLE_SECONDS, "the smaller MTU")
        self.lan.set_mtu(1500)
        wait_until(lambda: self.ns.mtu(self.tap) == 1500, SETTLE_SECONDS, "the old MTU")
        self.assertEqual(other.ns.mtu(other.tap), 1300)
        self.assert_pings(self.subject, self.lan.address, size=1472, dont_fragment=True)

    def test_carrier_follows_the_lans(self):
        self.lan.unplug()
        try:
            for host in self.host:
                wait_until(lambda h=host: not h.ns.carrier(h.tap), SETTLE_SECONDS, f"carrier loss at {host.name}")
            self.assertFalse(self.subject.stats()["carrier"])
            self.assertEqual(self.subject.state(), "up")
        finally:
            self.lan.plug()
        for host in self.host:
            wait_until(lambda h=host: h.ns.carrier(h.tap), SETTLE_SECONDS, f"the carrier of {host.name}")
            self.assert_reaches(host, self.lan.address, SETTLE_SECONDS)

    def test_traffic_is_back_at_once_when_the_lan_interface_was_down(self):
        ping = traffic.Ping(self.lab, self.ns, self.lan.address)
        back = []  # when the LAN was back, and what waiting may be subtracted
        for _ in range(3):
            ping.wait_replies(5)
            self.lan.unit_ns.ip("link", "set", self.lan.unit_if, "down")
            self.lan.unit_ns.ip("link", "set", self.lan.unit_if, "up")
            # The kernel takes note of a second change of carrier up to a second later than of the first; until then it
            # drops what either end of the cable sends, and what the host sends.
            for ns, interface in ((self.lan.unit_ns, self.lan.unit_if), (self.lan.ns, self.lan.peer_if),
                                  (self.ns, self.tap)):
                wait_until(lambda n=ns, i=interface: n.link(i)["operstate"] == "UP", SETTLE_SECONDS, f"{interface}")
            with support.Waiting(self.unit, self.subject) as waiting:
                moment = time.time()
                ping.wait_replies(1)
            back.append((moment, waiting))
        report = ping.finish()
        for moment, waiting in back:
            self.assertLess(report.first_after(moment) - waiting.seconds, support.RESUME_SECONDS,
                            f"{waiting.waited} of waiting, {waiting.stood_still} of standstill")

    def test_an_address_that_is_no_group_in_the_multicast_list_stops_no_group(self):
        odd, group = "02:77:00:00:00:98", "01:00:5e:05:06:08"
        for address in (odd, group):
            self.ns.ip("maddr", "add", address, "dev", self.tap)
            self.addCleanup(self.ns.ip, "maddr", "del", address, "dev", self.tap)
        with frames.RawPort(self.ns, self.tap) as port:
            wait_until(lambda: self.sees(port, group), SETTLE_SECONDS, "frames to the group")
        self.assertNotIn("is no group's address", self.unit.process.text())

    def test_a_group_joined_without_a_report_is_received_at_once(self):
        group = "01:00:5e:05:06:07"
        with frames.RawPort(self.ns, self.tap) as port:
            for _ in range(3):
                wait_until(lambda: not self.sees(port, group), SETTLE_SECONDS, "no frame to the group")
                self.ns.ip("maddr", "add", group, "dev", self.tap)
                try:
                    with support.Waiting(self.unit, self.subject, own=True) as waiting:
                        joined = time.monotonic()
                        wait_until(lambda: self.sees(port, group), SETTLE_SECONDS, "frames to the group")
                        seconds = time.monotonic() - joined
                    self.assertLess(seconds - waiting.seconds, support.RESUME_SECONDS,
                                    f"{waiting.waited} of waiting, {waiting.stood_still} of standstill")
                finally:
                    self.ns.ip("maddr", "del", group, "dev", self.tap)

    def test_a_lan_interface_that_vanishes_is_carrier_loss_and_is_found_again(self):
        self.lan.remove_interface()
        try:
            wait_until(lambda: not self.ns.carrier(self.tap), SETTLE_SECONDS, "carrier loss")
            self.assertTrue(self.unit.process.running())
        finally:
            self.lan.restore_interface()
        wait_until(lambda: self.ns.carrier(self.tap), SETTLE_SECONDS, "the carrier")
        # The peer has come back as a new interface with a new MAC address.
        self.ns.ip("neigh", "flush", "dev", self.tap)
        self.assert_reaches(self.subject, self.lan.address, SETTLE_SECONDS)

    def test_a_tap_moved_to_another_namespace_keeps_working(self):
        other = self.lab.namespace("other")
        self.ns.ip("link", "set", self.tap, "netns", other.name)
        try:
            self.subject.configure(other)
            traffic.reaches(self.lab, other, self.lan.address, SETTLE_SECONDS)
            flow = traffic.iperf3(self.lab, other, self.lan.ns, self.lan.address, 1)
            self.assertGreater(flow.bits_per_second, 1e6)
            self.assertEqual(self.subject.state(), "up")
        finally:
            other.ip("link", "set", self.tap, "netns", self.ns.name)
            self.subject.configure()
        self.assert_reaches(self.subject, self.lan.address, SETTLE_SECONDS)


if __name__ == "__main__":
    support.main()
