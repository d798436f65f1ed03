"""Pairs of Debian's verbs programs, of which either end is killed and started again."""

import os
import select
import time
from pathlib import Path

from lab import LabError, wait_until

SETTLE_SECONDS = 30
# An end has the memories of its own loopback mapped; with more it has a path to its peer.
OWN_MEMORIES = 2
# Both ends together use this much processor time while they exchange messages, and hardly while they only wait.
MOVING_SECONDS = 0.02


def wait_end(process, seconds):
    """Waits for a process's end; returns its exit code and the time (time.time()), without the pauses of a poll."""
    if not process.running():
        return process.popen.returncode, time.time()
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        over = poll.poll(seconds * 1000)
        now = time.time()
    finally:
        os.close(descriptor)
    if not over:
        raise LabError(f"{process.name} (process {process.pid}) did not end within {seconds:g} s: "
                       f"{process.last_line()}")
    return process.popen.wait(), now


def memories(process):
    """How many memories of bridges the process has mapped."""
    return Path(f"/proc/{process.pid}/maps").read_text().count("/memfd:")


class Pair:
    """Two ends that exchange messages without end, as a process each, on a fabric of their own."""

    name = ""
    outlives_client = False  # the server serves the next client

    def __init__(self, lab, netns, runtime_directory, number):
        self.lab, self.ns, self.port = lab, netns, 18600 + number
        self.environment = {"XDG_RUNTIME_DIR": str(runtime_directory)}
        self.server = self.client = None

    def words(self, end, endless):
        raise NotImplementedError

    def launch(self, end, endless=True):
        # What exchanges messages without end takes the processor time that nobody else wants.
        polite = ["chrt", "--idle", "0"] if endless else []
        return self.lab.start(f"verbs-{end}", [*polite, self.lab.splitnic, "verbs-run", *self.words(end, endless)],
                              self.ns, self.environment)

    def launch_server(self, endless=True):
        self.server = self.launch("server", endless)

    def wait_listening(self):
        """Without a connection, which the server would take for its client."""

    def start(self):
        """Both ends, or the client if the server runs; returns when messages move."""
        if self.server is None or not self.server.running():
            self.launch_server()
            self.wait_listening()
        self.client = self.launch("client")
        self.wait_moving()

    def wait_moving(self):
        ends = (self.server, self.client)

        def check():
            for end in ends:
                if not end.running():
                    raise LabError(f"{self.name}: {end.name} has ended with {end.popen.returncode}: {end.last_line()}")
            return True
        wait_until(lambda: check() and all(memories(end) > OWN_MEMORIES for end in ends), SETTLE_SECONDS,
                   f"{self.name}: a path")
        before = sum(end.cpu_seconds() for end in ends)
        wait_until(lambda: check() and sum(end.cpu_seconds() for end in ends) > before + MOVING_SECONDS,
                   SETTLE_SECONDS, f"{self.name}: the messages")

    def last_message(self, seconds):
        """Ends both ends, and exchanges one message between two others, which remove what killed ones have left."""
        self.client.stop()
        self.server.stop()
        self.launch_server(endless=False)
        self.first_message(seconds)
        wait_end(self.server, seconds)

    def first_message(self, seconds):
        """Runs a client for one message, after launch_server(endless=False) or with the server that has survived.
        Returns when it was done (time.time())."""
        self.wait_listening()
        code, now = wait_end(self.launch("client", endless=False), seconds)
        if code != 0:
            raise LabError(f"{self.name}: the client for one message ended with {code}")
        if not self.outlives_client and (code := wait_end(self.server, seconds)[0]) != 0:
            raise LabError(f"{self.name}: the server for one message ended with {code}")
        return now


class PingPong(Pair):
    """An end whose peer is killed ends by itself, with an error."""

    name = "ibv_rc_pingpong"

    def words(self, end, endless):
        address = ["127.0.0.1"] if end == "client" else []
        return ["ibv_rc_pingpong", "-e", "-n", "2000000000" if endless else "1", "-p", str(self.port), *address]

    def wait_listening(self):
        give_up = time.monotonic() + SETTLE_SECONDS
        while not self.ns.listening(self.port):
            if time.monotonic() > give_up or not self.server.running():
                raise LabError(f"{self.name}: the server does not listen: {self.server.last_line()}")
            time.sleep(0.001)


class PersistentServer(Pair):
    """rping. A request to a number where nobody listens yet waits for the listener."""

    name = "rping"
    outlives_client = True

    def words(self, end, endless):
        kind = ["-s", *(["-P"] if endless else [])] if end == "server" else ["-c", *([] if endless else ["-C", "1"])]
        return ["rping", *kind, "-a", "127.0.0.1", "-p", str(self.port)]
