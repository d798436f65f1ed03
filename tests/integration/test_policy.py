"""A host tries to take its neighbours' names, addresses and frames, between real daemons; and the options that
permit it."""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import support
from lab import Host, IoUnit, frames, wait_until
from lab.process import run
from support import GUEST

SETTLE_SECONDS = 5
PATIENCE_SECONDS = 30  # a unit gives its privileged process 10 s
BPDU_GROUP = "01:80:c2:00:00:00"


class Policy(support.LabTestCase):
    hosts = 2

    def setUp(self):
        self.subject, self.other = self.host
        self.ns, self.tap = self.subject.ns, self.subject.tap
        self.peer = self.lan.ns.mac(self.lan.peer_if)

    def wait_drops(self, unit, cause, count):
        wait_until(lambda: unit.drops().get(cause, 0) == count, SETTLE_SECONDS, f"{count} drops for {cause}")

    def wait_line(self, daemon, text):
        wait_until(lambda: text in daemon.process.text(), SETTLE_SECONDS, f"a line of {daemon.name}: {text}")

    def start_unit(self, name, *words):
        unit = IoUnit(self.lab, self.lan, words, name=name).start()
        self.addCleanup(unit.stop)
        return unit

    def test_the_address_of_a_station_of_the_lan_is_refused_and_both_sides_say_so(self):
        own = self.ns.mac(self.tap)
        self.assert_reaches(self.subject, self.lan.address)
        self.ns.ip("link", "set", self.tap, "address", self.peer)
        try:
            why = f"address {self.peer} is in use by a station of the LAN"
            self.wait_line(self.subject, why)
            self.wait_line(self.unit, why)
            self.assert_pings(self.other, self.lan.address)
        finally:
            self.ns.ip("link", "set", self.tap, "address", own)
        self.assert_reaches(self.subject, self.lan.address)

    def test_foreign_sources_and_frames_to_the_switch_stay_at_the_unit(self):
        own, before = self.ns.mac(self.tap), self.unit.drops()
        with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan, frames.RawPort(self.ns, self.tap) as tap:
            for _ in range(5):
                tap.send(frames.frame(frames.BROADCAST, "02:77:00:00:00:55", b"foreign".ljust(46)))
                tap.send(frames.frame(BPDU_GROUP, own, b"bpdu".ljust(46)))
                tap.send(frames.frame(frames.BROADCAST, self.other.ns.mac(self.other.tap), b"forged".ljust(46)))
            for cause in ("from_host_not_allowed", "from_host_link_local", "from_host_forged"):
                self.wait_drops(self.unit, cause, before.get(cause, 0) + 5)
            self.assertFalse(lan.expect(lambda raw: b"foreign" in raw or b"bpdu" in raw or b"forged" in raw, 0.1))

    def test_promiscuous_mode_alone_shows_nothing_of_others_and_both_sides_say_so(self):
        with frames.RawPort(self.ns, self.tap) as tap:
            self.ns.ip("link", "set", self.tap, "promisc", "on")
            try:
                self.wait_line(self.subject, "promiscuous mode is not permitted to this host")
                self.wait_line(self.unit, "promiscuous mode is not permitted to this host")
                tap.drain()
                with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan:
                    lan.send(frames.frame("02:77:00:00:00:99", self.peer, b"secret".ljust(46)))
                self.assert_pings(self.other, self.lan.address)
                self.assertFalse(tap.expect(lambda raw: b"secret" in raw, 0.1))
            finally:
                self.ns.ip("link", "set", self.tap, "promisc", "off")

    def test_with_foreign_sources_allowed_a_station_behind_a_host_reaches_the_lan_and_is_reached(self):
        behind = "02:77:00:00:00:55"
        unit = self.start_unit("bridged", "--allow-foreign-sources")
        host = Host(self.lab, unit, 8, name="behind")
        self.addCleanup(host.stop)
        host.start()
        host.ns.ip("link", "set", host.tap, "promisc", "on")
        with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan, frames.RawPort(host.ns, host.tap) as tap:
            def exchanged():
                tap.send(frames.frame(self.peer, behind, b"there".ljust(46)))
                lan.send(frames.frame(behind, self.peer, b"and back".ljust(46)))
                return lan.expect(lambda raw: b"there" in raw, 0.1) and tap.expect(lambda raw: b"and back" in raw, 0.1)

            def reached():
                lan.send(frames.frame(behind, self.peer, b"first".ljust(46)))
                return tap.expect(lambda raw: b"first" in raw, 0.1)
            wait_until(reached, SETTLE_SECONDS, "a frame to the station that has sent none yet")
            wait_until(exchanged, SETTLE_SECONDS, "frames to and from the station behind the host")
            tap.send(frames.frame(frames.BROADCAST, self.peer, b"loop".ljust(46)))
            self.wait_drops(unit, "from_host_lan_source", 1)


