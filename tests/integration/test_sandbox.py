"""The daemons have given up what they don't need, and still do all their work."""

import ctypes
import fcntl
import os
import signal
import unittest
from pathlib import Path

import support
from lab import Host, IoUnit, Lab, traffic, wait_until
from lab.process import children, ended, run
from support import GUEST

SETTLE_SECONDS = 5
DAEMON_ENDS = 3
PR_SET_CHILD_SUBREAPER = 36


def become_subreaper(yes):
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(yes), 0, 0, 0)


def status(pid):
    """Of each thread: the fields of /proc/PID/task/TID/status as text."""
    threads = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        threads.append({name: value.strip() for name, value in fields.items()})
    return threads


class Sandbox(support.LabTestCase):
    hosts = 1
    unit_args = ("--policy", "/dev/null")

    def setUp(self):
        self.subject = self.host[0]
        self.assert_reaches(self.subject, self.lan.address)

    def test_no_thread_has_a_capability_or_may_get_one_and_all_are_filtered(self):
        for daemon in (self.unit, self.subject):
            threads = status(daemon.process.pid)
            self.assertGreater(len(threads), 0)
            for thread in threads:
                self.assertEqual({int(thread[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")}, {0},
                                 f"{daemon.name}: {thread}")
                self.assertEqual((thread["NoNewPrivs"], thread["Seccomp"]), ("1", "2"), daemon.name)

    def test_the_privileged_process_has_its_capabilities_alone_and_only_stderr(self):
        admin, raw, system = (1 << number for number in (12, 13, 21))
        for daemon, permitted in ((self.unit, raw | admin), (self.subject, admin | system)):
            process, = children(daemon.process.pid)
            threads = status(process)
            self.assertEqual(len(threads), 2)
            for thread in threads:
                self.assertEqual(int(thread["CapEff"], 16) & ~permitted, 0)
                self.assertEqual(int(thread["CapBnd"], 16) & ~permitted, 0)
                self.assertEqual((thread["NoNewPrivs"], thread["Seccomp"]), ("1", "2"), daemon.name)
            files = {os.readlink(f"/proc/{process}/fd/{name}") for name in os.listdir(f"/proc/{process}/fd")
                     if int(name) > 2}
            self.assertEqual({file.split(":")[0] for file in files} - {"net"}, {"socket"}, daemon.name)

    def test_a_deleted_tap_is_made_again(self):
        before = self.subject.ns.mac(self.subject.tap)
        self.subject.ns.ip("link", "del", self.subject.tap)
        wait_until(lambda: self.subject.tap in self.subject.ns.links(), SETTLE_SECONDS, "the TAP")
        self.subject.configure()
        self.assertEqual(self.subject.ns.mac(self.subject.tap), before)
        self.assert_reaches(self.subject, self.lan.address, SETTLE_SECONDS)

    def test_a_policy_with_names_of_users_is_read_again(self):
        policy = self.lab.dir / "policy.toml"
        policy.write_text('[[host]]\nname = "elsewhere"\nuser = "nobody"\n', encoding="utf-8")
        lan = f"file:,{self.lab.dir / 'out.pcap'}"
        unit = IoUnit(self.lab, files=lan, args=["--policy", policy], name="ruled").start()
        policy.write_text('[[host]]\nname = "other"\nuser = "daemon"\n', encoding="utf-8")
        done = self.lab.run_splitnic("policy", "reload", "--control", unit.control)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("user = 1\n", self.lab.run_splitnic("policy", "show", "--control", unit.control).stdout)
        policy.write_text('[[host]]\nname = "other"\nuser = "nobody by this name"\n', encoding="utf-8")
        done = self.lab.run_splitnic("policy", "reload", "--control", unit.control)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no user named nobody by this name", done.stderr)
        self.assertEqual(unit.stop(), 0)

    def test_the_two_processes_of_a_daemon_end_together(self):
        for make in (lambda: IoUnit(self.lab, files=f"file:,{self.lab.dir / 'end.pcap'}", name="ending").start(),
                     lambda: Host(self.lab, self.unit, 7, name="h7").start(addresses=False)):
            daemon = make()
            privileged, = children(daemon.process.pid)
            daemon.kill9()
            wait_until(lambda pid=privileged: ended(pid), SETTLE_SECONDS, "the privileged process to end")
            daemon = make()
            os.kill(children(daemon.process.pid)[0], signal.SIGKILL)
            self.assertEqual(daemon.process.wait(SETTLE_SECONDS), 1)
            self.assertIn("the privileged process has ended", daemon.process.text())

    def test_a_daemon_that_ends_leaves_no_process_to_reap(self):
        """Not every process 1 reaps what a daemon leaves: here this test is the one that would have to."""
        become_subreaper(True)
        self.addCleanup(become_subreaper, False)
        for number in range(DAEMON_ENDS):
            host = Host(self.lab, self.unit, 6, name=f"h6-{number}").start(addresses=False)
            privileged = host.rights()
            self.assertEqual(host.stop(), 0)
            self.assertNotIn(privileged, children(os.getpid()))

    def test_sockets_are_removed_although_their_folder_is_locked(self):
        unit = IoUnit(self.lab, files=f"file:,{self.lab.dir / 'locked.pcap'}", name="locked").start()
        folder = os.open(self.lab.dir, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        self.assertEqual(unit.stop(), 0)
        for path in (unit.socket, unit.control):
            wait_until(lambda path=path: not path.exists(), SETTLE_SECONDS, f"{path.name} to be removed")
        self.assertNotIn("forbids", unit.process.text())

    def test_an_interface_outlives_the_privileged_process_as_it_outlives_a_crash(self):
        host = Host(self.lab, self.unit, 8, name="h8").start()
        wanted = host.ns.addresses(host.tap), host.ns.mac(host.tap)
        os.kill(host.rights(), signal.SIGKILL)
        self.assertEqual(host.process.wait(SETTLE_SECONDS), 1)
        self.assertEqual((host.ns.addresses(host.tap), host.ns.mac(host.tap)), wanted)
        host.launch().wait_state("up")
        self.assert_reaches(host, self.lan.address)
        self.assertEqual(host.stop(), 0)
        self.assertNotIn(host.tap, host.ns.links())

    def test_without_the_sandbox_the_log_says_so_and_nothing_is_given_up(self):
        unit = IoUnit(self.lab, files=f"file:,{self.lab.dir / 'open.pcap'}", args=["--no-sandbox"], name="open").start()
        self.assertIn("no sandbox (--no-sandbox)", unit.process.text())
        self.assertEqual({thread["Seccomp"] for thread in status(unit.process.pid)}, {"0"})
        self.assertEqual(children(unit.process.pid), [])
        self.assertEqual(unit.stop(), 0)
        done = self.lab.run_splitnic("iounit", "--listen", self.lab.dir / "x.sock", "--lan", "file:,x.pcap",
                                     "--no-sandbox", "--user", "nobody")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--user needs the sandbox", done.stderr)


class WithLibpcap(support.LabTestCase):
    """libpcap opens its capture at the start; the privileged process moves it to an interface that comes back."""

    hosts = 1
    unit_args = ("--lan-engine", "pcap")

    def test_an_interface_that_comes_back_is_found_without_a_capability_and_by_no_more_than_35_calls(self):
        host = self.host[0]
        self.assert_reaches(host, self.lan.address)
        self.assertRegex(self.unit.process.text(), r"\b35 system calls permitted")
        for thread in status(self.unit.process.pid):
            self.assertEqual((int(thread["CapPrm"], 16), thread["Seccomp"]), (0, "2"))
        self.lan.remove_interface()
        wait_until(lambda: not host.ns.carrier(host.tap), SETTLE_SECONDS, "carrier loss")
        self.lan.restore_interface()
        wait_until(lambda: host.ns.carrier(host.tap), SETTLE_SECONDS, "the carrier")
        host.ns.ip("neigh", "flush", "dev", host.tap)
        self.assert_reaches(host, self.lan.address, SETTLE_SECONDS)
        for up in ("down", "up"):
            self.lan.unit_ns.ip("link", "set", self.lan.unit_if, up)
            wait_until(lambda up=up: host.ns.carrier(host.tap) == (up == "up"), SETTLE_SECONDS, f"the carrier {up}")
        self.assert_reaches(host, self.lan.address, SETTLE_SECONDS)

    def test_an_interface_that_is_down_at_the_start_is_refused(self):
        lan = self.lab.lan(number=2)
        lan.unit_ns.ip("link", "set", lan.unit_if, "down")
        done = self.lab.run_splitnic("iounit", "--listen", self.lab.dir / "down.sock", "--lan", lan.unit_if,
                                     "--lan-engine", "pcap", netns=lan.unit_ns)
        self.assertEqual(done.returncode, 1)
        self.assertIn("libpcap opens only interfaces that are up", done.stderr)


class Users(unittest.TestCase):
    """Another user than root: by --user, from the start with a prepared TAP, and root of a user namespace."""

    def setUp(self):
        support.need_other_users()
        self.lab = Lab().__enter__()
        self.addCleanup(self.lab.close)
        self.lab.dir.chmod(0o755)
        self.lan = self.lab.lan()

    def assert_is(self, user, process):
        for thread in status(process.pid):
            self.assertEqual(set(thread["Uid"].split()), {str(user)})
            self.assertEqual(int(thread["CapEff"], 16), 0)
            self.assertEqual(thread["Seccomp"], "2")

    def test_daemons_become_another_user_and_leave_nothing_behind(self):
        state = self.lab.dir / "state"
        unit = IoUnit(self.lab, self.lan, ["--user", GUEST, "--state-directory", state]).start()
        host = Host(self.lab, unit, 1, ["--user", GUEST, "--queues", 2]).start()
        for daemon in (unit, host):
            self.assert_is(GUEST, daemon.process)
        traffic.reaches(self.lab, host.ns, self.lan.address, SETTLE_SECONDS)
        self.lan.remove_interface()
        wait_until(lambda: not host.ns.carrier(host.tap), SETTLE_SECONDS, "carrier loss")
        self.lan.restore_interface()
        wait_until(lambda: host.ns.carrier(host.tap), SETTLE_SECONDS, "the carrier")
        host.ns.ip("link", "del", host.tap)
        wait_until(lambda: host.tap in host.ns.links(), SETTLE_SECONDS, "the TAP")
        self.assertEqual((host.stop(), unit.stop()), (0, 0))
        self.assertNotIn(host.tap, host.ns.links())
        self.assertEqual(sorted(file.name for file in state.iterdir()), ["names-unit.toml", "names-unit.toml.lock"])
        self.assertEqual(state.stat().st_uid, os.geteuid())  # the privileged process writes there
        for path in (unit.socket, unit.control, host.control):
            wait_until(lambda path=path: not path.exists(), SETTLE_SECONDS, f"{path.name} to be removed")

    def test_a_user_without_rights_serves_a_tap_that_was_prepared(self):
        self.serve_prepared_tap()

    def test_a_user_without_rights_serves_several_queues_of_a_tap_that_was_prepared(self):
        self.serve_prepared_tap(queues=3)

    def serve_prepared_tap(self, queues=1):
        unit = IoUnit(self.lab, self.lan, ["--allow-uid", GUEST]).start()
        host = Host(self.lab, unit, 1)
        folder = self.lab.dir / "guest"
        folder.mkdir()
        os.chown(folder, GUEST, GUEST)
        host.control = folder / "h1.ctl"
        kind = ["multi_queue"] if queues > 1 else []
        host.ns.ip("tuntap", "add", "dev", host.tap, "mode", "tap", *kind, "user", str(GUEST))
        host.process = self.lab.start("h1", ["setpriv", "--reuid", GUEST, "--regid", GUEST, "--clear-groups",
                                             "--bounding-set=-all", "--inh-caps=-all", self.lab.splitnic, "host",
                                             "--connect", f"shm:{unit.socket}", "--tap", host.tap, "--name", "h1",
                                             "--control", host.control, "--queues", queues], netns=host.ns)
        host.wait_state("up").configure()
        wait_until(lambda: unit.peer("h1")["messages"]["queues"] == queues, SETTLE_SECONDS, f"{queues} queues")
        self.assert_is(GUEST, host.process)
        traffic.reaches(self.lab, host.ns, self.lan.address, SETTLE_SECONDS)
        host.ns.ip("link", "set", host.tap, "mtu", "1280")
        wait_until(lambda: host.stats()["mtu"] == 1280, SETTLE_SECONDS, "the new MTU")
        self.assertEqual(host.stop(), 0)
        self.assertIn(host.tap, host.ns.links())

    def test_root_of_a_user_namespace(self):
        inside = ["unshare", "--user", "--map-root-user", "--net"]
        if run([*inside, "true"], check=False).returncode != 0:
            self.skipTest("user namespaces can't be made")
        unit = IoUnit(self.lab, self.lan).start()
        control = self.lab.dir / "inside.ctl"
        process = self.lab.start("inside", [*inside, self.lab.splitnic, "host", "--connect", f"shm:{unit.socket}", "--tap",
                                            "tap0", "--name", "inside", "--control", control, "--queues", 2])
        wait_until(lambda: ((unit.peer("inside") or {}).get("messages") or {}).get("queues") == 2, 10,
                   "the host's session with both queues")
        self.assert_is(0, process)
        enter = ["nsenter", "-t", str(process.pid), "-U", "-n", "--preserve-credentials"]
        run([*enter, "ip", "link", "set", "tap0", "up"])
        run([*enter, "ip", "addr", "add", "10.77.0.50/24", "dev", "tap0"])
        wait_until(lambda: run([*enter, "ping", "-c1", "-W1", self.lan.address], check=False).returncode == 0, 10,
                   "a ping from inside")
        run([*enter, "ip", "link", "del", "tap0"])
        wait_until(lambda: "tap0" in run([*enter, "ip", "link"]).stdout, SETTLE_SECONDS, "the TAP")
        self.assertEqual(process.stop(), 0)


if __name__ == "__main__":
    support.main()
