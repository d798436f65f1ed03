"""The demo: a LAN with web and DHCP servers, an I/O unit, two hosts, real traffic, a table. tools/demo.sh runs it."""

import os
import select
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab import Host, Interrupted, IoUnit, Lab, LabError, traffic  # noqa: E402
from lab.laboratory import not_permitted  # noqa: E402

WEB_FILE_BYTES = 200_000_000
STEPS = 15
# A single ping finds all processes asleep; a ping that follows the last one at once finds them polling.
SPARSE_SECONDS = 0.05
RESTARTS = 3
TCP_OUT = "TCP host to peer"


class Narrator:
    """Prints one line per step: what the step does, and then its result."""

    def __init__(self):
        self.step = 0

    def __call__(self, text, action):
        self.step += 1
        print(f"[{self.step:2}/{STEPS}] {text} ... ", end="", flush=True)
        started = time.monotonic()
        try:
            value, said = action()
        except LabError as error:
            print(f"FAILED: {error}", flush=True)
            raise
        print(f"{said} ({time.monotonic() - started:.1f} s)", flush=True)
        return value


class BridgedHost:
    """A host on the LAN as containers are, without splitnic: a veth pair and a bridge with the unit's interface. For the
    time before the I/O unit starts."""

    name = "bridged"
    address = "10.77.0.9"
    address6 = "fd77::9"

    def __init__(self, lab, lan):
        self.lan = lan
        self.ns = lab.namespace("bridged")
        self.ns.ip("link", "add", "eth0", "type", "veth", "peer", "name", "port0", "netns", lan.unit_ns.name)
        self.ns.ip("link", "set", "eth0", "up")
        self.ns.ip("addr", "add", f"{self.address}/24", "dev", "eth0")
        self.ns.ip("addr", "add", f"{self.address6}/64", "dev", "eth0", "nodad")
        lan.unit_ns.ip("link", "add", "br0", "type", "bridge")
        for port in (lan.unit_if, "port0"):
            lan.unit_ns.ip("link", "set", port, "master", "br0", "up")
        lan.unit_ns.ip("link", "set", "br0", "up")

    def remove(self):
        """Leaves the LAN as it was."""
        for interface in ("port0", "br0"):
            self.lan.unit_ns.ip("link", "del", interface)


