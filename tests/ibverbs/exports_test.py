#!/usr/bin/env python3
"""Compares the exports of splitnic's libibverbs.so.1 or librdmacm.so.1 with those of the system's and with their table:
the same symbols, versions, default versions and types. Beside the system's symbols only those may be there that the
table says a later release than the system's has added. Usage: exports_test.py LIBRARY TABLE."""

import pathlib
import re
import subprocess
import sys

STOCK = pathlib.Path("/usr/lib/x86_64-linux-gnu")
# The fewest symbols that the output of objdump can have, if it was understood.
SYMBOLS = {"libibverbs": 150, "librdmacm": 60}
LINE = re.compile(r"^[0-9a-f]{16} (.{7}) (\S+)\s+[0-9a-f]+\s+(\(?(?:IBVERBS|RDMACM)\S*?\)?)\s+(\S+)$")
FILE = re.compile(r"\.so\.1\.[0-9]+\.([0-9]+)")  # libibverbs.so.1.14.44.0 is of release 44


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


def rows_of(table):
    """{(symbol, version, hidden, kind): the release that added it}; 0: it was always there."""
    rows = {}
    for line in pathlib.Path(table).read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        symbol, version, visibility, state, *release = line.split()
        added = int(release[0]) if release else 0
        if symbol != "*":
            rows[symbol, version, visibility == "hidden", "object" if state == "data" else "function"] = added
            continue
        before, after = (name.rpartition("_")[2] for name in (state, version))
        for name, of, _, kind in list(rows):
            if of == state:
                rows[re.sub(f"_{before}$", f"_{after}", name), version, True, kind] = added
    return rows


def main():
    name = pathlib.Path(sys.argv[1]).name.partition(".")[0]
    library = STOCK / f"{name}.so.1"
    if not library.exists():
        print(f"{library} is not there")
        return 77
    release = int(FILE.search(library.resolve().name).group(1))
    stock, ours, table = exports(library), exports(sys.argv[1]), rows_of(sys.argv[2])
    if len(stock) < SYMBOLS[name]:
        print(f"only {len(stock)} symbols in {library}: the output of objdump was not understood")
        return 1
    later = {row for row, added in table.items() if added > release}
    errors = {"missing": stock - ours, "not in the system's library": ours - stock - later,
              "in the table, and not in the library": table.keys() - ours,
              "in the library, and not in the table": ours - table.keys()}
    for what, symbols in errors.items():
        for symbol in sorted(symbols):
            print(f"{what}:", *symbol)
    print(f"{len(stock)} symbols in the system's library of release {release}, {len(ours)} in ours, {len(later)} of them"
          " of later releases")
    return 1 if any(errors.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
