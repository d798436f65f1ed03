"""Verbs programs on a fabric of their own, mostly two ends of one program, with a deadline for each."""

import contextlib
import itertools
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from support import EXIT_SKIPPED, exit_code, wait_until  # noqa: E402

SPLITNIC = pathlib.Path(os.environ.get("SPLITNIC_BIN", "build/release/bin")).resolve() / "splitnic"
SECONDS = 30
NOBODY = 65534
CLOCK_TRIES = 5


def run_tests(verbosity=1):
    """Of the class that the command line names. Ends the program: 77 where it needs root, or all tests were skipped."""
    if sys.argv[1:2] == ["Root"] and os.getuid() != 0:
        print("needs root")
        sys.exit(EXIT_SKIPPED)
    sys.exit(exit_code(unittest.main(exit=False, verbosity=verbosity).result))


class OnFabric(unittest.TestCase):
    """Tests with a fabric of their own, of the user `uid`. needs: programs without which they are skipped."""

    uid = 0
    needs = ()

    @classmethod
    def setUpClass(cls):
        for program in cls.needs:
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"{program} is not installed")
        cls.fabric = Fabric(cls.uid)
        cls.addClassCleanup(cls.fabric.close)


def for_both_users(tests):
    """The same tests as root, and as an ordinary user."""
    return type("Root", (tests,), {"uid": 0}), type("OrdinaryUser", (tests,), {"uid": NOBODY})


class Failed(AssertionError):
    """A program did not end in time, or not with 0."""


def clock_unknown(*outputs):
    """perftest measures the processor's clock rate to convert its times. It ends with 1 when that was disturbed too
    much, one time in a thousand beside other programs. So a pair with such outputs is run again (CLOCK_TRIES)."""
    return any("Correlation coefficient r^2" in output for output in outputs)


_ports = itertools.count(61 * os.getpid())


def free_port():
    """Below those that the kernel gives to clients, and probably not one that a test beside this one chooses."""
    for number in _ports:
        port = 10000 + number % 20000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def listens(port):
    """Without a connection, which the server would take for its client."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                return True
    return False


def await_server(server, what, ready, seconds=SECONDS):
    """Waits until the server is ready. Raises Failed with its output if it ends before."""
    def is_ready():
        if server.poll() is not None:
            raise Failed(f"{what}: the server ended with {server.returncode}\n{server.communicate()[0]}")
        return ready()
    wait_until(is_ready, seconds, f"{what}: the server")


def forget_xrc_files():
    """perftest creates these for XRC, which no other user can open then."""
    for name in ("xrc_domain", "xrc_domain_client", "xrc_domain_server"):
        with contextlib.suppress(OSError):
            pathlib.Path("/tmp", name).unlink()


class Fabric:
    """A runtime directory, in which the programs of one user find each other. uid: another user only as root."""

    splitnic = SPLITNIC
    prefix = ()  # words in front of splitnic
    groups = ()  # of the user, beside the one with the user's number

    def __init__(self, uid=0):
        self.uid = uid if os.getuid() == 0 else os.getuid()
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.folder.chmod(0o700)
        self.give(self.folder)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder)}

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def give(self, path):
        if os.getuid() == 0:
            os.chown(path, self.uid, self.uid)

    def start(self, words, output=subprocess.PIPE, **variables):
        """variables: of its environment, beside the others."""
        user = {"user": self.uid, "group": self.uid, "extra_groups": self.groups} if self.uid != os.getuid() else {}
        return subprocess.Popen([*self.prefix, self.splitnic, "verbs-run", *words], env={**self.environment, **variables},
                                cwd="/", text=True, stdout=output, stderr=subprocess.STDOUT, **user)

    def finish(self, process, what, seconds=SECONDS):
        """The exit code and the output."""
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            raise Failed(f"{what}: not done after {seconds} s\n{output}") from None
        return process.returncode, output

    def run(self, words):
        return self.finish(self.start(words), " ".join(words))

    def exchanges(self):
        """Packets go from a program on the fabric to another one."""
        ports = (self.folder / "splitnic/fabric-default/endnodes").glob("*/ports/1/counters")
        names = ("port_xmit_packets", "port_rcv_packets")
        try:
            counts = [[int((port / name).read_text()) > 100 for name in names] for port in ports]
        except (FileNotFoundError, ValueError):  # they are being made, or written
            return False
        return len(counts) == 2 and all(map(any, counts))

    def run_pair(self, words, server_words=(), client_words=(), seconds=SECONDS):
        """The output of the client, when both ends have ended with 0."""
        for _ in range(CLOCK_TRIES):
            ends = self.run_ends(words, server_words, client_words, seconds=seconds)
            if not clock_unknown(*(output for _, output in ends)):
                break
        codes = [code for code, _ in ends]
        if codes != [0, 0]:
            raise Failed(f"{' '.join(words)}: client and server ended with {codes}\n{ends[0][1]}\n{ends[1][1]}")
        return ends[0][1]

    def run_ends(self, words, server_words=(), client_words=(), server_options=(), client_options=(), seconds=SECONDS):
        """Exit code and output of the client, and of the server. The options are verbs-run's."""
        what = " ".join(words)
        port = str(free_port())
        server = self.start([*server_options, *words, *server_words, "-p", port])
        try:
            await_server(server, what, lambda: listens(int(port)), seconds)
            client = self.start([*client_options, *words, *client_words, "-p", port, "127.0.0.1"])
            return [self.finish(client, f"{what}: the client", seconds),
                    self.finish(server, f"{what}: the server", seconds)]
        finally:
            if server.poll() is None:
                server.kill()
                server.communicate()
