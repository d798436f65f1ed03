#!/usr/bin/env python3
"""Debian's verbs programs between two processes on the fabric, as root and as an ordinary user. Each run has a deadline,
and both ends must end with 0. Usage: programs_test.py [Root|OrdinaryUser]."""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import time

import pairs

PAIRS = (
    "ibv_rc_pingpong -c",
    "ibv_rc_pingpong -e -N",
    "ibv_rc_pingpong -t -o",
    "ibv_rc_pingpong -o -O -P -c",
    "ibv_rc_pingpong -j -c",
    "ibv_uc_pingpong -c",
    "ibv_ud_pingpong -e",
    "ibv_srq_pingpong -c",
    "ibv_xsrq_pingpong -n 100",
    "ib_send_lat -n 200",
    "ib_send_lat -e -n 200 -c UD",
    "ib_send_bw -n 200 -s 100000 --use-srq",
    "ib_send_bw -n 200 -c UC -b",
    "ib_write_lat -n 200 -c UC",
    "ib_write_bw -n 100 -s 8388608 -b",
    "ib_read_lat -n 200 -e",
    "ib_read_bw -n 200 -q 8",
    "ib_atomic_lat -n 200 -A CMP_AND_SWAP",
    "ib_atomic_bw -n 200 -A FETCH_AND_ADD",
)
# With a file in /tmp, which belongs to one user.
XRC_PAIRS = ("ib_send_bw -n 200 -s 100000 -c XRC -b", "ib_read_lat -n 200 -c XRC")


