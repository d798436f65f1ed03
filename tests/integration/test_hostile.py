"""Wrong peers: of another version, with memory of the wrong kind, or writing anything anywhere into shared memory. The
daemon that meets one reports it, and no other session notices."""

import contextlib
import fcntl
import os
import random
import re
import shutil
import socket
import struct
import tempfile
import time
from pathlib import Path

import support
from lab import Host, IoUnit, traffic, wait_until
from lab.process import run

# The set-up of a shared-memory bridge: docs/protocol.md, "Shared memory".
MAGIC = 0x3143494E544C5053
VERSION = 2
OTHER_VERSION_STATUS = 1
REPLY = struct.Struct("<QIIQQQQ16x")
DESCRIPTORS = 4
BRIDGE_BYTES = 1 << 20
SESSION = 1
HEADER_BYTES = 4096
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def hello(version=VERSION, local=0, window=0, purpose=SESSION):
    return struct.pack("<QIIQQI28x64s", MAGIC, version, 0, local, window, purpose, b"false")


def status_of(data):
    return REPLY.unpack(data)[2]


class OtherHosts(support.UndisturbedTestCase):
    """Programs that connect to a real I/O unit and are not splitnic hosts of this version."""

    def ask(self, hello):
        """The unit's answer, and the number of its descriptors; b"" if it hangs up."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(5)
            caller.connect(str(self.unit.socket))
            caller.send(hello)
            with contextlib.suppress(ConnectionResetError):
                data, descriptors, _, _ = socket.recv_fds(caller, 4096, 8)
                for descriptor in descriptors:
                    os.close(descriptor)
                return data, len(descriptors)
        return b"", 0

    def test_another_version_is_told_ours_and_gets_no_memory(self):
        data, descriptors = self.ask(hello(version=7))
        magic, version, status, *_ = REPLY.unpack(data)
        self.assertEqual((magic, version, status, descriptors), (MAGIC, VERSION, OTHER_VERSION_STATUS, 0))
        wait_until(lambda: "another version" in self.unit.process.text(), 5, "a line about the version")

    def test_impossible_sizes_are_refused(self):
        for local, window in ((1, 0), (0, 1), ((1 << 64) - 1, 0), (0, 1 << 40)):
            data, descriptors = self.ask(hello(local=local, window=window))
            self.assertNotEqual(status_of(data), 0)
            self.assertEqual(descriptors, 0)

    def test_who_takes_the_memory_and_goes(self):
        for _ in range(50):
            data, descriptors = self.ask(hello())
            self.assertEqual((status_of(data), descriptors), (0, DESCRIPTORS))

    def test_a_host_of_version_1_is_told_ours(self):
        data, descriptors = self.ask(struct.pack("<QIIQQ", MAGIC, 1, 0, 0, 0))
        self.assertEqual((REPLY.unpack(data)[1:3], descriptors), ((VERSION, OTHER_VERSION_STATUS), 0))


class OtherUsers(support.LabTestCase):
    """--allow-uid: that user may connect, besides root and the unit's own user; the unit refuses all others."""

    hosts = 0
    GUEST, STRANGER = support.GUEST, 65533
    NOT_PERMITTED_STATUS, USER_LIMIT_STATUS = 2, 6
    # Connects as the user who runs it, sends the hello, prints the answer's status and its number of descriptors.
    CALL = ("import socket, struct, sys, time\n"
            "caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)\n"
            "caller.settimeout(5)\n"
            "caller.connect(sys.argv[1])\n"
            "try: caller.send(bytes.fromhex(sys.argv[2]))\n"
            "except BrokenPipeError: pass\n"  # refused before the hello; the answer is there nevertheless
            "data, descriptors, _, _ = socket.recv_fds(caller, 4096, 8)\n"
            "print(struct.unpack_from('<I', data, 12)[0], len(descriptors), flush=True)\n"
            "if len(sys.argv) > 3: time.sleep(3600)\n")  # keeps its bridge

    def words_of(self, user, path, *more):
        return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "/usr/bin/python3", "-c", self.CALL, path,
                hello().hex(), *more]

    def call_as(self, user, path):
        done = run(self.words_of(user, path), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return tuple(map(int, done.stdout.split()))

    def stay_as(self, user, path):
        """A host of that user, which stays if the unit has a bridge for it; and the status that it got."""
        host = self.lab.start(f"user{user}", self.words_of(user, path, "stay"))
        self.addCleanup(host.stop, 1)
        wait_until(lambda: host.text().endswith("\n"), 10, "the unit's answer")
        return host, int(host.text().split()[0])

    def serve(self, *words):
        support.need_other_users()
        place = Path(tempfile.mkdtemp(prefix="sn-open-"))
        self.addCleanup(shutil.rmtree, place)
        place.chmod(0o755)
        unit = IoUnit(self.lab, self.lan, list(words), name="open")
        unit.socket = place / "unit.sock"
        unit.start()
        self.addCleanup(unit.stop)
        return unit

    def test_who_may_connect(self):
        unit = self.serve("--allow-uid", self.GUEST)
        self.assertEqual(self.call_as(self.GUEST, unit.socket), (0, DESCRIPTORS))
        self.assertEqual(self.call_as(self.STRANGER, unit.socket), (self.NOT_PERMITTED_STATUS, 0))
        unit.process.wait_for_text("--allow-uid")

    def test_who_may_connect_by_group(self):
        unit = self.serve("--allow-gid", self.GUEST)
        self.assertEqual(self.call_as(self.GUEST, unit.socket), (0, DESCRIPTORS))
        self.assertEqual(self.call_as(self.STRANGER, unit.socket), (self.NOT_PERMITTED_STATUS, 0))

    def assert_one_user_has_two_places(self, *words):
        unit = self.serve("--allow-uid", self.GUEST, "--allow-uid", self.STRANGER, *words)
        hosts = [self.stay_as(self.GUEST, unit.socket) for _ in range(3)]
        self.assertEqual([status for _, status in hosts], [0, 0, self.USER_LIMIT_STATUS])
        wait_until(lambda: unit.drops().get("connections_refused_user_limit") == 1, 5, "the refusal in its counter")
        # Neither another user nor root is any the worse for it.
        for user in (self.STRANGER, 0, 0, 0):
            self.assertEqual(self.stay_as(user, unit.socket)[1], 0)
        # What one of the user's hosts gives back, the next one gets.
        hosts[0][0].stop()
        wait_until(lambda: self.call_as(self.GUEST, unit.socket)[0] == 0, 5, "a place for the user")

    def test_one_users_hosts_take_no_more_places_than_the_option_says(self):
        self.assert_one_user_has_two_places("--hosts-per-user", 2)

    def test_one_users_hosts_take_no_more_memory_than_the_option_says(self):
        self.assert_one_user_has_two_places("--window-bytes", 2 << 20, "--memory-per-user", 8 << 20)


class FalseUnit:
    """Listens as an I/O unit does, and answers the next host with the result of `make`: (reply, descriptors)."""

    def __init__(self, path, make):
        self.make = make
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()
        self.listener.settimeout(10)

    def waiting_host(self):
        """Accepts the next connection that its host has not given up in the meantime."""
        while True:
            connection, _ = self.listener.accept()
            connection.settimeout(10)
            connection.recv(len(hello()))
            connection.setblocking(False)
            try:
                connection.recv(1)
            except BlockingIOError:
                connection.settimeout(10)
                return connection
            connection.close()

    def answer_one(self):
        connection = self.waiting_host()
        with connection:
            reply, descriptors = self.make()
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(connection, [reply], descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            with contextlib.suppress(OSError):
                connection.recv(1)  # waits until the host has read the answer and hung up

    def close(self):
        self.listener.close()


def memory(bytes_=BRIDGE_BYTES + HEADER_BYTES, seals=SEALS):
    descriptor = os.memfd_create("false", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(descriptor, bytes_)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def doorbell(kind=socket.SOCK_SEQPACKET):
    ours, other = socket.socketpair(socket.AF_UNIX, kind)
    other.close()
    return ours.detach()


def bell(kind=socket.SOCK_SEQPACKET):
    """The two descriptors of the doorbells: the one to hear, and the one to ring."""
    return [doorbell(kind), os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)]


def reply(version=VERSION, status=0, local=BRIDGE_BYTES, window=BRIDGE_BYTES):
    return REPLY.pack(MAGIC, version, status, local, window, 1, 0)


class OtherUnits(support.LabTestCase):
    """A real host meets a false I/O unit: it says why in one line, and keeps trying again."""

    hosts = 1

    CASES = (
        ("version 7", lambda: (reply(version=7, status=OTHER_VERSION_STATUS), [])),
        ("not sealed", lambda: (reply(), [memory(seals=0), memory(), *bell()])),
        ("instead of", lambda: (reply(), [memory(BRIDGE_BYTES), memory(), *bell()])),
        ("not a memfd", lambda: (reply(), [os.open("/dev/null", os.O_RDWR), memory(), *bell()])),
        ("not sealed", lambda: (reply(), [memory(), memory(seals=fcntl.F_SEAL_GROW), *bell()])),
        ("2 descriptors instead of 4", lambda: (reply(), [memory(), memory()])),
        ("not a packet socket", lambda: (reply(), [memory(), memory(), *bell(socket.SOCK_STREAM)])),
        ("not an eventfd", lambda: (reply(), [memory(), memory(), doorbell(), doorbell()])),
        ("can't be used", lambda: (reply(local=64), [memory(), memory(), *bell()])),
        ("no answer from the unit", lambda: (reply()[:20], [])),
        ("not a splitnic I/O unit", lambda: (b"\0" * REPLY.size, [])),
    )

    def wanderer(self, path):
        """A host that connects to whatever listens at `path`."""
        host = Host(self.lab, self.unit, 8, name="wanderer")
        host.unit = type("Place", (), {"socket": path})
        host.launch()
        return host

    def test_each_is_refused_in_one_line_and_the_real_unit_is_found_in_the_end(self):
        real = self.unit.socket
        path = self.lab.dir / "false.sock"
        false = FalseUnit(path, None)
        wanderer = None
        try:
            for says, make in self.CASES:
                with self.subTest(says=says):
                    # A host of its own for each case: a host reports equal refusals once.
                    if wanderer:
                        wanderer.stop()
                    wanderer = self.wanderer(path)
                    self.addCleanup(wanderer.stop)
                    false.make = make
                    false.answer_one()
                    wait_until(lambda: says in wanderer.process.text(), 15, f'a line with "{says}"')
                    self.assertTrue(wanderer.process.running())
        finally:
            false.close()
        path.unlink()
        path.symlink_to(real)
        wanderer.wait_state("up", 10)
        wanderer.configure()
        self.assert_pings(wanderer, self.lan.address)


def bridge_mappings(pid):
    """(start, end) of the shared memory that a process has mapped."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        for line in maps:
            if "splitnic-bridge" in line:
                found.append(tuple(int(end, 16) for end in re.match(r"(\w+)-(\w+)", line).groups()))
    return found


class HostileHost(support.LabTestCase):
    """A host that writes anything anywhere into its shared memory, also into the rings, in the middle of traffic."""

    hosts = 2
    rings_doorbells = False  # what looks like a slot of that host was announced by nobody

    def scribble(self, host, seed, seconds):
        """Writes random bytes to random places of the host's bridge memory, as if its driver did. Returns how many."""
        dice = random.Random(seed)
        pid = host.process.pid
        until = time.monotonic() + seconds
        writes = 0
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as mem:
            while time.monotonic() < until:
                places = bridge_mappings(pid)
                if not places:
                    continue  # between two connections
                with contextlib.suppress(OSError):
                    for _ in range(200):
                        start, end = dice.choice(places)
                        # The first pages hold scratchpads, rings and tables: hit them as often as all the rest.
                        reach = dice.choice((HEADER_BYTES, 8 * HEADER_BYTES, end - start))
                        size = dice.choice((1, 4, 8, 64))
                        mem.seek(start + dice.randrange(0, reach - size))
                        mem.write(dice.choice((b"\0", b"\xff", dice.randbytes(1))) * size
                                  if dice.random() < 0.5 else dice.randbytes(size))
                        writes += 1
        return writes

    def test_only_its_own_session_suffers(self):
        unit_pid = self.unit.process.pid
        other = traffic.Ping(self.lab, self.host[1].ns, self.lan.address)
        other.wait_replies(3)
        own = traffic.Ping(self.lab, self.host[0].ns, self.lan.address, interval=0.005)
        own.wait_replies(3)
        writes = self.scribble(self.host[0], seed=20, seconds=4)
        own.finish(may_be_cut_off=True)
        self.assertGreater(writes, 10_000)
        self.assertTrue(self.unit.process.running())
        self.assertEqual(self.unit.process.pid, unit_pid)
        self.assertEqual(other.finish().missing, [])
        # The random bytes stay in memory. A host that behaves again gets a new epoch, which starts from nothing.
        self.host[0].kill9()
        self.host[0].launch().wait_state("up", 20)
        self.assert_reaches(self.host[0], self.lan.address, 10)
        self.assert_pings(self.host[0], self.lan.address)


if __name__ == "__main__":
    support.main()
