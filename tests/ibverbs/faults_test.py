#!/usr/bin/env python3
"""`splitnic verbs-run --faults` below Debian's verbs programs: faults that reliable connections repair change no result,
others end as the programs expect it of hardware, and a seed repeats the faults. Usage: faults_test.py
[Root|OrdinaryUser]."""

import itertools

import pairs

PINGPONG = "ibv_rc_pingpong -c -n 150"
EVENTS = "ibv_rc_pingpong -c -n 50 -e -N -s 100000"
SEEDS = {PINGPONG: (7, 7, 8), EVENTS: (7, 7)}  # else 7 alone
# Each lost cell that nothing follows costs its sender a timeout of 200 ms.
REPAIRED = {
    PINGPONG: {"drop": "20", "corrupt": "100", "delay": "50:2000", "rnr": "100"},
    EVENTS: {"drop": "10", "corrupt": "50", "delay": "50:1000", "rnr": "100"},
    "ib_send_bw -n 200 -s 100000": {"drop": "10", "corrupt": "20", "delay": "20:1000", "rnr": "20"},
    "ib_write_bw -n 200 -s 100000": {"drop": "10", "corrupt": "20", "delay": "20:1000"},
    "ib_read_lat -n 60": {"drop": "20", "corrupt": "50", "delay": "50:1000"},
    "ib_atomic_lat -n 60 -A FETCH_AND_ADD": {"drop": "20", "corrupt": "50", "delay": "50:1000", "lost-ack": "20"},
    "ib_send_bw -n 200 -s 2000": {"duplicate": "100", "delay": "20:1000"},
    "ibv_rc_pingpong -c -n 50": {"duplicate": "100", "lost-ack": "30"},
    "ib_read_lat -n 30": {"duplicate": "100", "lost-ack": "40"},
}


def specification(seed, faults):
    return ",".join([str(seed), *(f"{name}={value}" for name, value in faults.items())])


