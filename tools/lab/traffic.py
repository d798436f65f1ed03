"""Standard programs, run over the virtual NIC, with their reports."""

import contextlib
import hashlib
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from .process import LabError, wait_until


@dataclass
class PingReport:
    sent: int
    received: int
    rtts: list      # seconds, in order of arrival
    arrivals: list  # time.time() of each reply
    missing: list   # sequence numbers without a reply, up to the last one with a reply

    @property
    def rtt_median(self):
        return sorted(self.rtts)[len(self.rtts) // 2] if self.rtts else float("nan")

    def first_after(self, moment):
        """The seconds from `moment` (time.time()) to the next reply; infinity if there was none."""
        return min((a - moment for a in self.arrivals if a > moment), default=float("inf"))

    def longest_gap(self, since=0.0):
        """The longest time between two successive replies after `since`."""
        times = [a for a in self.arrivals if a >= since]
        return max((b - a for a, b in zip(times, times[1:])), default=float("inf"))


class Ping:
    """A ping in the background; finish() ends it and reports."""

    _reply = re.compile(r"^\[(\d+\.\d+)\] \d+ bytes from .*icmp_seq=(\d+) .*time=([\d.]+) ms", re.M)
    _summary = re.compile(r"(\d+) packets transmitted, (\d+) received")

    def __init__(self, lab, netns, target, interval=0.02, count=None, size=None, dont_fragment=False):
        argv = ["ping", "-n", "-D", "-i", str(interval), "-W", "1"]
        argv += ["-c", str(count)] if count else []
        argv += ["-s", str(size)] if size is not None else []
        argv += ["-M", "do"] if dont_fragment else []
        self.process = lab.start("ping", argv + [target], netns)
        self.seconds = 20 + (count or 0) * (interval + 0.02)

    def replies(self):
        return len(self._reply.findall(self.process.text()))

    def wait_replies(self, count, seconds=10):
        """Waits for `count` more replies; raises LabError if ping ends before."""
        wanted = self.replies() + count

        def answered():
            over = not self.process.running()
            if self.replies() >= wanted:
                return True
            if over:
                raise LabError(f"ping: {self.process.last_line()}")
            return False
        wait_until(answered, seconds, f"{count} replies to ping")

    def between(self, since, until):
        """The round-trip times, in seconds, of the replies that came between the two times (time.time())."""
        return [float(rtt) / 1000 for at, _, rtt in self._reply.findall(self.process.text()) if since <= float(at) <= until]

    def report(self):
        """Waits until all pings of the count are sent, and reports."""
        self.process.wait(self.seconds)
        return self._parse()

    def finish(self, may_be_cut_off=False):
        """Ends a ping without a count, as Ctrl-C would, and reports. Before, it waits for one more reply: `missing` says
        nothing of what came after the last one. may_be_cut_off: without that wait."""
        if not may_be_cut_off:
            self.wait_replies(1)
        self.process.signal(2)
        self.process.wait(5)
        return self._parse()

    def _parse(self):
        text = self.process.text()
        summary = self._summary.search(text)
        if not summary:
            raise LabError(f"ping: {self.process.last_line()}")
        found = self._reply.findall(text)
        numbers = {int(number) for _, number, _ in found}
        missing = sorted(set(range(1, max(numbers, default=0) + 1)) - numbers)
        return PingReport(int(summary[1]), int(summary[2]), [float(rtt) / 1000 for _, _, rtt in found],
                          [float(at) for at, _, _ in found], missing)


def ping(lab, netns, target, count=20, interval=0.02, size=None, dont_fragment=False):
    """Runs a ping with a count to its end. To see that none is lost, use answered()."""
    return Ping(lab, netns, target, interval, count, size, dont_fragment).report()


def answered(lab, netns, target, count=20, **options):
    """Pings until `count` replies have come, and reports. A ping with a count gives its last one up after the time of two
    round trips, which on a busy machine is no loss."""
    running = Ping(lab, netns, target, **options)
    running.wait_replies(count)
    return running.finish()


def reaches(lab, netns, target, seconds=10):
    """Waits until the target answers a ping (neighbours resolved, carrier up); raises LabError if it does not."""
    wait_until(lambda: ping(lab, netns, target, count=1).received == 1, seconds, f"{target} to answer a ping")


class RequestResponse:
    """One-byte requests and answers over TCP, from a namespace to an address of another one, until stop()."""

    def __init__(self, lab, client_ns, server_ns, address, port=9201):
        script = Path(__file__).with_name("request_response.py")
        self.server = lab.start("answers", ["python3", "-B", script, "serve", address, port], server_ns)
        self.server.wait_for_text("ready")
        self.client = lab.start("requests", ["python3", "-B", script, "ask", address, port], client_ns)

    def rates(self, since, until):
        """The requests per second of each tenth of a second between the two times (time.time())."""
        rates, start = [], None
        for line in self.client.text().splitlines():
            end, count = line.split()
            end = float(end)
            if start is not None and start >= since and end <= until:
                rates.append(int(count) / (end - start))
            start = end
        return rates

    def stop(self):
        self.client.stop(1)
        self.server.stop(1)


@dataclass
class FlowReport:
    bits_per_second: float   # received
    packets_per_second: float  # received; UDP only
    lost_share: float        # UDP only
    bytes: int               # received


def iperf3(lab, client_ns, server_ns, address, seconds=2, udp_bits=None, reverse=False, length=None, port=5201,
           parallel=1):
    """One iperf3 run. udp_bits: rate of a UDP flow ("0": no limit); None: TCP. reverse: the server sends."""
    server = lab.start("iperf3-server", ["iperf3", "-s", "-1", "-p", port], server_ns)
    try:
        wait_until(lambda: server_ns.listening(port), 5, "iperf3's server")
        argv = ["iperf3", "-c", address, "-p", port, "-t", seconds, "-J", "--connect-timeout", 5000, "-P", parallel]
        argv += ["-u", "-b", udp_bits] if udp_bits is not None else []
        argv += ["-R"] if reverse else []
        argv += ["-l", length] if length else []
        done = client_ns.run(*argv, timeout=seconds + 30, check=False)
    finally:
        server.stop(1)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise LabError(f"iperf3 printed no report: {(done.stdout + done.stderr)[-200:]!r}") from None
    if "error" in report:
        raise LabError(f"iperf3: {report['error']}")
    if udp_bits is None:
        end = report["end"]["sum_received"]
        return FlowReport(end["bits_per_second"], 0, 0, end["bytes"])
    return _udp_report(report["end"]["sum"])


def _udp_report(end):
    arrived = end["packets"] - end["lost_packets"]
    per_packet = end["bytes"] / end["packets"] if end["packets"] else 0
    return FlowReport(arrived * per_packet * 8 / end["seconds"], arrived / end["seconds"],
                      end["lost_packets"] / end["packets"] if end["packets"] else 1.0, int(arrived * per_packet))


def make_file(path, size):
    """Makes a file of that many bytes, which do not compress or repeat within a frame; returns its SHA-256."""
    digest = hashlib.sha256()
    block = os.urandom(1 << 20)
    with open(path, "wb") as out:
        for number in range((size + len(block) - 1) // len(block)):
            piece = number.to_bytes(8, "big") + block[8:]
            piece = piece[:size - number * len(block)]
            digest.update(piece)
            out.write(piece)
    return digest.hexdigest()


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as lines:
        while piece := lines.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


class WebServer:
    """busybox httpd on the LAN's peer, which serves a folder of the laboratory."""

    def __init__(self, lab, netns, address, port=80, folder="www"):
        self.root = lab.dir / folder
        self.root.mkdir(exist_ok=True)
        self.url = f"http://{address}:{port}"
        self.process = lab.start("httpd", ["busybox", "httpd", "-f", "-p", f"{address}:{port}", "-h", self.root],
                                 netns)
        wait_until(lambda: netns.listening(port), 5, "the web server")
        self.hashes = {}

    def add(self, name, size):
        self.hashes[name] = make_file(self.root / name, size)
        return self.hashes[name]


class Download:
    """curl in the background."""

    def __init__(self, lab, netns, url, limit_rate=None, connect_seconds=10):
        self.path = lab.dir / f"download-{netns.name}-{time.monotonic_ns()}"
        argv = ["curl", "-sS", "--connect-timeout", str(connect_seconds), "-o", self.path]
        argv += ["--limit-rate", limit_rate] if limit_rate else []
        self.started = time.monotonic()
        self.process = lab.start("curl", argv + [url], netns)

    def bytes(self):
        return self.path.stat().st_size if self.path.exists() else 0

    def finish(self, seconds=60):
        """Waits for the end; returns (SHA-256, duration in seconds) and removes the file."""
        code = self.process.wait(seconds)
        took = time.monotonic() - self.started
        if code != 0:
            raise LabError(f"curl ended with code {code}: {self.process.last_line()}")
        digest = sha256(self.path)
        self.path.unlink()
        return digest, took


class DhcpServer:
    """dnsmasq on the LAN's peer, DHCP only: 10.77.0.100 to .150."""

    def __init__(self, lab, lan):
        argv = ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--log-facility=-",
                "--log-dhcp", "--no-ping", "--pid-file=", f"--interface={lan.peer_if}",
                "--bind-interfaces", "--dhcp-authoritative", "--dhcp-range=10.77.0.100,10.77.0.150,1h",
                f"--dhcp-leasefile={lab.dir / 'leases'}"]
        self.process = lab.start("dnsmasq", argv, lan.ns)
        wait_until(lambda: lan.ns.listening(67, "udp") or not self.process.running(), 5, "the DHCP server")
        if not self.process.running():
            raise LabError(f"dnsmasq: {self.process.last_line()}")


_DHCP_SCRIPT = """#!/bin/sh
# The script that udhcpc runs: $1 is the event, the lease is in the environment.
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ip addr replace "$ip/${mask:-24}" dev "$interface"
[ -z "$router" ] || ip route replace default via "${router%% *}" dev "$interface"
"""


def dhcp_address(lab, netns, interface, seconds=10):
    """Asks for a lease with busybox's udhcpc, configures the interface, returns the address."""
    script = lab.dir / "udhcpc.sh"
    if not script.exists():
        script.write_text(_DHCP_SCRIPT)
        script.chmod(0o755)
    netns.ip("link", "set", interface, "up")
    done = netns.run("busybox", "udhcpc", "-f", "-q", "-n", "-t", int(seconds), "-T", 1, "-i", interface, "-s", script,
                     timeout=seconds + 15, check=False)
    found = re.search(r"lease of ([\d.]+) obtained", done.stdout + done.stderr)
    if not found:
        raise LabError(f"udhcpc: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
    return found[1]


@contextlib.contextmanager
def udp_flood(lab, netns, address, bits="100M", length=1000, port=9):
    """Sends a UDP flow that nobody receives, until the block ends; yields its process."""
    program = Path(__file__).with_name("udp_flood.py")
    process = lab.start("udp-flood", ["python3", program, address, port, length, _bits(bits)], netns)
    process.wait_for_text("sending")
    try:
        yield process
    finally:
        process.stop(1)


def udp_segments(lab, sender_ns, receiver_ns, address, count, length, port=9009):
    """Sends `count` datagrams of `length` bytes by one call; returns the lengths of those that arrive."""
    script = Path(__file__).with_name("udp_segments.py")
    receiver = lab.start("udp-segments", ["python3", "-B", script, "receive", port, count * length], receiver_ns)
    receiver.wait_for_text("ready")
    sender_ns.run("python3", "-B", script, "send", address, port, count, length)
    receiver.wait_for_text("lengths")
    return [int(word) for word in receiver.text().split("lengths")[1].split()]


@dataclass
class BulkEnd:
    """What one end of a transfer has seen: how many bytes, and their SHA-256."""

    bytes: int
    digest: str


class Bulk:
    """A TCP transfer of random bytes that nobody stores, from a namespace to an address of another one."""

    def __init__(self, lab, sender_ns, receiver_ns, address, port, size):
        script = Path(__file__).with_name("bulk.py")
        self.receiver = lab.start("bulk-receive", ["python3", "-B", script, "receive", address, port], receiver_ns)
        self.receiver.wait_for_text("ready")
        self.sender = lab.start("bulk-send", ["python3", "-B", script, "send", address, port, size, port], sender_ns)

    def finish(self, seconds):
        """Waits for both ends; returns what was sent and what was received."""
        ends = []
        for process in (self.sender, self.receiver):
            if process.wait(seconds) != 0:
                raise LabError(f"{process.name}: {process.last_line()}")
            found = re.search(r"bytes (\d+) sha256 ([0-9a-f]+)", process.text())
            ends.append(BulkEnd(int(found[1]), found[2]))
        return ends


def _bits(text):
    units = {"K": 10**3, "M": 10**6, "G": 10**9}
    return int(float(text[:-1]) * units[text[-1]]) if text[-1] in units else int(text)
