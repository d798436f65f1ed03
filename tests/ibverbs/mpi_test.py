#!/usr/bin/env python3
"""An MPI program on four ranks whose messages go over the fabric, as root and as an ordinary user: Open MPI with its own
verbs module, Open MPI over UCX and over libfabric, MPICH over UCX; with the transports of UCX that use verbs. It
computes and checks its results. What is not installed is skipped by name. Usage: mpi_test.py [Root|OrdinaryUser]."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import pairs

SOURCE = pathlib.Path(__file__).with_name("mpi") / "program.cpp"
RANKS = 4
SECONDS = 120
RIGHT = f"{RANKS} ranks: heat right, blocks right, window right\n"
# As root, mpirun wants to be told that it is meant.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OVERSUBSCRIBED = ("mpirun.openmpi", "--oversubscribe", "-n", str(RANKS))
OWN_MODULE = ("--mca", "pml", "ob1", "--mca", "btl", "openib,self", "--mca", "btl_openib_allow_ib", "1",
              "--mca", "btl_openib_warn_no_device_params_found", "0")


class Mpi(unittest.TestCase):
    uid = 0

    @classmethod
    def setUpClass(cls):
        cls.fabric = pairs.Fabric(cls.uid)
        cls.addClassCleanup(cls.fabric.close)

    def compiled(self, compiler):
        if shutil.which(compiler) is None:
            self.skipTest(f"{compiler} is not installed")
        program = self.fabric.folder / f"program.{compiler}"
        if not program.exists():
            subprocess.run([compiler, "-std=c++20", "-O1", "-o", program, SOURCE], check=True, timeout=SECONDS)
            program.chmod(0o755)
        return str(program)

    def compute(self, words, **variables):
        process = self.fabric.start(words, HOME=str(self.fabric.folder), TMPDIR=str(self.fabric.folder), **variables)
        code, output = self.fabric.finish(process, " ".join(words), SECONDS)
        self.assertEqual((code, output), (0, RIGHT))

    def test_open_mpi_with_its_own_verbs_module(self):
        self.compute([*OVERSUBSCRIBED, *OWN_MODULE, self.compiled("mpicxx.openmpi")], **OPEN_MPI)

    def test_open_mpi_over_ucx(self):
        program = self.compiled("mpicxx.openmpi")
        for transports in ("rc,self", "ud,self"):
            with self.subTest(transports):
                self.compute([*OVERSUBSCRIBED, "--mca", "pml", "ucx", program], UCX_TLS=transports, **OPEN_MPI)

    def test_open_mpi_over_libfabric(self):
        """It closes the library without closing the device."""
        self.compute([*OVERSUBSCRIBED, "--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include",
                      "verbs;ofi_rxm", self.compiled("mpicxx.openmpi")], **OPEN_MPI)

    def test_mpich_over_ucx(self):
        program = self.compiled("mpicxx.mpich")
        for transports in ("rc,self", "ud,self"):
            with self.subTest(transports):
                self.compute(["mpirun.mpich", "-n", str(RANKS), program], UCX_TLS=transports)


class Root(Mpi):
    uid = 0


class OrdinaryUser(Mpi):
    uid = pairs.NOBODY


del Mpi

if __name__ == "__main__":
    pairs.run_tests(verbosity=2)
