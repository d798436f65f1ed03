"""Times in which the machine stood still: a virtual machine that its host did not run, or a disk that held everybody up.
Then nothing can happen, and no limit on a time means anything."""

import threading
import time
from pathlib import Path

_PAUSE_SECONDS = 0.01
_NOTICED_SECONDS = 0.1  # less is Python's own


class Standstill:
    """While it is entered, a thread sleeps again and again. What its sleeps last too long, less its waiting for a
    processor (which has a clock of its own, Linux's run delay), is `seconds`."""

    def __init__(self):
        self.seconds = 0.0
        self._begun = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _watch(self):
        delays = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

        def now():
            waited = int(delays.read_text().split()[1]) / 1e9 if delays.exists() else 0.0
            return time.monotonic() - waited
        last = now()
        self._begun.set()
        while not self._end.wait(_PAUSE_SECONDS):
            last = self._note(last, now())
        self._note(last, now())

    def _note(self, last, this):
        late = this - last - _PAUSE_SECONDS
        if late > _NOTICED_SECONDS:
            self.seconds += late
        return this
