"""kill -9, SIGSTOP, cut links and lost LANs, at random, over two I/O units with three hosts each and pairs of verbs
programs, all under traffic. Whatever happens to one, the others continue, it comes back, and nothing is left behind.

    python3 tests/integration/test_kills.py [--kills 50] [--seed N]     the same seed repeats the same order of events
    tools/check.sh kill                                                 1000 kills

The clock of "first frame": it starts when the new process executes its program (of a unit and a host that were both killed, the later
one); for what was stopped, when it continues; for a LAN, when the command starts that brings it back. It ends when an
answer from a station of the LAN arrives in the host's stack. Where both processes survive (a cut bridge), the time is the
longest one without an answer. For verbs programs it ends when both ends of a new pair have exchanged a message and ended.

On a machine that does other work, too, the drivers wait for a processor. The limit holds for the time less what the
host's driver and its unit waited in the meantime; without other work the two are the same. "waited" is what Linux calls
run delay. The limit on the time in which an undisturbed host gets no answer is likewise for that time less the waiting.
Neither counts the times in which the program that sends the requests did not run.
"""

import argparse
import ctypes
import heapq
import itertools
import math
import os
import random
import signal
import socket
import statistics
import sys
import time
import unittest
from collections import defaultdict
from pathlib import Path

import support
from kill_plan import HOSTS, KILLED, OTHERS, SIDES, draw
from lab import Host, IoUnit, Lab, LabError, traffic, wait_until
from lab.process import children, ended
from verbs_pair import PersistentServer, PingPong, wait_end

BEAT_SECONDS = 0.004
# The goal for the 99th percentile of the first frame after a restart, and the limit that fails the campaign: it runs
# beside other tests.
GOAL_SECONDS = 0.1
FIRST_FRAME_SECONDS = 1.0
# Hosts to which nothing happens: this share of their frames may be lost.
MOST_LOST = 0.05
ASK_AGAIN_MILLISECONDS = 100
ASK_TIMES = 600  # Linux gives up after three questions, and ends connections that wait for the answer
# For everything that must happen, on a machine on which ten programs want each core.
SETTLE_SECONDS = 30
PROGRESS_KILLS = 100  # a line after so many
FILE_BYTES = 4_000_000
DOWNLOAD_RATE = "2M"
FLOOD_BITS = "4M"
KEPT_OF_THE_FABRIC = {"local-ids", "bindings"}
SUMS_OF_THE_FABRIC = "sysfs"  # the folder of the sums of all programs, also of those that have ended
_PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)


def p99(values):
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


class Answers:
    """The answers to the beats of all hosts, read as they come: of each host a list of (arrived, sent, number)."""

    def __init__(self, lab, hosts_and_targets):
        script = Path(traffic.__file__).with_name("beats.py")
        words = [f"{host.ns.name}={target}" for host, target in hosts_and_targets]
        self.process = lab.start("beats", ["python3", "-B", script, BEAT_SECONDS, *words])
        self._lines = open(self.process.log, encoding="ascii")
        self._rest = ""
        self._of = {host.ns.name: [] for host, _ in hosts_and_targets}
        self.not_sent = self._of["-"] = []  # times in which no requests were sent: (end, beginning, 0)

    def of(self, host):
        self._rest += self._lines.read()
        lines = self._rest.split("\n")
        self._rest = lines.pop()
        for name, arrived, sent, number in map(str.split, lines):
            self._of[name].append((float(arrived), float(sent), int(number)))
        return self._of[host.ns.name]

    def first_after(self, host, moment):
        """When the first answer after the moment arrived; None: not yet."""
        return next((arrived for arrived, _, _ in self.of(host) if arrived > moment), None)

    def around(self, host, since, until):
        """The answers between two moments, with the last one before and the first one after."""
        answers = self.of(host)
        first = max((at for at, answer in enumerate(answers) if answer[0] <= since), default=0)
        last = next((at for at, answer in enumerate(answers) if answer[0] >= until), len(answers) - 1)
        return answers[first:last + 1]

    def not_sent_between(self, since, until):
        """The seconds between two moments in which no requests were sent."""
        return overlap(self.not_sent, since, until)

    def forget(self):
        for answers in self._of.values():
            del answers[:-1]

    def close(self):
        self.process.stop()
        self._lines.close()


def overlap(not_sent, since, until):
    return sum(max(min(until, end) - max(since, begin), 0.0) for end, begin, _ in not_sent)


