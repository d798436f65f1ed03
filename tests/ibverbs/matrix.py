#!/usr/bin/env python3
"""Debian's pingpongs and its perftest on the fabric, in every combination of verb, transport, waiting and receive queue
that the programs have, as root and as an ordinary user. Part of tools/check.sh; the tests run a few of them.

Both ends must end with 0 within the time bound, and the client must report each size. Where a program lets its buffers
be seen (--mmap), the bytes are compared: what was sent, written or read is there, and the sum of the additions is right.

matrix.py [--count N]    N pairs, drawn by the seed; without it, all
          [--seed SEED]  what draws them
          [--list]       prints the pairs and runs none
          [--times]      prints how many seconds each pair took
          [--verbose]    prints all that failed programs have printed
"""

import argparse
import dataclasses
import hashlib
import itertools
import os
import shutil
import struct
import sys
import time

import pairs

LARGEST = 8 << 20
LARGEST_DATAGRAM = 4096
SMALLEST_SLOT = 4096  # perftest gives each message of a queue pair at least a page
PIECE_BYTES = 4096  # a cell has a multiple of it
ADDED_EVERY = 64  # bytes of a slot from one addend to the next
FILL_TRIES = 5
ATOMIC_BYTES = 8
ITERATIONS = {"lat": 20, "bw": 100}
QUEUE_PAIRS = 100
FEW_QUEUE_PAIRS = 8
ROUTING_BYTES = 64  # before a datagram in its slot, which moves its end into the next slot
SECONDS = 120  # of one program, where others keep the processors busy

PINGPONGS = (
    *(f"ibv_rc_pingpong {options}" for options in (
        "", "-c", "-e", "-e -c", "-N", "-N -e -c", "-t", "-t -c", "-o", "-o -P", "-o -c", "-o -O", "-o -O -P -c",
        "-j", "-j -c", "-j -e -N -c", "-g 0 -c", "-m 256 -c", "-s 1 -c", "-s 1000000 -n 100 -c",
        "-s 8388608 -n 20 -c", "-n 20000")),
    *(f"ibv_uc_pingpong {options}" for options in ("", "-c", "-e", "-e -c", "-g 0 -c", "-s 100000 -n 100 -c")),
    *(f"ibv_ud_pingpong {options}" for options in ("", "-c", "-e", "-e -c", "-g 0 -c", "-s 2048 -c")),
    *(f"ibv_xsrq_pingpong {options}" for options in (
        "", "-e", "-o", "-n 1000", "-s 100000 -n 100", "-s 1", "-m 1024")),
    *(f"ibv_srq_pingpong {options}" for options in ("", "-c", "-e", "-e -c", "-g 0 -c", "-q 64 -n 20000")),
)


@dataclasses.dataclass(frozen=True)
class Pair:
    words: tuple
    sizes: tuple = ()       # that the client reports
    data: str = ""          # which bytes are compared: "push", "pull", "add"
    queue_pairs: int = 1
    iterations: int = 0     # of each queue pair and size

    def __str__(self):
        return " ".join(self.words)


