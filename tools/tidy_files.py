#!/usr/bin/env python3
"""Lists the source files that clang-tidy checks, one a line: the changed ones and a third of the others.

    tools/tidy_files.py          changed files, and a third of the others that the commit's hash chooses
    tools/tidy_files.py --all    every file: the long run
    --built DATABASE             of these, those that the build compiles (compile_commands.json); it says which it leaves
                                 out. Peers of a benchmark that are not installed, for example, can't be checked

A file is changed if it differs from a base: from the commit that TIDY_SINCE names, else from the commit ten commits
before HEAD. Changes that are not committed count. For a changed header, the list has a source file that includes it.
Without the base (a clone without its history) and after a change of the linter's configuration, every file is listed.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("common", "fabric", "messaging", "host", "iounit", "tools", "bench")
COMMITS = 10
CONFIGURATION = {".clang-tidy", "tools/cmake/kj_comparisons.h"}


def git(root, *words):
    """What git prints; None where it fails."""
    done = subprocess.run(["git", *words], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout if done.returncode == 0 else None


def files(root, ending):
    return git(root, "ls-files", *(f"{folder}/*{ending}" for folder in FOLDERS)).split()


def base_of(root, since):
    """The commit to compare with; None where the clone does not have it."""
    if since:
        found = git(root, "rev-parse", "--verify", f"{since}^{{commit}}")
        if found is None:
            sys.exit(f"tools/tidy_files.py: no commit {since} (TIDY_SINCE)")
        return found.strip()
    found = git(root, "rev-parse", "--verify", f"HEAD~{COMMITS}")
    return found.strip() if found else None


def includers(root, header, sources):
    """The header's own source file, else the first that includes it; none: nothing compiles it."""
    own = header.removesuffix(".h") + ".cpp"
    if own in sources:
        return [own]
    text = f'#include "{header}"'
    return [source for source in sources if text in (root / source).read_text(encoding="utf-8")][:1]


def changed(root, base, sources):
    """Sources that differ from the base, or that stand for a header that does; all of them after a change of the
    configuration."""
    names = set(git(root, "diff", "--name-only", base).split())
    if names & CONFIGURATION:
        return set(sources)
    headers = names & set(files(root, ".h"))
    return (names & set(sources)) | {name for header in headers for name in includers(root, header, sources)}


def third(names, commit):
    """A third of the names. Which one, the commit's hash decides; a name keeps its third while others come and go."""
    return {name for name in names if zlib.crc32(name.encode()) % 3 == int(commit[:8], 16) % 3}


def chosen(root, since=""):
    sources = files(root, ".cpp")
    base = base_of(root, since)
    if base is None:
        return sources
    picked = changed(root, base, sources)
    others = third(set(sources) - picked, git(root, "rev-parse", "HEAD"))
    return sorted(picked) + sorted(others)


def built(root, names, database):
    """Those of the names that the build compiles. The others have no options, and perhaps no headers."""
    compiled = {os.path.realpath(os.path.join(entry["directory"], entry["file"])) for entry in json.loads(database)}
    return [name for name in names if os.path.realpath(root / name) in compiled]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every source file")
    parser.add_argument("--built", metavar="DATABASE", type=pathlib.Path, help="those that the build compiles")
    asked = parser.parse_args()
    names = files(ROOT, ".cpp") if asked.all else chosen(ROOT, os.environ.get("TIDY_SINCE", ""))
    if asked.built:
        checked = built(ROOT, names, asked.built.read_text(encoding="utf-8"))
        if left := sorted(set(names) - set(checked)):
            print(f"not built here, and not checked: {' '.join(left)}", file=sys.stderr)
        names = checked
    print("\n".join(names))


if __name__ == "__main__":
    main()
