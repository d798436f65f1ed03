"""Captures by tcpdump, checked by tshark; and savefiles, written and read without either program."""

import itertools
import struct
from dataclasses import dataclass

from .process import LabError, run

_CHECKED = ("ip", "tcp", "udp", "icmp", "icmpv6")
LINKTYPE_ETHERNET = 1
_numbers = itertools.count(1)


@dataclass
class Verdict:
    frames: int
    good: int          # frames with at least one checksum that tshark found right
    wrong: list        # a line for each frame that has a wrong checksum or that tshark can't parse
    beyond_mtu: list   # a line for each frame longer than the MTU allows

    def faults(self):
        return self.wrong + self.beyond_mtu


class Capture:
    """tcpdump on one interface of a namespace; finish() stops it, verdict() checks the capture."""

    def __init__(self, lab, netns, interface, inbound=False, frames=None, name="capture", expression=()):
        # Each capture has its own number, because an unfinished one may still be writing.
        self.path = lab.dir / f"{name}-{netns.name}-{next(_numbers)}.pcap"
        argv = ["tcpdump", "-i", interface, "-n", "-p", "-B", "32768", "-Z", "root", "-U", "-w", self.path]
        argv += ["-Q", "in"] if inbound else []
        argv += ["-c", frames] if frames else []
        self.process = lab.start("tcpdump", argv + list(expression), netns)
        self.process.wait_for_text("listening on")

    def finish(self):
        self.process.stop()
        if "Operation not permitted" in self.process.text():
            raise LabError(f"tcpdump: {self.process.last_line()}")
        return self

    def verdict(self, mtu):
        return judge(self.path, mtu)


def judge(path, mtu):
    """Validates every IP, TCP, UDP and ICMP checksum in a savefile, and every length against the MTU."""
    fields = ["frame.number", "frame.len", "vlan.id", "_ws.malformed", "tcp.checksum", "tcp.checksum_calculated"]
    fields += [f"{p}.checksum.status" for p in _CHECKED]
    argv = ["tshark", "-n", "-r", path, "-T", "fields", "-E", "separator=;", "-E", "occurrence=a"]
    for protocol in ("ip", "tcp", "udp"):
        argv += ["-o", f"{protocol}.check_checksum:TRUE"]
    # Payloads are random: by a port number such as EtherCAT's, tshark would find headers, and faults, in random bytes.
    for protocol in ("tcp", "udp"):
        argv += ["-d", f"{protocol}.port==1-65535,data"]
    argv += [word for field in fields for word in ("-e", field)]
    verdict = Verdict(0, 0, [], [])
    for line in run(argv, timeout=120).stdout.splitlines():
        number, length, vlans, malformed, tcp, tcp_calculated, *statuses = line.split(";")
        verdict.frames += 1
        flat = [status for cell in statuses for status in cell.split(",") if status]
        # tshark: 0 bad, 1 good, 2 unverified, 3 not present
        bad = [protocol for protocol, cell in zip(_CHECKED, statuses) if "0" in cell.split(",")]
        # Linux itself writes a TCP checksum of zero as 0xffff, which is the same number to receivers (RFC 1624).
        if bad == ["tcp"] and (tcp, tcp_calculated) == ("0xffff", "0x0000"):
            bad = []
        if bad or malformed:
            verdict.wrong.append(f"frame {number}: {'malformed' if malformed else 'wrong checksum: ' + ' '.join(bad)}")
        elif "1" in flat:
            verdict.good += 1
        tags = len(vlans.split(",")) if vlans else 0
        if int(length) > mtu + 14 + 4 * tags:
            verdict.beyond_mtu.append(f"frame {number}: {length} bytes with an MTU of {mtu}")
    return verdict


def write_savefile(path, frames, link_type=LINKTYPE_ETHERNET, times=None, cut=()):
    """Writes a pcap savefile. times: seconds of each frame; cut: {index: bytes kept} for truncated records."""
    cut = dict(cut)
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link_type))
        for index, raw in enumerate(frames):
            at = times[index] if times else 0.0
            kept = raw[:cut.get(index, len(raw))]
            out.write(struct.pack("<IIII", int(at), int(at % 1 * 1e6), len(kept), len(raw)) + kept)


def read_savefile(path):
    """The frames of a little-endian pcap savefile, without an incomplete record at its end."""
    data = path.read_bytes()
    frames, at = [], 24
    while at + 16 <= len(data):
        kept = struct.unpack_from("<I", data, at + 8)[0]
        if at + 16 + kept > len(data):
            break
        frames.append(data[at + 16:at + 16 + kept])
        at += 16 + kept
    return frames
