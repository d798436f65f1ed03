"""splitnic's two daemons, run as a person would run them."""

import json
import signal
import time
from pathlib import Path

from .process import LabError, children, wait_until

START_SECONDS = 10


class Daemon:
    """The common part of both daemons: a command line, a control socket, and ways to end."""

    role = ""

    def __init__(self, lab, name, netns):
        self.lab = lab
        self.name = name
        self.ns = netns
        self.control = lab.dir / f"{name}.ctl"
        self.process = None

    def argv(self):
        raise NotImplementedError

    def launch(self):
        """Starts the process without waiting for anything. Returns self."""
        assert self.process is None or not self.process.running()
        self.process = self.lab.start(self.name, self.argv())
        return self

    def stop(self):
        """SIGTERM; returns the exit code."""
        return self.process.stop()

    def kill9(self):
        self.process.kill9()

    def suspend(self):
        self.process.signal(signal.SIGSTOP)

    def resume(self):
        self.process.signal(signal.SIGCONT)

    def rights(self):
        """The pid of its privileged process; None: it has none."""
        return next(iter(children(self.process.pid)), None)

    def stats(self, clear=False):
        """`splitnic stats --json` of this daemon; None while it does not answer. clear: also clears its counters."""
        done = self.lab.run_splitnic("stats", "--json", *(["--clear"] if clear else []), "--control", self.control)
        if done.returncode != 0:
            return None
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            raise LabError(f"splitnic stats --json printed no JSON: {done.stdout[:200]!r}") from None
        return answer[0] if isinstance(answer, list) else answer

    def state(self):
        answer = self.stats()
        return answer["state"] if answer else None

    def wait_state(self, wanted, seconds=START_SECONDS):
        """Waits until the daemon says so. Unless it has --no-sandbox, the kernel must filter its system calls by then."""
        def reached():
            if not self.process.running():
                raise LabError(f"{self.name} ended with code {self.process.popen.returncode}: "
                               f"{self.process.last_line()}")
            return self.state() == wanted
        wait_until(reached, seconds, f'{self.name} to be "{wanted}"')
        if "--no-sandbox" not in self.args and not self.filtered():
            raise LabError(f"{self.name} runs without the filter of system calls")
        return self

    def filtered(self):
        """Whether the kernel filters its system calls, or it was built without the filter."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return "\nSeccomp:\t2\n" in status or "(a sanitizer's build)" in self.process.text()

    def drops(self):
        """Dropped frames by cause, summed over the daemon and all its peers, without zeros."""
        answer = self.stats() or {}
        total = dict(answer.get("drops", {}))
        for peer in answer.get("peers", []):
            for cause, count in peer.get("drops", {}).items():
                total[cause] = total.get(cause, 0) + count
        return {cause: count for cause, count in total.items() if count}

    def messages(self):
        """Messages by type, summed over all peers."""
        total = {}
        for peer in (self.stats() or {}).get("peers", []):
            for kind, count in peer.get("messages", {}).items():
                total[kind] = total.get(kind, 0) + count
        return total

    def cpu_share(self, seconds):
        """The share of one core that the daemon uses during the next `seconds`."""
        before, at = self.process.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return (self.process.cpu_seconds() - before) / (time.monotonic() - at)


class IoUnit(Daemon):
    """The I/O-unit driver on a LAN interface in the namespace `unit`, or on savefiles."""

    role = "iounit"

    def __init__(self, lab, lan=None, args=(), files=None, name="unit", patient=True):
        """patient: without pauses for users whose hosts come and go, because tests restart hosts more often than people
        do. False: with the shipped defaults."""
        super().__init__(lab, name, lan.unit_ns if lan else None)
        self.patient = patient
        self.lan_spec = files or lan.unit_if
        self.args = list(args)
        self.socket = lab.dir / f"{name}.sock"

    def argv(self):
        place = ["--netns", self.ns.name] if self.ns else []
        if self.patient and "--setups-per-minute" not in self.args:
            place += ["--setups-per-minute", "1000000"]
        return [self.lab.splitnic, "iounit", "--listen", self.socket, "--lan", self.lan_spec, "--name", self.name,
                "--control", self.control, *place, *self.args]

    def start(self):
        """Starts it and waits until it serves."""
        return self.launch().wait_state("serving")

    def peer(self, host_name):
        """The unit's statistics of one host; None while the unit knows no host of that name."""
        for peer in (self.stats() or {}).get("peers", []):
            if peer["name"] == host_name:
                return peer
        return None


class Host(Daemon):
    """The host driver, with its TAP in its own namespace: 10.77.0.(10+number)/24 and fd77::(10+number)/64."""

    role = "host"
    tap = "tap0"

    def __init__(self, lab, unit, number, args=(), name=None):
        super().__init__(lab, name or f"h{number}", lab.namespace(name or f"h{number}"))
        self.unit = unit
        self.args = list(args)
        self.port_name = self.name  # the I/O unit's name for this host
        self.address = f"10.77.0.{10 + number}"
        self.address6 = f"fd77::{10 + number}"

    def argv(self):
        return [self.lab.splitnic, "host", "--connect", f"shm:{self.unit.socket}", "--tap", self.tap, "--name",
                self.port_name, "--control", self.control, "--netns", self.ns.name, *self.args]

    def start(self, addresses=True):
        """Starts the host and waits until its session is up; then sets addresses on its interface, if wanted."""
        self.launch().wait_state("up")
        if addresses:
            self.configure()
        return self

    def configure(self, netns=None):
        """Sets the link up and adds addresses, as an administrator would; then waits for the carrier."""
        namespace = netns or self.ns
        namespace.ip("link", "set", self.tap, "up")
        namespace.ip("addr", "replace", f"{self.address}/24", "dev", self.tap)
        namespace.ip("addr", "replace", f"{self.address6}/64", "dev", self.tap, "nodad")
        wait_until(lambda: namespace.carrier(self.tap), START_SECONDS, f"the carrier of {self.name}")
        return self
