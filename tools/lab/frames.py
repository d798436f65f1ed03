"""Raw Ethernet frames by AF_PACKET: sends them, and receives them byte for byte with their VLAN tags."""

import select
import socket
import struct
import time

_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_AUXDATA = 8
_PACKET_OUTGOING = 4
_TP_STATUS_VLAN_VALID = 1 << 4
_TP_STATUS_VLAN_TPID_VALID = 1 << 6
BROADCAST = "ff:ff:ff:ff:ff:ff"


def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))


def frame(destination, source, payload, ethertype=0x88B5, tags=()):
    """An Ethernet frame; tags: (tpid, tci) pairs, outermost first. Type 0x88B5 is for local experiments."""
    head = mac_bytes(destination) + mac_bytes(source)
    return head + b"".join(struct.pack("!HH", *tag) for tag in tags) + struct.pack("!H", ethertype) + payload


def multicast_mac(group):
    """The MAC address of an IPv4 or IPv6 multicast group."""
    if ":" in group:
        return "33:33:" + ":".join(f"{b:02x}" for b in socket.inet_pton(socket.AF_INET6, group)[12:])
    last = socket.inet_aton(group)[1:]
    return "01:00:5e:" + ":".join(f"{b:02x}" for b in bytes([last[0] & 0x7F]) + last[1:])


class RawPort:
    """A packet socket on one interface of a namespace. It reports incoming frames, not this machine's own."""

    def __init__(self, netns, interface):
        self.socket = netns.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self.socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        with netns.entered():
            self.socket.bind((interface, _ETH_P_ALL))
        self.socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.socket.close()

    def send(self, raw):
        self.socket.send(raw)

    def received(self, until=0.0):
        """Yields the frames that come in until time.monotonic() is `until`, and in any case those already waiting."""
        while True:
            wait = max(0.0, until - time.monotonic())
            if not select.select([self.socket], [], [], wait)[0]:
                return
            raw, ancillary, _, address = self.socket.recvmsg(70000, 256)
            if address[2] != _PACKET_OUTGOING:
                yield _with_tag(raw, ancillary)

    def expect(self, wanted, seconds=3):
        """True if a frame with wanted(frame) comes in time."""
        return any(wanted(raw) for raw in self.received(time.monotonic() + seconds))

    def count(self, wanted, seconds):
        """The number of such frames that come within `seconds`."""
        return sum(1 for raw in self.received(time.monotonic() + seconds) if wanted(raw))

    def drain(self):
        for _ in self.received():
            pass


def _with_tag(raw, ancillary):
    """Puts the outermost tag back, which the kernel takes out of the bytes."""
    for level, kind, data in ancillary:
        if level == _SOL_PACKET and kind == _PACKET_AUXDATA:
            status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", data[:20])
            if status & _TP_STATUS_VLAN_VALID:
                tpid = tpid if status & _TP_STATUS_VLAN_TPID_VALID else 0x8100
                return raw[:12] + struct.pack("!HH", tpid, tci) + raw[12:]
    return raw


class MulticastMember:
    """A UDP socket that has joined a group on an interface; leave() or closing leaves it."""

    def __init__(self, netns, interface, group, port):
        self.group = group
        with netns.entered():
            index = socket.if_nametoindex(interface)
        self.v6 = ":" in group
        self.socket = netns.socket(socket.AF_INET6 if self.v6 else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("::" if self.v6 else "", port))
        if self.v6:
            self.request = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index)
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, self.request)
        else:
            self.request = struct.pack("4s4si", socket.inet_aton(group), bytes(4), index)
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, self.request)

    def leave(self):
        self.socket.close()


class MulticastSender:
    """Sends datagrams to a group out of one interface."""

    def __init__(self, netns, interface, group, port):
        self.to = (group, port)
        v6 = ":" in group
        self.socket = netns.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
        with netns.entered():
            index = socket.if_nametoindex(interface)
        if v6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 4)
        else:
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF,
                                   struct.pack("4s4si", bytes(4), bytes(4), index))

    def send(self, payload):
        self.socket.sendto(payload, self.to)

    def close(self):
        self.socket.close()
