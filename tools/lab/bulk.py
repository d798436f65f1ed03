"""A long TCP transfer whose bytes nobody stores: what was sent, and what arrived.

bulk.py receive ADDRESS PORT    prints "ready", then "bytes N sha256 HASH" of the connection that it gets
bulk.py send ADDRESS PORT BYTES SEED    sends so many random bytes, and prints the same of them
"""

import hashlib
import random
import socket
import sys

CHUNK_BYTES = 1 << 18


def report(count, digest):
    print("bytes", count, "sha256", digest.hexdigest(), flush=True)


def receive(address, port):
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
    connection.settimeout(30)
    digest, count, memory = hashlib.sha256(), 0, bytearray(CHUNK_BYTES)
    while got := connection.recv_into(memory):
        digest.update(memoryview(memory)[:got])
        count += got
    report(count, digest)


def send(address, port, total, seed):
    connection = socket.create_connection((address, port), timeout=30)
    digest, count, source = hashlib.sha256(), 0, random.Random(seed)
    while count < total:
        chunk = source.randbytes(min(CHUNK_BYTES, total - count))
        connection.sendall(chunk)
        digest.update(chunk)
        count += len(chunk)
    connection.close()
    report(count, digest)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], int(sys.argv[3]))
    else:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
