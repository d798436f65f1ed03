"""Sends UDP datagrams at a given rate until it is ended: udp_flood.py ADDRESS PORT BYTES BITS_PER_SECOND"""

import socket
import sys
import time


def main():
    address, port, length, bits = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    flow = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    payload = bytes(length)
    per_second = bits / 8 / length
    print("sending", flush=True)
    start, sent = time.monotonic(), 0
    while True:
        owed = int((time.monotonic() - start) * per_second) - sent
        for _ in range(max(owed, 0)):
            try:
                flow.sendto(payload, (address, port))
            except OSError:  # refused by the receiver, or no neighbour yet: continue
                pass
            sent += 1
        time.sleep(0.001)


if __name__ == "__main__":
    main()
