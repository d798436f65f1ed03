"""UDP datagrams that the sender leaves to be segmented: what arrives.

udp_segments.py receive PORT BYTES    prints "ready", then the length of each datagram until BYTES bytes have arrived
udp_segments.py send ADDRESS PORT COUNT BYTES    sends COUNT datagrams of BYTES bytes by one call
"""

import socket
import sys

UDP_SEGMENT = 103


def receive(port, expected):
    flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    flow.bind(("", port))
    flow.settimeout(10)
    print("ready", flush=True)
    lengths = []
    while sum(lengths) < expected:
        lengths.append(len(flow.recv(65536)))
    print("lengths", *lengths, flush=True)


def send(address, port, count, length):
    flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    flow.setsockopt(socket.SOL_UDP, UDP_SEGMENT, length)
    flow.sendto(bytes(count * length), (address, port))


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(int(sys.argv[2]), int(sys.argv[3]))
    else:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
