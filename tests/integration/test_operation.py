"""The operator's view: a machine that has just booted, commands by hand, status, signals, logs that nobody reads."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import jsonschema

import support
from lab import Host, IoUnit, Lab, traffic, wait_until
from lab.process import children, run
from support import GUEST

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMA = json.loads((DOCS / "schemas" / "status.schema.json").read_text(encoding="utf-8"))
STRANGER = 65533
STATUS_SECONDS = 1.5  # the limit for the delay by a daemon that does not answer
STATUS_TRIES = 3


def as_user(user, *words):
    return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *words]


def end(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


class Machine:
    """Namespaces of a machine that has just booted: nothing in /run, and the interface eth1 for a LAN."""

    def __init__(self, lab, name):
        self.lab = lab
        self.init = lab.start(name, ["unshare", "-mn", "--propagation", "private", "sh", "-ec",
                                     "mount -t tmpfs -o mode=755 tmpfs /run; echo booted; exec sleep infinity"])
        self.init.wait_for_text("booted")
        self.run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "peer1")
        for interface in ("lo", "eth1", "peer1"):
            self.run("ip", "link", "set", interface, "up")

    def argv(self, words):
        return ["nsenter", "-t", str(self.init.pid), "-m", "-n", "--", *map(str, words)]

    def run(self, *words, **options):
        return run(words, netns=self, **options)

    def status(self, *words, user=0):
        command = [self.lab.splitnic, "status", *words]
        return self.run(*(as_user(user, *command) if user else command), check=False)

    def start(self, name, *words, user=0):
        """A daemon of this machine, as somebody would type it."""
        command = [self.lab.splitnic, *words]
        if user:
            command = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps", "+net_admin",
                       "--ambient-caps", "+net_admin", *command]
        return self.lab.start(name, self.argv(command))

    def stop(self):
        self.init.stop()

    def mode(self, path):
        return stat.S_IMODE(os.stat(f"/proc/{self.init.pid}/root{path}").st_mode)

    def exists(self, path):
        return os.path.lexists(f"/proc/{self.init.pid}/root{path}")


class ByHand(support.LabTestCase):
    """The README's commands, each on a machine of its own."""

    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.lab.__enter__()
        cls.addClassCleanup(cls.lab.close)

    def setUp(self):
        self.machine = Machine(self.lab, self.id().rpartition(".")[2])
        self.addCleanup(self.machine.stop)

    def start(self, *words, **options):
        process = self.machine.start(str(words[0]), *words, **options)
        self.addCleanup(process.stop)
        return process

    def start_unit(self, *words):
        unit = self.start("iounit", "--listen", "/run/splitnic/lan0.sock", "--lan", "eth1", *words)
        unit.wait_for_text("serving eth1")
        return unit

    def start_host(self, tap, *words, **options):
        return self.start("host", "--connect", "shm:/run/splitnic/lan0.sock", "--tap", tap, *words, **options)

    def wait_up(self, *hosts):
        for host in hosts:
            host.wait_for_text(": up: I/O unit")

    def test_the_two_commands_on_a_machine_that_has_just_booted(self):
        machine = socket.gethostname()[-40:]
        for first in ("host", "iounit"):
            with self.subTest(first=first):
                self.assertFalse(self.machine.exists("/run/splitnic"))
                early = [self.start_host("vnic0")] if first == "host" else []
                unit = self.start_unit()
                hosts = early or [self.start_host("vnic0")]
                hosts.append(self.start_host("vnic1"))
                self.wait_up(*hosts)
                self.assertEqual(self.machine.mode("/run/splitnic"), 0o755)
                self.assertEqual(self.machine.mode("/run/splitnic/control"), 0o700)
                done = self.machine.status()
                self.assertEqual(done.returncode, 0, done.stderr)
                # Every daemon can be distinguished from the others, although none has a name set by hand.
                self.assertRegex(done.stdout, rf"iounit \S*{machine}-eth1: serving, LAN eth1, .*pid {unit.pid}\n")
                for tap, host in zip(("vnic0", "vnic1"), hosts):
                    self.assertRegex(done.stdout, rf"host \S*{machine}-{tap}: up, TAP {tap}, .*pid {host.pid}\n")
                for daemon in (*hosts, unit):
                    self.assertEqual(daemon.stop(), 0)
                self.machine.stop()
                self.machine = Machine(self.lab, f"again-{first}")  # the next boot
                self.addCleanup(self.machine.stop)

    def test_a_folder_that_a_service_manager_made(self):
        self.machine.run("install", "-d", "-m", "0755", "/run/splitnic")
        self.start_unit()
        self.wait_up(self.start_host("vnic0"))
        self.assertEqual(self.machine.mode("/run/splitnic"), 0o755)

    def test_a_folder_where_others_may_write_is_refused(self):
        self.machine.run("install", "-d", "-m", "0777", "/run/splitnic")
        unit = self.start("iounit", "--listen", "/run/splitnic/lan0.sock", "--lan", "eth1")
        self.assertEqual(unit.wait(5), 1)
        self.assertRegex(unit.last_line(), "/run/splitnic: exists, but .* --control")

    def test_hosts_of_other_users(self):
        support.need_other_users()
        # Wherever this machine lets ordinary users open it or not.
        self.machine.run("sh", "-ec", "mount -t tmpfs tmpfs /dev/net; mknod -m 0666 /dev/net/tun c 10 200")
        unit = self.start_unit("--allow-uid", GUEST)
        for user in (GUEST, STRANGER):
            self.machine.run("install", "-d", "-m", "0700", "-o", user, f"/run/user-{user}")
        guest = self.start_host("vnic0", "--control", f"/run/user-{GUEST}/h.ctl", user=GUEST)
        self.wait_up(guest)
        self.assertNotIn("can't connect", unit.text())
        stranger = self.start_host("vnic1", "--control", f"/run/user-{STRANGER}/h.ctl", user=STRANGER)
        stranger.wait_for_text("does not permit this user to connect")
        # The host continues to try, less and less often; each side reports that once.
        attempts = self.refusals() + 3
        wait_until(lambda: self.refusals() >= attempts, 10, "three more attempts of the stranger")
        self.assertEqual(stranger.text().count("trying again"), 1, stranger.text())
        self.assertEqual(unit.text().count("a connection was refused"), 1, unit.text())

    def refusals(self):
        done = self.machine.run(self.lab.splitnic, "stats", "--json")
        return sum(daemon["drops"].get("connections_refused_credentials", 0) for daemon in json.loads(done.stdout))

    def test_a_folder_that_other_users_cannot_enter(self):
        self.machine.run("install", "-d", "-m", "0700", "/run/closed")
        unit = self.start("iounit", "--listen", "/run/closed/lan0.sock", "--lan", "eth1", "--allow-gid", "nogroup")
        unit.wait_for_text("the folder of /run/closed/lan0.sock is closed to other users")

    def test_daemons_of_another_user_are_named(self):
        support.need_other_users()
        unit = self.start_unit()
        done = self.machine.status(user=GUEST)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, rf"not asked: iounit of user root, pid {unit.pid} \(")
        self.assertNotIn("no daemon", done.stdout)
        self.assertNotIn(f"pid {children(unit.pid)[0]} ", done.stderr)  # the unit's privileged process

    def test_a_daemon_whose_control_socket_has_another_name_is_asked_once(self):
        self.machine.run("install", "-d", "-m", "0700", "/run/splitnic/control")
        unit = self.start_unit("--control", "/run/splitnic/control/mine.sock")
        done = self.machine.status()
        self.assertEqual(done.returncode, 0)
        self.assertNotIn(f"pid {unit.pid} ", done.stderr)  # those of other tests may run beside this one
        self.assertIn(": serving, LAN eth1", done.stdout)

    def test_hosts_in_pid_namespaces_of_their_own_share_the_folder_of_control_sockets(self):
        unit = self.start_unit()
        hosts = []
        for tap in ("vnic0", "vnic1"):
            around = self.lab.start(f"host-{tap}", self.machine.argv(
                ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", self.lab.splitnic, "host", "--connect",
                 "shm:/run/splitnic/lan0.sock", "--tap", tap]))
            self.addCleanup(around.stop)
            self.wait_up(around)
            hosts.append(children(around.pid)[0])
            self.addCleanup(end, hosts[-1])
        done = self.machine.status()
        self.assertEqual(done.returncode, 0, done.stderr)
        for pid in (unit.pid, *hosts):
            self.assertIn(f", pid {pid}\n", done.stdout)
            self.assertNotIn(f"pid {pid} ", done.stderr)

    def test_a_host_that_waits_for_its_unit_shows_its_interface_as_it_is(self):
        host = self.start_host("vnic0")
        host.wait_for_text("serving vnic0")
        self.machine.run("ip", "link", "set", "vnic0", "address", "02:00:00:00:00:21", "mtu", "1300")
        self.assertRegex(self.machine.status().stdout, r"TAP vnic0, carrier no, MTU 1300, address 02:00:00:00:00:21, ")

    def test_an_alternative_name_of_the_lan_interface(self):
        self.machine.run("ip", "link", "property", "add", "dev", "eth1", "altname", "uplink")
        unit = self.start("iounit", "--listen", "/run/splitnic/lan0.sock", "--lan", "uplink")
        self.wait_up(self.start_host("vnic0"))
        self.assertRegex(self.machine.status().stdout, "LAN eth1, engine packet, ")
        self.machine.run("ip", "link", "set", "eth1", "down")
        unit.wait_for_text("LAN interface eth1 is down")
        self.machine.run("ip", "link", "set", "eth1", "up")
        unit.wait_for_text("LAN interface eth1 is back")

    def test_the_loopback_interface_as_a_lan(self):
        """Its MTU of 65536 is beyond the protocol's largest."""
        unit = self.start("iounit", "--listen", "/run/splitnic/lan0.sock", "--lan", "lo")
        self.wait_up(self.start_host("vnic0"))
        self.assertIn("MTU 65535", self.machine.status().stdout)
        self.assertNotIn("restarted", unit.text())
        self.machine.run("ip", "link", "set", "vnic0", "mtu", "20000")
        wait_until(lambda: " mtu 9216 " in self.machine.run("ip", "link", "show", "vnic0").stdout, 5,
                   "the TAP to have an MTU whose frames fit the session")

    def test_a_second_unit_on_an_interface_warns(self):
        warning = "another I/O unit serves the LAN interface eth1, too"
        first = self.start_unit()
        second = self.start("iounit", "--listen", "/run/splitnic/lan1.sock", "--lan", "eth1")
        second.wait_for_text("serving eth1")
        self.assertIn(warning, second.text())
        other_interface = self.start("iounit", "--listen", "/run/splitnic/lan2.sock", "--lan", "peer1")
        other_interface.wait_for_text("serving peer1")
        for alone in (first, other_interface):
            self.assertNotIn("another I/O unit", alone.text())
        self.assertEqual(second.stop(), 0)
        first.kill9()
        self.assertNotIn("another I/O unit", self.start_unit().text())

    def test_the_units_mtu_limits_its_hosts(self):
        self.start_unit("--mtu", "1280")
        host = self.start_host("vnic0")
        host.wait_for_text("MTU up to 1280")
        self.assertRegex(self.machine.status().stdout, "iounit .*MTU 1280")
        wait_until(lambda: " mtu 1280 " in self.machine.run("ip", "link", "show", "vnic0").stdout, 5,
                   "the TAP to have the unit's MTU")

    def test_a_lan_with_an_mtu_below_the_least(self):
        self.machine.run("ip", "link", "set", "lo", "mtu", "67")
        unit = self.start("iounit", "--listen", "/run/splitnic/lan0.sock", "--lan", "lo")
        host = self.start_host("vnic0")
        host.wait_for_text("the MTU of LAN lo is 67, below the minimum of 68; trying again")
        self.machine.run("ip", "link", "set", "lo", "mtu", "68")
        self.wait_up(host)
        self.assertEqual(unit.text().count("refused host"), 1, unit.text())

    def test_namespaces_by_path_and_by_pid(self):
        other = Machine(self.lab, "other")
        self.addCleanup(other.stop)
        for number, which in enumerate((other.init.pid, f"/proc/{other.init.pid}/ns/net")):
            unit = self.start("iounit", "--listen", f"/run/splitnic/{number}.sock", "--lan", "eth1", "--netns", which)
            unit.wait_for_text("serving eth1")
            self.assertEqual(unit.stop(), 0)


