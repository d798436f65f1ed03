"""Bad input gives one clear line and exit code 1 or 2, or a counted drop, and disturbs nothing else."""

import contextlib
import ctypes.util
import json
import random
import re
import socket
import time

import support
from lab import Host, IoUnit, frames, traffic, wait_until
from lab.process import run

IDLE_CONNECTIONS = 200
INFO_LINE = re.compile(r"^\d\d:\d\d:\d\d\.\d+ info ")


class CommandLine(support.LabTestCase):
    """A daemon that can't start says why in one line and disturbs no other daemon."""

    hosts = 1

    def setUp(self):
        self.ping = traffic.Ping(self.lab, self.host[0].ns, self.lan.address)
        self.ping.wait_replies(3)
        self.addCleanup(lambda: self.assertEqual(self.ping.finish().missing, []))

    def refused(self, code, pattern, *words, netns=None, before=()):
        """Checks that the command ends by itself with that code, and that its one error line matches the pattern."""
        with self.subTest(command=" ".join(map(str, words))):
            done = run([*before, self.lab.splitnic, *words], netns=netns, timeout=10, check=False)
            # A daemon may report its start before it meets the fault; these lines are not the error.
            lines = [line for line in done.stderr.splitlines() if line.strip() and not INFO_LINE.match(line)]
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(len(lines), 1, f"one line, not: {done.stderr}")
            self.assertLess(len(lines[0]), 600)
            self.assertRegex(lines[0], re.compile(pattern, re.IGNORECASE))

    def unit_words(self, *words, listen="other.sock", lan="lan0"):
        return ("iounit", "--listen", self.lab.dir / listen, "--lan", lan, "--netns", self.lan.unit_ns.name, *words)

    def host_words(self, *words, connect=None, tap="tap9"):
        return ("host", "--connect", connect or f"shm:{self.unit.socket}", "--tap", tap, "--netns",
                self.host[0].ns.name, *words)

    def test_usage(self):
        self.refused(2, "--frobnicate", *self.unit_words("--frobnicate"))
        self.refused(2, "--frobnicate", *self.host_words("--frobnicate"))
        self.refused(2, "unknown command: frobnicate", "frobnicate")
        self.refused(2, r"unknown command: bogus \(there are check, show, reload\)", "policy", "bogus")
        self.refused(2, "unknown option: -x", "-x")
        self.refused(2, "unknown option: --frobnicate=1", "policy", "--frobnicate=1", "show")
        self.refused(2, "--listen is required", "iounit", "--lan", "lan0")
        self.refused(2, "--tap is required", "host", "--connect", "shm:/nowhere")
        self.refused(2, "--allow-uid: no user named nosuchuser", *self.unit_words("--allow-uid", "nosuchuser"))
        self.refused(2, "--allow-gid: no group named nosuchgroup", *self.unit_words("--allow-gid", "nosuchgroup"))
        self.refused(2, "mode", *self.unit_words("--mode", "x"))
        self.refused(2, "lan-engine", *self.unit_words("--lan-engine", "x"))
        self.refused(2, "--lan-engine goes with", *self.unit_words("--lan-engine", "pcap", lan="file:,out.pcap"))
        for words in (self.unit_words("--lan-engine", "pcap", "--threads", "2"),
                      self.unit_words("--threads", "2", lan="file:,out.pcap")):
            self.refused(2, "--threads goes with --lan INTERFACE and --lan-engine packet", *words)
        for count in ("0", "9", "x"):
            self.refused(2, "threads", *self.unit_words("--threads", count))
        self.refused(2, "mtu", *self.unit_words("--mtu", "many"))
        for mtu in ("67", "65522"):  # a TAP takes no more than 65521
            self.refused(2, rf"--mtu: {mtu} is no number from 68 to 65521", *self.host_words("--mtu", mtu))
        for count in ("-1", "65536", "99999999999999999999", "1x"):
            self.refused(2, rf"--wait-hosts: {count} is no number from 0 to 65535",
                         *self.unit_words(f"--wait-hosts={count}", lan=f"file:,{self.lab.dir}/out.pcap"))
        self.refused(2, "--wait-hosts goes with", *self.unit_words("--wait-hosts", "0"))
        self.refused(2, "mac", *self.host_words("--mac", "02:77:00"))
        self.refused(2, "mac", *self.host_words("--mac", "03:77:00:00:00:01"))
        self.refused(2, "--allow-mac h1=: not an address", *self.unit_words("--allow-mac", "h1="))
        self.refused(2, "pool-elements", *self.host_words("--pool-elements", "0"))
        for words in (self.host_words, self.unit_words):
            self.refused(2, "offloads", *words("--offloads", "tcp"))
        self.refused(2, "cell-bytes", *self.host_words("--cell-bytes", "1"))
        self.refused(2, "connect", *self.host_words(connect="pigeon:/nowhere"))

    def test_empty_values(self):
        """None of them takes the next word for its value, and none stands for the default: a script's variable is not
        set."""
        self.refused(2, "--name needs a value", *self.unit_words("--name=", "--no-sandbox"))
        for option in ("name", "user", "policy", "config", "netns", "control", "allow-uid", "state-directory"):
            self.refused(2, f"--{option} needs a value", *self.unit_words(f"--{option}", "", "--no-sandbox"))
        self.refused(2, "--allow-mac needs a value", *self.unit_words("--allow-mac", "h1=02:77:00:00:00:09", ""))
        self.refused(2, "--mac needs a value", *self.host_words("--mac", ""))
        self.refused(2, "word 2 of the command line is empty", "status", "")
        for words in (("--faults", "", "true"), ("--faults-log", "", "--", "true"), ("--share-with", "")):
            self.refused(2, f"{words[0]} needs a value", "verbs-run", *words)
        done = run([self.lab.splitnic, "verbs-run", "printf", "<%s>", "", "--name", ""], timeout=10)
        self.assertEqual(done.stdout, "<><--name><>")
        self.refused(2, "--control needs a value", "status", "--control=", "--json")
        self.refused(2, "--control needs a value", "policy", "show", "--control=", self.unit.control)
        self.refused(2, "--fabric needs a value", "verbs-run", "--fabric=", "true")
        self.refused(2, "--fabric needs a value", "verbs-run", "--placement", "none", "--fabric=", "true")
        for words in (("--check", "ls"), ("--list", "foo"), ("--list", "--", "foo")):
            self.refused(2, "--check, --list and --share-with run no program", "verbs-run", *words)
        self.refused(2, "--list.*--check|--check.*--list", "verbs-run", "--check", "--list")
        self.refused(2, "verbs-run needs a program", "verbs-run", "--placement", "none", "--")
        for words in (("--bogus", "ls"), ("--placement", "none", "--bogus=1", "ls"), ("--bogus", "--", "ls"),
                      ("--list", "--bogus"), ("-x",)):
            unknown = next(word for word in words if word == "-x" or word.startswith("--bogus"))
            self.refused(2, f"unknown option: {unknown}", "verbs-run", *words)
        self.refused(127, "splitnic: --bogus: No such file", "verbs-run", "--", "--bogus", "ls")
        for words in (("--",), ("--placement", "none", "--"), ("--placement=none", "--")):
            done = run([self.lab.splitnic, "verbs-run", *words, "echo", "-n", "--", "--list"], timeout=10)
            self.assertEqual(done.stdout, "-- --list")
        done = run([self.lab.splitnic, "verbs-run", "--placement", "none", "echo", "--name="], timeout=10)
        self.assertEqual(done.stdout, "--name=\n")
        config = self.lab.dir / "empty.toml"
        config.write_text('\nname = ""\n')
        self.refused(2, r"empty\.toml:2: --name needs a value", *self.unit_words("--config", config))

    def test_without_libpcap(self):
        """Only a LAN that needs libpcap misses it."""
        library = ctypes.util.find_library("pcap")
        path = next(line.split(" => ")[1] for line in run(["ldconfig", "-p"]).stdout.splitlines() if library in line)
        hidden = ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null "$0" && exec "$@"', path]
        for words in (self.unit_words("--lan-engine", "pcap"), self.unit_words(lan=f"file:,{self.lab.dir}/out.pcap")):
            self.refused(1, "libpcap can't be loaded", *words, before=hidden)
        other = self.lab.start("other", [*hidden, self.lab.splitnic, *self.unit_words("--lan-engine", "packet")])
        wait_until(lambda: "serving lan0" in other.text(), 10, "the start of a unit without libpcap")
        other.stop()

    def test_over_long_paths_and_names(self):
        self.refused(2, "listen", *self.unit_words(listen="x" * 120))
        self.refused(2, "connect", *self.host_words(connect="shm:/" + "x" * 120))
        self.refused(2, "control", *self.host_words("--control", self.lab.dir / ("x" * 120)))
        self.refused(2, "tap", *self.host_words(tap="averylonginterface"))
        self.refused(2, "tap", *self.host_words(tap="a/b"))
        self.refused(2, "name", *self.host_words("--name", "n" * 300))

    def test_an_error_is_one_line_whatever_the_words_contain(self):
        self.refused(2, r"--name a\?b: 1 to 64 bytes", *self.unit_words("--name", "a\nb"))
        self.refused(2, r"frob\?nicate", "frob\nnicate")
        self.refused(127, r"no\?program: No such file", "verbs-run", "no\nprogram")
        self.refused(1, r"no\?socket: No such file", "status", "--control", self.lab.dir / "no\nsocket")

    def test_missing_interface_and_namespace(self):
        self.refused(1, "nosuch0", *self.unit_words(lan="nosuch0"))
        self.refused(1, "nosuchns", "iounit", "--listen", self.lab.dir / "other.sock", "--lan", "lan0", "--netns",
                     "nosuchns")
        self.refused(1, "nosuchns", "host", "--connect", f"shm:{self.unit.socket}", "--tap", "tap9", "--netns",
                     "nosuchns")
        self.refused(1, "peer0", "host", "--connect", f"shm:{self.unit.socket}", "--tap", "peer0", "--netns",
                     self.lan.ns.name)
        self.assertFalse((self.lab.dir / "other.sock").exists())
        for name in ("all", "default"):
            self.refused(2, f"--tap: '{name}' can't be an interface name", *self.host_words(tap=name))

    def test_no_permission(self):
        support.need_other_users()
        as_nobody = ("setpriv", "--reuid", support.GUEST, "--regid", support.GUEST, "--clear-groups")
        place = self.lab.dir / "public"
        place.mkdir(exist_ok=True)
        place.chmod(0o777)
        self.lab.dir.chmod(0o755)
        self.refused(1, "lan0", "iounit", "--listen", place / "nobody.sock", "--lan", "lan0",
                     netns=self.lan.unit_ns, before=as_nobody)
        self.refused(1, "tap", "host", "--connect", f"shm:{self.unit.socket}", "--tap", "tap9",
                     netns=self.host[0].ns, before=as_nobody)

    def test_address_in_use_is_not_taken_over(self):
        self.refused(1, "unit.sock", *self.unit_words(listen="unit.sock"))
        self.assertTrue(self.unit.socket.exists())
        self.refused(1, "h1.ctl", *self.host_words("--control", self.host[0].control))
        self.assertEqual(self.host[0].state(), "up")

    def test_what_is_no_socket_is_never_removed(self):
        treasure = self.lab.dir / "treasure"
        treasure.write_text("mine\n")
        self.refused(1, "treasure", *self.unit_words(listen="treasure"))
        self.refused(1, "treasure", *self.unit_words("--control", treasure))
        self.assertEqual(treasure.read_text(), "mine\n")

    def test_a_tap_that_is_served_already(self):
        self.refused(1, "tap0", *self.host_words(tap="tap0"))

    def test_configuration_files(self):
        config = self.lab.dir / "bad.toml"
        self.refused(2, "nosuch.toml", *self.unit_words("--config", self.lab.dir / "nosuch.toml"))
        self.refused(2, "public-dir", *self.unit_words("--config", self.make_dir("public-dir")))
        for text, line in (('name = "x"\nmtu = = 3\n', 2), ("name = 'x'\n\nfrobnicate = 1\n", 3),
                           ('mtu = "many"\n', 1), ('name = "x"\nmtu = -5\n', 2), ("[[[", 1)):
            config.write_text(text)
            self.refused(2, rf"bad\.toml.*(:|line ){line}\b", *self.unit_words("--config", config))
        config.write_bytes(b"\xff\xfe\x00\x01" * 50)
        self.refused(2, "bad.toml", *self.unit_words("--config", config))

    def test_each_wrong_setting_is_named_with_its_line(self):
        config = self.lab.dir / "wrong.toml"
        right = {"iounit": {"listen": self.lab.dir / "other.sock", "lan": "lan0"},
                 "host": {"connect": f"shm:{self.unit.socket}", "tap": "tap9"}}
        both = {"log-level": "loud", "moderation": "1,2", "name": "a/b", "user": "nosuchuser", "control": "/" + "x" * 120}
        wrong = {"iounit": {**both, "listen": "/" + "x" * 120, "lan": "file:", "allow-uid": ["nosuchuser"],
                            "allow-gid": ["nosuchgroup"], "allow-mac": ["h1"], "wait-hosts": 2,
                            "policy": "/nosuch/policy"},
                 "host": {**both, "connect": "pigeon:/nowhere", "tap": "a/b", "mac": "03:77:00:00:00:01"}}
        for command, settings in wrong.items():
            for option, value in settings.items():
                lines = {option: value, **{key: str(good) for key, good in right[command].items() if key != option}}
                config.write_text("\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
                self.refused(2, rf"wrong\.toml:2: --{option}\b", command, "--config", config)
        config.write_text('log-level = "loud"\n')
        self.refused(2, r"splitnic: --log-level quiet", *self.unit_words("--config", config, "--log-level", "quiet"))
        config.write_text('policy = "/no such: policy"\n')
        self.refused(2, r"wrong\.toml:1: --policy: /no such: policy: No such", *self.unit_words("--config", config))
        self.refused(2, r"splitnic: /nosuch/policy: No such file",
                     *self.unit_words("--config", config, "--policy", "/nosuch/policy"))

    def test_a_commands_table_overrides_the_top_of_the_file(self):
        """allow-uid: the list as a whole. The error that is awaited shows which setting counts."""
        config = self.lab.dir / "both.toml"
        for text, line in (('name = "right"\n[iounit]\nname = "a/b"\n', 3), ('name = "a/b"\n[iounit]\n', 1),
                           ('allow-uid = [0, "nosuchuser"]\n[iounit]\nallow-uid = [0]\nname = "a/b"\n', 4),
                           ('iounit.allow-uid = 0\nallow-uid = ["nosuchuser"]\nname = "a/b"\n', 3),
                           ('allow-uid = [0]\n[iounit]\nallow-uid = [0, "nosuchuser"]\n', 3),
                           ('name = "a/b"\n[host]\nname = "right"\n', 1)):
            config.write_text(text)
            self.refused(2, rf"both\.toml:{line}: --(name a/b|allow-uid: no user)", *self.unit_words("--config", config))

    def make_dir(self, name):
        (self.lab.dir / name).mkdir(exist_ok=True)
        return self.lab.dir / name

    def test_no_daemon_to_ask(self):
        self.refused(1, "nosuch.ctl", "stats", "--control", self.lab.dir / "nosuch.ctl")
        self.refused(1, "nosuch.ctl", "status", "--json", "--control", self.lab.dir / "nosuch.ctl")
        for path in (self.lab.dir, "/dev/null"):
            self.refused(1, f"{path}: is no socket", "status", "--control", path)


class Sockets(support.UndisturbedTestCase):
    """Strangers on the I/O unit's socket and on the control sockets."""

    def connect(self, path):
        """A connection of whatever kind the socket takes; None when it takes no more."""
        for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
            stranger = socket.socket(socket.AF_UNIX, kind)
            stranger.settimeout(1)
            try:
                stranger.connect(str(path))
                return stranger
            except OSError:
                stranger.close()
        return None

    def send_noise(self, path, seed):
        dice = random.Random(seed)
        stranger = self.connect(path)
        if stranger is None:
            return
        with stranger, contextlib.suppress(OSError):
            for _ in range(dice.randrange(1, 6)):
                stranger.send(dice.randbytes(dice.choice((1, 4, 12, 64, 900, 20000))))

    def test_random_bytes(self):
        for seed in range(200):
            self.send_noise(self.unit.socket, seed)
            self.send_noise(self.unit.control, seed)
            self.send_noise(self.host[0].control, seed)
        self.assertEqual(self.host[0].state(), "up")

    def test_descriptors_that_nobody_asked_for(self):
        for _ in range(50):
            stranger = self.connect(self.unit.socket)
            with stranger, open("/dev/null", "rb") as null, contextlib.suppress(OSError):
                socket.send_fds(stranger, [b"x" * 64], [null.fileno()] * 8)

    def test_silence_and_200_idle_connections(self):
        with contextlib.ExitStack() as idle:
            taken = 0
            for _ in range(IDLE_CONNECTIONS):
                stranger = self.connect(self.unit.socket)
                if stranger:
                    idle.enter_context(stranger)
                    taken += 1
            self.assertGreater(taken, 0)
            self.host[0].kill9()
            self.steady_ping.finish(may_be_cut_off=True)
            self.host[0].launch().wait_state("up", 20)
            self.host[0].configure()
            self.steady_ping = traffic.Ping(self.lab, self.host[0].ns, self.lan.address)
            self.steady_ping.wait_replies(10)
            for _ in range(20):
                control = self.connect(self.unit.control)
                if control:
                    idle.enter_context(control)
            self.assertIsNotNone(self.unit.stats())


class Frames(support.LabTestCase):
    """Malformed frames, from the LAN and from a host."""

    hosts = 2

    def test_random_frames_disturb_nobody(self):
        dice = random.Random(77)
        ping = traffic.Ping(self.lab, self.host[1].ns, self.lan.address)
        ping.wait_replies(3)
        mac, peer = self.host[0].ns.mac(self.host[0].tap), self.lan.ns.mac(self.lan.peer_if)
        with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan, \
                frames.RawPort(self.host[0].ns, self.host[0].tap) as tap:
            for sent in range(3000):
                if sent % 16 == 0:
                    time.sleep(0.0005)  # the pace: what a busy machine carries beside a ping of which nothing is lost
                payload = dice.randbytes(dice.choice((0, 1, 19, 20, 39, 46, 200, 1500)))
                kind = dice.choice((0x0800, 0x86DD, 0x0806, 0x0000, 0x0005, 0x88CC))
                lan.send(frames.frame(mac, peer, payload, kind))
                tap.send(frames.frame(dice.choice((peer, frames.BROADCAST)), mac, payload, kind))
        self.assertEqual(ping.finish().missing, [])
        for host in self.host:
            self.assertEqual(host.state(), "up")
            self.assert_pings(host, self.lan.address)


class Duplicates(support.LabTestCase):
    """A second host with a name or MAC address that is taken never comes up, and does not disturb the first one."""

    hosts = 1

    def assert_kept_out(self, host, least_refusals=0):
        """least_refusals: of hosts by the unit, until this one stops trying."""
        ping = traffic.Ping(self.lab, self.host[0].ns, self.lan.address)
        try:
            host.launch()
            with self.assertRaises(support.LabError):
                wait_until(lambda: host.state() == "up", 1.5, "the double to be up")
            wait_until(lambda: self.unit.drops().get("hosts_refused", 0) >= least_refusals, 10, "more attempts")
            ping.wait_replies(10)
            self.assertEqual(ping.finish().missing, [])
            self.assertEqual(self.host[0].state(), "up")
        finally:
            host.stop()

    def test_the_same_name(self):
        double = Host(self.lab, self.unit, 7, name="double")
        double.port_name = self.host[0].port_name
        # The host tries several times a second; the unit reports that once.
        self.assert_kept_out(double, self.unit.drops().get("hosts_refused", 0) + 6)
        wrote = [line for line in self.unit.process.text().splitlines() if f"refused host {double.port_name}" in line]
        self.assertEqual(len(wrote), 1, wrote)

    def test_the_same_mac_address(self):
        mac = self.host[0].ns.mac(self.host[0].tap)
        self.assert_kept_out(Host(self.lab, self.unit, 7, ["--mac", mac], name="double"))

    def test_a_mac_address_that_is_not_the_hosts(self):
        unit = IoUnit(self.lab, self.lan, ["--allow-mac", "guest=02:77:00:00:00:21"], name="strict").start()
        self.addCleanup(unit.stop)
        wrong = Host(self.lab, unit, 6, ["--mac", "02:77:00:00:00:22"], name="guest")
        self.assert_kept_out(wrong)
        right = Host(self.lab, unit, 6, ["--mac", "02:77:00:00:00:21"], name="guest")
        self.addCleanup(right.stop)
        right.start()
        self.assert_pings(right, self.lan.address)
        # The unit drops and counts frames from another address; they do not reach the LAN.
        forged = frames.frame(self.lan.ns.mac(self.lan.peer_if), "02:77:00:00:00:23", b"forged".ljust(46))
        with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan, frames.RawPort(right.ns, right.tap) as tap:
            dropped = sum(unit.drops().values())
            tap.send(forged)
            self.assertFalse(lan.expect(lambda raw: b"forged" in raw, 0.3))
        wait_until(lambda: sum(unit.drops().values()) > dropped, 5, "the forged frame to be counted")


if __name__ == "__main__":
    support.main()