class Demo:
    def __init__(self, lab):
        self.lab = lab
        self.say = Narrator()
        self.rows = []  # (what, host 1, host 2)
        self.bridge = {}  # the same through the kernel's bridge, by row

    def run(self):
        self.build_lan()
        self.say("first without splitnic: the same traffic through the kernel's bridge", self.measure_bridge)
        self.start_daemons()
        self.move_traffic()

    # Each action returns (value, what to say of it).

    def build_lan(self):
        def lan():
            self.lan = self.lab.lan()
            return None, f"namespaces {self.lan.ns.name} and {self.lan.unit_ns.name}"

        def servers():
            self.web = traffic.WebServer(self.lab, self.lan.ns, self.lan.address)
            self.web.add("file", WEB_FILE_BYTES)
            self.dhcp = traffic.DhcpServer(self.lab, self.lan)
            return None, f"{self.web.url}/file, DHCP on {self.lan.peer_if}"

        self.say("making a LAN: a peer at 10.77.0.1 and a cable to the I/O unit's interface lan0", lan)
        self.say("starting a web server with a 200 MB file and a DHCP server on the peer", servers)

    def start_daemons(self):
        def unit():
            self.unit = IoUnit(self.lab, self.lan, name="unit").start()
            return None, f"serving, process {self.unit.process.pid}"

        def host(number):
            def start():
                made = Host(self.lab, self.unit, number).start(addresses=False)
                return made, f"up, {made.tap} in {made.ns.name} has {made.ns.mac(made.tap)}"
            return start

        def lease(made):
            def ask():
                made.address = traffic.dhcp_address(self.lab, made.ns, made.tap)
                made.ns.ip("addr", "replace", f"{made.address6}/64", "dev", made.tap, "nodad")
                return None, made.address
            return ask

        self.say("starting the I/O unit's driver on lan0", unit)
        self.hosts = [self.say(f"starting the driver of host {n}: a virtual NIC", host(n)) for n in (1, 2)]
        for number, made in enumerate(self.hosts, 1):
            self.say(f"asking for an address on host {number}, with busybox's DHCP client", lease(made))

    def move_traffic(self):
        steps = [
            ("pinging the peer: over IPv6, sparsely, and back to back", self.ping),
            ("fetching the 200 MB file with curl and comparing its SHA-256", self.fetch),
            ("TCP from the hosts to the peer, iperf3, 2 s each", self.tcp_out),
            ("TCP from the peer to the hosts, iperf3, 2 s each", self.tcp_in),
            ("small packets, 60-byte frames of UDP as fast as iperf3 makes them, 2 s each", self.small_packets),
        ]
        for text, action in steps:
            self.say(text, lambda act=action: self.on_both(act))
        self.say("host 1 and host 2 to each other: ping, then TCP, 2 s each way", self.host_to_host)
        self.drops = [(daemon.name, daemon.drops()) for daemon in (self.unit, *self.hosts)]  # a restart forgets them
        self.say(f"kill -9 and restart of host 1's driver, the LAN interface down and up, {RESTARTS} times each",
                 self.interruptions)

    def on_both(self, action):
        """Runs action(host), which returns rows {what: text}, on both hosts; returns the last row's text."""
        results = [action(host) for host in self.hosts]
        for what in results[0]:
            self.rows.append((what, *(result[what] for result in results)))
        last = list(results[0])[-1]
        return None, " and ".join(result[last] for result in results)

    def ping(self, host):
        rows = {"ping over IPv6: lost, median RTT": self.pings(host.ns, self.lan.address6, 100, 0.01)}
        rows[f"ping every {SPARSE_SECONDS * 1000:.0f} ms: lost, median RTT"] = \
            self.pings(host.ns, self.lan.address, 40, SPARSE_SECONDS)
        rows["ping back to back: lost, median RTT"] = self.pings(host.ns, self.lan.address, 2000, 0)
        return rows

    def pings(self, netns, target, count, interval):
        """The text for the table. No ping may be lost."""
        traffic.reaches(self.lab, netns, target)
        report = traffic.answered(self.lab, netns, target, count=count, interval=interval)
        if report.missing:
            raise LabError(f"{netns.name}: {len(report.missing)} of {report.sent} pings to {target} lost")
        return f"0 of {report.sent}, {report.rtt_median * 1e6:.0f} us"

    def measure_bridge(self):
        host = BridgedHost(self.lab, self.lan)
        for action in (self.ping, self.fetch, self.tcp_out, self.tcp_in, self.small_packets):
            self.bridge |= action(host)
        host.remove()
        return None, f"{self.bridge[TCP_OUT]} to the peer"

    def interruptions(self):
        """Measures the time to the first reply after each accident, with a ping every 10 ms."""
        host = self.hosts[0]
        lan = self.lan.unit_ns

        def restart():
            host.kill9()
            moment = time.time()
            host.launch()
            return moment

        def down_and_up():
            lan.ip("link", "set", self.lan.unit_if, "down")
            moment = time.time()
            lan.ip("link", "set", self.lan.unit_if, "up")
            return moment

        said = []
        for what, accident in (("restart of the driver", restart), ("LAN down and up", down_and_up)):
            ping = traffic.Ping(self.lab, host.ns, self.lan.address, interval=0.01)
            moments = []
            for _ in range(RESTARTS):
                ping.wait_replies(20)
                moments.append(accident())
            ping.wait_replies(20)
            report = ping.finish()
            took = sorted(report.first_after(moment) * 1000 for moment in moments)
            said.append(f"{took[len(took) // 2]:.0f} to {took[-1]:.0f} ms")
            self.rows.append((f"first reply after {what}: median to maximum", said[-1], ""))
        return None, " and ".join(said)

    def fetch(self, host):
        digest, seconds = traffic.Download(self.lab, host.ns, f"{self.web.url}/file").finish(120)
        if digest != self.web.hashes["file"]:
            raise LabError(f"{host.name}: the file's SHA-256 is {digest}, not {self.web.hashes['file']}")
        return {"200 MB by HTTP, SHA-256 equal": f"{WEB_FILE_BYTES * 8 / seconds / 1e9:.2f} Gb/s"}

    def tcp_out(self, host):
        return {TCP_OUT: self.tcp(host, False)}

    def tcp_in(self, host):
        return {"TCP peer to host": self.tcp(host, True)}

    def tcp(self, host, inward):
        flow = traffic.iperf3(self.lab, host.ns, self.lan.ns, self.lan.address, 2, reverse=inward)
        if not flow.bytes:
            raise LabError(f"{host.name}: no byte arrived")
        return f"{flow.bits_per_second / 1e9:.2f} Gb/s"

    def small_packets(self, host):
        flow = traffic.iperf3(self.lab, host.ns, self.lan.ns, self.lan.address, 2, udp_bits="0", length=18)
        if not flow.packets_per_second:
            raise LabError(f"{host.name}: no packet arrived")
        return {"small packets that arrived": f"{flow.packets_per_second / 1e3:.0f} k/s"}

    def host_to_host(self):
        first, second = self.hosts
        rates = []
        round_trip = self.pings(first.ns, second.address, 100, 0.01)
        for source, target in ((first, second), (second, first)):
            flow = traffic.iperf3(self.lab, source.ns, target.ns, target.address, 2)
            rates.append(f"{flow.bits_per_second / 1e9:.2f} Gb/s")
        self.rows.append(("host to host: lost, median RTT", round_trip, ""))
        self.rows.append(("host to host: TCP to the other", *rates))
        return None, " and ".join(rates)

    def table(self):
        for daemon in (self.unit, *self.hosts):
            if daemon.stats() is None:
                raise LabError(f"{daemon.name} no longer answers: {daemon.process.last_line()}")
        width = max(len(what) for what, *_ in self.rows)
        heads = ("host 1", "host 2", "kernel's bridge")
        print(f"\n  {'':{width}}" + "".join(f"  {head:>18}" for head in heads))
        for what, one, two in self.rows:
            print(f"  {what:{width}}  {one:>18}  {two:>18}  {self.bridge.get(what, ''):>18}".rstrip())
        print("\n  Frames dropped, by cause (the small-packet test offers more than can arrive):")
        for name, drops in self.drops:
            # What the unit counts for a host, the host repeats as unit_...
            causes = ", ".join(f"{cause} {count}" for cause, count in sorted(drops.items())
                               if not cause.startswith("unit_"))
            print(f"    {name}: {causes or 'none'}")

    def invite(self):
        """Prints what to try, for --keep."""
        inside = f"ip netns exec {self.hosts[0].ns.name}"
        # An ordinary user's namespaces are to be found only from inside the user namespace they were made in.
        in_user_namespace = "SPLITNIC_DEMO_USERNS" in os.environ
        enter = f"nsenter --preserve-credentials -U -m -n -t {os.getpid()} " if in_user_namespace else ""
        splitnic = f"'{self.lab.splitnic}'"
        print("\n  It is still running. Try, for example:")
        print(f"    {enter}{inside} ping {self.lan.address}")
        print(f"    {enter}{inside} curl -o /dev/null {self.web.url}/file")
        print(f"    {enter}ip netns exec {self.lan.ns.name} tcpdump -n -i {self.lan.peer_if}")
        print(f"    {splitnic} stats --control {self.unit.control}")
        print(f"    kill -9 {self.hosts[0].process.pid}    # and see host 2 go on")
        print(f"  End it, with all that belongs to it:\n    kill {os.getpid()}", flush=True)


