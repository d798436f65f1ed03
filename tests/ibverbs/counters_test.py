#!/usr/bin/env python3
"""Counters of verbs programs, where tools look: files below /sys for programs under `splitnic verbs-run`, the same files
in the fabric's folder for others, and `splitnic stats`. Usage: counters_test.py [Root|OrdinaryUser]."""

import json
import pathlib
import signal
import subprocess

import pairs

PORT = "/sys/class/infiniband/splitnic0/ports/1"
MESSAGES = 500  # of each end of a pingpong
REPEATED = "hw_counters/retransmissions"
PINGPONG = f"ibv_rc_pingpong -c -n {MESSAGES}"


class Counters(pairs.OnFabric):
    needs = ("ibv_rc_pingpong",)

    @property
    def directory(self):
        return self.fabric.folder / "splitnic/fabric-default"

    def sum(self, name):
        file = self.directory / "sysfs/class/infiniband/splitnic0/ports/1" / name
        return int(file.read_text()) if file.exists() else 0

    def stats(self, *options):
        user = {"user": self.fabric.uid, "group": self.fabric.uid, "extra_groups": []} if self.fabric.uid else {}
        done = subprocess.run([pairs.SPLITNIC, "stats", *options], env=self.fabric.environment, text=True,
                              capture_output=True, check=False, cwd="/", **user)
        return done.stdout

    def test_the_device_has_counted_what_programs_did_that_have_ended(self):
        # What a program sends again, because its peer had no processor, is counted, too.
        wanted = {"counters/port_xmit_packets": 1, "hw_counters/rcvd_pkts": 1, "counters/port_xmit_data": 4096 // 4}
        before = {name: self.sum(name) for name in (*wanted, REPEATED)}
        self.fabric.run_pair(PINGPONG.split())
        repeated = self.sum(REPEATED) - before[REPEATED]
        for name, of_message in wanted.items():
            messages = (self.sum(name) - before[name]) / of_message
            self.assertGreaterEqual(messages, 2 * MESSAGES, name)
            self.assertLessEqual(messages, 2 * MESSAGES + repeated, name)
        self.assertEqual(list((self.directory / "endnodes").iterdir()), [])

    def test_injected_faults_and_what_they_cause_are_counted_by_kind(self):
        names = ("fault_drop", "fault_rnr", "fault_corrupt", "timeouts", "retransmissions", "rcvd_rnr_err",
                 "send_rnr_err", "rcvd_seq_err")
        before = {name: self.sum(f"hw_counters/{name}") for name in names}
        log = self.fabric.folder / "faults"
        ends = self.fabric.run_ends("ibv_rc_pingpong -c -n 100".split(),
                                    client_options=["--faults", "3,drop=20,rnr=100,corrupt=50", "--faults-log", str(log)])
        self.assertEqual([code for code, _ in ends], [0, 0], ends)
        grown = {name: self.sum(f"hw_counters/{name}") - count for name, count in before.items()}
        kinds = [line.split()[1] for line in log.read_text().splitlines()]
        for kind in ("drop", "rnr", "corrupt"):
            self.assertNotEqual(kinds.count(kind), 0)
            self.assertEqual(grown[f"fault_{kind}"], kinds.count(kind))
        # A pingpong has one message under way, so that nothing shows a loss but the timeout. There are more where an end
        # waits for a processor.
        late = grown["timeouts"] - kinds.count("drop")
        self.assertGreaterEqual(late, 0)
        self.assertEqual(grown["rcvd_rnr_err"], kinds.count("rnr"))
        self.assertEqual(grown["send_rnr_err"], kinds.count("rnr"))
        self.assertEqual(grown["rcvd_seq_err"], kinds.count("corrupt"))
        self.assertGreaterEqual(grown["retransmissions"], len(kinds))
        self.assertLessEqual(grown["retransmissions"], len(kinds) + late)

    def test_programs_under_verbs_run_read_them_below_sys(self):
        self.fabric.run_pair(PINGPONG.split())
        packets = f"{self.sum('hw_counters/sent_pkts')}\n"
        file = f"{PORT}/hw_counters/sent_pkts"
        read = f"import os; print(open('{file}').read(), end='')"
        for words in (["cat", file], ["head", "-n", "1", file], ["grep", "-h", ".", file], ["bash", "-c", f"cat < {file}"],
                      ["awk", "{print}", file], ["/usr/bin/python3", "-c", read]):
            with self.subTest(words[0]):
                self.assertEqual(self.fabric.run(words), (0, packets))
        self.assertEqual(self.fabric.run(["ls", "/sys/class/infiniband"]), (0, "splitnic0\n"))
        self.assertEqual(self.fabric.run(["ls", PORT]), (0, "counters\nhw_counters\n"))
        code, output = self.fabric.run(["find", PORT, "-name", "port_xmit_*"])
        self.assertEqual((code, len(output.splitlines())), (0, 3), output)
        # Everything else below /sys is the kernel's.
        self.assertEqual(self.fabric.run(["cat", "/sys/class/net/lo/address"]), (0, "00:00:00:00:00:00\n"))
        code, output = self.fabric.run(["cat", f"{PORT}/hw_counters/no_such_counter"])
        self.assertEqual(code, 1)
        self.assertIn("No such file or directory", output)

    def test_stats_has_each_device_and_queue_pair_of_a_program_that_runs(self):
        long = ["ibv_rc_pingpong", "-n", "1000000000", "-p", str(pairs.free_port())]
        server = self.fabric.start(long)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        pairs.await_server(server, "ibv_rc_pingpong", lambda: pairs.listens(int(long[-1])))
        client = self.fabric.start([*long, "127.0.0.1"])
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)

        def counted():
            # The counts and the queue pairs are in different files, which are written one after the other.
            found = [one for one in json.loads(self.stats("--json")) if one["counts"].get("sent_pkts", 0) > 100]
            return found if len(found) == 2 and all(
                one["peers"] and one["peers"][0]["tx_frames"] > 100 for one in found) else None

        found = pairs.wait_until(counted, pairs.SECONDS, "counts of both ends")
        self.assertEqual({one["pid"] for one in found}, {server.pid, client.pid})
        for one in found:
            self.assertEqual((one["role"], one["state"]), ("verbs", "ibv_rc_pingpong, device 1"))
            self.assertEqual(len(one["peers"]), 1)
            self.assertIn("RC RTS, peer LID ", one["peers"][0]["state"])
            lid = one["name"].removeprefix("default/")
            files = self.directory / "endnodes" / lid
            self.assertGreater(int((files / "ports/1/counters/port_xmit_packets").read_text()), 100)
            self.assertIn(f"pid {one['pid']}\n", (files / "process").read_text())
        text = self.stats()
        self.assertIn(f"verbs {found[0]['name']}: ibv_rc_pingpong, device 1, pid {found[0]['pid']}\n", text)
        self.assertIn("    count requests_completed: ", text)
        # One that was killed is not there any more, and the next one that opens a device removes what it left.
        client.send_signal(signal.SIGKILL)
        client.wait()
        self.assertNotIn(str(client.pid), [str(one["pid"]) for one in json.loads(self.stats("--json"))])
        self.assertEqual(self.fabric.run(["ibv_devinfo"])[0], 0)
        processes = [path.read_text() for path in (self.directory / "endnodes").glob("*/process")]
        self.assertNotIn(f"pid {client.pid}\n", "".join(processes))

    def test_a_device_without_room_for_its_counters_works(self):
        blocked = pairs.Fabric(self.uid)
        self.addCleanup(blocked.close)
        self.assertEqual(blocked.run(["--list"])[0], 0)  # makes the folder
        (pathlib.Path(blocked.folder) / "splitnic/fabric-default/endnodes").write_text("")
        output = blocked.run_pair("ibv_rc_pingpong -c -n 100".split())
        self.assertIn("libibverbs (splitnic): no counters: ", output)


Root, OrdinaryUser = pairs.for_both_users(Counters)
del Counters

if __name__ == "__main__":
    pairs.run_tests()
