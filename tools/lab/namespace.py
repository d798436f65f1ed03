"""A network namespace, with commands, sockets and settings inside it."""

import contextlib
import ctypes
import json
import os
import socket

from .process import LabError, run

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


class Namespace:
    """A namespace below /run/netns. The laboratory makes it and removes it with everything inside."""

    def __init__(self, name):
        self.name = name
        self.path = f"/run/netns/{name}"

    def create(self):
        run(["ip", "netns", "add", self.name])
        # Duplicate address detection would delay every IPv6 address by a second or two.
        self.sysctl("net/ipv6/conf/default/accept_dad", 0)
        self.sysctl("net/ipv6/conf/all/accept_dad", 0)
        self.ip("link", "set", "lo", "up")

    def delete(self):
        run(["ip", "netns", "del", self.name], check=False)

    def argv(self, argv):
        """The command line that runs argv inside, in the same process (nsenter executes it)."""
        return ["nsenter", f"--net={self.path}", "--"] + list(argv)

    def run(self, *argv, **options):
        return run(argv, netns=self, **options)

    def ip(self, *words, check=True):
        """Runs `ip -n NAME words...` and returns its output."""
        return run(["ip", "-n", self.name, *words], check=check).stdout

    @contextlib.contextmanager
    def entered(self):
        """Moves this thread into the namespace until the block ends. Sockets opened in the block stay there."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(there, self.name)
            try:
                yield
            finally:
                _setns(home, "where it came from")
        finally:
            os.close(there)
            os.close(home)

    def socket(self, family, kind, protocol=0):
        with self.entered():
            return socket.socket(family, kind, protocol)

    def sysctl(self, key, value):
        with self.entered(), open(f"/proc/sys/{key}", "w", encoding="ascii") as setting:
            setting.write(f"{value}\n")

    def links(self):
        """Names of the interfaces."""
        return [link["ifname"] for link in json.loads(self.ip("-j", "link", "show") or "[]")]

    def link(self, interface):
        """The output of `ip -d -j link show` for an interface; None if there is no interface of that name."""
        out = self.ip("-d", "-j", "link", "show", "dev", interface, check=False)
        found = json.loads(out) if out.strip() else []
        return found[0] if found else None

    def carrier(self, interface):
        """True if the interface is up and has carrier."""
        link = self.link(interface)
        return bool(link) and "UP" in link["flags"] and "LOWER_UP" in link["flags"] and \
            "NO-CARRIER" not in link["flags"]

    def mac(self, interface):
        return self.link(interface)["address"]

    def mtu(self, interface):
        return self.link(interface)["mtu"]

    def dropped(self, interface):
        """The frames that the kernel dropped at an interface, in both directions."""
        counts, = json.loads(self.ip("-s", "-j", "link", "show", "dev", interface))
        return sum(counts["stats64"][way]["dropped"] for way in ("rx", "tx"))

    def udp_dropped(self):
        """The datagrams for which a socket inside had no room (IPv4)."""
        with self.entered(), open("/proc/thread-self/net/snmp", encoding="ascii") as lines:
            names, counts = (line.split() for line in lines if line.startswith("Udp:"))
        return int(counts[names.index("RcvbufErrors")])

    def addresses(self, interface, family=None):
        """The addresses of an interface with their prefix lengths, without link-local ones."""
        out = self.ip("-j", "addr", "show", "dev", interface, check=False)
        found = json.loads(out) if out.strip() else []
        return sorted(f"{a['local']}/{a['prefixlen']}" for entry in found for a in entry.get("addr_info", [])
                      if a.get("scope") != "link" and family in (None, a["family"]))

    def routes(self):
        """The routes that somebody set by hand (protocol static or boot), as text."""
        out = self.ip("route", "show", "proto", "boot") + self.ip("route", "show", "proto", "static")
        return sorted(line.replace(" linkdown", "").strip() for line in out.splitlines() if line.strip())

    def listening(self, port, family="tcp"):
        """True if a socket inside listens on the TCP port (for family udp: is bound to it)."""
        wanted = f":{port:04X}"
        state = "0A" if family == "tcp" else "07"
        with self.entered():
            for table in (family, family + "6"):
                with open(f"/proc/thread-self/net/{table}", encoding="ascii") as lines:
                    for fields in (line.split() for line in lines):
                        if fields[1].endswith(wanted) and fields[3] == state:
                            return True
        return False


def _setns(descriptor, name):
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise LabError(f"entering namespace {name}: {os.strerror(ctypes.get_errno())}")