def show(keep):
    """Runs the demo; returns the exit code. keep: called at the end if the demo is to be left running."""
    started = time.monotonic()
    with Lab() as lab:
        demo = Demo(lab)
        try:
            demo.run()
            demo.table()
        except LabError as error:
            print(f"\ndemo: failed: {error}\n{lab.log_tails(lines=8)}", file=sys.stderr)
            return 1
        print(f"\ndemo: all of it worked, in {time.monotonic() - started:.0f} s")
        if keep:
            demo.invite()
            keep()
        return 0


def stay(notify):
    """Detaches from the terminal, notifies the parent, and sleeps until a signal ends the demo."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.write(notify, b"k")
    while True:
        signal.pause()


def show_and_keep():
    """Runs the demo in a child, which stays when this process returns to the shell, and forwards signals to it."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        return guarded(lambda: show(lambda: stay(theirs)))
    os.close(theirs)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: os.kill(child, got))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the child as well
    select.select([ours], [], [])
    if os.read(ours, 1):
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def guarded(action):
    try:
        return action()
    except (Interrupted, KeyboardInterrupt) as interruption:
        print("\ndemo: interrupted; everything is removed", flush=True)
        return getattr(interruption, "exit_code", 130)


def main():
    reason = not_permitted()
    if reason:
        print(f"demo: {reason}", file=sys.stderr)
        return 1
    return show_and_keep() if "--keep" in sys.argv[1:] else show(None)


if __name__ == "__main__":
    sys.exit(guarded(main))
