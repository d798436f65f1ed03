"""Processes that keep their output, can be waited for, and never outlive this one."""

import contextlib
import ctypes
import mmap
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_MOMENT = struct.Struct("d")  # UNIX time


class LabError(Exception):
    """The laboratory could not do its work; the message says what failed and why, in one or a few lines."""


def wait_until(condition, seconds, what):
    """Returns the first true value of condition(); raises LabError if there is none within `seconds`. The time in which
    this program did not run, although it wanted to, is not counted: then others hardly did."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise LabError(f"waited {seconds:g} s in vain for {what}")
        slept = time.monotonic()
        time.sleep(pause)
        deadline += time.monotonic() - slept - pause
        pause = min(pause * 1.5, 0.05)


def run(argv, timeout=60, check=True, netns=None, stdin=None):
    """Runs a short command to its end; returns the CompletedProcess with text output. check: LabError on failure."""
    argv = [str(word) for word in argv]
    full = netns.argv(argv) if netns else argv
    try:
        done = subprocess.run(full, input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=timeout,
                              start_new_session=True)
    except FileNotFoundError:
        raise LabError(f"{full[0]} is not installed (tools/setup.sh test installs it)") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"no end within {timeout:g} s: {' '.join(argv)}") from None
    if check and done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise LabError(f"{' '.join(argv)}: exit code {done.returncode}: {said[-1] if said else 'no output'}")
    return done


def children(pid):
    """The pids of a process's children; none if it has ended."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def ended(pid):
    """Whether a process that nobody here waits for is over; it may stay as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def waited_seconds(pid):
    """How long a process's first thread has been ready and waited for a processor (Linux's run delay); 0.0 if the kernel
    does not report it."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0


class Process:
    """A process in the background. Its output goes to files, which text() reads at any time.

    It has its own session, so that Ctrl-C reaches only this program, which then ends its processes in order. If this
    program is killed, the kernel ends the process.
    """

    def __init__(self, name, argv, log_dir, netns=None, env=None):
        self.name = name
        self.argv = [str(word) for word in argv]
        log_dir.mkdir(parents=True, exist_ok=True)
        self.log = _fresh_path(log_dir, name)
        parent = os.getpid()
        self._began = mmap.mmap(-1, _MOMENT.size)

        def in_child():
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
            _MOMENT.pack_into(self._began, 0, time.time())

        full = netns.argv(self.argv) if netns else self.argv
        try:
            with open(self.log, "wb") as log:
                self.popen = subprocess.Popen(full, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                              start_new_session=True, preexec_fn=in_child,
                                              env={**os.environ, **(env or {})})
        except FileNotFoundError:
            raise LabError(f"{full[0]} is not installed (tools/setup.sh test installs it)") from None

    @property
    def pid(self):
        return self.popen.pid

    @property
    def began(self):
        """When the process began to execute the program (time.time())."""
        return _MOMENT.unpack_from(self._began)[0]

    def running(self):
        return self.popen.poll() is None

    def text(self):
        """The output so far, of both streams."""
        return self.log.read_text(errors="replace")

    def wait(self, seconds):
        """Returns the exit code (negative: the signal); raises LabError if the process does not end in time."""
        try:
            return self.popen.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise LabError(f"{self.name} (process {self.pid}) did not end within {seconds:g} s") from None

    def wait_for_text(self, wanted, seconds=10):
        """Waits until the process has printed `wanted`; raises LabError with its last line if it ends before."""
        def printed():
            over = not self.running()
            if wanted in self.text():
                return True
            if over:
                raise LabError(f"{self.name} ended with code {self.popen.returncode}: {self.last_line()}")
            return False
        wait_until(printed, seconds, f'"{wanted}" from {self.name}')

    def last_line(self):
        lines = [line for line in self.text().splitlines() if line.strip()]
        return lines[-1] if lines else "no output"

    def signal(self, number):
        if self.running():
            self.popen.send_signal(number)

    def begin_stop(self):
        """Sends SIGTERM to the process and its children; stop() does the rest."""
        if self.popen.returncode is None:
            self._signal_group(signal.SIGCONT)
            self._signal_group(signal.SIGTERM)

    def stop(self, seconds=5):
        """Ends the process and its children: SIGTERM, and SIGKILL after `seconds`. Returns the exit code."""
        if self.popen.returncode is None:
            self.begin_stop()
            try:
                wait_until(self._over, seconds, self.name)
            except LabError:
                pass
            # Ends the rest of its session: a web server's child continues to send after its parent ended. Nobody has
            # waited for the process yet, so the number of its group is not reused.
            self._signal_group(signal.SIGKILL)
            self.popen.wait()
        return self.popen.returncode

    def _over(self):
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _signal_group(self, number):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill9(self):
        self.signal(signal.SIGKILL)
        self.popen.wait()

    def descriptors(self):
        """The number of open descriptors, without short-lived ones (of a request for statistics)."""
        counts = []
        for _ in range(6):
            counts.append(len(os.listdir(f"/proc/{self.pid}/fd")))
            time.sleep(0.03)
        return min(counts)

    def run_on(self, cores):
        """Keeps all its threads, and those that they start, on these cores."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)

    def cpu_seconds(self):
        """The processor time of its living threads, to the microsecond if the kernel reports that."""
        nanoseconds = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                nanoseconds += int((task / "schedstat").read_text().split()[0])
            except ProcessLookupError:
                continue  # the thread ended after its file was opened
            except FileNotFoundError:
                return self._cpu_seconds_in_ticks()
        return nanoseconds / 1e9

    def waited_seconds(self):
        return waited_seconds(self.pid)

    def _cpu_seconds_in_ticks(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self):
        """The resident memory of the process."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _fresh_path(log_dir, name):
    for number in range(1, 10000):
        path = log_dir / f"{name}.{number}.log"
        if not path.exists():
            return path
    raise LabError(f"too many logs of {name}")