def longest_gap(answers, not_sent=()):
    """The longest time without an answer, less the times in which no requests were sent."""
    times = sorted(arrived for arrived, _, _ in answers)
    return max((b - a - overlap(not_sent, a, b) for a, b in zip(times, times[1:])), default=0.0)


def lost(answers):
    """How many requests had no answer, of how many, between the first and the last one that had."""
    numbers = {number for _, _, number in answers}
    sent = max(numbers) - min(numbers) + 1
    return sent - len(numbers), sent


class Downloads:
    """A host loads a file again and again. Its connections survive whatever happens."""

    def __init__(self, lab, side):
        self.lab, self.host = lab, side.hosts[-1]
        self.web = traffic.WebServer(lab, side.lan.ns, side.lan.address, folder=f"www{side.number}")
        self.web.add("file", FILE_BYTES)
        self.done = 0
        self.begin()

    def begin(self):
        self.running = traffic.Download(self.lab, self.host.ns, f"{self.web.url}/file", limit_rate=DOWNLOAD_RATE,
                                        connect_seconds=60)

    def check(self):
        if not self.running.process.running():
            self.finish()
            self.begin()

    def finish(self):
        digest, _ = self.running.finish(SETTLE_SECONDS + FILE_BYTES / 2e6)
        if digest != self.web.hashes["file"]:
            raise LabError(f"{self.host.name}: the file that arrived is not the one that was sent")
        self.done += 1


def ask_again_soon(namespace, interface):
    """A restart may cost one frame. If that is a question for an address, Linux asks again after a second, which says
    nothing about the drivers."""
    namespace.sysctl(f"net/ipv4/neigh/{interface}/retrans_time_ms", ASK_AGAIN_MILLISECONDS)
    namespace.sysctl(f"net/ipv4/neigh/{interface}/mcast_solicit", ASK_TIMES)


class Side:
    """A LAN with an I/O unit and its hosts."""

    def __init__(self, lab, number):
        self.number = number
        self.lan = lab.lan(number=number)
        self.state = lab.dir / f"state{number}"
        self.unit = IoUnit(lab, self.lan, ["--state-directory", self.state], name=f"unit{number}").start()
        self.hosts = [Host(lab, self.unit, number * 10 + host + 1).start() for host in range(HOSTS)]
        for host in self.hosts:
            ask_again_soon(host.ns, host.tap)
        ask_again_soon(self.lan.ns, self.lan.peer_if)
        for host in self.hosts:
            traffic.reaches(lab, host.ns, self.lan.address)
        # Otherwise the hosts would look for the station's new address.
        self.lan.peer_mac = self.lan.ns.mac(self.lan.peer_if)

    @property
    def daemons(self):
        return [self.unit, *self.hosts]


def cut_bridge(unit, host):
    """Shuts down the socket of the host's doorbell, by which both ends learn that the bridge is gone. The unit has made
    it; both processes live on."""
    shut = 0
    process = os.pidfd_open(host.process.pid)
    try:
        for descriptor in map(int, os.listdir(f"/proc/{host.process.pid}/fd")):
            copy = _libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
            if copy < 0 or not os.readlink(f"/proc/self/fd/{copy}").startswith("socket:"):
                if copy >= 0:
                    os.close(copy)
                continue
            with socket.socket(fileno=copy) as doorbell:
                if doorbell.family == socket.AF_UNIX and maker(doorbell) == unit.process.pid:
                    doorbell.shutdown(socket.SHUT_RDWR)
                    shut += 1
    finally:
        os.close(process)
    if shut == 0:
        raise LabError(f"{host.name} has no bridge to {unit.name}")


def maker(peer):
    """The pid of the process at the other end of a Unix socket, or of the one that made the pair."""
    return int.from_bytes(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)


