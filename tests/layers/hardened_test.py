#!/usr/bin/env python3
"""The shipped programs and libraries are built so that a memory fault is harder to exploit. readelf shows it.
Usage: hardened_test.py FILE... , the built programs and shared libraries."""

import os
import platform
import re
import subprocess
import sys
import unittest

FILES = []
# The compiler's part is in optimised code alone. Sanitizers check more, and replace it.
CODE = os.environ.get("SPLITNIC_HARDENED_CODE") == "ON"
ENDBR64 = b"\xf3\x0f\x1e\xfa"
# Its three functions have no buffers, so the compiler adds no checks of them.
WITHOUT_BUFFERS = {"libsplitnic-uverbs.so"}


def has_checks(file):
    return CODE and os.path.basename(file) not in WITHOUT_BUFFERS


def readelf(*words):
    return subprocess.run(["readelf", "--wide", *words], capture_output=True, text=True, check=True).stdout


def flaws(file, header, segments, dynamic, symbols):
    """What is missing, by the output of readelf -h, -l, -d and --dyn-syms."""
    missing = []
    if not re.search(r"Type:\s+DYN", header):
        missing.append("a position-independent file")
    elif "INTERP" in segments and not re.search(r"FLAGS_1.*\bPIE\b", dynamic):
        missing.append("a position-independent program")
    if "GNU_RELRO" not in segments:
        missing.append("read-only relocations")
    if not re.search(r"FLAGS_1.*\bNOW\b", dynamic):
        missing.append("binding at the start")
    search = re.search(r"\((?:RUN|R)PATH\).*\[(.*)\]", dynamic)
    if search and not all(folder.startswith(("/", "$ORIGIN")) for folder in search[1].split(":")):
        missing.append("a search path for libraries without the current folder")
    if not re.search(r"GNU_STACK.*\bRW\s", segments):
        missing.append("a stack that is not executable")
    if has_checks(file) and "__stack_chk_fail" not in symbols:
        missing.append("checks of the stack")
    if has_checks(file) and not re.search(r"\b__\w+_chk\b", symbols):
        missing.append("checks of sizes by the C library")
    return missing


def outputs(file):
    return [readelf(option, file) for option in ("-h", "-l", "-d", "--dyn-syms")]


def entries(file):
    """The first four bytes of each function of the project that other files can call, by name."""
    sections = {}
    for number, address, offset in re.findall(r"\[ *(\d+)\] \S+ +PROGBITS +([0-9a-f]+) ([0-9a-f]+)", readelf("-S", file)):
        sections[number] = (int(address, 16), int(offset, 16))
    found = {}
    with open(file, "rb") as binary:
        for address, section, name in re.findall(
                r"([0-9a-f]{16}) +\d+ FUNC +(?:GLOBAL|WEAK) +DEFAULT +(\d+) ((?:_ZNK?8splitnic|ibv_|rdma_)\S+|stat|access)$",
                readelf("-s", file), re.MULTILINE):
            start, offset = sections[section]
            binary.seek(int(address, 16) - start + offset)
            found[name] = binary.read(4)
    return found


class Hardened(unittest.TestCase):
    def test_nothing_is_missing(self):
        names = {os.path.basename(os.path.realpath(file)).partition(".")[0] for file in FILES}
        self.assertLessEqual({"splitnic", "libibverbs", "librdmacm", "libsplitnic-uverbs"}, names)
        for file in FILES:
            self.assertEqual(flaws(file, *outputs(file)), [], file)

    def test_the_program_starts_quickly(self):
        """It loads neither the layers nor Cap'n Proto nor libpcap, and looks for symbols in the C++ library first."""
        program = next(file for file in FILES if os.path.basename(file) == "splitnic")
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", program))
        self.assertEqual([name for name in needed if re.match("lib(splitnic|capnp|kj|pcap)", name)], [])
        if CODE:  # a sanitizer's library comes before
            self.assertTrue(needed[0].startswith("libstdc++"), needed)

    @unittest.skipUnless(CODE and platform.machine() == "x86_64", "the compiler adds it to optimised code for x86-64")
    def test_functions_begin_with_a_landing_place(self):
        for file in FILES:
            functions = entries(file)
            self.assertGreater(len(functions), 10 if has_checks(file) else 1, file)
            self.assertEqual([name for name, bytes_ in functions.items() if bytes_ != ENDBR64], [], file)

    def test_each_flaw_would_be_seen(self):
        for file in FILES:
            compiled = ((3, r"__stack_chk_fail"), (3, r"__\w+_chk\b")) if has_checks(file) else ()
            whole = outputs(file)
            for at, wanted in ((0, r"DYN"), (1, r"GNU_RELRO"), (1, r"\bRW\b"), (2, r"\bNOW\b"), *compiled):
                said = list(whole)
                said[at] = re.sub(wanted, "", said[at])
                self.assertNotEqual(flaws(file, *said), [], f"{file} without {wanted}")
            header, segments, dynamic, symbols = whole
            for path in ("/lib:", "lib", ":/lib", ""):
                said = re.sub(r"(\((?:RUN|R)PATH\).*\[).*(\])", rf"\1{path}\2", dynamic)
                if said != dynamic:
                    self.assertNotEqual(flaws(file, header, segments, said, symbols), [], f"{file} with {path}")


if __name__ == "__main__":
    FILES = sys.argv[1:]
    del sys.argv[1:]
    unittest.main(verbosity=2)
