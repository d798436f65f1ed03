#!/usr/bin/env python3
"""Runs the attacks on the reviewed commit and today's tests of them, and prints both as one table. See run.sh.

    compare.py TREE [--before]     TREE: the reviewed commit with attacks.patch, built
    compare.py --rows              runs nothing: docs/security.md has a row for each attack
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILT = ROOT / "build" / "release" / "bin"
SECONDS = 600  # that one program may take
SKIPPED = 77


def unit(row, *signs):
    return "reviewed_attacks", f"[row{row}]", [f"( {sign} )" for sign in signs]


# For each row of the table in docs/security.md: programs with what to run, and what the failed test must say.
ROWS = (
    [("test_attacks.py", "Row1", ["the unit stood still"])],
    [unit(2, "gateway_addresses_granted == 0", "configured_addresses_granted == 0", "restarting_addresses_granted == 0",
          "names_taken == 0", "victim_is_back", "taken.frames == 0", "taken.at_gateway == 1")],
    [("test_attacks.py", "Row3", ["the unit gave more memory than for one host", "the unit stood still"])],
    [unit(4, "overheard == 0")],
    [unit(5, "share_beside_filters > 0.5", "share_beside_hellos > 0.5"), ("test_attacks.py", "Row5", ["the unit was late"])],
    [unit(6, "frames_to_the_switch == 0")],
    [unit(7, "hidden_lines_of_calm == 0")],
    [unit(8, "rounds_without_spinning == 0")],
    [unit(9, "code_after_enospc == 0", "code_after_enomem == 0")],
    [("reviewed_guarded_copy", "[row10]", ["( sigterm_ignored )"])],
)


class Run:
    """One run of a test program to its end: its exit code, its output, its figures."""

    def __init__(self, argv, **environment):
        self.argv = [str(word) for word in argv]
        try:
            done = subprocess.run(self.argv, capture_output=True, text=True, errors="replace", timeout=SECONDS,
                                  cwd=ROOT, check=False, env={**os.environ, **environment})
        except subprocess.TimeoutExpired:
            self.code, self.output = -1, f"no end within {SECONDS} s"
        else:
            self.code, self.output = done.returncode, done.stdout + done.stderr
        self.figures = re.findall(r"measured: (.*)", self.output)
        # A filter that names no test must not pass, nor a test that skips itself.
        self.ran = not re.search(r"No test cases matched|Ran 0 tests|\(skipped=", self.output)

    @property
    def passed(self):
        return self.code == 0 and self.ran

    def fault(self, what):
        tail = "\n".join(self.output.splitlines()[-30:])
        how = f"ended with {self.code}" if self.ran and self.code != SKIPPED else "did not run"
        return f"{what}: {' '.join(self.argv)} {how}\n{tail}"


def run_before(tree, program, selection, part):
    if program.endswith(".py"):
        return Run([sys.executable, "-B", tree / "tests" / "reviewed" / program, f"{selection}.test_{part}"],
                   SPLITNIC_BIN=str(tree / "build" / "release" / "bin"))
    return Run([tree / "build" / "release" / "bin" / program, f"{selection}[{part}]"])


def before(tree, number, faults):
    """The figures of one row at the reviewed commit: with the attack, and without."""
    attacked, calm = [], []
    for program, selection, signs in ROWS[number]:
        control = run_before(tree, program, selection, "control")
        if not control.passed:
            faults.append(control.fault(f"row {number + 1}: without the attack"))
        attack = run_before(tree, program, selection, "attack")
        missing = [sign for sign in signs if not re.search(r"(FAILED:\n  CHECK\w*| : )" + re.escape(sign), attack.output)]
        if attack.code in (0, SKIPPED) or missing:
            faults.append(attack.fault(f"row {number + 1}: no sign {missing} of the attack"))
        attacked += attack.figures
        calm += control.figures
    return attacked, calm


def documented_tests():
    """For each row of the table in docs/security.md: what its column "tests" names."""
    text = (ROOT / "docs" / "security.md").read_text()
    head = "| a host or a local user could | cause | closed by | tests | planted bugs |\n"
    rows = text.partition(head)[2].partition("\n\n")[0].splitlines()[1:]
    return [re.split(r"(?<!\\)\|", row)[4] for row in rows]


class Today:
    """Runs each test of today's tree once, however many rows name it."""

    def __init__(self):
        self.runs = {}

    def run(self, *argv, **environment):
        key = (argv, tuple(environment.items()))
        if key not in self.runs:
            self.runs[key] = Run(argv, **environment)
        return self.runs[key]

    def of_row(self, cell, all_attacks):
        """(name, run) for all that the cell of the table names."""
        tests, _, attacks = cell.partition("attack")
        portable = "unit_guarded_portable" in tests
        for name in re.findall(r"`([^`]+)`", tests):
            words = name.split()
            if words[0].endswith(".py"):
                yield name, self.run(sys.executable, "-B", ROOT / "tests" / "integration" / words[0], *words[1:])
            elif words[0].endswith("_test.cpp"):
                [source] = (ROOT / "tests" / "unit").glob(f"*/{words[0]}")
                program = "unit_guarded_portable" if portable else f"unit_{source.parent.name}"
                yield name, self.run(BUILT / program, "-#", f"[#{source.stem}]")
        neighbours = ROOT / "tests" / "integration" / "test_neighbours.py"
        for attack in re.findall(r"`([^`]+)`", attacks):
            if attack == "hello-storm":  # needs another user
                yield attack, self.run(sys.executable, "-B", neighbours, "OtherUser")
            else:
                yield attack, self.run(sys.executable, "-B", neighbours, "Neighbours", HOSTILE=",".join(all_attacks))


def attacks_named(cells):
    return [attack for cell in cells for attack in re.findall(r"`([^`]+)`", cell.partition("attack")[2])
            if attack != "hello-storm"]


def main():
    cells = documented_tests()
    if len(cells) != len(ROWS):
        sys.exit(f"docs/security.md names {len(cells)} holes instead of {len(ROWS)}")
    if sys.argv[1:] == ["--rows"]:
        return
    tree = Path(sys.argv[1])
    faults = []
    today = None if "--before" in sys.argv[2:] else Today()
    for number, cell in enumerate(cells):
        attacked, calm = before(tree, number, faults)
        print(f"\n{number + 1:2}  the reviewed commit   " + f"\n{'':26}".join(attacked))
        print(f"    without the attack    " + f"\n{'':26}".join(calm), flush=True)
        if not today:
            continue
        results = []
        for name, run in today.of_row(cell, attacks_named(cells)):
            results.append(f"{name} {'passes' if run.passed else 'FAILS'}")
            if not run.passed:
                faults.append(run.fault(f"row {number + 1}: today's {name}"))
        if not results:
            faults.append(f"row {number + 1}: docs/security.md names no test")
        print("    today                 " + f"\n{'':26}".join(results), flush=True)
    for fault in faults:
        print(f"\n{fault}", file=sys.stderr)
    if faults:
        sys.exit(f"\n{len(faults)} of the results are not as expected")
    print("\neach attack succeeds on the reviewed commit" + (", and today's tests pass" if today else ""))


if __name__ == "__main__":
    main()