class Round:
    """One round of the campaign: what was struck, and from when on the first frame is awaited."""

    def __init__(self, campaign, events):
        self.campaign, self.events = campaign, events
        self.began = time.time()
        self.clocks = {}     # host: (kind of event, moment, what drivers had waited for a processor until then)
        self.cuts = {}       # host: (moment, sessions before)
        self.dying = []      # privileged processes whose daemon was killed
        self.struck = set()  # daemons
        self.pair = None     # (kind, pair, moment)
        self._agenda, self._order = [], itertools.count()

    def later(self, seconds, action):
        heapq.heappush(self._agenda, (time.monotonic() + seconds, next(self._order), action))

    def run(self):
        for event in self.events:
            self.later(event.at, lambda event=event: getattr(self, event.kind.replace(" ", "_"))(event))
        while self._agenda:
            due, _, action = heapq.heappop(self._agenda)
            time.sleep(max(due - time.monotonic(), 0))
            action()

    def side(self, event):
        return self.campaign.sides[event.side]

    def victim(self, event):
        return self.side(event).hosts[event.who]

    def clock(self, hosts, kind, moment):
        for host in hosts:
            self.clocks[host] = (kind, moment, {daemon.process.pid: daemon.process.waited_seconds()
                                                for daemon in (host, host.unit) if daemon.process.running()})

    # Kills.

    def kill(self, daemon):
        self.struck.add(daemon)
        self.dying += children(daemon.process.pid)
        daemon.kill9()

    def launch(self, event, daemon, hosts):
        self.clock(hosts, event.kind, math.inf)
        daemon.launch()
        for host in hosts:
            kind, _, waited = self.clocks[host]
            self.clocks[host] = (kind, daemon.process.began, waited)

    def kill_and_start(self, event, daemon, hosts):
        self.kill(daemon)
        self.later(event.held, lambda: self.start(event, daemon, hosts))

    def start(self, event, daemon, hosts):
        self.launch(event, daemon, hosts)
        if event.again:
            self.later(event.again, lambda: self.start_again(event, daemon, hosts))

    def start_again(self, event, daemon, hosts):
        self.kill(daemon)
        self.launch(event, daemon, hosts)

    def host(self, event):
        self.kill_and_start(event, self.victim(event), [self.victim(event)])

    def unit(self, event):
        self.kill_and_start(event, self.side(event).unit, self.side(event).hosts)

    def unit_and_host(self, event):
        self.kill(self.victim(event))
        self.unit(event)
        self.later(event.held / 2, lambda: self.launch(event, self.victim(event), [self.victim(event)]))

    def kill_rights(self, event, daemon, hosts):
        self.struck.add(daemon)
        os.kill(daemon.rights(), signal.SIGKILL)
        code = wait_end(daemon.process, SETTLE_SECONDS)[0]
        self.campaign.test.assertEqual(code, 1, f"{daemon.name} after the end of its privileged process")
        self.later(event.held, lambda: self.start(event, daemon, hosts))

    def host_rights(self, event):
        self.kill_rights(event, self.victim(event), [self.victim(event)])

    def unit_rights(self, event):
        self.kill_rights(event, self.side(event).unit, self.side(event).hosts)

    # Processes that stand still.

    def stop(self, event, daemon, hosts):
        daemon.suspend()
        self.clock(hosts, event.kind, math.inf)

        def go_on():
            self.clock(hosts, event.kind, time.time())
            daemon.resume()
        self.later(event.held, go_on)

    def host_stopped(self, event):
        self.stop(event, self.victim(event), [self.victim(event)])

    def unit_stopped(self, event):
        self.stop(event, self.side(event).unit, self.side(event).hosts)

    def rights_stopped(self, event):
        rights = self.victim(event).rights()
        os.kill(rights, signal.SIGSTOP)
        self.later(event.held, lambda: os.kill(rights, signal.SIGCONT))

    # Links.

    def bridge_cut(self, event):
        host = self.victim(event)
        self.cuts[host] = (time.time(), self.campaign.sessions(host))
        cut_bridge(self.side(event).unit, host)

    def lose_lan(self, event, lose, restore):
        side = self.side(event)
        self.clock(side.hosts, event.kind, math.inf)
        lose()

        def come_back():
            self.clock(side.hosts, event.kind, time.time())
            restore()
        self.later(event.held, come_back)

    def cable_cut(self, event):
        self.lose_lan(event, self.side(event).lan.unplug, self.side(event).lan.plug)

    def interface_removed(self, event):
        lan = self.side(event).lan

        def restore():
            lan.restore_interface()
            ask_again_soon(lan.ns, lan.peer_if)
        self.lose_lan(event, lan.remove_interface, restore)

    def interface_down(self, event):
        lan = self.side(event).lan
        self.lose_lan(event, lambda: lan.unit_ns.ip("link", "set", lan.unit_if, "down"),
                      lambda: lan.unit_ns.ip("link", "set", lan.unit_if, "up"))

    # Verbs programs.

    def verbs_client(self, event):
        pair = self.campaign.pairs[event.who]
        pair.client.kill9()
        if not pair.outlives_client:
            self.campaign.survivor_ends(pair.server)
        self.later(event.held, lambda: self.start_pair(event, pair))

    def verbs_server(self, event):
        pair = self.campaign.pairs[event.who]
        pair.server.kill9()
        self.campaign.survivor_ends(pair.client)
        self.later(event.held, lambda: self.start_pair(event, pair))

    def start_pair(self, event, pair):
        self.pair = (event.kind, pair, time.time())
        if not pair.server.running():
            pair.launch_server(endless=pair.outlives_client)

    def verbs_stopped(self, event):
        pair = self.campaign.pairs[event.who]
        pair.server.signal(signal.SIGSTOP)
        self.later(event.held, lambda: pair.server.signal(signal.SIGCONT))


