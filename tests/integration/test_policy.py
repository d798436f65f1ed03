"""What a host tries to get of its neighbours' names, addresses and frames, between real daemons; and the options that
permit it."""

import support
from lab import Host, IoUnit, frames, wait_until

SETTLE_SECONDS = 5
BPDU_GROUP = "01:80:c2:00:00:00"


class Policy(support.LabTestCase):
    hosts = 2

    def setUp(self):
        self.subject, self.other = self.host
        self.ns, self.tap = self.subject.ns, self.subject.tap
        self.peer = self.lan.ns.mac(self.lan.peer_if)

    def wait_drops(self, unit, cause, count):
        wait_until(lambda: unit.drops().get(cause, 0) == count, SETTLE_SECONDS, f"{count} drops for {cause}")

    def wait_line(self, daemon, text):
        wait_until(lambda: text in daemon.process.text(), SETTLE_SECONDS, f"a line of {daemon.name}: {text}")

    def start_unit(self, name, *words):
        unit = IoUnit(self.lab, self.lan, words, name=name).start()
        self.addCleanup(unit.stop)
        return unit

    def test_the_address_of_a_station_of_the_lan_is_refused_and_both_sides_say_so(self):
        own = self.ns.mac(self.tap)
        self.assert_reaches(self.subject, self.lan.address)
        self.ns.ip("link", "set", self.tap, "address", self.peer)
        try:
            why = f"address {self.peer} is in use by a station of the LAN"
            self.wait_line(self.subject, why)
            self.wait_line(self.unit, why)
            self.assert_pings(self.other, self.lan.address)
        finally:
            self.ns.ip("link", "set", self.tap, "address", own)
        self.assert_reaches(self.subject, self.lan.address)

    def test_foreign_sources_and_frames_to_the_switch_stay_at_the_unit(self):
        own, before = self.ns.mac(self.tap), self.unit.drops()
        with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan, frames.RawPort(self.ns, self.tap) as tap:
            for _ in range(5):
                tap.send(frames.frame(frames.BROADCAST, "02:77:00:00:00:55", b"foreign".ljust(46)))
                tap.send(frames.frame(BPDU_GROUP, own, b"bpdu".ljust(46)))
                tap.send(frames.frame(frames.BROADCAST, self.other.ns.mac(self.other.tap), b"forged".ljust(46)))
            for cause in ("from_host_not_allowed", "from_host_link_local", "from_host_forged"):
                self.wait_drops(self.unit, cause, before.get(cause, 0) + 5)
            self.assertFalse(lan.expect(lambda raw: b"foreign" in raw or b"bpdu" in raw or b"forged" in raw, 0.1))

    def test_promiscuous_mode_alone_shows_nothing_of_others_and_both_sides_say_so(self):
        with frames.RawPort(self.ns, self.tap) as tap:
            self.ns.ip("link", "set", self.tap, "promisc", "on")
            try:
                self.wait_line(self.subject, "promiscuous mode is not permitted to this host")
                self.wait_line(self.unit, "promiscuous mode is not permitted to this host")
                tap.drain()
                with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan:
                    lan.send(frames.frame("02:77:00:00:00:99", self.peer, b"secret".ljust(46)))
                self.assert_pings(self.other, self.lan.address)
                self.assertFalse(tap.expect(lambda raw: b"secret" in raw, 0.1))
            finally:
                self.ns.ip("link", "set", self.tap, "promisc", "off")

    def test_with_foreign_sources_allowed_a_station_behind_a_host_reaches_the_lan_and_is_reached(self):
        behind = "02:77:00:00:00:55"
        unit = self.start_unit("bridged", "--allow-foreign-sources")
        host = Host(self.lab, unit, 8, name="behind")
        self.addCleanup(host.stop)
        host.start()
        host.ns.ip("link", "set", host.tap, "promisc", "on")
        with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan, frames.RawPort(host.ns, host.tap) as tap:
            def exchanged():
                tap.send(frames.frame(self.peer, behind, b"there".ljust(46)))
                lan.send(frames.frame(behind, self.peer, b"and back".ljust(46)))
                return lan.expect(lambda raw: b"there" in raw, 0.1) and tap.expect(lambda raw: b"and back" in raw, 0.1)
            wait_until(exchanged, SETTLE_SECONDS, "frames to and from the station behind the host")
            tap.send(frames.frame(frames.BROADCAST, self.peer, b"loop".ljust(46)))
            self.wait_drops(unit, "from_host_lan_source", 1)


if __name__ == "__main__":
    support.main()
