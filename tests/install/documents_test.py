"""The manual pages and the completion say what `--help` says, option by option, and are well formed.

Usage: documents_test.py PROGRAM FOLDER     FOLDER holds the pages and splitnic.bash, as built.
"""

import pathlib
import re
import subprocess
import sys
import unittest

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
COMMANDS = "(?:Subc|C)ommands"  # their title in --help
# Which part of which page describes the options of which command.
PLACES = {(): ("splitnic.1", "OPTIONS"), ("host",): ("splitnic-host.8", "OPTIONS"),
          ("iounit",): ("splitnic-iounit.8", "OPTIONS"), ("status",): ("splitnic.1", "splitnic status"),
          ("stats",): ("splitnic.1", "splitnic stats"), ("bench", "nic"): ("splitnic.1", "splitnic bench nic"),
          ("bench", "fabric"): ("splitnic.1", "splitnic bench fabric")}


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


def help_part(command, title):
    text = output(PROGRAM, *command, "--help")
    part = re.search(rf"^{title}:\n((?:  .*\n)+)", text, re.MULTILINE)
    return entries(part.group(1)) if part else {}


def normal(terms):
    """--help writes "-h,--help", manual pages "-h, --help"."""
    return {term.replace(", -", ",-"): description for term, description in terms.items()}


def page_part(page, title):
    text = re.sub(".\b", "", output("mandoc", "-Tascii", "-Owidth=500", str(FOLDER / page)))
    part = re.search(rf"^ *{title}\n((?:     .*\n|\n)+)", text, re.MULTILINE)
    return part.group(1) if part else ""


def leaves(command=()):
    below = help_part(command, COMMANDS)
    return [command] if not below else [leaf for name in below for leaf in leaves((*command, name))]


class Documents(unittest.TestCase):
    def test_pages_describe_each_option_as_help_does(self):
        self.assertEqual(sorted(leaves()), sorted(place for place in PLACES if place))
        for command, (page, title) in PLACES.items():
            with self.subTest(command=command):
                told = help_part(command, "Options")
                self.assertIn("-h,--help", told)
                self.assertEqual(normal(entries(page_part(page, title))), told)

    def test_the_first_page_lists_each_command(self):
        listed = {name: text.rstrip(".") for name, text in entries(page_part("splitnic.1", "COMMANDS")).items()}
        self.assertEqual(listed, help_part((), COMMANDS))

    def test_pages_have_every_section(self):
        for page in ("splitnic.1", "splitnic-host.8", "splitnic-iounit.8"):
            for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"):
                with self.subTest(page=page, section=section):
                    self.assertTrue(page_part(page, section).strip())

    def test_pages_are_well_formed(self):
        for page in sorted(FOLDER.glob("*.[18]")):
            lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning", str(page)], capture_output=True, text=True)
            self.assertEqual((lint.returncode, lint.stdout), (0, ""))

    def complete(self, *words):
        script = """source "$1"; shift; compopt() { echo "files"; }
                    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _splitnic; printf '%s\\n' "${COMPREPLY[@]}" """
        return output("bash", "-c", script, "bash", str(FOLDER / "splitnic.bash"), *words).split()

    def test_the_completion_offers_commands_and_options(self):
        for command in PLACES:
            with self.subTest(command=command):
                options = [name for term in help_part(command, "Options") for name in term.split()[0].split(",")]
                self.assertEqual(sorted(self.complete("splitnic", *command, "-")), sorted(options))
        self.assertEqual(self.complete("splitnic", ""), [*help_part((), COMMANDS), "-h", "--help", "--version"])

    def test_the_completion_knows_values(self):
        self.assertEqual(self.complete("splitnic", "host", "--mode", ""), ["r", "s"])
        self.assertIn("lo", self.complete("splitnic", "iounit", "--lan", "l"))
        self.assertEqual(self.complete("splitnic", "host", "--config", ""), ["files"])
        self.assertEqual(self.complete("splitnic", "host", "--mtu", ""), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