class Campaign:
    """All that runs, and what was measured."""

    def __init__(self, test, lab, sides, pairs, answers, downloads):
        self.test, self.lab, self.sides, self.pairs = test, lab, sides, pairs
        self.answers, self.downloads = answers, downloads
        self.seconds = defaultdict(list)  # by kind of event
        self.busy = []     # those after restarts of drivers, less times without requests and waiting for a processor
        self.counts = defaultdict(int)
        self.ends = []     # how long the survivor of a pair took to end
        self.pauses = []   # the longest time without an answer, of a host to which nothing happened
        self.faults = []   # the same, less the times without requests and what drivers waited for a processor
        self.lost = self.sent = 0

    @property
    def daemons(self):
        return [daemon for side in self.sides for daemon in side.daemons]

    @property
    def hosts(self):
        return [host for side in self.sides for host in side.hosts]

    @property
    def processes(self):
        return [daemon.process for daemon in self.daemons]

    @staticmethod
    def sessions(host):
        return host.process.text().count(" up: I/O unit")

    def survivor_ends(self, process):
        killed = time.time()
        code, now = wait_end(process, SETTLE_SECONDS)
        self.ends.append(now - killed)
        self.test.assertGreaterEqual(code, 0, f"{process.name} ends by itself, and not by a signal")

    def await_answer(self, host, moment, what):
        return wait_until(lambda: self.answers.first_after(host, moment), SETTLE_SECONDS,
                          f"the first frame of {host.name}, {what}")

    def run(self, events):
        """One round, and all checks that belong to it."""
        before = {daemon: (daemon.process.pid, daemon.rights()) for daemon in self.daemons}
        waited_before = {process.pid: process.waited_seconds() for process in self.processes}
        started = Round(self, events)
        started.run()
        if started.pair:
            self.await_pair(*started.pair)
        for host, (kind, moment, waited) in started.clocks.items():
            arrived = self.await_answer(host, moment, kind)
            seconds = arrived - moment
            self.seconds[kind].append(seconds)
            if kind in KILLED:
                not_sent = self.answers.not_sent_between(moment, arrived)
                self.busy.append(max(seconds - not_sent - self.waiting(host, waited), 0.0))
        for host, (moment, sessions) in started.cuts.items():
            self.await_session(host, moment, sessions)
        until = time.time()
        for event in events:
            self.counts[event.kind] += 1
        self.check_processes(started, before)
        for host in set(self.hosts) - set(started.clocks) - set(started.cuts):
            self.check_undisturbed(host, started.began, until, waited_before)
        for pair in self.pairs:
            pair.wait_moving()
        for download in self.downloads:
            download.check()
        self.answers.forget()

    @staticmethod
    def waiting(host, before):
        """What the host's driver and its unit have waited for a processor. before: by pid, what doesn't count."""
        return sum(daemon.process.waited_seconds() - before.get(daemon.process.pid, 0.0) for daemon in (host, host.unit))

    def await_pair(self, kind, pair, moment):
        self.seconds[kind].append(pair.first_message(SETTLE_SECONDS) - moment)
        pair.start()

    def await_session(self, host, moment, sessions):
        wait_until(lambda: self.sessions(host) > sessions, SETTLE_SECONDS, f"a new session of {host.name}")
        self.await_answer(host, time.time(), "bridge cut")
        self.seconds["bridge cut"].append(longest_gap(self.answers.around(host, moment, time.time())))

    def check_processes(self, started, before):
        for rights in started.dying:
            wait_until(lambda rights=rights: ended(rights), SETTLE_SECONDS, "the other process of a daemon to end")
        for daemon in self.daemons:
            self.test.assertTrue(daemon.process.running(), f"{daemon.name} runs: {daemon.process.last_line()}")
            if daemon not in started.struck:
                self.test.assertEqual((daemon.process.pid, daemon.rights()), before[daemon], daemon.name)
            else:
                self.test.assertIsNotNone(daemon.rights(), f"{daemon.name} has its privileged process")

    def check_undisturbed(self, host, since, until, waited_before):
        self.await_answer(host, until, "to which nothing happened")
        answers = self.answers.around(host, since, until)
        self.pauses.append(longest_gap(answers))
        self.faults.append(max(longest_gap(answers, self.answers.not_sent) - self.waiting(host, waited_before), 0.0))
        missing, sent = lost(answers)
        self.lost += missing
        self.sent += sent

    def footprint(self):
        """Of each kind of process: how many descriptors it has, and how often a memory of a bridge is mapped."""
        found = {}
        for daemon in self.daemons:
            for role, pid in ((daemon.role, daemon.process.pid), (f"{daemon.role} rights", daemon.rights())):
                maps = Path(f"/proc/{pid}/maps").read_text().count("/memfd:")
                descriptors = len(os.listdir(f"/proc/{pid}/fd"))
                most = found.get(role, (0, 0))
                found[role] = (max(most[0], descriptors), max(most[1], maps))
        return found

    def table(self):
        lines = [f"{'first frame after':18} {'events':>6} {'frames':>6} {'median':>7} {'p99':>7} {'max':>7}  (ms)"]

        def line(name, events, values):
            if values:
                numbers = " ".join(f"{value * 1000:7.1f}"
                                   for value in (statistics.median(values), p99(values), max(values)))
                lines.append(f"{name:18} {events:6} {len(values):6} {numbers}")
        for kind in (*KILLED, *OTHERS):
            line(kind, self.counts[kind], self.seconds[kind])
        drivers = [kind for kind in KILLED if not kind.startswith("verbs")]
        events = sum(self.counts[kind] for kind in drivers)
        line("drivers restarted", events, [value for kind in drivers for value in self.seconds[kind]])
        line("  less the waiting", events, self.busy)
        restarted = p99([value for kind in drivers for value in self.seconds[kind]] or [0.0])
        lines.append(f"goal: drivers restarted p99 below {GOAL_SECONDS * 1000:.0f} ms: "
                     f"{'met' if restarted < GOAL_SECONDS else 'MISSED'}")
        lines.append("longest time without an answer, or until the end:")
        line("undisturbed hosts", sum(self.counts.values()), self.pauses)
        line("  less the waiting", sum(self.counts.values()), self.faults)
        line("survivor of a pair", len(self.ends), self.ends)
        lines.append(f"undisturbed hosts lost {self.lost} of {self.sent} frames; {self.counts['rights stopped']} privileged"
                     f" processes stood still; {sum(download.done for download in self.downloads)} downloads")
        return "\n".join(lines)


