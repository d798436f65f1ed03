#!/usr/bin/env python3
"""More of Debian's programs for verbs and connection manager between two processes, as root and as an ordinary user:
qperf, fio's engine for RDMA, an example of UCX, and the tests of DAPL. What is not installed is skipped by name. Part
of tools/check.sh. Usage: applications_test.py [Root|OrdinaryUser]."""

import itertools
import os
import pathlib
import shutil
import subprocess

import pairs

QPERF = tuple(f"{transport}_{kind}" for transport in ("rc", "uc", "ud") for kind in ("lat", "bw", "bi_bw")) + (
    "rc_rdma_read_lat", "rc_rdma_read_bw", "rc_rdma_write_lat", "rc_rdma_write_bw", "rc_rdma_write_poll_lat",
    "uc_rdma_write_lat", "uc_rdma_write_bw", "uc_rdma_write_poll_lat", "rc_compare_swap_mr", "rc_fetch_add_mr",
    "ver_rc_compare_swap", "ver_rc_fetch_add")
DTEST_PORT = 15828
# The port at which a server tells its client where it is. None: it does not.
DAPL = {"dtest": DTEST_PORT, "dtestx": DTEST_PORT, "dtestsrq": None, "dtestcm": DTEST_PORT}
PROVIDER = 'ofa-v2-cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "lo 0" ""\n'
SECONDS = 60
UCX_EXAMPLE = pathlib.Path("/usr/share/doc/libucx-dev/examples/ucp_client_server.c")


class Applications(pairs.OnFabric):
    def need(self, program):
        if shutil.which(program) is None:
            self.skipTest(f"{program} is not installed")

    def sockets(self):
        """Of listeners of the connection manager, in the fabric's folder. An endnode's folder may go meanwhile, which
        os.walk() passes over."""
        return {os.path.join(folder, name) for folder, _, names in os.walk(self.fabric.folder)
                for name in names if name.startswith("cm-")}

    def await_listener(self, server, program, before, port=None):
        """Until the connection manager has another socket than those before. port: of the socket that the server opens
        after that, to which the client connects first."""
        pairs.await_server(server, program,
                           lambda: self.sockets() - before if port is None else pairs.listens(port), SECONDS)

    def run_ends(self, server_words, client_words, port=None, **variables):
        before = self.sockets()
        server = self.fabric.start(server_words, **variables)
        try:
            self.await_listener(server, server_words[0], before, port)
            client = self.fabric.start(client_words, **variables)
            ends = [self.fabric.finish(client, f"{' '.join(client_words)}: the client", SECONDS),
                    self.fabric.finish(server, f"{' '.join(server_words)}: the server", SECONDS)]
        finally:
            if server.poll() is None:
                server.kill()
                server.communicate()
        self.assertEqual([code for code, _ in ends], [0, 0], ends)
        return ends[0][1]

    def test_qperf(self):
        self.need("qperf")
        port = pairs.free_port()
        server = self.fabric.start(["qperf", "-lp", str(port)])
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        pairs.await_server(server, "qperf", lambda: pairs.listens(port), SECONDS)
        for test in QPERF:
            with self.subTest(test):
                client = self.fabric.start(["qperf", "-lp", str(port), "-t", "1", "127.0.0.1", test])
                code, output = self.fabric.finish(client, test, SECONDS)
                self.assertEqual(code, 0, output)
                self.assertIn(" = ", output)

    def test_fio(self):
        self.need("fio")
        for verb, size in (("write", "64m"), ("read", "64m"), ("send", "1m")):  # as many sends as receives are posted
            with self.subTest(verb):
                port = pairs.free_port()
                job = ["fio", "--name=job", "--ioengine=rdma", f"--port={port}", "--bs=64k", f"--size={size}",
                       "--iodepth=16"]
                output = self.run_ends([*job, "--rw=read"], [*job, "--rw=write", "--hostname=127.0.0.1",
                                                             f"--verb={verb}", "--iodepth_batch_complete=16"])
                self.assertIn("err= 0", output)

    def test_ucx_connects_by_address(self):
        """UCX opens the device itself, and takes the connection manager's address for that of its own queue pairs."""
        self.need("cc")
        if not UCX_EXAMPLE.exists():
            self.skipTest("libucx-dev is not installed")
        program = self.fabric.folder / "ucp_client_server"
        subprocess.run(["cc", UCX_EXAMPLE, "-o", program, "-lucp", "-lucs"], check=True)
        self.fabric.give(program)
        for transport, interface in itertools.product(("rc", "ud"), ("am", "tag", "stream")):
            with self.subTest(transport=transport, interface=interface):
                words = [program, "-p", str(pairs.free_port()), "-c", interface, "-i", "20"]
                environment = {"UCX_TLS": f"{transport},self", "UCX_NET_DEVICES": "splitnic0:1"}
                before = self.sockets()
                server = self.fabric.start(words, subprocess.DEVNULL, **environment)
                try:
                    self.await_listener(server, "ucp_client_server", before)
                    client = self.fabric.start([*words, "-a", "127.0.0.1"], **environment)
                    code, output = self.fabric.finish(client, "ucp_client_server", SECONDS)
                finally:
                    server.kill()  # it serves for ever
                    server.wait()
                self.assertEqual(code, 0, output)

    def test_dapl(self):
        self.need("dtest")
        table = self.fabric.folder / "dat.conf"
        table.write_text(PROVIDER)
        self.fabric.give(table)
        for program, port in DAPL.items():
            with self.subTest(program):
                words = [program, "-P", "ofa-v2-cma"]
                self.run_ends(words, [*words, "-h", "127.0.0.1"], port, DAT_OVERRIDE=str(table))


Root, OrdinaryUser = pairs.for_both_users(Applications)
del Applications

if __name__ == "__main__":
    pairs.run_tests()