class Steering(support.LabTestCase):
    """Requests and signals to running daemons."""

    hosts = 2

    def status(self, *daemons, words=("status",)):
        controls = [word for daemon in daemons for word in ("--control", daemon.control)]
        return self.lab.run_splitnic(*words, *controls)

    def timed_status(self, *daemons):
        started = time.monotonic()
        done = self.status(*daemons)
        return time.monotonic() - started, done

    def test_json_is_as_documented(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        validator = jsonschema.Draft202012Validator(SCHEMA)
        for words in (("status", "--json"), ("stats", "--json")):
            for daemons in ((self.unit,), (self.host[0],), (self.unit, *self.host)):
                answer = json.loads(self.status(*daemons, words=words).stdout)
                self.assertEqual([error.message for error in validator.iter_errors(answer)], [])
        unit = json.loads(self.status(self.unit, words=("stats", "--json")).stdout)
        broken = {**unit, "new_key": 1}
        self.assertFalse(validator.is_valid(broken), "the schema names every key")

    def test_output_that_cannot_be_written_is_an_error(self):
        for words in (("status", "--json"), ("stats",), ("policy", "show"), ("--help",), ("--version",),
                      ("host", "--help")):
            control = [] if words[-1].startswith("--") and words[-1] != "--json" else ["--control", self.unit.control]
            with open("/dev/full", "wb") as full:
                done = subprocess.run([self.lab.splitnic, *words, *control], stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=20, check=False)
            self.assertEqual(done.returncode, 1, words)
            self.assertRegex(done.stderr, r"\Asplitnic: .*: No space left on device\n\Z", words)

    def test_every_key_has_its_line_in_the_manual(self):
        manual = (DOCS / "operations.md").read_text(encoding="utf-8")
        for kind in ("daemon", "peer"):
            for key in SCHEMA["$defs"][kind]["properties"]:
                self.assertTrue(f"| `{key}` |" in manual, f"{key} of a {kind} is not in docs/operations.md")

    def test_a_stopped_daemon_delays_the_others_answers_little(self):
        self.host[0].suspend()
        self.addCleanup(self.host[0].resume)
        usual = min(self.timed_status(self.unit, self.host[1])[0] for _ in range(STATUS_TRIES))
        # A busy machine delays a program now and then. What the stopped daemon costs is there every time.
        delays = []
        while len(delays) < STATUS_TRIES and min(delays, default=STATUS_SECONDS) >= STATUS_SECONDS:
            seconds, done = self.timed_status(self.host[0], self.unit, self.host[1])
            delays.append(seconds - usual)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"h1\.ctl: no answer \(is the daemon stopped\?\)")
            self.assertIn("host h2: up", done.stdout)
            self.assertIn("iounit unit: serving", done.stdout)
        self.assertLess(min(delays), STATUS_SECONDS, delays)

    def test_a_hangup_changes_nothing(self):
        for daemon in (self.unit, *self.host):
            for time_of in (1, 2):
                daemon.process.signal(signal.SIGHUP)
                wait_until(lambda: daemon.process.text().count("SIGHUP: ") == time_of, 5, f"a line of {daemon.name}")
        for host in self.host:
            self.assertEqual(host.state(), "up")
            self.assert_pings(host, self.lan.address)

    def test_a_clean_end_says_no_more_than_that(self):
        guest = Host(self.lab, self.unit, 9, name="guest").start()
        lines = len(guest.process.text().splitlines())
        self.assertEqual(guest.stop(), 0)
        ending = guest.process.text().splitlines()[lines:]
        self.assertEqual(len(ending), 1, ending)
        self.assertTrue(ending[0].endswith("host guest: ending"), ending)

    def test_a_host_that_is_told_to_end_several_times_ends_as_cleanly(self):
        guest = Host(self.lab, self.unit, 9, name="guest").start()
        self.unit.suspend()  # the host waits for its answer
        self.addCleanup(self.unit.resume)
        guest.process.signal(signal.SIGTERM)
        guest.process.wait_for_text("host guest: ending")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            guest.process.signal(number)
        self.assertEqual(guest.process.wait(5), 0)
        self.assertNotIn(guest.tap, guest.ns.links())

    def test_a_host_that_is_told_to_end_while_it_starts_leaves_nothing_behind(self):
        guest = Host(self.lab, self.unit, 9, name="guest")
        for after in range(0, 30, 2):
            with self.subTest(milliseconds=after):
                guest.launch()
                time.sleep(after / 1000)  # wherever it is then
                guest.process.signal(signal.SIGTERM)
                # Before it has asked for the signal, that ends it.
                self.assertIn(guest.process.wait(5), (0, -signal.SIGTERM), guest.process.text())
                self.assertNotIn(guest.tap, guest.ns.links())
                self.assertFalse(guest.control.exists())

    def test_help_marks_what_is_required_and_shows_defaults(self):
        for command, required, default in (("host", "--tap IFNAME .*\\(required\\)", "default 256"),
                                           ("iounit", "--max-hosts COUNT .*", "1024; default 64")):
            done = self.lab.run_splitnic(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stdout, required)
            self.assertIn(default, " ".join(done.stdout.split()))
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)


