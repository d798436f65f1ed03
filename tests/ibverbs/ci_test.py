#!/usr/bin/env python3
"""docs/verbs_ci.sh: tests of verbs programs as a CI job runs them, as an ordinary user in namespaces. Usage: ci_test.py"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import pairs

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "docs/verbs_ci.sh"
LISTENS = 'while ! grep -q ":4965 .* 0A " /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done'  # port 18789
PINGPONG = f"ibv_rc_pingpong -c -n 300 -p 18789 & {LISTENS}; ibv_rc_pingpong -c -n 300 -p 18789 127.0.0.1 && wait $!"


class Ci(pairs.OnFabric):
    uid = pairs.NOBODY
    needs = ("ibv_rc_pingpong", "unshare", "ip")

    def setUp(self):
        if self.job("true").wait() != 0:
            self.skipTest("user namespaces are not permitted here")

    def job(self, *command, given=None, **variables):
        """given: a file for the standard input."""
        user = {"user": self.fabric.uid, "group": self.fabric.uid, "extra_groups": []} if os.getuid() == 0 else {}
        environment = {**self.fabric.environment, "SPLITNIC": str(pairs.SPLITNIC), "TMPDIR": str(self.fabric.folder),
                       **variables}
        # A signal that is ignored already can't be caught by a shell.
        started = subprocess.Popen(["env", "--default-signal=HUP,INT,TERM", SCRIPT, *command], env=environment, cwd="/",
                                   text=True, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **user)
        self.addCleanup(started.stdout.close)
        return started

    def output(self, job):
        output, _ = job.communicate(timeout=pairs.SECONDS)
        return job.returncode, output

    def test_jobs_at_the_same_time_with_the_same_port_pass(self):
        for job in [self.job("bash", "-c", PINGPONG) for _ in range(2)]:
            code, output = self.output(job)
            self.assertEqual(code, 0, output)
            counts = dict(re.findall(r"counters/(port_xmit_packets|retransmissions):(\d+)\n", output))
            # What is sent again, because an end had no processor, is counted, too.
            repeated = int(counts.get("retransmissions", 0))
            self.assertIn(int(counts.get("port_xmit_packets", 0)), range(600, 600 + repeated + 1), output)

    def test_faults_of_the_environment_are_met_and_counted(self):
        code, output = self.output(self.job("bash", "-c", PINGPONG, SPLITNIC_FAULTS="7,duplicate=100"))
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("fault duplicate "), int(output.split("hw_counters/fault_duplicate:")[1].split()[0]))

    def test_counters_of_the_fabric_that_the_environment_names_are_printed(self):
        code, output = self.output(self.job("bash", "-c", PINGPONG, SPLITNIC_FABRIC="lab"))
        self.assertEqual(code, 0, output)
        self.assertIn("counters/port_xmit_packets:", output)

    def test_variables_whose_option_is_not_given_stay(self):
        environment = {**self.fabric.environment, "SPLITNIC_FABRIC": "lab", "SPLITNIC_PLACEMENT": "none"}
        for options, expected in ([], "lab none\n"), (["--placement", "process"], "lab process\n"):
            said = subprocess.run([pairs.SPLITNIC, "verbs-run", *options, "sh", "-c",
                                   "echo $SPLITNIC_FABRIC $SPLITNIC_PLACEMENT"], env=environment, text=True,
                                  stdout=subprocess.PIPE, timeout=pairs.SECONDS)
            self.assertEqual(said.stdout, expected)

    def test_programs_with_address_sanitizer_start_and_keep_the_users_options(self):
        says = ["sh", "-c", "echo $ASAN_OPTIONS"]
        for options, expected in (({}, "verify_asan_link_order=0"),
                                  ({"ASAN_OPTIONS": "verbosity=0"}, "verbosity=0:verify_asan_link_order=0"),
                                  ({"ASAN_OPTIONS": "verify_asan_link_order=1"}, "verify_asan_link_order=1")):
            said = subprocess.run([pairs.SPLITNIC, "verbs-run", *says], env={**self.fabric.environment, **options},
                                  text=True, stdout=subprocess.PIPE, timeout=pairs.SECONDS)
            self.assertEqual(said.stdout, expected + "\n")
        program = self.fabric.folder / "program"
        made = subprocess.run(["sh", "-c", f"echo 'int main(void) {{ return 7; }}' | "
                               f"gcc -fsanitize=address -x c -o {program} -"], capture_output=True, check=False)
        if made.returncode != 0:
            self.skipTest("gcc has no AddressSanitizer here")
        ran = subprocess.run([pairs.SPLITNIC, "verbs-run", program], env=self.fabric.environment, text=True,
                             stderr=subprocess.PIPE, timeout=pairs.SECONDS)
        self.assertEqual(ran.returncode, 7, ran.stderr)

    def test_the_exit_code_is_the_commands_and_nothing_stays(self):
        code, output = self.output(self.job("bash", "-c", "ibv_devinfo > /dev/null & sleep 1000 & exit 3"))
        self.assertEqual(code, 3, output)
        self.assertEqual(self.left(), [])

    def left(self):
        return [name for name in os.listdir(self.fabric.folder) if name.startswith("tmp.")]

    def test_a_job_that_is_cancelled_ends_with_all_its_processes(self):
        for ended_by in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
            with self.subTest(ended_by.name):
                job = self.job("bash", "-c", "sleep 1000 & echo ready; exec sleep 1000")
                try:
                    self.assertEqual(job.stdout.readline(), "ready\n")
                    job.send_signal(ended_by)
                    code, output = self.output(job)  # the end of the output: nobody has it open any more
                except subprocess.TimeoutExpired:
                    job.kill()
                    raise
                if ended_by == signal.SIGKILL:
                    self.assertEqual(code, -ended_by, output)
                    for name in self.left():
                        shutil.rmtree(self.fabric.folder / name)
                else:
                    self.assertEqual(code, 128 + ended_by, output)
                    self.assertEqual(self.left(), [])

    def test_signals_end_the_command_as_without_the_script(self):
        for name in ("TERM", "INT", "ABRT", "ALRM"):
            with self.subTest(name):
                code, output = self.output(self.job("bash", "-c", f"kill -{name} $$; sleep 1000"))
                self.assertEqual(code, 128 + signal.Signals["SIG" + name], output)

    def test_the_command_reads_the_standard_input(self):
        with tempfile.TemporaryFile("w+") as given:
            given.write("given\n")
            given.seek(0)
            self.assertEqual(self.output(self.job("cat", given=given)), (0, "given\n"))

    def test_without_a_command_it_says_how_it_is_used(self):
        code, output = self.output(self.job())
        self.assertEqual(code, 2)
        self.assertIn("verbs_ci.sh COMMAND", output)


if __name__ == "__main__":
    pairs.run_tests()
