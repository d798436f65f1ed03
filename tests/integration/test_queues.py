"""A host with several queues: every queue carries frames, and the frames of a flow stay in order."""

import re
import socket
import struct
import threading
import time
from pathlib import Path

import support
from lab import traffic, wait_until

PACE = 12_000  # frames a second: what two cores carry beside the program that sends and receives them
FLOWS = 24
SECONDS = 3.0
FIRST_PORT = 7800
PAYLOAD = 200


class Flow:
    """UDP datagrams with numbers from one socket to the socket that it is connected to, and what came of them."""

    def __init__(self, out, into):
        self.out, self.into = out, into
        self.sent = self.received = self.overtaken = self.last = 0

    def send(self):
        self.sent += 1
        try:
            self.out.send(struct.pack("!Q", self.sent).ljust(PAYLOAD, b"."))
        except OSError:  # the queue of the interface is full
            pass

    def take(self):
        while True:
            try:
                (number,) = struct.unpack("!Q", self.into.recv(PAYLOAD)[:8])
            except BlockingIOError:
                return
            self.received += 1
            self.overtaken += number < self.last
            self.last = max(self.last, number)


def connected(first, first_address, second, second_address, port):
    """Two UDP sockets in two namespaces, connected to each other."""
    ends = [netns.socket(socket.AF_INET, socket.SOCK_DGRAM) for netns in (first, second)]
    for end, own, other in zip(ends, (first_address, second_address), (second_address, first_address)):
        end.bind((own, port))
        end.connect((other, port))
        end.setblocking(False)
    return ends


class Queues(support.LabTestCase):
    hosts = 2
    host_args = ("--queues", "4")

    def setUp(self):
        for host in self.host:
            self.wait_for_queues(host)

    def wait_for_queues(self, host, count=4):
        wait_until(lambda: (host.messages() or {}).get("queues") == count, support.RECOVERY_SECONDS,
                   f"{count} queues of {host.name}")
        wait_until(lambda: self.unit.peer(host.name)["messages"]["queues"] == count, support.RECOVERY_SECONDS,
                   f"{count} queues of {host.name} at the unit")

    def check_order(self, flows):
        """Sends in all flows at once while they are received."""
        done = threading.Event()

        def take():
            while not done.is_set():
                for flow in flows:
                    flow.take()

        receiver = threading.Thread(target=take)
        receiver.start()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for flow in flows:
                for _ in range(4):
                    flow.send()
            time.sleep(len(flows) * 4 / PACE)
        received = -1
        while received != (received := sum(flow.received for flow in flows)):
            time.sleep(0.1)  # until nothing more comes
        done.set()
        receiver.join()
        for flow in flows:
            flow.take()
        self.assertEqual([flow.overtaken for flow in flows], [0] * len(flows))
        # Sockets that nobody reads for a while drop what comes, too.
        self.assertGreater(sum(flow.received for flow in flows), sum(flow.sent for flow in flows) // 4)
        for flow in flows:
            self.assertGreater(flow.received, flow.sent // 20)

    def flows(self, first, second, ports, both_ways):
        """Flows between two hosts, or a host and the LAN; all their sockets are closed in the end."""
        flows = []
        # While the kernel looks for a neighbour's address it keeps datagrams, which later ones pass when it is found.
        for end, peer in ((first, second), (second, first)):
            end.ns.run("ping", "-c", "1", "-W", "5", peer.address)
        for port in ports:
            one, other = connected(first.ns, first.address, second.ns, second.address, port)
            self.addCleanup(one.close)
            self.addCleanup(other.close)
            flows += [Flow(one, other), Flow(other, one)] if both_ways else [Flow(one, other)]
        return flows

    def test_frames_of_a_flow_stay_in_order_to_and_from_the_lan(self):
        self.check_order(self.flows(self.host[0], self.lan, range(FIRST_PORT, FIRST_PORT + FLOWS), True))

    def test_frames_of_a_flow_stay_in_order_between_hosts(self):
        self.check_order(self.flows(*self.host, range(FIRST_PORT + 100, FIRST_PORT + 100 + FLOWS), True))

    def test_every_queue_carries_frames(self):
        host = self.host[0]
        before = self.bytes_read(host)
        self.check_order(self.flows(host, self.lan, range(FIRST_PORT + 200, FIRST_PORT + 264), False))
        after = self.bytes_read(host)
        grown = {thread: count - before.get(thread, 0) for thread, count in after.items()}
        self.assertGreaterEqual(sum(count > 100 * PAYLOAD for count in grown.values()), 4, f"bytes by thread: {grown}")

    @staticmethod
    def bytes_read(host):
        """How many bytes each thread of the host has read. Those of a queue read its frames from the TAP; what else any
        of them reads is little."""
        tasks = Path(f"/proc/{host.process.pid}/task").iterdir()
        return {task.name: int(re.search(r"^rchar: (\d+)", (task / "io").read_text(), re.M)[1]) for task in tasks}

    def test_tcp_both_ways_and_streams(self):
        host = self.host[0]
        self.assert_tcp(host)
        self.assert_tcp(host, reverse=True)

    def test_everything_is_back_after_the_unit_was_killed(self):
        ping = traffic.Ping(self.lab, self.host[0].ns, self.lan.address)
        self.addCleanup(ping.finish)
        ping.wait_replies(3)
        self.unit.kill9()
        self.unit.start()
        for host in self.host:
            self.wait_for_queues(host)
            self.assert_reaches(host, self.lan.address)

    def test_everything_is_back_after_the_interface_was_deleted(self):
        host = self.host[0]
        host.ns.ip("link", "del", host.tap)
        wait_until(lambda: host.tap in host.ns.links(), support.RECOVERY_SECONDS, "a new interface")
        host.configure()
        self.wait_for_queues(host)
        self.assert_reaches(host, self.lan.address)
        self.test_frames_of_a_flow_stay_in_order_to_and_from_the_lan()

    def test_one_queue_or_four_after_a_crash(self):
        host = self.host[1]
        host.kill9()
        host.args = []  # one queue takes the interface over as it is
        host.start(addresses=False)
        self.assert_reaches(host, self.lan.address)
        self.wait_for_queues(host, 1)
        host.kill9()
        host.args = list(self.host_args)
        host.start(addresses=False)
        self.wait_for_queues(host)
        self.assert_reaches(host, self.lan.address)


if __name__ == "__main__":
    support.main()
