"""The appliance of docs/firmware.md serves a real host: its kernel finds it by ARP and pings it."""

import types
import unittest

import support
from lab import Host, Lab, traffic, wait_until


class Appliance(unittest.TestCase):
    def test_a_hosts_kernel_pings_the_firmware(self):
        with Lab() as lab:
            # After a boot, nobody has made the folder.
            appliance = types.SimpleNamespace(socket=lab.dir / "run" / "appliance.sock")
            process = lab.start("appliance", [lab.splitnic.parent / "firmware_example", appliance.socket])
            wait_until(appliance.socket.exists, 10, "the appliance's socket")
            host = Host(lab, appliance, 1).start()
            host.ns.ip("addr", "add", "192.0.2.2/24", "dev", host.tap)
            report = traffic.answered(lab, host.ns, "192.0.2.1")
            self.assertEqual(report.missing, [], lab.log_tails())
            self.assertIn("lladdr 02:00:00:00:00:01", host.ns.ip("neigh", "show", "192.0.2.1"))
            self.assertEqual(process.stop(), 0)


if __name__ == "__main__":
    support.main()