class FullPipe:
    """A pipe of one page that is full and has no reader yet."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(self.writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writer, b"." * 512)
        os.set_blocking(self.writer, True)
        os.set_blocking(self.reader, False)
        self.text = b""

    def read(self):
        """The output so far."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.reader, 65536):
                self.text += chunk
        return self.text.decode()

    def close(self):
        os.close(self.reader)
        os.close(self.writer)


class UnreadLogs(support.LabTestCase):
    """Daemons whose stderr is a full pipe work nevertheless."""

    hosts = 0

    def launch(self, daemon):
        """Starts the daemon with such a pipe. A daemon that waits for its reader stands still for ever."""
        pipe = FullPipe()
        self.addCleanup(pipe.close)
        process = subprocess.Popen([str(word) for word in daemon.argv()], stdin=subprocess.DEVNULL, stderr=pipe.writer)

        def stop():
            process.kill()
            process.wait()
        self.addCleanup(stop)
        wait_until(lambda: daemon.stats() is not None, 10, f"{daemon.name} to answer")
        return process, pipe

    def test_traffic_goes_on_and_the_lines_come_later(self):
        unit = IoUnit(self.lab, self.lan, name="mute")
        unit_process, unit_log = self.launch(unit)
        host = Host(self.lab, unit, 5, name="h5")
        host_process, host_log = self.launch(host)
        wait_until(lambda: host.state() == "up", 10, "the host to be up")
        host.configure()
        for _ in range(5):  # each time a line from both
            self.lan.unplug()
            wait_until(lambda: not host.stats()["carrier"], 5, "no carrier at the host")
            self.lan.plug()
            wait_until(lambda: host.stats()["carrier"], 5, "the carrier at the host")
        traffic.reaches(self.lab, host.ns, self.lan.address)
        self.assert_pings(host, self.lan.address)
        for name, log in (("iounit mute", unit_log), ("host h5", host_log)):
            wait_until(lambda: log.read().count("carrier") >= 10, 5, f"the lines of {name}")
            self.assertNotIn("lost", log.read())
        for process in (host_process, unit_process):
            process.terminate()
            self.assertEqual(process.wait(5), 0)


if __name__ == "__main__":
    support.main()
