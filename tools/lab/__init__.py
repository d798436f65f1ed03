"""A LAN in network namespaces with splitnic's daemons on it: what the demo shows and the integration tests examine.

Knows Linux's tools and splitnic's command line; must not know anything of the inside of the daemons. Standard library
only. Start with Lab (laboratory.py); the daemons are in daemons.py, traffic in traffic.py, frames and captures in
frames.py and capture.py.
"""

from .daemons import Host, IoUnit
from .laboratory import Interrupted, Lab, Lan
from .namespace import Namespace
from .process import LabError, Process, wait_until

__all__ = ["Host", "Interrupted", "IoUnit", "Lab", "LabError", "Lan", "Namespace", "Process", "wait_until"]
