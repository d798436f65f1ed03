#!/usr/bin/env python3
"""Verbs programs of two ordinary users, and of root, on a fabric that root has shared with a group. Needs root."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys
import unittest

import pairs

NAME = f"test-{os.getpid()}"
SHARED = pathlib.Path("/run/splitnic", f"shared-{NAME}")
GROUP = 4242


class User(pairs.Fabric):
    """Somebody with a runtime directory of their own, who goes to the shared fabric."""

    def __init__(self, uid, groups=(GROUP,)):
        super().__init__(uid)
        self.groups = groups

    def start(self, words, *more, **variables):
        return super().start(["--fabric", NAME, *words], *more, **variables)


class SeveralUsers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for program in ("ibv_rc_pingpong", "ib_send_lat", "rping"):
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"{program} is not installed")
        cls.addClassCleanup(shutil.rmtree, SHARED, True)
        root = User(0)
        cls.users = [User(pairs.NOBODY), User(1), root]
        cls.stranger = User(2, ())
        for user in (*cls.users, cls.stranger):
            cls.addClassCleanup(user.close)
        code, output = root.run(["--share-with", str(GROUP)])
        assert code == 0 and str(SHARED) in output, output

    def start(self, user, words):
        process = user.start(words.split())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        return process

    def listening(self, user, words, port):
        server = self.start(user, f"{words} -p {port}")
        pairs.await_server(server, words, lambda: pairs.listens(port))
        return server

    def run_pair(self, words, server_user, client_user):
        for _ in range(pairs.CLOCK_TRIES):
            port = pairs.free_port()
            server = self.listening(server_user, words, port)
            client = self.start(client_user, f"{words} -p {port} 127.0.0.1")
            ends = [user.finish(process, words) for process, user in ((client, client_user), (server, server_user))]
            if not pairs.clock_unknown(*(output for _, output in ends)):
                break
        for code, output in ends:
            self.assertEqual(code, 0, output)

    def on_fabric(self):
        code, output = self.users[1].run(["--list"])
        self.assertEqual(code, 0, output)
        return output.splitlines()

    def test_the_folder_is_of_the_group_alone(self):
        about = SHARED.stat()
        self.assertEqual((about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)), (0, GROUP, 0o770))

    def test_users_of_the_group_reach_each_other(self):
        one, other, root = self.users
        for words in ("ibv_rc_pingpong -c", "ibv_ud_pingpong", "ib_write_bw -n 200 -s 65536",
                      "ib_atomic_lat -n 200 -A FETCH_AND_ADD"):
            for server, client in ((one, other), (other, one), (root, one)):
                with self.subTest(words, server=server.uid, client=client.uid):
                    self.run_pair(words, server, client)
        self.assertEqual(self.on_fabric(), [])
        # What was counted is in each user's own folder.
        for user in (one, other):
            port = f"splitnic/fabric-{NAME}/sysfs/class/infiniband/splitnic0/ports/1"
            self.assertTrue((user.folder / port / "counters").is_dir())
        self.assertFalse((SHARED / "endnodes").exists())

    def test_connection_managers_of_two_users_meet(self):
        one, other, _ = self.users
        port = pairs.free_port()
        server = self.start(one, f"rping -s -C 100 -p {port}")
        pairs.await_server(server, "rping", lambda: list(SHARED.glob("cm-*")))
        client = self.start(other, f"rping -c -a 127.0.0.1 -C 100 -p {port}")
        code, output = other.finish(client, "rping")
        self.assertEqual(code, 0, output)
        server.wait(pairs.SECONDS)
        self.assertEqual(self.on_fabric(), [])

    def test_what_a_killed_program_leaves_another_user_removes(self):
        one, other, _ = self.users
        port = pairs.free_port()
        server = self.listening(one, "ib_send_bw -D 20", port)
        client = self.start(other, f"ib_send_bw -D 20 -p {port} 127.0.0.1")
        pairs.wait_until(lambda: len(self.on_fabric()) == 2, pairs.SECONDS, "both ends on the fabric")
        server.kill()
        server.wait()
        client.kill()
        client.wait()
        self.assertTrue(any(path.name.isdecimal() for path in SHARED.iterdir()))
        code, output = other.run(["--check"])
        self.assertEqual(code, 0, output)
        self.assertFalse([path.name for path in SHARED.iterdir() if path.name[0].isdecimal()])
        self.run_pair("ibv_rc_pingpong", one, other)

    def test_a_stranger_is_told_why(self):
        code, output = self.stranger.run(["ibv_devinfo"])
        self.assertNotEqual(code, 0)
        code, output = self.stranger.run(["--check"])
        self.assertNotEqual(code, 0)
        self.assertIn(f"{SHARED}: the fabric is shared by group {GROUP}, of which this user is no member", output)

    def test_only_root_shares(self):
        other = self.users[0]
        code, output = other.run(["--share-with", str(GROUP)])
        self.assertNotEqual(code, 0)
        self.assertIn("only root can share a fabric with a group", output)
        code, output = self.users[2].run(["--share-with", "no-such-group"])
        self.assertEqual(code, 2, output)
        self.assertIn("there is no group no-such-group", output)
        code, output = self.users[2].run(["--share-with", "4294967295"])  # fchown(2): no change
        self.assertNotEqual(code, 0)
        self.assertIn("4294967295 is no group's number", output)


if __name__ == "__main__":
    if os.getuid() != 0:
        print("needs root")
        sys.exit(77)
    pairs.run_tests()
