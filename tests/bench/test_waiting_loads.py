#!/usr/bin/env python3
"""No load of a message waits for the stores before it.

A processor takes a value that was just stored from its store queue if one store has all of it. Else the load waits until
the stores have left the queue, which they do in order: also those to a peer's memory that were made before, whose lines
the other core has. Two such loads in each direct write with immediate cost a third of the rate. Nothing in the source
shows them: the compiler copies two fields by one load, or half a register that it has put aside as a whole one. So this
test runs the message costs under valgrind's tracer, and looks for loads that overlap several recent stores, or more than
one has."""

import collections
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

BIN = Path(os.environ["SPLITNIC_BIN"])
TASKS = {"bench-message-costs": ["send_64_lists", "immediate_64_lists", "write_64_direct", "ping_pong_64", "read_8",
                                 "datagram_64"],
         "bench-verbs-costs": ["verbs_ping_pong_64"]}
QUEUED = 56  # stores that may not have left yet
# The C verbs take a completion out right after it was stored. Only stores to the program's own memory come before it in
# that turn, so it does not have to wait for long.
SHORT_WAITS = {"bench-verbs-costs": "completion_queue.h"}
OBJECT = re.compile(r".*Reading syms from (\S+)")
PLACE = re.compile(r".*svma (0x[0-9a-f]+), avma (0x[0-9a-f]+)")


def symbol(program, name):
    listed = subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout
    return next(int(line.split()[0], 16) for line in listed.splitlines() if line.split(" ", 2)[2].startswith(name))


class Trace:
    """Of the part that measured() runs: which instructions had loads that waited, and how often."""

    def __init__(self, program, task):
        self.program = program
        self.waits = collections.Counter()
        self.loads = 0
        self.bases = {}  # by object
        with subprocess.Popen(["valgrind", "--tool=lackey", "--trace-mem=yes", "-v", "-v", program, task],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1 << 20) as traced:
            self.read(traced.stderr)
            self.messages = int(traced.stdout.read())

    def read(self, lines):
        begin = symbol(self.program, "measured")
        found = None
        stored = {}  # by byte: the number of the store
        stores = 0
        at = 0
        measuring = False
        for line in lines:
            kind = line[:2]
            if kind == "I ":
                at = int(line[3:line.index(",")], 16)
                if not measuring:
                    measuring = at == self.bases.get(str(self.program), 0) + begin
            elif kind in (" L", " S", " M"):
                if not measuring:
                    continue
                address, size = line[3:].split(",")
                range_ = range(int(address, 16), int(address, 16) + int(size))
                if kind != " S":
                    self.loads += 1
                    by = {stored.get(byte, 0) for byte in range_}
                    if len(by) > 1 and max(by) > stores - QUEUED:
                        self.waits[at] += 1
                if kind != " L":
                    stores += 1
                    stored.update(dict.fromkeys(range_, stores))
            elif match := OBJECT.match(line):
                found = match[1]
            elif match := PLACE.match(line):
                self.bases[found] = int(match[2], 16) - int(match[1], 16)

    def object_at(self, at):
        return max((base, file) for file, base in self.bases.items() if base <= at)

    def is_ours(self, at):
        """Not a library's: other threads of a program on the C verbs write counters meanwhile, which takes those."""
        return Path(self.object_at(at)[1]).is_relative_to(BIN.resolve().parent)

    def where(self, at):
        base, file = self.object_at(at)
        told = subprocess.run(["addr2line", "-f", "-C", "-i", "-s", "-e", file, hex(at - base)], capture_output=True,
                              text=True, check=True).stdout
        inlined = told.splitlines()  # function and place, the innermost first
        return f"{Path(file).name}: {inlined[-2]} at {' in '.join(inlined[1::2])}"


class WaitingLoads(unittest.TestCase):
    def test_no_load_of_a_message_waits(self):
        for program, task in ((program, task) for program, tasks in TASKS.items() for task in tasks):
            with self.subTest(task=task):
                trace = Trace(BIN / program, task)
                self.assertGreater(trace.loads, 100 * trace.messages)
                waits = {at: count for at, count in trace.waits.items() if trace.is_ours(at)}
                often = [at for at, count in waits.items()
                         if count > trace.messages / 4 and SHORT_WAITS.get(program, "none") not in trace.where(at)]
                print(f"{task}: {sum(waits.values()) / trace.messages:.2f} loads of a message waited", file=sys.stderr)
                self.assertEqual("", "\n".join(f"{trace.waits[at]} times {trace.where(at)}" for at in often))


if __name__ == "__main__":
    if shutil.which("valgrind") is None:
        print("valgrind is not installed (tools/setup.sh test)", file=sys.stderr)
        sys.exit(77)
    unittest.main()
