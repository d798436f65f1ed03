#!/usr/bin/env python3
"""Compares the exports of splitnic's libibverbs.so.1 or librdmacm.so.1 with those of the system's: the same symbols,
versions, default versions and types. Usage: exports_test.py LIBRARY."""

import pathlib
import re
import subprocess
import sys

STOCK = pathlib.Path("/usr/lib/x86_64-linux-gnu")
# The fewest symbols that the output of objdump can have, if it was understood.
SYMBOLS = {"libibverbs": 150, "librdmacm": 60}
LINE = re.compile(r"^[0-9a-f]{16} (.{7}) (\S+)\s+[0-9a-f]+\s+(\(?(?:IBVERBS|RDMACM)\S*?\)?)\s+(\S+)$")


def exports(library):
    """{(symbol, version, hidden, kind)}; kind: function or object. Symbols that name the versions themselves are left
    out."""
    text = subprocess.run(["objdump", "-T", library], check=True, capture_output=True, text=True).stdout
    found = set()
    for line in text.splitlines():
        match = LINE.match(line)
        if not match or match.group(2) in ("*UND*", "*ABS*"):
            continue
        version = match.group(3)
        kind = "function" if match.group(1).endswith("F") else "object"
        found.add((match.group(4), version.strip("()"), version.startswith("("), kind))
    return found


def main():
    name = pathlib.Path(sys.argv[1]).name.partition(".")[0]
    library = STOCK / f"{name}.so.1"
    if not library.exists():
        print(f"{library} is not there")
        return 77
    stock, ours = exports(library), exports(sys.argv[1])
    if len(stock) < SYMBOLS[name]:
        print(f"only {len(stock)} symbols in {library}: the output of objdump was not understood")
        return 1
    for symbol in sorted(stock - ours):
        print("missing:", *symbol)
    for symbol in sorted(ours - stock):
        print("not in the system's library:", *symbol)
    print(f"{len(stock)} symbols in the system's library, {len(ours)} in ours")
    return 0 if stock == ours else 1


if __name__ == "__main__":
    sys.exit(main())
