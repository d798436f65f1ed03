"""Standard programs run over the virtual NIC, with each way of moving frames, and with one, two and four hosts."""

import os
import re

import support
from lab import frames, traffic, wait_until

WEB_FILE_BYTES = 200_000_000
MULTICAST = "239.77.1.2"
MULTICAST6 = "ff05::7712"


def plain(name):
    """A message's name in one spelling, for both SendData and send_data."""
    return re.sub("[^a-z0-9]", "", name.lower())


class Traffic:
    """The tests; the classes below set the number of hosts and the way of moving frames."""

    # What `stats` must have counted on both sides, sent and received, to prove that frames took this path and no other.
    carried_by = "RdmaWriteImmediate"
    carriers = ("RdmaWriteImmediate", "BufferRdmaIndicate", "DataSend", "SendData")

    def test_ping(self):
        for host in self.host:
            self.assert_pings(host, self.lan.address)
            self.assert_pings(host, self.lan.address6)

    def test_large_ping_is_fragmented_and_put_together(self):
        self.assert_pings(self.host[0], self.lan.address, size=8000, count=5)
        self.assert_pings(self.host[0], self.lan.address6, size=8000, count=5)

    def test_tcp_both_ways(self):
        for host in self.host:
            self.assert_tcp(host)
            self.assert_tcp(host, reverse=True)

    def test_udp_both_ways(self):
        for host in self.host[:2]:
            self.assert_udp(host)
            self.assert_udp(host, reverse=True)

    def test_dhcp_client_gets_a_lease(self):
        server = traffic.DhcpServer(self.lab, self.lan)
        self.addCleanup(server.process.stop)
        leases = [traffic.dhcp_address(self.lab, host.ns, host.tap) for host in self.host]
        self.assertEqual(len(set(leases)), len(self.host))
        for host, lease in zip(self.host, leases):
            self.assertTrue(lease.startswith("10.77.0.1"), lease)
            self.assertIn(f"{lease}/24", host.ns.addresses(host.tap))
            host.ns.ip("addr", "del", f"{lease}/24", "dev", host.tap)

    def test_large_file_arrives_whole(self):
        web = traffic.WebServer(self.lab, self.lan.ns, self.lan.address)
        self.addCleanup(web.process.stop)
        wanted = web.add("large", WEB_FILE_BYTES)
        downloads = [traffic.Download(self.lab, host.ns, f"{web.url}/large") for host in self.host[:2]]
        for download in downloads:
            self.assertEqual(download.finish(90)[0], wanted)
        (web.root / "large").unlink()

    def test_hosts_talk_to_each_other_without_the_lan(self):
        if len(self.host) < 2:
            self.skipTest("one host")
        first, second = self.host[0], self.host[-1]
        self.assert_pings(first, second.address)
        self.assert_pings(second, first.address6)
        with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan:
            # Not every frame of the first host: its kernel answers the LAN's ARP probes at any time.
            way = b"".join(frames.mac_bytes(host.ns.mac(host.tap)) for host in (second, first))
            lan.drain()
            flow = traffic.iperf3(self.lab, first.ns, second.ns, second.address, 1)
            self.assertGreater(flow.bits_per_second, 1e6)
            seen = [raw for raw in lan.received() if raw[:12] == way]
            self.assertEqual(seen, [])

    def test_multicast_arrives_only_where_it_was_joined(self):
        for group, port in ((MULTICAST, 7701), (MULTICAST6, 7702)):
            with self.subTest(group=group):
                self.check_multicast(group, port)

    def check_multicast(self, group, port):
        member_host, others = self.host[0], self.host[1:]
        member = frames.MulticastMember(member_host.ns, member_host.tap, group, port)
        self.addCleanup(member.leave)
        sender = frames.MulticastSender(self.lan.ns, self.lan.peer_if, group, port)
        self.addCleanup(sender.close)
        wanted = frames.mac_bytes(frames.multicast_mac(group))

        def is_group(raw):
            return raw[:6] == wanted and b"hello group" in raw

        with frames.RawPort(member_host.ns, member_host.tap) as inside:
            def heard(port_of_host):
                sender.send(b"hello group")
                return port_of_host.expect(is_group, 0.1)

            wait_until(lambda: heard(inside), 5, f"{group} where it was joined")
            for other in others:
                with frames.RawPort(other.ns, other.tap) as outside:
                    wait_until(lambda port=outside: not heard(port), 5, f"{group} to stay away from {other.name}")
                    sender.send(b"hello group")
                    self.assertEqual(outside.count(is_group, 0.2), 0)
            inside.drain()
            wait_until(lambda: heard(inside), 5, f"{group} to arrive still where it was joined")
            member.leave()
            wait_until(lambda: not heard(inside), 5, f"{group} to stop after it was left")

    def test_vlan_tagged_frames_pass_byte_for_byte(self):
        host = self.host[0]
        mac, peer = host.ns.mac(host.tap), self.lan.ns.mac(self.lan.peer_if)
        stacks = [((0x8100, 0x0007),), ((0x8100, 0xEFFE),), ((0x88A8, 0x2005), (0x8100, 0x0007)), ((0x8100, 0x0000),)]
        with frames.RawPort(host.ns, host.tap) as inside, frames.RawPort(self.lan.ns, self.lan.peer_if) as outside:
            for tags in stacks:
                # Beyond the MTU, a packet socket accepts one 802.1Q tag and nothing else.
                most = 1500 if len(tags) == 1 else 1500 - 4 * len(tags)
                for size in (42, 46, 800, most):
                    payload = os.urandom(size)
                    inward = frames.frame(mac, peer, payload, tags=tags)
                    outward = frames.frame(peer, mac, payload, tags=tags)
                    with self.subTest(tags=tags, size=size):
                        outside.send(inward)
                        self.assertTrue(inside.expect(lambda raw, sent=inward: same_frame(raw, sent)), "to the host")
                        inside.send(outward)
                        self.assertTrue(outside.expect(lambda raw, sent=outward: same_frame(raw, sent)), "to the LAN")

    def test_the_path_was_really_taken(self):
        self.assert_pings(self.host[0], self.lan.address)
        for daemon in (self.unit, self.host[0]):
            counted = {plain(kind): count for kind, count in daemon.messages().items()}
            for carrier in self.carriers:
                for way in ("_tx", "_rx"):
                    count = counted[plain(carrier + way)]
                    self.assertEqual(count > 0, carrier == self.carried_by, f"{daemon.name} {carrier}{way}: {count}")


