"""The manual pages and the completion say what `--help` says, option by option, and are well formed.

Usage: documents_test.py SPLITNIC FOLDER SPLITNIC_BENCH FOLDER
A folder holds the pages and the completion of the program before it, as built.
"""

import pathlib
import re
import subprocess
import sys
import unittest

COMMANDS = "(?:Subc|C)ommands"  # their title in --help


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def entries(text):
    """{first line: description} of a list whose entries start at the smallest indentation."""
    found, indentation = {}, None
    for line in text.splitlines():
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        indentation = indent if indentation is None else indentation
        if indent == indentation:
            term, _, description = line.strip().partition("  ")
            found[term] = description.strip()
        else:
            found[term] = (found[term] + " " + line.strip()).strip()
    return found


def normal(terms):
    """--help writes "-h,--help", manual pages "-h, --help"."""
    return {term.replace(", -", ",-"): description for term, description in terms.items()}


class Documents:
    """The tests of one program. PLACES: which part of which page describes the options of which command."""
    NAME, PLACES, PAGES = "", {}, ()
    program, folder = "", pathlib.Path()

    def help_part(self, command, title):
        text = output(self.program, *command, "--help")
        part = re.search(rf"^{title}:\n((?:  .*\n)+)", text, re.MULTILINE)
        return entries(part.group(1)) if part else {}

    def page_part(self, page, title):
        text = re.sub(".\b", "", output("mandoc", "-Tascii", "-Owidth=500", str(self.folder / page)))
        part = re.search(rf"^ *{title}\n((?:     .*\n|\n)+)", text, re.MULTILINE)
        return part.group(1) if part else ""

    def leaves(self, command=()):
        below = self.help_part(command, COMMANDS)
        return [command] if not below else [leaf for name in below for leaf in self.leaves((*command, name))]

    def test_pages_describe_each_option_as_help_does(self):
        self.assertEqual(sorted(self.leaves()), sorted(place for place in self.PLACES if place))
        for command, (page, title) in self.PLACES.items():
            with self.subTest(command=command):
                told = self.help_part(command, "Options")
                self.assertIn("-h,--help", told)
                # "FILE FILE": --help names a word that is no option before its kind.
                told |= {term.split()[0]: text for term, text in self.help_part(command, "Positionals").items()}
                self.assertEqual(normal(entries(self.page_part(page, title))), told)

    def test_the_first_page_lists_each_command(self):
        listed = {name: text.rstrip(".") for name, text in entries(self.page_part(self.PAGES[0], "COMMANDS")).items()}
        self.assertEqual(listed, self.help_part((), COMMANDS))

    def test_pages_have_every_section(self):
        for page in self.PAGES:
            for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"):
                with self.subTest(page=page, section=section):
                    self.assertTrue(self.page_part(page, section).strip())

    def test_pages_are_well_formed(self):
        self.assertEqual(sorted(page.name for page in self.folder.glob("*.[18]")), sorted(self.PAGES))
        for page in self.PAGES:
            lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning", str(self.folder / page)], capture_output=True,
                                  text=True)
            self.assertEqual((lint.returncode, lint.stdout), (0, ""))

    def complete(self, *words):
        script = """source "$1"; shift; compopt() { echo "files"; }
                    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "_${1//-/_}"; printf '%s\\n' "${COMPREPLY[@]}" """
        return output("bash", "-c", script, "bash", str(self.folder / f"{self.NAME}.bash"), self.NAME, *words).split()

    def test_the_completion_offers_commands_and_options(self):
        for command in self.PLACES:
            with self.subTest(command=command):
                options = [name for term in self.help_part(command, "Options") for name in term.split()[0].split(",")]
                files = ["files"] if self.help_part(command, "Positionals") else []
                self.assertEqual(sorted(self.complete(*command, "-")), sorted(options + files))
        self.assertEqual(self.complete(""), [*self.help_part((), COMMANDS), "-h", "--help", "--version"])


class Splitnic(Documents, unittest.TestCase):
    NAME, PAGES = "splitnic", ("splitnic.1", "splitnic-host.8", "splitnic-iounit.8")
    PLACES = {(): ("splitnic.1", "OPTIONS"), ("host",): ("splitnic-host.8", "OPTIONS"),
              ("iounit",): ("splitnic-iounit.8", "OPTIONS"), ("status",): ("splitnic.1", "splitnic status"),
              ("stats",): ("splitnic.1", "splitnic stats"),
              ("verbs-run",): ("splitnic.1", r"splitnic verbs-run \[OPTIONS\] PROGRAM \[ARGUMENTS\.\.\.\]"),
              ("policy", "check"): ("splitnic.1", "splitnic policy check"),
              ("policy", "show"): ("splitnic.1", "splitnic policy show"),
              ("policy", "reload"): ("splitnic.1", "splitnic policy reload")}

    def test_the_completion_knows_values(self):
        self.assertEqual(self.complete("host", "--mode", ""), ["r", "s"])
        self.assertIn("lo", self.complete("iounit", "--lan", "l"))
        self.assertEqual(self.complete("host", "--config", ""), ["files"])
        self.assertEqual(self.complete("host", "--mtu", ""), [])

    def test_a_command_that_runs_a_program_names_its_words(self):
        self.assertIn("\nUsage: splitnic verbs-run [OPTIONS] PROGRAM [ARGUMENTS...]\n",
                      output(self.program, "verbs-run", "--help"))
        self.assertIn("splitnic verbs-run [options] program [arguments...]\n", self.page_part("splitnic.1", "SYNOPSIS"))

    def test_the_benchmarks_are_named_where_they_were(self):
        done = subprocess.run([self.program, "bench", "nic"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "splitnic: the benchmarks are a separate program: splitnic-bench\n")


class SplitnicBench(Documents, unittest.TestCase):
    NAME, PAGES = "splitnic-bench", ("splitnic-bench.1",)
    PLACES = {(): ("splitnic-bench.1", "OPTIONS"), ("nic",): ("splitnic-bench.1", "splitnic-bench nic"),
              ("fabric",): ("splitnic-bench.1", "splitnic-bench fabric"),
              ("verbs",): ("splitnic-bench.1", "splitnic-bench verbs")}

    def test_the_completion_knows_values(self):
        self.assertEqual(self.complete("nic", "--forwarder", ""), ["files"])
        self.assertEqual(self.complete("nic", "--runs", ""), [])


if __name__ == "__main__":
    Splitnic.program, Splitnic.folder = sys.argv[1], pathlib.Path(sys.argv[2])
    SplitnicBench.program, SplitnicBench.folder = sys.argv[3], pathlib.Path(sys.argv[4])
    unittest.main(argv=sys.argv[:1])
