"""One-byte requests and answers over TCP, as fast as they go.

    request_response.py serve ADDRESS PORT
    request_response.py ask ADDRESS PORT     prints a line for each tenth of a second: its end (UNIX time), the requests
"""

import socket
import sys
import time

INTERVAL = 0.1


def serve(address, port):
    with socket.create_server((address, port)) as listener:
        print("ready", flush=True)
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while byte := connection.recv(1):
            connection.sendall(byte)


def ask(address, port):
    with socket.create_connection((address, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        count, due = 0, time.time() + INTERVAL
        while True:
            connection.sendall(b"?")
            if not connection.recv(1):
                return
            count += 1
            now = time.time()
            if now >= due:
                print(f"{now:.4f} {count}", flush=True)
                count, due = 0, now + INTERVAL


if __name__ == "__main__":
    (serve if sys.argv[1] == "serve" else ask)(sys.argv[2], int(sys.argv[3]))