def same_frame(raw, sent):
    """True if the frames are equal, except for the zeros by which a medium pads frames to 60 bytes."""
    return raw[:len(sent)] == sent and len(raw) <= max(60, len(sent)) and not any(raw[len(sent):])


class ModeROneHost(Traffic, support.LabTestCase):
    hosts = 1


class ModeRFourHosts(Traffic, support.LabTestCase):
    hosts = 4


class ModeS(Traffic, support.LabTestCase):
    unit_args = host_args = ("--mode", "s")
    carried_by = "DataSend"


class NoDataChannel(Traffic, support.LabTestCase):
    unit_args = host_args = ("--no-data-channel",)
    carried_by = "SendData"


class Pool300(Traffic, support.LabTestCase):
    unit_args = host_args = ("--pool-elements", "300")
    carried_by = "BufferRdmaIndicate"


class WithoutOffloads(Traffic, support.LabTestCase):
    hosts = 1
    unit_args = host_args = ("--offloads", "off")


class ThroughLibpcap(Traffic, support.LabTestCase):
    hosts = 1
    unit_args = ("--lan-engine", "pcap")


class LongLivedTcp(support.LabTestCase):
    """A connection that stays open, sometimes idle and sometimes busy."""

    hosts = 2

    def test_a_connection_survives_pauses_and_others_coming_and_going(self):
        web = traffic.WebServer(self.lab, self.lan.ns, self.lan.address)
        wanted = web.add("slow", 20_000_000)
        slow = traffic.Download(self.lab, self.host[0].ns, f"{web.url}/slow", limit_rate="2M")
        self.host[1].stop()
        self.host[1].start()
        self.assert_tcp(self.host[1])
        self.assert_tcp(self.host[0], reverse=True)
        self.assertTrue(slow.process.running(), "the slow download is to outlast the others")
        self.assertEqual(slow.finish(60)[0], wanted)


if __name__ == "__main__":
    support.main()