class Faults(pairs.OnFabric):
    needs = ("ibv_rc_pingpong", "ib_send_lat")
    runs = itertools.count()

    def run_faulty(self, words, client, server=None):
        """Both ends, as run_ends() has them, and the lines of the client's and the server's faults. client, server:
        specifications; None: no faults."""
        for _ in range(pairs.CLOCK_TRIES):
            options, logs = [], []
            for faults in (client, server):
                log = self.fabric.folder / f"faults{next(self.runs)}"
                logs.append(log)
                options.append(["--faults", faults, "--faults-log", str(log)] if faults else [])
            ends = self.fabric.run_ends(words.split(), client_options=options[0], server_options=options[1])
            if not pairs.clock_unknown(*(output for _, output in ends)):
                break
        lines = [log.read_text().splitlines() if log.exists() else [] for log in logs]
        for line in lines[0] + lines[1]:
            self.assertRegex(line, r"^fault [a-z-]+ device=1 qp=[0-9]+ (request|message)=[0-9]+ ")
        return ends, lines

    @staticmethod
    def kinds(lines):
        return {line.split()[1] for line in lines}

    def test_repaired_faults_change_no_result_and_a_seed_repeats_them(self):
        for words, faults in REPAIRED.items():
            with self.subTest(words):
                runs = [self.run_repaired(words, specification(seed, faults)) for seed in SEEDS.get(words, (7,))]
                self.assertEqual([run == runs[0] for run in runs], [seed == 7 for seed in SEEDS.get(words, (7,))])
                self.assertEqual(self.kinds(runs[0][0] + runs[0][1]), set(faults))

    def run_repaired(self, words, asked):
        """The lines of both ends, in an order that does not change where several requests are under way."""
        ends, lines = self.run_faulty(words, asked, asked)
        self.assertEqual([code for code, _ in ends], [0, 0], ends)
        return [sorted(end) for end in lines]

    def test_a_lost_cell_is_named(self):
        ends, lines = self.run_faulty("ibv_rc_pingpong -c -n 50", "3,drop=50")
        self.assertEqual([code for code, _ in ends], [0, 0], ends)
        self.assertNotEqual(lines[0], [])
        for line in lines[0]:
            self.assertRegex(line, r"^fault drop device=1 qp=1 request=[0-9]+ wr_id=2 opcode=SEND cell=0 time=[0-9]+$")

    def test_datagrams_arrive_twice_or_late_and_a_seed_repeats_it(self):
        runs = []
        for _ in range(2):
            ends, lines = self.run_faulty("ib_send_bw -c UD -n 200 -s 64", "3,duplicate=50,delay=50:500")
            self.assertEqual([code for code, _ in ends], [0, 0], ends)
            runs.append(lines[0])
        self.assertEqual(self.kinds(runs[0]), {"duplicate", "delay"})
        self.assertEqual(runs[0], runs[1])

    def test_without_a_log_the_lines_go_to_standard_error(self):
        ends = self.fabric.run_ends(["ibv_rc_pingpong", "-n", "50"], client_options=["--faults", "3,delay=1000:10"])
        self.assertEqual([code for code, _ in ends], [0, 0], ends)
        self.assertEqual(ends[0][1].count("fault delay device=1 qp=1 request="), 50)

    def test_what_is_always_lost_ends_as_retry_exceeded(self):
        ends, lines = self.run_faulty(PINGPONG, "1,drop=1000")
        self.assertEqual(ends[0][0], 1, ends)
        self.assertIn("transport retry counter exceeded", ends[0][1])
        self.assertEqual(len(lines[0]), 8)  # sent, and seven retries

    def test_a_peer_dies_at_the_request_that_is_named(self):
        for words in (PINGPONG, "ib_send_bw -n 5000 -s 1000"):
            with self.subTest(words):
                ends, lines = self.run_faulty(words, "1,kill-peer=150")
                self.assertNotEqual(ends[0][0], 0, ends)
                self.assertNotEqual(ends[1][0], 0, ends)  # which sees this end die
                self.assertEqual(len(lines[0]), 1)
                self.assertIn("fault kill-peer device=1 qp=1 request=150 ", lines[0][0])
        ends, _ = self.run_faulty(PINGPONG, None, "1,kill-peer=1")
        self.assertEqual([code for code, _ in ends], [1, 1], ends)
        self.assertIn("transport retry counter exceeded", ends[1][1])

    def test_a_completion_error_is_the_one_that_is_named(self):
        for status, text in (("rem-access-err", "remote access error"), ("loc-prot-err", "local protection error"),
                             ("rnr-retry-exc-err", "RNR retry counter exceeded")):
            with self.subTest(status):
                ends, lines = self.run_faulty(PINGPONG, f"1,cq-error={status}:20")
                self.assertEqual([code for code, _ in ends], [1, 1], ends)
                self.assertIn(f"Failed status {text}", ends[0][1])
                self.assertEqual(lines[0], ["fault cq-error device=1 qp=1 request=20 wr_id=2 opcode=SEND "
                                            f"status={status}"])

    def test_wrong_specifications_are_refused(self):
        program = ["ibv_devinfo"]
        code, output = self.fabric.run(["--faults", "1,reorder=5", *program])
        self.assertEqual(code, 2)
        self.assertIn("faults: 'reorder' is not one of the faults drop, corrupt, delay, rnr, kill-peer, cq-error, "
                      "duplicate, lost-ack", output)
        code, output = self.fabric.run(["--faults-log", "/dev/null", *program])
        self.assertEqual((code, output), (2, "splitnic: --faults-log needs --faults (see --help)\n"))
        # A script may set the variables itself, also one of them.
        log = self.fabric.folder / "named"
        started = self.fabric.start(["--faults-log", str(log), *program], SPLITNIC_FAULTS="1")
        code, output = self.fabric.finish(started, "ibv_devinfo")
        self.assertEqual((code, log.exists()), (0, True), output)
        for variables, text in (({"SPLITNIC_FAULTS": "1,drop=x"}, "SPLITNIC_FAULTS: faults: drop: 'x' is not a rate"),
                                ({"SPLITNIC_FAULTS": "1", "SPLITNIC_FAULTS_LOG": "/no/such/folder"},
                                 "SPLITNIC_FAULTS_LOG: /no/such/folder: No such file or directory")):
            code, output = self.fabric.finish(self.fabric.start(program, **variables), "ibv_devinfo")
            self.assertNotEqual(code, 0)
            self.assertIn(text, output)

    def test_a_program_in_another_folder_writes_to_the_same_log(self):
        log = self.fabric.folder / "relative"
        relative = str(log).lstrip("/")  # verbs-run starts in the root
        code, output = self.fabric.run(["--faults", "1", "--faults-log", relative, "bash", "-c",
                                        f"cd {self.fabric.folder} && ibv_devinfo"])
        self.assertEqual(code, 0, output)
        self.assertEqual(log.read_text(), "")


Root, OrdinaryUser = pairs.for_both_users(Faults)
del Faults

if __name__ == "__main__":
    pairs.run_tests()