class PolicyFile(support.LabTestCase):
    """A policy file, and the names that a unit keeps across restarts."""

    hosts = 0

    def setUp(self):
        self.place = Path(tempfile.mkdtemp(prefix="sn-policy-"))
        self.addCleanup(shutil.rmtree, self.place)
        self.place.chmod(0o755)
        self.file = self.place / "policy.toml"
        self.state = self.place / "state"

    def start_unit(self, *words):
        unit = IoUnit(self.lab, self.lan, ["--state-directory", self.state, *words], name="ruled")
        unit.socket = self.place / "unit.sock"
        unit.start()
        self.addCleanup(unit.stop)
        return unit

    def policy(self, *words, control=None):
        return run([self.lab.splitnic, "policy", *words, *(["--control", control] if control else [])], check=False)

    def wait_line(self, daemon, text):
        wait_until(lambda: text in daemon.process.text(), SETTLE_SECONDS, f"a line of {daemon.name}: {text}")

    def test_check_reload_and_show(self):
        self.file.write_text("[[host]]\nname = 'h1'\npromiscuous = 1\n")
        done = self.policy("check", self.file)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, rf"^splitnic: {self.file}:3: promiscuous: must be true or false\n$")
        self.file.write_text("[[host]]\nname = 'h1'\naddresses = ['02:77:00:00:00:21']\n")
        self.assertEqual(self.policy("check", self.file).returncode, 0)

        unit = self.start_unit("--policy", self.file)
        host = Host(self.lab, unit, 1, name="h1")
        self.addCleanup(host.stop)
        host.start()
        self.assertEqual(host.ns.mac(host.tap), "02:77:00:00:00:21")
        self.assert_pings(host, self.lan.address)
        shown = self.policy("show", control=unit.control).stdout
        self.assertIn('name = "h1"\naddresses = ["02:77:00:00:00:21"]\n', shown)
        self.assertIn("# name h1: user 0, uses address 02:77:00:00:00:21\n", shown)
        self.file.with_suffix(".shown").write_text(shown)
        self.assertEqual(self.policy("check", self.file.with_suffix(".shown")).returncode, 0)
        epoch = host.stats()["epoch"]

        # A wrong file changes nothing.
        self.file.write_text("[policy]\nfrobnicate = 1\n")
        done = self.policy("reload", control=unit.control)
        self.assertEqual(done.returncode, 1)
        self.assertIn("frobnicate: no such key in [policy]; the old policy stays in force", done.stderr)
        unit.process.signal(signal.SIGHUP)
        self.wait_line(unit, "SIGHUP: ")
        self.assertEqual(self.policy("show", control=unit.control).stdout, shown)

        # A right one holds at once, and ends only the session of the host that it does not permit.
        self.file.write_text("[[host]]\nname = 'h1'\naddresses = ['02:77:00:00:00:21']\npromiscuous = true\n")
        unit.process.signal(signal.SIGHUP)
        self.wait_line(unit, "read policy")
        self.assertIn("promiscuous = true", self.policy("show", control=unit.control).stdout)
        self.file.write_text("[[host]]\nname = 'h1'\naddresses = ['02:77:00:00:00:21']\nsend-frames = 100000\n")
        self.assertEqual(self.policy("reload", control=unit.control).returncode, 0)
        self.assertIn("send-frames = 100000", self.policy("show", control=unit.control).stdout)
        self.assert_pings(host, self.lan.address)
        self.assertEqual(host.stats()["epoch"], epoch, "neither reload has ended the session")
        self.file.write_text("[policy]\nlisted-only = true\n")
        self.assertEqual(self.policy("reload", control=unit.control).returncode, 0)
        self.wait_line(host, "the policy does not list this host")
        self.assertEqual(self.policy("show", control=host.control).returncode, 1)

    def test_a_macvlan_on_the_interface_uses_a_second_address_of_its_host(self):
        own, second = "02:77:00:00:00:21", "02:77:00:00:00:22"
        self.file.write_text(f"[[host]]\nname = 'h1'\naddresses = ['{own}', '{second}']\n")
        unit = self.start_unit("--policy", self.file)
        host = Host(self.lab, unit, 1, name="h1")
        self.addCleanup(host.stop)
        host.start()
        peer = self.lan.ns.mac(self.lan.peer_if)
        host.ns.ip("link", "add", "link", host.tap, "name", "above", "address", second, "type", "macvlan")
        host.ns.ip("link", "set", "above", "up")
        with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan, frames.RawPort(host.ns, "above") as above:
            def reached():
                lan.send(frames.frame(second, peer, b"to the second".ljust(46)))
                return above.expect(lambda raw: b"to the second" in raw, 0.1)
            wait_until(reached, SETTLE_SECONDS, "a frame to the second address")
            above.send(frames.frame(peer, second, b"from the second".ljust(46)))
            self.assertTrue(lan.expect(lambda raw: b"from the second" in raw))
            self.assertEqual(unit.drops().get("from_host_not_allowed", 0), 0)

    def test_a_reload_waits_for_the_disk_and_frames_do_not(self):
        self.file.write_text("[[host]]\nname = 'h1'\n")
        unit = self.start_unit("--policy", self.file)
        host = Host(self.lab, unit, 1, name="h1")
        self.addCleanup(host.stop)
        host.start()
        self.assert_reaches(host, self.lan.address)
        self.file.write_text("[[host]]\nname = 'h1'\n[[host]]\nname = 'h2'\n")
        rights = unit.rights()
        os.kill(rights, signal.SIGSTOP)
        try:
            with subprocess.Popen([self.lab.splitnic, "policy", "reload", "--control", unit.control],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as reload:
                with self.assertRaises(subprocess.TimeoutExpired):
                    reload.wait(1)
                self.assert_pings(host, self.lan.address)
                self.assertEqual(unit.state(), "serving")
                self.assertIsNone(reload.poll())
                os.kill(rights, signal.SIGCONT)
                said, _ = reload.communicate(timeout=SETTLE_SECONDS)
        finally:
            os.kill(rights, signal.SIGCONT)
        self.assertEqual((reload.returncode, said), (0, f"policy {self.file}: 2 hosts\n"))

    def test_a_unit_whose_disk_does_not_answer_serves_on_and_ends_when_its_lan_was_away(self):
        self.file.write_text("")
        unit = self.start_unit("--policy", self.file)
        hosts = [Host(self.lab, unit, number, name=f"h{number}") for number in (1, 2)]
        for host in hosts:
            self.addCleanup(host.stop)
            host.start()
        self.assert_reaches(hosts[0], hosts[1].address)
        rights = unit.rights()
        os.kill(rights, signal.SIGSTOP)
        try:
            with subprocess.Popen([self.lab.splitnic, "policy", "reload", "--control", unit.control],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as reload:
                with self.assertRaises(subprocess.TimeoutExpired):
                    reload.wait(1)
                self.assert_pings(hosts[0], hosts[1].address)
                for state in ("down", "up"):
                    self.lan.unit_ns.ip("link", "set", self.lan.unit_if, state)
                self.wait_line(unit, "the privileged process is busy")
                self.assertEqual(unit.process.wait(PATIENCE_SECONDS), 1)
                self.assertIn("the privileged process does not answer: ending", unit.process.text())
                self.assertNotEqual(reload.wait(SETTLE_SECONDS), 0)
        finally:
            os.kill(rights, signal.SIGCONT)

    def test_an_access_vlan_a_rate_and_a_guard(self):
        self.file.write_text("[[host]]\nname = 'h1'\naccess-vlan = 5\nbroadcast-frames = 20\nrouter = false\n")
        unit = self.start_unit("--policy", self.file)
        host = Host(self.lab, unit, 1, name="h1")
        self.addCleanup(host.stop)
        host.start()
        own, peer, tag = host.ns.mac(host.tap), self.lan.ns.mac(self.lan.peer_if), (0x8100, 5)
        out, back = frames.frame(peer, own, b"out".ljust(46)), frames.frame(own, peer, b"back".ljust(46))
        with frames.RawPort(self.lan.ns, self.lan.peer_if) as lan, frames.RawPort(host.ns, host.tap) as tap:
            tap.send(out)
            self.assertTrue(lan.expect(lambda raw: raw[:64] == out[:12] + b"\x81\0\0\5" + out[12:]))
            lan.send(frames.frame(own, peer, b"back".ljust(46), tags=[tag]))
            self.assertTrue(tap.expect(lambda raw: raw[:60] == back))
            lan.send(frames.frame(own, peer, b"untagged".ljust(46)))
            lan.send(frames.frame(own, peer, b"other".ljust(46), tags=[(0x8100, 6)]))
            self.assertFalse(tap.expect(lambda raw: b"untagged" in raw or b"other" in raw, 0.1))
            for _ in range(100):
                tap.send(frames.frame(frames.BROADCAST, own, b"storm".ljust(46)))
            wait_until(lambda: unit.drops().get("from_host_broadcasts", 0) > 50, SETTLE_SECONDS, "a limited storm")
            advertisement = b"\x60\0\0\0\0\x10\x3a\xff" + b"\xfe\x80" + bytes(30) + b"\x86" + bytes(15)
            before = unit.drops().get("from_host_router", 0)
            tap.send(frames.frame("33:33:00:00:00:01", own, advertisement, 0x86DD))
            wait_until(lambda: unit.drops().get("from_host_router", 0) == before + 1, SETTLE_SECONDS, "the guard")

    def test_a_name_is_its_first_users_also_after_a_restart_of_the_unit(self):
        support.need_other_users()
        unit = self.start_unit("--allow-uid", GUEST)
        host = Host(self.lab, unit, 1, name="h1")
        self.addCleanup(host.stop)
        host.start()
        mac = host.ns.mac(host.tap)
        wait_until(lambda: mac in self.names(), SETTLE_SECONDS, "the owner of the name in the state directory")
        self.assertEqual(stat.S_IMODE((self.state / "names-ruled.toml").stat().st_mode), 0o600)
        host.stop()
        unit.kill9()
        unit.launch().wait_state("serving")
        refused = self.call_as_guest(unit, "h1")
        self.assertIn("the name belongs to user 0", refused)
        self.assertGreater(unit.stats()["counts"]["names_refused"], 0)
        host.launch().wait_state("up")
        self.assertEqual(host.ns.mac(host.tap), mac)

    def names(self):
        file = self.state / "names-ruled.toml"
        return file.read_text() if file.exists() else ""

    def call_as_guest(self, unit, name):
        """The log of a host of that name whose driver runs as another user, until the unit has answered."""
        netns, place = self.lab.namespace("guest"), self.place / "guest"
        place.mkdir()
        place.chmod(0o777)
        driver = self.lab.start("guest", [
            "ip", "netns", "exec", netns.name, "setpriv", "--reuid", str(GUEST), "--regid", str(GUEST),
            "--clear-groups", "--inh-caps", "+net_admin", "--ambient-caps", "+net_admin", self.lab.splitnic, "host",
            "--connect", f"shm:{unit.socket}", "--tap", "tap0", "--name", name, "--control", place / "guest.ctl"])
        self.addCleanup(driver.stop)
        wait_until(lambda: "refused" in driver.text() or "belongs" in driver.text(), SETTLE_SECONDS, "the refusal")
        return driver.text()

    def test_a_state_directory_that_others_may_write_to_or_a_damaged_file_is_an_error(self):
        self.state.mkdir(mode=0o700)
        (self.state / "names-ruled.toml").write_text("[[name]]\nname = 'x'\nuser = 'me'\n")
        words = [self.lab.splitnic, "iounit", "--listen", self.place / "x.sock", "--lan", self.lan.unit_if, "--netns",
                 self.lan.unit_ns.name, "--name", "ruled", "--state-directory", self.state]
        done = run(words, check=False, timeout=10)
        self.assertEqual(done.returncode, 1)
        self.assertIn("names-ruled.toml:3: me is no number", done.stderr)
        self.state.chmod(0o777)
        done = run(words, check=False, timeout=10)
        self.assertEqual(done.returncode, 1)
        self.assertIn("other users may write there", done.stderr)


if __name__ == "__main__":
    support.main()
