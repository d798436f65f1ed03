"""The laboratory: owns all namespaces, processes and files that it makes, and leaves none of them behind."""

import atexit
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from .namespace import Namespace
from .process import LabError, Process, run, wait_until

ROOT = Path(__file__).resolve().parents[2]


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived. The exception unwinds everything, so that all clean-up is done."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def not_permitted():
    """The reason why this process can't make namespaces and TAPs; None if it can."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun is missing or may not be opened by this user"
    name = f"sn{os.getpid()}-probe"
    attempts = [("network namespaces", ["ip", "netns", "add", name]),
                ("veth pairs", ["ip", "-n", name, "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"]),
                ("TAP devices", ["ip", "-n", name, "tuntap", "add", "dev", "probe2", "mode", "tap"])]
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        for what, attempt in attempts:
            done = run(attempt, check=False)
            if done.returncode != 0:
                return f"{what} can't be made: {done.stderr.strip()}"
        return None
    except LabError as error:
        return str(error)
    finally:
        if os.path.exists(f"/run/netns/{name}"):
            Namespace(name).delete()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


class Lan:
    """A LAN: a veth pair from a peer in the namespace `lan` to the interface that the I/O unit serves in `unit`. A second
    LAN of a laboratory has `number` 2 and namespaces of its own, with the same addresses."""

    peer_if = "peer0"
    unit_if = "lan0"
    address = "10.77.0.1"
    address6 = "fd77::1"

    def __init__(self, lab, mtu=1500, number=1):
        self.ns, self.unit_ns = (lab.namespace(name if number == 1 else f"{name}{number}") for name in ("lan", "unit"))
        self.peer_mac = None  # what the peer's interface gets when it is made again; None: a new address
        # The unit's namespace has no stack on the LAN, so all frames that it sends are from the hosts.
        self.unit_ns.sysctl("net/ipv6/conf/default/disable_ipv6", 1)
        self._plug(mtu)

    def _plug(self, mtu):
        self.unit_ns.ip("link", "add", self.unit_if, "mtu", mtu, "type", "veth",
                        "peer", "name", self.peer_if, "mtu", mtu, "netns", self.ns.name,
                        *(["address", self.peer_mac] if self.peer_mac else []))
        self.unit_ns.ip("link", "set", self.unit_if, "up")
        self.ns.ip("link", "set", self.peer_if, "up")
        self.ns.ip("addr", "add", f"{self.address}/24", "dev", self.peer_if)
        self.ns.ip("addr", "add", f"{self.address6}/64", "dev", self.peer_if, "nodad")
        wait_until(lambda: self.ns.carrier(self.peer_if), 5, "the LAN's carrier")

    def unplug(self):
        """Takes the carrier from the unit, by setting the other end of its cable down."""
        self.ns.ip("link", "set", self.peer_if, "down")

    def plug(self):
        self.ns.ip("link", "set", self.peer_if, "up")
        # An interface that goes down loses its IPv6 addresses.
        self.ns.ip("addr", "replace", f"{self.address6}/64", "dev", self.peer_if, "nodad")

    def remove_interface(self):
        self.unit_ns.ip("link", "del", self.unit_if)

    def restore_interface(self, mtu=1500):
        self._plug(mtu)

    def set_mtu(self, mtu):
        self.ns.ip("link", "set", self.peer_if, "mtu", mtu)
        self.unit_ns.ip("link", "set", self.unit_if, "mtu", mtu)

    def set_offloads(self, on):
        """Sets the peer's checksum and segmentation offloads. On: the unit gets frames that need both, as from veth."""
        self._set_offloads(self.ns, self.peer_if, on)

    def set_unit_offloads(self, on):
        """Sets those of the unit's interface. Off: every frame leaves it finished, as from a NIC."""
        self._set_offloads(self.unit_ns, self.unit_if, on)

    @staticmethod
    def _set_offloads(netns, interface, on):
        state = "on" if on else "off"
        words = [word for feature in ("tx", "sg", "tso", "gso", "gro") for word in (feature, state)]
        netns.run("ethtool", "-K", interface, *words)