class Programs(pairs.OnFabric):
    needs = ("ibv_rc_pingpong", "ib_send_lat")

    def test_device(self):
        code, output = self.fabric.run(["ibv_devices"])
        self.assertEqual(code, 0, output)
        self.assertIn("splitnic0", output)
        code, output = self.fabric.run(["ibv_devinfo", "-v"])
        self.assertEqual(code, 0, output)
        self.assertIn("PORT_ACTIVE", output)
        self.assertIn("fe80:", output)

    def test_pairs(self):
        if self.uid == 0:
            pairs.forget_xrc_files()
            self.addCleanup(pairs.forget_xrc_files)
        # The user makes little difference: some of them are enough for root.
        for words in (*PAIRS[::3], *XRC_PAIRS) if self.uid == 0 else PAIRS:
            with self.subTest(words):
                self.fabric.run_pair(words.split())
        # They have left nothing on the fabric.
        self.assertEqual(self.fabric.run(["--list"]), (0, ""))

    def test_four_busy_programs(self):
        """Two pairs at the same time, all of which only poll."""
        with concurrent.futures.ThreadPoolExecutor() as together:
            for pair in [together.submit(self.fabric.run_pair, f"ibv_rc_pingpong -c -s {size} -n 500".split())
                         for size in (64, 100000)]:
                pair.result()

    def containers(self):
        """Whose programs share the fabric's folder and the network for their own socket, but no user, process or IPC
        namespace, no mounts and no right to look into each other."""
        container = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount", "--ipc",
                     "--mount-proc")
        if subprocess.run([*container, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("namespaces are not permitted here")
        apart = pairs.Fabric(self.uid)
        self.addCleanup(apart.close)
        apart.prefix = container
        return apart

    def test_containers(self):
        apart = self.containers()
        for words in ("ibv_rc_pingpong -c", "ibv_ud_pingpong -e -c", "ib_write_bw -n 100 -s 1000000"):
            with self.subTest(words):
                apart.run_pair(words.split())
        self.assertEqual(apart.run(["--list"]), (0, ""))

    def test_a_peer_that_is_killed_in_its_container_ends_requests_before_their_retries_would(self):
        apart = self.containers()
        exponent = 19  # 4.096 us times two to the power of it, eight times
        seconds = 8 * 4.096e-6 * 2**exponent
        words = ["ib_send_bw", "-D", "100", "-u", str(exponent), "-p", str(pairs.free_port())]
        ends = []
        for ready, address in ((lambda: pairs.listens(int(words[-1])), []), (apart.exchanges, ["127.0.0.1"])):
            ends.append(apart.start([*words, *address]))
            self.addCleanup(ends[-1].communicate)
            self.addCleanup(ends[-1].kill)
            pairs.await_server(ends[0], "ib_send_bw", ready)
        server, client = ends
        server.kill()
        killed = time.monotonic()
        code, output = apart.finish(client, "the client", seconds + pairs.SECONDS)
        self.assertLess(time.monotonic() - killed, seconds)
        self.assertNotEqual(code, 0, output)
        self.assertIn("Failed status 12", output)  # IBV_WC_RETRY_EXC_ERR

    def test_check(self):
        code, output = self.fabric.run(["--check"])
        self.assertEqual(code, 0, output)
        self.assertIn(str(self.fabric.folder), output)

    def test_the_file_of_the_device(self):
        """As UCX looks for it; other paths are what they were."""
        look = ("import os, stat, sys; path = sys.argv[1]; "
                "print(stat.S_ISCHR(os.stat(path).st_mode), os.access(path, os.R_OK | os.W_OK))")
        file = "/dev/infiniband/uverbs_splitnic0"
        self.assertEqual(self.fabric.run(["python3", "-c", look, file]), (0, "True True\n"))
        self.assertEqual(self.fabric.run(["python3", "-c", look, "/"])[1].split()[0], "False")
        code, output = self.fabric.run(["python3", "-c", look, file + "0"])
        self.assertEqual(code, 1)
        self.assertIn("FileNotFoundError", output)

    def test_a_library_that_is_closed_before_its_device_stays(self):
        """Otherwise the thread of the device would run into memory that is gone."""
        close = ("import _ctypes, ctypes; library = ctypes.CDLL('libibverbs.so.1'); "
                 "library.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p); "
                 "library.ibv_open_device.argtypes = [ctypes.c_void_p]; "
                 "library.ibv_open_device(library.ibv_get_device_list(None)[0]); _ctypes.dlclose(library._handle); "
                 "print(any('libibverbs' in line for line in open('/proc/self/maps')))")
        self.assertEqual(self.fabric.run(["python3", "-c", close]), (0, "True\n"))

    def installed_at(self, name):
        """splitnic in a folder with this name."""
        place = self.fabric.folder / name
        (place / "bin").mkdir(parents=True)
        shutil.copy(pairs.SPLITNIC, place / "bin")
        (place / "lib").symlink_to(pairs.SPLITNIC.parent.parent / "lib")
        self.fabric.give(place)
        elsewhere = pairs.Fabric(self.uid)
        self.addCleanup(elsewhere.close)
        elsewhere.splitnic = place / "bin" / "splitnic"
        return elsewhere

    def test_a_path_with_a_blank(self):
        show = ("import os; print(os.environ['LD_LIBRARY_PATH'].split(':')[0]); "
                "print(any('libsplitnic-uverbs' in line for line in open('/proc/self/maps')))")
        there = self.installed_at("a b")
        code, output = there.run(["python3", "-c", show])
        folder = there.splitnic.parent.parent / "lib" / "splitnic"
        self.assertEqual((code, output), (0, f"{folder}\nTrue\n"))
        self.assertEqual(there.run(["--check"])[0], 0)

    def test_a_path_that_the_linker_cannot_take(self):
        for name in ("a:b", "a;b"):
            there = self.installed_at(name)
            for words, code in ((["true"], 1), (["--check"], 1)):
                done, output = there.run(words)
                self.assertEqual(done, code, output)
                self.assertIn("the dynamic linker takes no folder with ':' or ';' in its path", output)

    def test_a_program_that_is_not_there(self):
        code, output = self.fabric.run(["no-such-program"])
        self.assertEqual(code, 127, output)
        self.assertIn("no-such-program", output)


Root, OrdinaryUser = pairs.for_both_users(Programs)
del Programs

if __name__ == "__main__":
    pairs.run_tests()