def perftest(verb, kind, *options, most=LARGEST):
    """All sizes with one queue pair; for bandwidth also both ways, and large messages with many queue pairs."""
    program = (f"ib_{verb}_{kind}", *options, "-n", str(ITERATIONS[kind]))
    data = {"read": "pull", "atomic": "add" if "FETCH_AND_ADD" in options else "", "send": "push",
            "write": "push" if kind == "bw" else ""}[verb]
    both_ways = "" if data == "add" else data
    if "XRC" in options:  # both ways it has twice as many queue pairs, of which each end uses one half to send
        data, both_ways = data if kind == "bw" else "", ""
    if verb == "atomic":
        all_sizes, large, every, size = (), (), (ATOMIC_BYTES,), ATOMIC_BYTES
    else:
        size = min(most, 65536)
        all_sizes, large, every = ("-a",), ("-s", str(size)), tuple(1 << bit for bit in range(1, most.bit_length()))
    yield Pair((*program, *all_sizes), every, data, iterations=ITERATIONS[kind])
    if kind == "lat":
        return
    yield Pair((*program, *all_sizes, "-b"), every, both_ways)
    if "UD" in options and "--use-srq" in options:
        # This perftest posts at most as many receives to the shared queue as one queue pair has iterations, and waits
        # for ever for datagrams that find none. So it runs for a time, which it can't with -e.
        if "-e" not in options:
            for ways in ((), ("-b",)):
                yield Pair((*program[:-2], "-D", "1", "-q", str(QUEUE_PAIRS), "-s", str(most), *ways), (most,))
        return
    # With -e, this perftest waits for ever if more completions than it polls at once are there (mended in its commit
    # 14955fe).
    count = FEW_QUEUE_PAIRS if "-e" in options else QUEUE_PAIRS
    one_queue = "--use-srq" in options or "XRC" in options
    receives = ("-r", str(ITERATIONS["bw"] * count)) if verb == "send" and (one_queue or "-e" in options) else ()
    many = (*program, "-q", str(count), *large, *receives)
    yield Pair(many, (size,), data, count, ITERATIONS[kind])
    if "XRC" in options and "-e" not in options:
        # This perftest posts as many receives for each queue pair as there are iterations for one of all of them.
        many = (*program, "-q", str(count // 2), *large)
    if "UD" in options and "-e" in options:
        return  # likewise: both ways it takes 100 receives for each event, and all 800 may be there before the first one
    yield Pair((*many, "-b"), (size,), both_ways, count)


def matrix():
    for words in PINGPONGS:
        yield Pair(tuple(words.split()))
    waits = ((), ("-e",))
    for kind in ("lat", "bw"):
        for transport, waiting in itertools.product(("RC", "UC", "UD", "XRC"), waits):
            for queue in ((),) if transport in ("UC", "XRC") else ((), ("--use-srq",)):
                yield from perftest("send", kind, "-c", transport, *waiting, *queue,
                                    most=LARGEST_DATAGRAM if transport == "UD" else LARGEST)
        for transport in ("RC", "UC", "XRC"):
            yield from perftest("write", kind, "-c", transport)
        yield from perftest("read", kind, "-c", "XRC")
        yield from perftest("atomic", kind, "-A", "FETCH_AND_ADD", "-c", "XRC")
        if kind == "bw":
            # More answers wait at the owner than it can give within a timeout.
            yield Pair(("ib_read_bw", "-n", "50", "-q", "200"), (65536,), "pull", 200)
            # Without -N, perftest compares all pairs of requests afterwards.
            yield Pair(("ib_read_bw", "-n", "1000", "-q", "200", "-N"), (65536,), "pull", 200)
        for waiting in waits:
            yield from perftest("read", kind, *waiting)
            for operation in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
                yield from perftest("atomic", kind, "-A", operation, *waiting)


def reported_sizes(output):
    """The first column of perftest's table."""
    rows = (line.split() for line in output.splitlines())
    return tuple(int(row[0]) for row in rows if len(row) > 3 and row[0].isdigit() and row[1].isdigit())


def filled_alike(pair, client, server):
    """perftest's numbers depend on the second in which an end makes them. Additions can be checked only if both have
    the same, as what lies between the addends shows."""
    half = SMALLEST_SLOT * pair.queue_pairs
    between = slice(half + ATOMIC_BYTES, half + ADDED_EVERY)
    return pair.data != "add" or client[between] == server[between]


def check_data(pair, client, server):
    """perftest fills the buffers of both ends with numbers. Half of a buffer is for its own requests, and half
    for those of the peer; each half has a slot for each queue pair."""
    size = max(pair.sizes)
    slot = max(size, SMALLEST_SLOT)
    half = slot * pair.queue_pairs
    compared = size - ROUTING_BYTES if "UD" in pair.words else size
    sent = {client[at * slot:at * slot + compared] for at in range(pair.queue_pairs)}
    for number in range(pair.queue_pairs):
        own, peers = number * slot, half + number * slot
        if pair.data == "push":
            # A shared queue's buffers go to any queue pair. perftest posts each of them many times, so the cells of
            # messages that come in at the same time lie there side by side.
            landed = server[peers:peers + slot + ROUTING_BYTES]
            shared = "--use-srq" in pair.words or pair.words[0] == "ib_send_bw" and "XRC" in pair.words
            good = any(message in landed for message in sent) or (
                shared and "UD" not in pair.words and
                all(any(message[at:at + PIECE_BYTES] == landed[at:at + PIECE_BYTES] for message in sent)
                    for at in range(0, size, PIECE_BYTES)))
        elif pair.data == "pull":
            good = client[own:own + size] == server[peers:peers + size]
        else:
            before, after = (sum(struct.unpack_from(f"<{slot // 8}Q", end, peers)) for end in (client, server))
            good = (after - before) % 2**64 == pair.iterations
        if not good:
            raise pairs.Failed(f"{pair}: wrong bytes in the buffer of queue pair {number}")


def run(fabric, pair):
    """Raises pairs.Failed unless both ends end with 0, and have reported and moved what they were to."""
    for _ in range(FILL_TRIES):
        server, client = run_once(fabric, pair)
        if filled_alike(pair, client, server):
            break
    if pair.data:
        check_data(pair, client, server)


def run_once(fabric, pair):
    """The buffers of both ends; empty where they can't be seen."""
    ends = [fabric.folder / name for name in ("server", "client")]
    options = [(), ()]
    if pair.data:
        slots = 2 * pair.queue_pairs * max(*pair.sizes, SMALLEST_SLOT) + 65536
        for path in ends:
            path.write_bytes(b"")
            fabric.give(path)
            os.truncate(path, slots)
        options = [(f"--mmap={path}",) for path in ends]
    if "XRC" in pair.words:
        pairs.forget_xrc_files()
    output = fabric.run_pair(pair.words, *options, SECONDS)
    if pair.sizes and reported_sizes(output) != pair.sizes:
        raise pairs.Failed(f"{pair}: the client reports other sizes than {pair.sizes}\n{output}")
    return [path.read_bytes() for path in ends] if pair.data else (b"", b"")


def draw(everything, count, seed):
    """The same pairs for the same seed."""
    return sorted(everything, key=lambda one: hashlib.sha256(f"{seed} {one}".encode()).digest())[:count]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    users = {"root": 0, "ordinary user": pairs.NOBODY} if os.getuid() == 0 else {"ordinary user": os.getuid()}
    chosen = [(user, pair) for user in users for pair in matrix()]
    if arguments.count is not None:
        chosen = draw(chosen, arguments.count, arguments.seed)
    if arguments.list:
        print("\n".join(f"{user}: {pair}" for user, pair in chosen))
        return 0
    missing = [program for program in ("ibv_rc_pingpong", "ib_send_lat") if shutil.which(program) is None]
    if missing:
        print(f"not installed: {' '.join(missing)}")
        return 1
    fabrics = {user: pairs.Fabric(uid) for user, uid in users.items()}
    failed = 0
    began = time.monotonic()
    for user, pair in chosen:
        pair_began = time.monotonic()
        try:
            run(fabrics[user], pair)
        except pairs.Failed as failure:
            failed += 1
            print(f"failed, {user}: {failure if arguments.verbose else str(failure).splitlines()[0]}", flush=True)
        if arguments.times:
            print(f"{time.monotonic() - pair_began:.1f} s, {user}: {pair}", flush=True)
    for fabric in fabrics.values():
        fabric.close()
    print(f"{len(chosen) - failed} of {len(chosen)} pairs of programs passed in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
