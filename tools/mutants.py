#!/usr/bin/env python3
"""Plants bugs, one after the other, and shows that the tests notice.

    tools/mutants.py                      every mutant: the long run
    tools/mutants.py --draw 8             eight of them, drawn by the commit's hash
    tools/mutants.py NAME... [FILE...]    these mutants, or those that change these source files
    tools/mutants.py --verify             builds nothing: each text is found once, each test exists
    tools/mutants.py --compile [NAME...]  runs nothing: each compiles, 4 s of processor time for one

tests/mutants/README.md says how a mutant is written. A run works on a copy of the tree and of build/release in
build/mutants; the tree itself is never changed. In a mount namespace of its own the copy takes the tree's place, so that
only what a mutant changes is compiled. Where no namespace can be had, the copy is built from nothing.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import functools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = "build/release"
TEST_SECONDS = 120
FIELDS = {"name", "file", "find", "replace", "tests", "why", "survives"}
REQUIRED = FIELDS - {"survives"}


# In front of a file with a bug in it: a variable that is no longer used, say, is a warning and no error there.
WARN_ONLY = "".join(f'#pragma GCC diagnostic warning "-W{group}"\n' for group in ("all", "extra", "conversion", "shadow"))


class Wrong(Exception):
    """A mutant or a test that can't be used: the run says nothing, so it fails."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    why: str
    survives: str = ""  # why no test notices; empty: one must

    @property
    def layer(self):
        return self.file.split("/")[0]

    def planted(self, root):
        """The file's text with the bug in it."""
        path = root / self.file
        if not path.is_file():
            raise Wrong(f"mutant {self.name}: no file {self.file}")
        text = path.read_text(encoding="utf-8")
        count = text.count(self.find)
        if count != 1:
            raise Wrong(f"mutant {self.name}: its text is found {count} times in {self.file}, not once:\n{self.find}")
        return text.replace(self.find, self.replace)

    def to_compile(self, root):
        return (WARN_ONLY if self.file.endswith((".cpp", ".h")) else "") + self.planted(root)


def read_mutants(folder):
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        with path.open("rb") as file:
            tables = tomllib.load(file)["mutant"]
        for table in tables:
            label = f"{path.name}: {table.get('name', 'a mutant without a name')}"
            missing, unknown = REQUIRED - table.keys(), table.keys() - FIELDS
            if missing or unknown:
                raise Wrong(f"{label}: missing {sorted(missing)}, unknown {sorted(unknown)}")
            if not table["tests"] and not table.get("survives"):
                raise Wrong(f"{label}: names no test")
            mutants.append(Mutant(**{**table, "tests": tuple(table["tests"])}))
    if not mutants:
        raise Wrong(f"no mutants in {folder}")
    for name, count in collections.Counter(mutant.name for mutant in mutants).items():
        if count > 1:
            raise Wrong(f"{count} mutants are named {name}")
    return mutants


# --- Tests: "PROGRAM: WHAT", where PROGRAM is a Catch2 program, one with arguments of its own, or a file of
# tests/integration.

ARGUMENTS = {"splitnic_sim": r"--seeds? [\d-]+", "memory_sim": r"--seeds? [\d-]+ --operations \d+",
             "peers_sim": r"--seeds? [\d-]+ --operations \d+", "express_sim": r"--seeds? [\d-]+ --operations \d+",
             "many_peers": r"--kills \d+"}

def split_test(test):
    program, _, what = test.partition(": ")
    if not what:
        raise Wrong(f'"{test}" is not "PROGRAM: TEST"')
    return program, what


def source_folder(root, program):
    elsewhere = {"hostile_fabric": "hostile", "unit_ibverbs": "ibverbs", "unit_rdmacm": "rdmacm",
                 "unit_guarded_portable": "unit/fabric"}
    return root / "tests" / elsewhere.get(program, program.replace("unit_", "unit/", 1))


@functools.lru_cache
def catch_names(folder):
    """The names of the Catch2 tests in the sources below the folder. Those of templates end with " - ": Catch2 adds the
    type."""
    names = set()
    literal = r'"(?:\\.|[^"\\])*"'
    start = re.compile(rf"\b(TEMPLATE_)?TEST_CASE(?:_METHOD)?\(\s*(?:[\w:]+,\s*)?((?:{literal}\s*)+)")
    for path in folder.rglob("*.cpp"):
        for match in start.finditer(path.read_text(encoding="utf-8")):
            name = "".join(part[1:-1] for part in re.findall(literal, match.group(2))).replace('\\"', '"')
            names.add(f"{name} - " if match.group(1) else name)
    return names