class Kills(support.LabTestCase):
    kills = 50
    seed = None  # None: by chance

    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.lab.__enter__()
        cls.addClassCleanup(cls.nothing_is_left, cls.lab.dir, cls.lab.prefix)
        cls.addClassCleanup(cls.lab.close)
        try:
            cls.runtime = cls.lab.dir / "runtime"
            cls.runtime.mkdir(mode=0o700)
            cls.sides = [Side(cls.lab, side + 1) for side in range(SIDES)]
            cls.verbs_ns = cls.lab.namespace("verbs")
            cls.pairs = [kind(cls.lab, cls.verbs_ns, cls.runtime, at)
                         for at, kind in enumerate((PingPong, PersistentServer))]
            for pair in cls.pairs:
                pair.start()
        except BaseException:
            print(cls.lab.log_tails(), file=sys.stderr)
            raise

    @staticmethod
    def nothing_is_left(folder, prefix):
        """After the laboratory's end, however the campaign went."""
        assert not folder.exists()
        assert not [name for name in os.listdir("/run/netns") if name.startswith(f"{prefix}-")]

        def remaining():
            return [process.name for process in Path("/proc").iterdir() if process.name.isdecimal()
                    and str(folder).encode() in command_line(process)]
        wait_until(lambda: not remaining(), SETTLE_SECONDS, "the end of all processes")

    def setUp(self):
        self.hosts_and_targets = [(host, side.lan.address) for side in self.sides for host in side.hosts]
        self.answers = Answers(self.lab, self.hosts_and_targets)
        self.addCleanup(self.answers.close)
        for side in self.sides:
            flood = traffic.udp_flood(self.lab, side.lan.ns, side.hosts[0].address, bits=FLOOD_BITS)
            flood.__enter__()
            self.addCleanup(flood.__exit__, None, None, None)
        self.campaign = Campaign(self, self.lab, self.sides, self.pairs, self.answers,
                                 [Downloads(self.lab, side) for side in self.sides])

    def test_kills_hurt_nobody_else_and_leave_nothing(self):
        seed = random.randrange(1 << 32) if self.seed is None else self.seed
        print(f"\n{self.kills} kills, seed {seed}", flush=True)
        before = self.campaign.footprint()
        done = said = 0
        try:
            for number, events in enumerate(draw(seed, self.kills)):
                now = f"seed {seed}, round {number}: {', '.join(event.kind for event in events)}"
                self.campaign.run(events)
                done += sum(event.kills for event in events)
                if done >= said + PROGRESS_KILLS:
                    said = done
                    print(f"{done} kills", flush=True)
        except LabError as error:
            self.fail(f"{now}: {error}")
        finally:
            print(f"the last round: {now}\n{self.campaign.table()}", flush=True)
        wait_until(lambda: all(now <= then for role, then in before.items()
                               for now, then in zip(self.campaign.footprint()[role], then)),
                   SETTLE_SECONDS, f"no more descriptors and memories than before: {before}, "
                                   f"now {self.campaign.footprint()}")
        self.assertLess(p99(self.campaign.busy), FIRST_FRAME_SECONDS)
        self.assertLess(max(self.campaign.faults), support.RESUME_SECONDS)
        self.assertLessEqual(self.campaign.lost, self.campaign.sent * MOST_LOST)
        self.finish()

    def finish(self):
        """Everything ends in order; then nothing is left but what is meant to stay."""
        for download in self.campaign.downloads:
            download.finish()
        for pair in reversed(self.pairs):  # rping does not close its device, ibv_rc_pingpong does
            pair.last_message(SETTLE_SECONDS)
        left = {path for path in self.files(self.runtime) if SUMS_OF_THE_FABRIC not in path.parts}
        self.assertEqual({path.name for path in left} - KEPT_OF_THE_FABRIC, set())
        for side in self.sides:
            for daemon in reversed(side.daemons):
                self.assertEqual(daemon.stop(), 0, daemon.name)
            for host in side.hosts:
                self.assertNotIn(host.tap, host.ns.links())
            names = f"names-{side.unit.name}.toml"
            self.assertEqual({path.name for path in self.files(side.state)}, {names, names + ".lock"})
        self.assertEqual([path.name for path in self.lab.dir.iterdir() if path.suffix in (".sock", ".ctl")], [])
        self.assertEqual(os.listdir("/dev/shm"), [])

    @staticmethod
    def files(folder):
        return {path for path in folder.rglob("*") if not path.is_dir()}

    @classmethod
    def tearDownClass(cls):
        """The daemons have ended: there is nobody to ask."""


