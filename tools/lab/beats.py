"""Echo requests of many hosts, every few milliseconds, by one process.

    beats.py INTERVAL NETNS=ADDRESS...     prints a line for each answer: NETNS, when it arrived, when its request was
                                           sent (both UNIX time), the request's number
                                           and one for each time in which it sent nothing for five intervals, because
                                           it did not run: -, the time's end, its beginning, 0

The kernel of the other end answers, and the kernel of this end says when the answer arrived, so the times don't depend
on when this process runs. ping(8) at such intervals takes a whole core.
"""

import contextlib
import os
import select
import socket
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab.namespace import Namespace  # noqa: E402

_SOL_RAW, _ICMP_FILTER = 255, 1
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
_BUFFER_BYTES = 4 << 20  # for seconds in which this process does not run
_ECHO, _ECHO_REPLY = 8, 0
_LATE_INTERVALS = 5
_HEADER = struct.Struct("!BBHHH")
_PAYLOAD = struct.Struct("!dQ")
_TIMESPEC = struct.Struct("@ll")


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


class Beat:
    """The requests of one host."""

    def __init__(self, netns, address, identifier):
        self.name, self.identifier, self.number = netns, identifier, 0
        self.socket = Namespace(netns).socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.socket.setblocking(False)
        self.socket.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("@I", ~(1 << _ECHO_REPLY) & 0xFFFFFFFF))
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        with contextlib.suppress(OSError):  # in a user namespace the usual size must do
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self.address = (address, 0)

    def send(self):
        self.number += 1
        payload = _PAYLOAD.pack(time.time(), self.number)
        words = (self.identifier, self.number & 0xFFFF)
        header = _HEADER.pack(_ECHO, 0, checksum(_HEADER.pack(_ECHO, 0, 0, *words) + payload), *words)
        with contextlib.suppress(OSError):  # no interface or no route at the moment
            self.socket.sendto(header + payload, self.address)

    def answers(self):
        """The lines of the answers that are there."""
        lines = []
        with contextlib.suppress(OSError):
            while True:
                packet, ancillary, _, _ = self.socket.recvmsg(256, 64)
                answer = packet[(packet[0] & 0xF) * 4:]
                if len(answer) != _HEADER.size + _PAYLOAD.size or _HEADER.unpack_from(answer)[3] != self.identifier:
                    continue
                seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
                sent, number = _PAYLOAD.unpack_from(answer, _HEADER.size)
                lines.append(f"{self.name} {seconds + nanoseconds / 1e9:.6f} {sent:.6f} {number}\n")
        return lines


def main():
    interval = float(sys.argv[1])
    beats = [Beat(*word.split("="), 1 + at) for at, word in enumerate(sys.argv[2:])]
    poll = select.poll()
    by_descriptor = {beat.socket.fileno(): beat for beat in beats}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    due = time.monotonic()
    sent_at = time.time()
    while True:
        now = time.monotonic()
        late = []
        if now >= due:
            before, sent_at = sent_at, time.time()
            if sent_at - before > _LATE_INTERVALS * interval:
                late = [f"- {sent_at:.6f} {before:.6f} 0\n"]
            for beat in beats:
                beat.send()
            due = max(due + interval, now)
        lines = late + [line for descriptor, _ in poll.poll(max(due - time.monotonic(), 0) * 1000)
                        for line in by_descriptor[descriptor].answers()]
        if lines:
            os.write(sys.stdout.fileno(), "".join(lines).encode())


if __name__ == "__main__":
    main()