def check_exists(root, test):
    program, what = split_test(test)
    if program in ARGUMENTS:
        known = bool(re.fullmatch(ARGUMENTS[program], what))
    elif program.endswith(".py"):
        path = root / "tests/integration" / program
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        group, _, method = what.partition(".")
        body = re.search(rf"^class {group}\b.*?(?=^class |\Z)", text, re.M | re.S)
        known = body is not None and f"def {method}(" in body.group()
    else:
        names = catch_names(source_folder(root, program))
        known = what in names or re.sub(r" - [\w:]+$", " - ", what) in names
    if not known:
        raise Wrong(f'no such test: "{test}"')


def verify(root, mutants):
    """Every complaint about mutants that can't be used."""
    complaints = []
    for mutant in mutants:
        for check in [lambda: mutant.planted(root), *(lambda test=test: check_exists(root, test) for test in mutant.tests)]:
            try:
                check()
            except Wrong as wrong:
                complaints.append(f"mutant {mutant.name}: {wrong}" if mutant.name not in str(wrong) else str(wrong))
    return complaints


def target_of(test):
    program, _ = split_test(test)
    return "splitnic" if program.endswith(".py") else program


def command_of(test):
    program, what = split_test(test)
    if program.endswith(".py"):
        return [sys.executable, "-B", str(ROOT / "tests/integration" / program), what]
    binary = str(ROOT / BUILD / "bin" / program)
    if program in ARGUMENTS:
        return [binary, *what.split()]
    return [binary, re.sub(r"([\\,\[\]])", r"\\\1", what)]


