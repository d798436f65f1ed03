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
# The start of a program on the C verbs is another 30 million lines of the tracer: only with TRACE=all.
TASKS = {"bench-message-costs": ["send_64_lists", "immediate_64_lists", "write_64_direct", "ping_pong_64", "read_8",
                                 "datagram_64", "datagram_ping_pong_64"],
         "bench-verbs-costs": ["verbs_ping_pong_64"]}
QUEUED = 56  # stores that may not have left yet
# A completion is taken out right after it was stored, by the C verbs and by who answers. Only stores to the program's
# own memory come before it in that turn, so it does not have to wait for long.
SHORT_WAITS = dict.fromkeys(["ping_pong_64", "datagram_ping_pong_64", "verbs_ping_pong_64"], "completion_queue.h")
OBJECT = re.compile(r".*Reading syms from (\S+)")
PLACE = re.compile(r".*svma (0x[0-9a-f]+), avma (0x[0-9a-f]+)")


def symbol(program, name):
    listed = subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout
    return next(int(line.split()[0], 16) for line in listed.splitlines() if line.split(" ", 2)[2].startswith(name))


class Trace:
    """Of the parts that measured() runs, one for each task: which instructions had loads that waited, and how often.

    The tracer prints each instruction of the whole process, mostly of its start: so one process does all tasks, and the
    rings that a link clears take an instruction for each 32 bytes, not for each byte."""

    def __init__(self, program, tasks):
        self.program = program
        self.waits = {task: collections.Counter() for task in tasks}
        self.loads = collections.Counter()
        self.bases = {}  # by object
        environment = {**os.environ, "MESSAGES": "96", "GLIBC_TUNABLES": "glibc.cpu.x86_rep_stosb_threshold=0x10000000"}
        with subprocess.Popen(["valgrind", "--tool=lackey", "--trace-mem=yes", "-v", "-v", program, *tasks],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1 << 20,
                              env=environment) as traced:
            self.read(traced.stderr)
            self.messages = dict(zip(tasks, map(int, traced.stdout.read().split()), strict=True))

    def read(self, lines):
        tasks = iter(self.waits)
        begin = found = None
        for line in lines:
            if line[0] in "I ":
                if begin is not None and line.startswith(begin):
                    self.read_measured(next(tasks), lines)
            elif match := OBJECT.match(line):
                found = match[1]
            elif match := PLACE.match(line):
                self.bases[found] = int(match[2], 16) - int(match[1], 16)
                if found == str(self.program):
                    begin = self.line_at("measured")

    def line_at(self, function):
        """How the line of its first instruction begins."""
        return f"I  {self.bases[str(self.program)] + symbol(self.program, function):08x},"

    def read_measured(self, task, lines):
        end = self.line_at("measurement_ended")
        waits = self.waits[task]
        stored = {}  # by byte: the number of the store
        stores = loads = at = 0
        for line in lines:
            kind = line[:2]
            if kind == "I ":
                if line.startswith(end):
                    break
                at = int(line[3:line.index(",")], 16)
            elif kind in (" L", " S", " M"):
                address, size = line[3:].split(",")
                range_ = range(int(address, 16), int(address, 16) + int(size))
                if kind != " S":
                    loads += 1
                    by = {stored.get(byte, 0) for byte in range_}
                    if len(by) > 1 and max(by) > stores - QUEUED:
                        waits[at] += 1
                if kind != " L":
                    stores += 1
                    stored.update(dict.fromkeys(range_, stores))
        self.loads[task] = loads

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
        programs = TASKS if os.environ.get("TRACE") == "all" else ["bench-message-costs"]
        for program, tasks in ((program, TASKS[program]) for program in programs):
            trace = Trace(BIN / program, tasks)
            for task in tasks:
                with self.subTest(task=task):
                    self.check(trace, task, SHORT_WAITS.get(task, "none"))

    def check(self, trace, task, short):
        messages = trace.messages[task]
        self.assertGreater(trace.loads[task], 100 * messages)
        waits = {at: count for at, count in trace.waits[task].items() if trace.is_ours(at)}
        often = [at for at, count in waits.items() if count > messages / 4 and short not in trace.where(at)]
        print(f"{task}: {sum(waits.values()) / messages:.2f} loads of a message waited", file=sys.stderr)
        self.assertEqual("", "\n".join(f"{waits[at]} times {trace.where(at)}" for at in often))


if __name__ == "__main__":
    if shutil.which("valgrind") is None:
        print("valgrind is not installed (tools/setup.sh test)", file=sys.stderr)
        sys.exit(77)
    unittest.main()