class Gaps(unittest.TestCase):
    def test_a_time_without_requests_is_no_gap(self):
        answers = [(at, at - 0.001, at) for at in (1.0, 1.1, 2.0, 2.3)]
        self.assertAlmostEqual(longest_gap(answers), 0.9)
        self.assertAlmostEqual(longest_gap(answers, [(1.9, 1.2, 0)]), 0.3)
        self.assertAlmostEqual(longest_gap(answers, [(1.9, 1.5, 0), (3.0, 2.2, 0)]), 0.5)


class Plans(unittest.TestCase):
    def test_the_same_seed_draws_the_same_events(self):
        self.assertEqual(draw(7, 200), draw(7, 200))
        self.assertNotEqual(draw(7, 200), draw(8, 200))

    def test_a_short_campaign_has_every_kind_of_event_and_the_kills_that_were_asked_for(self):
        for seed in range(50):
            events = [event for events in draw(seed, 50) for event in events]
            self.assertEqual(sum(event.kills for event in events), 50)
            self.assertEqual({event.kind for event in events}, {*KILLED, *OTHERS})
            self.assertTrue(any(event.again for event in events))


def command_line(process):
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def with_own_shared_memory():
    """Starts this program again with a /dev/shm of its own, so that all that is in it is the campaign's."""
    if os.environ.get("SPLITNIC_OWN_SHARED_MEMORY") or support.not_permitted():
        return
    os.environ["SPLITNIC_OWN_SHARED_MEMORY"] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "slave", "sh", "-c",
                          'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh", sys.executable, "-B", *sys.argv])


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--kills", type=int, default=Kills.kills)
    parser.add_argument("--seed", type=int)
    arguments, others = parser.parse_known_args()
    Kills.kills, Kills.seed = arguments.kills, arguments.seed
    with_own_shared_memory()
    sys.argv[1:] = others
    support.main()


if __name__ == "__main__":
    main()