def run_test(test, limit=TEST_SECONDS):
    """passed, failed or skipped; and what the test printed. One that does not end within `limit` seconds has failed."""
    environment = {**os.environ, "SPLITNIC_BIN": str(ROOT / BUILD / "bin")}
    process = subprocess.Popen(command_of(test), cwd=ROOT / BUILD, env=environment, start_new_session=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "failed", f"did not end within {limit:.0f} s"
    if process.returncode == 77 or (process.returncode == 0 and "skipped: " in output):
        return "skipped", output
    if "No test cases matched" in output or "No tests ran" in output:
        raise Wrong(f'no such test: "{test}"')
    return ("passed" if process.returncode == 0 else "failed"), output


# --- Building

def build(targets, jobs, plant=""):
    command = ["cmake", "--build", str(ROOT / BUILD), "-j", str(jobs), "--target", *sorted(targets)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if result.returncode != 0:
        lines = [line for line in result.stdout.splitlines() if not re.match(r"\[\d+/\d+\] ", line)]
        raise Wrong("\n".join([f"{plant or 'the tree'} does not compile:", *lines]))


# What the line of a failed test's output that says best why it failed begins with, the best one first.
REASONS = (r"(?!Exception translation)[\w.]*(Error|Exception|TimeoutExpired)\b", r"did not end within",
           r".*: FAILED:", r".*(CHECK|Sanitizer)\b")


def reason_of(output):
    """Why a test failed, in one line of its output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for mark in REASONS:
        found = [number for number, line in enumerate(lines) if re.match(mark, line)]
        if found and "FAILED" in mark:  # the first failure, with the condition in the next line
            return " ".join(lines[found[0]:found[0] + 2])[:200]
        if found:
            return lines[found[-1]][:200]
    return lines[-1][:200] if lines else "no output"


def plant_and_test(mutant, limits, jobs):
    """The tests that passed although the bug was there; why the first of the others failed; the time that it took.
    limits: seconds of each test."""
    started = time.monotonic()
    path = ROOT / mutant.file
    original = path.read_text(encoding="utf-8")
    path.write_text(mutant.to_compile(ROOT), encoding="utf-8")
    try:
        build({target_of(test) for test in mutant.tests}, jobs, f"mutant {mutant.name}")
        results = {test: run_test(test, limits[test]) for test in mutant.tests}
    finally:
        path.write_text(original, encoding="utf-8")
    skipped = [test for test, (outcome, _) in results.items() if outcome == "skipped"]
    if skipped:
        raise Wrong("a test is skipped with the bug: " + "; ".join(skipped))
    passed = [test for test, (outcome, _) in results.items() if outcome == "passed"]
    reasons = [reason_of(output) for outcome, output in results.values() if outcome != "passed"]
    return passed, next(iter(reasons), ""), time.monotonic() - started


def usable_tests(mutants, jobs):
    """The tests that pass without a bug, each with the seconds that it may take with one: a bug often makes a test wait
    for what never comes. Tests that are skipped here are left out. The second value: tests that fail without a bug, each
    with its reason; their mutants are errors."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    subprocess.run(["cmake", "--preset", "release", "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    build({target_of(test) for test in tests}, jobs)
    usable, failing = {}, {}
    for test in tests:
        started = time.monotonic()
        outcome, output = run_test(test)
        if outcome == "failed":
            failing[test] = reason_of(output)
            print(f'fails without a mutant: "{test}"\n{output}', flush=True)
        elif outcome == "passed":
            usable[test] = min(TEST_SECONDS, 15 + 5 * (time.monotonic() - started))
        else:
            print(f'skipped here: "{test}"', flush=True)
    return usable, failing


def say(mutant, result, seconds, text):
    print(f"{result:9} {mutant.name:38} {mutant.file:34} {seconds:5.1f} s  {text}", flush=True)


def run(mutants, jobs):
    """Plants each; prints a table. Returns the number of failures."""
    usable, failing = usable_tests(mutants, jobs)
    counts, failures = collections.Counter(), 0
    for mutant in sorted(mutants, key=lambda mutant: (mutant.file, mutant.name)):
        if failing.keys() & set(mutant.tests):
            failures += 1
            say(mutant, "ERROR", 0, "a test fails without the bug: " +
                "; ".join(f"{test}: {failing[test]}" for test in mutant.tests if test in failing))
            continue
        if not set(mutant.tests) <= usable.keys():
            counts["not run"] += 1
            say(mutant, "not run", 0, "its test is skipped here" if mutant.tests else mutant.survives)
            continue
        try:
            passed, reason, seconds = plant_and_test(mutant, usable, jobs)
        except Wrong as wrong:
            failures += 1
            say(mutant, "ERROR", 0, str(wrong))
            continue
        if not passed and mutant.survives:
            failures += 1
            say(mutant, "CAUGHT", seconds, "although it is listed as a survivor: remove the reason")
        elif not passed:
            counts["caught"] += 1
            say(mutant, "caught", seconds, f"{mutant.tests[0]}: {reason}")
        elif mutant.survives:
            counts["survived, with a reason"] += 1
            say(mutant, "survived", seconds, mutant.survives)
        else:
            failures += 1
            say(mutant, "SURVIVED", seconds, "not noticed by: " + "; ".join(passed))
    print(f"{len(mutants)} mutants: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()) +
          f", {failures} wrong")
    return failures


# --- Compiling alone

def units_of():
    """For each source and header of the tree, the command that compiles it, or the smallest piece that includes it."""
    entries = json.loads((ROOT / BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    commands = {shlex.split(entry["command"])[-3]: entry["command"] for entry in entries}  # by output: ... -o x.o -c x.cpp
    listing = subprocess.run(["ninja", "-C", str(ROOT / BUILD), "-t", "deps"], check=True, stdout=subprocess.PIPE,
                             text=True).stdout
    units = {}
    for block in listing.split("\n\n"):
        lines = block.strip().splitlines()
        output = lines[0].split(": #deps")[0] if lines else ""
        if output not in commands:
            continue
        for line in lines[1:]:
            path = pathlib.Path(os.path.normpath(ROOT / BUILD / line.strip()))
            if path.is_relative_to(ROOT):
                name = str(path.relative_to(ROOT))
                one = (len(lines), commands[output])
                units[name] = min(units.get(name, one), one)
    return {name: command for name, (_, command) in units.items()}


def compiles(mutant, command):
    """What the compiler says about the mutant; empty: it compiles. Nothing is written beside a temporary folder."""
    words = shlex.split(command)
    words = words[:words.index("-o")]
    with tempfile.TemporaryDirectory() as overlay:
        planted = pathlib.Path(overlay) / mutant.file
        planted.parent.mkdir(parents=True)
        planted.write_text(mutant.to_compile(ROOT), encoding="utf-8")
        source = str(planted)
        if mutant.file.endswith(".h"):  # a precompiled header may hold it as it was
            words = words[:words.index("-Winvalid-pch")] if "-Winvalid-pch" in words else words
            source = shlex.split(command)[-1]
        words[1:1] = [f"-I{overlay}", f"-iquote{(ROOT / mutant.file).parent}", "-fsyntax-only"]
        result = subprocess.run([*words, source], cwd=ROOT / BUILD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, errors="replace")
    return result.stdout if result.returncode != 0 else ""


def compile_all(mutants, jobs):
    """Compiles each alone; says which ones don't. Returns how many."""
    build({"all"}, jobs)
    units = units_of()
    known = [mutant for mutant in mutants if mutant.file in units]
    for mutant in set(mutants) - set(known):
        print(f"not compiled: {mutant.name}, in {mutant.file}", flush=True)
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for mutant, said in zip(known, pool.map(lambda one: compiles(one, units[one.file]), known)):
            if said:
                bad += 1
                print(f"mutant {mutant.name} does not compile:\n{said}", flush=True)
    print(f"{len(known)} mutants compiled, {bad} of them wrong")
    return bad


# --- The copy

def copy_tree(scratch, with_build):
    shutil.rmtree(scratch, ignore_errors=True)
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    for name in filter(None, listing.split("\0")):
        if not (ROOT / name).is_file():
            continue
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, scratch / name)
    if with_build and (ROOT / BUILD).is_dir():
        try:
            shutil.copytree(ROOT / BUILD, scratch / BUILD, symlinks=True)
        except shutil.Error as error:  # of many files, a reason each
            shutil.rmtree(scratch)
            free = shutil.disk_usage(ROOT).free >> 20
            raise Wrong(f"{BUILD} can't be copied, with {free} MB free on the disk: {error.args[0][0][2]}") from error



def namespace():
    """The command that gives what follows mounts of its own; empty where that is not permitted."""
    command = ["unshare", "--mount", "--propagation", "private"]
    command += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return command if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode == 0 else []


def run_on_copy(names, jobs):
    scratch = ROOT / "build/mutants"
    around = namespace()
    copy_tree(scratch, with_build=bool(around))
    if around:
        place = 'mount --bind "$0" "$1" && cd "$1" && shift && exec "$@"'
        command = [*around, "sh", "-c", place, str(scratch), str(ROOT), sys.executable, "-B", "tools/mutants.py"]
    else:
        print("no mount namespace: the copy is built from nothing", flush=True)
        command = [sys.executable, "-B", str(scratch / "tools/mutants.py")]
    sys.stdout.flush()
    result = subprocess.run([*command, "--on-copy", "--jobs", str(jobs), *names], cwd=scratch).returncode
    if result == 0:  # nobody looks at the copy, which is a gigabyte
        shutil.rmtree(scratch)
    return result


def draw(mutants, count, by):
    """`count` mutants, always the same for the same `by`. None in a header: half the tree would be compiled for it."""
    able = sorted(mutant.name for mutant in mutants if not mutant.survives and not mutant.file.endswith(".h"))
    names = set(random.Random(by).sample(able, min(count, len(able))))
    return [mutant for mutant in mutants if mutant.name in names]


def head():
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE,
                          text=True).stdout.strip()


def choose(mutants, wanted):
    unknown = [word for word in wanted if all(word not in (mutant.name, mutant.file) for mutant in mutants)]
    if unknown:
        raise Wrong(f"no such mutant, and none changes such a file: {' '.join(unknown)}")
    return [mutant for mutant in mutants if not wanted or mutant.name in wanted or mutant.file in wanted]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="*", metavar="NAME|FILE", help="mutants, or source files that they change")
    parser.add_argument("--draw", type=int, metavar="N", help="only N of them, drawn by the hash of HEAD")
    parser.add_argument("--by", metavar="TEXT", help="draw by this text instead")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="of the build")
    parser.add_argument("--verify", action="store_true", help="check the mutants and build nothing")
    parser.add_argument("--compile", action="store_true", help="compile each and run no test")
    parser.add_argument("--on-copy", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    asked = options()
    try:
        mutants = choose(read_mutants(ROOT / "tests/mutants"), asked.wanted)
        if asked.draw:
            mutants = draw(mutants, asked.draw, asked.by or head())
        complaints = verify(ROOT, mutants)
        if complaints or asked.verify:
            print("\n".join(complaints) or f"{len(mutants)} mutants: each text is found once, each test exists")
            return 1 if complaints else 0
        if asked.compile:
            return 1 if compile_all(mutants, asked.jobs) else 0
        if not asked.on_copy:
            return run_on_copy([mutant.name for mutant in mutants], asked.jobs)
        return 1 if run(mutants, asked.jobs) else 0
    except Wrong as wrong:
        print(f"tools/mutants.py: {wrong}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
