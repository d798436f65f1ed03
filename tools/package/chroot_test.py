"""Installs the packages in a fresh chroot, runs the README's commands by hand between namespaces, purges the packages.

Usage: chroot_test.py ROOT FOLDER    as a hook of mmdebstrap; FOLDER holds the packages. Prints what it did; the first
thing that is not as it should be ends it with exit code 1.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 30
SOCKET = "/run/splitnic/lan0.sock"


def run(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"package: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def wait_until(what, condition):
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > give_up:
            raise SystemExit(f"package: not within {PATIENCE_S} s: {what}")
        time.sleep(0.02)


class Chroot:
    def __init__(self, root):
        self.root = pathlib.Path(root)

    def run(self, *words):
        return run("chroot", self.root, *words)

    def apt(self, *words):
        """This machine's apt, on the chroot; mmdebstrap says how."""
        environment = {**os.environ, "APT_CONFIG": os.environ["MMDEBSTRAP_APT_CONFIG"], "DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "--yes", "--no-install-recommends", f"-oDPkg::Chroot-Directory={self.root}", *words, env=environment)

    def install(self, packages):
        # apt reads a package where it lies for this machine, dpkg where it lies for the chroot.
        with tempfile.TemporaryDirectory(prefix="splitnic-packages-") as folder:
            inside = self.root / folder[1:]
            for place in (pathlib.Path(folder), inside):
                place.mkdir(exist_ok=True)
                for package in packages:
                    shutil.copy(package, place)
            self.apt("install", *(f"{folder}/{package.name}" for package in packages))
            shutil.rmtree(inside)

    def files_of(self, names):
        listed = self.run("dpkg-query", "-L", *names).split("\n")
        return sorted({path for path in listed if path and not (self.root / path[1:]).is_dir()})

    def traces(self):
        """Paths with splitnic in their names, the records of apt and dpkg left out."""
        records = ("var/log", "var/cache", "var/lib/apt", "proc", "sys", "dev/pts")
        found = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if os.path.relpath(os.path.join(folder, name), self.root) not in records]
            found += [os.path.join(folder, name) for name in folders + files if "splitnic" in name]
        return found


class Namespace:
    """A network namespace that lives as long as this object."""

    def __init__(self, stack):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        stack.callback(self.holder.wait)
        stack.callback(self.holder.kill)
        own = os.readlink("/proc/self/ns/net")
        wait_until("a network namespace", lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != own)
        self.enter = ("nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--")

    def run(self, *words):
        return run(*self.enter, *words)

    def answers(self, *words):
        return subprocess.run([*self.enter, *words], capture_output=True).returncode == 0


class Daemon:
    """A command of splitnic in the chroot, with a service manager that reads its reports."""

    def __init__(self, stack, chroot, namespace, *words):
        self.name = words[0]
        path = f"/run/notify-{self.name}"
        self.reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.reports.bind(str(chroot.root) + path)
        self.reports.setblocking(False)
        stack.callback(os.unlink, str(chroot.root) + path)
        stack.callback(self.reports.close)
        self.process = subprocess.Popen([*namespace.enter, "chroot", chroot.root, "splitnic", *words],
                                        env={**os.environ, "NOTIFY_SOCKET": path})
        stack.callback(self.process.kill)

    def expect(self, report):
        def reported():
            with contextlib.suppress(BlockingIOError):
                while report not in self.reports.recv(4096).decode().split("\n"):
                    pass
                return True
            if self.process.poll() is not None:
                raise SystemExit(f"package: splitnic {self.name} ended with {self.process.returncode}, before {report}")
            return False

        wait_until(f"{report} from splitnic {self.name}", reported)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.expect("STOPPING=1")
        code = self.process.wait(PATIENCE_S)
        if code != 0:
            raise SystemExit(f"package: splitnic {self.name} ended with {code}")


def verify_units(chroot):
    """systemd reads the units, with this machine's units around them and the chroot's program."""
    with tempfile.TemporaryDirectory() as folder:
        copies = []
        for unit in sorted((chroot.root / "usr/lib/systemd/system").glob("splitnic-*@.service")):
            text = unit.read_text()
            if "ExecStart=splitnic " not in text:
                raise SystemExit(f"package: {unit.name} does not start splitnic")
            copies.append(pathlib.Path(folder, unit.name.replace("@.", "@example.")))
            copies[-1].write_text(text.replace("ExecStart=", f"ExecStart={chroot.root}/usr/bin/"))
        if len(copies) != 2:
            raise SystemExit(f"package: not two units: {copies}")
        run("systemd-analyze", "verify", "--man=no", *copies)


def serve(chroot):
    """The README's two commands, as they stand there, and a ping from the host to the LAN."""
    with contextlib.ExitStack() as stack:
        lan, unit, host = (Namespace(stack) for _ in range(3))
        run("ip", "link", "add", "eth1", "netns", str(unit.holder.pid), "type", "veth",
            "peer", "name", "peer0", "netns", str(lan.holder.pid))
        unit.run("ip", "link", "set", "eth1", "up")
        lan.run("ip", "address", "add", "10.1.2.1/24", "dev", "peer0")
        lan.run("ip", "link", "set", "peer0", "up")
        daemons = [Daemon(stack, chroot, unit, "iounit", "--listen", SOCKET, "--lan", "eth1"),
                   Daemon(stack, chroot, host, "host", "--connect", f"shm:{SOCKET}", "--tap", "vnic0")]
        for daemon in daemons:
            daemon.expect("READY=1")
        host.run("ip", "address", "add", "10.1.2.3/24", "dev", "vnic0")
        host.run("ip", "link", "set", "vnic0", "up")
        wait_until("a ping over the virtual NIC", lambda: host.answers("ping", "-c1", "-W1", "10.1.2.1"))
        status = chroot.run("splitnic", "status")
        if "iounit" not in status or "host" not in status:
            raise SystemExit(f"package: splitnic status does not show both daemons:\n{status}")
        print(status, end="")
        for daemon in reversed(daemons):
            daemon.end()


def main(root, folder):
    chroot = Chroot(root)
    packages = sorted(pathlib.Path(folder).glob("*.deb"))
    names = [package.name.split("_")[0] for package in packages]
    chroot.install(packages)
    files = chroot.files_of(names)
    print(f"package: installed {', '.join(names)}: {len(files)} files")
    verify_units(chroot)

    tun = chroot.root / "dev/net/tun"
    if not tun.exists():
        tun.parent.mkdir(exist_ok=True)
        os.mknod(tun, 0o20666, os.makedev(10, 200))
    serve(chroot)
    # With mounts of their own: the tests make named network namespaces, which are mounts.
    run("unshare", "--mount", "chroot", chroot.root, "splitnic-tests", "unit_common")
    print("package: the README's commands serve, and the installed tests run")

    chroot.apt("purge", *names)
    left = [path for path in files if os.path.lexists(chroot.root / path[1:])] + chroot.traces()
    if left:
        raise SystemExit("package: left behind by a purge:\n" + "\n".join(left))
    print("package: purged, nothing left")


if __name__ == "__main__":
    main(*sys.argv[1:])