class Lab:
    """The laboratory, for a with-block:

        with Lab() as lab:
            lan = lab.lan()
            ...

    It ends when the block ends, by an exception, by SIGINT, SIGTERM or SIGHUP, or with the interpreter. It then ends
    the processes by pid, newest first, and removes the namespaces with their interfaces, and the files. Main thread
    only.
    """

    def __init__(self, binaries=None):
        self.binaries = Path(binaries or os.environ.get("SPLITNIC_BIN") or ROOT / "build" / "release" / "bin")
        self.prefix = f"sn{os.getpid()}"
        self._namespaces = []
        self._processes = []
        self._shielded = 0
        self._pending_signal = None
        self._old_handlers = {}
        self.dir = None

    def __enter__(self):
        for number in _ENDING:
            self._old_handlers[number] = signal.signal(number, self._on_signal)
        atexit.register(self.close)
        with self._shield():
            self.dir = Path(tempfile.mkdtemp(prefix=self.prefix + "-"))
        return self

    def __exit__(self, *exception):
        self.close()

    @property
    def splitnic(self):
        return self.binaries / "splitnic"

    @property
    def logs(self):
        return self.dir / "logs"

    def namespace(self, name):
        """Makes the namespace sn<pid>-NAME, or returns it if this laboratory has already made it."""
        full = f"{self.prefix}-{name}"
        for namespace in self._namespaces:
            if namespace.name == full:
                return namespace
        with self._shield():
            namespace = Namespace(full)
            self._namespaces.append(namespace)
            namespace.create()
        return namespace

    def lan(self, mtu=1500, number=1):
        return Lan(self, mtu, number)

    def start(self, name, argv, netns=None, env=None):
        """Starts a Process, which the laboratory ends at the latest when it ends itself."""
        with self._shield():
            process = Process(name, argv, self.logs, netns, env)
            self._processes.append(process)
        return process

    def run_splitnic(self, *words, netns=None, timeout=20):
        """Runs the command to its end and returns the CompletedProcess, whatever the exit code is."""
        return run([self.splitnic, *words], netns=netns, timeout=timeout, check=False)

    def close(self):
        """Ends and removes everything. Signals wait until this is done."""
        if self.dir is None:
            return
        with contextlib.suppress(Interrupted), self._shield():
            for process in reversed(self._processes):
                process.begin_stop()
            for process in reversed(self._processes):
                process.stop()
            for namespace in reversed(self._namespaces):
                namespace.delete()
            if os.environ.get("SPLITNIC_LAB_KEEP"):
                print(f"lab: files kept in {self.dir}", file=sys.stderr)
            else:
                shutil.rmtree(self.dir, ignore_errors=True)
            self._processes, self._namespaces, self.dir = [], [], None
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._old_handlers = {}
        atexit.unregister(self.close)

    def log_tails(self, since=0.0, lines=12):
        """The last lines of each log that was written after `since` (time.time()), for a failure report."""
        parts = []
        for log in sorted(self.logs.glob("*.log")) if self.dir else []:
            if log.stat().st_mtime < since:
                continue
            tail = log.read_text(errors="replace").splitlines()[-lines:]
            if tail:
                parts.append(f"--- {log.name}\n" + "\n".join(tail))
        return "\n".join(parts)

    def _on_signal(self, number, _frame):
        # Inside the shield, something is made but not yet remembered, so the signal waits.
        if self._shielded:
            self._pending_signal = number
        else:
            raise Interrupted(number)

    @contextlib.contextmanager
    def _shield(self):
        assert threading.current_thread() is threading.main_thread()
        self._shielded += 1
        try:
            yield
        finally:
            self._shielded -= 1
            if not self._shielded and self._pending_signal:
                number, self._pending_signal = self._pending_signal, None
                raise Interrupted(number)
