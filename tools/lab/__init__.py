"""A LAN in network namespaces with splitnic's daemons on it, for the demo and the integration tests.

This package knows Linux's tools and splitnic's command line, and nothing of the daemons' internals. It uses only the
standard library. Start with Lab (laboratory.py); the daemons are in daemons.py, traffic in traffic.py, frames and
captures in frames.py and capture.py.
"""

from .daemons import Host, IoUnit
from .laboratory import Interrupted, Lab, Lan
from .namespace import Namespace
from .process import LabError, Process, wait_until
from .standstill import Standstill

__all__ = ["Host", "Interrupted", "IoUnit", "Lab", "LabError", "Lan", "Namespace", "Process", "Standstill", "wait_until"]
