"""Much TCP both ways at once, under a flood of small datagrams both ways: every byte arrives as it was.

BULK_MEGABYTES is how much each way and class sends (64). Part of tools/check.sh; not of the tests, which are short.
"""

import contextlib
import os

import support
from lab import traffic

MEGABYTES = int(os.environ.get("BULK_MEGABYTES", "64"))
FLOOD_BITS = "3M"  # of 18 bytes: frames of 60 bytes, twenty thousand in a second
FLOOD_BYTES = 18
SLOWEST = 4  # megabytes in a second, on a machine that does other things
LATEST = 60 + MEGABYTES / SLOWEST


class Bulk(support.LabTestCase):
    hosts = 1
    passes_unfinished = True
    segments = False  # the super-frames of the host

    def test_every_byte_arrives_under_a_flood_of_small_packets(self):
        host, lan = self.host[0], self.lan
        ways = ((host.ns, lan.ns, lan.address, 9101), (lan.ns, host.ns, host.address, 9102))
        frames = self.unit.peer(host.name)
        with contextlib.ExitStack() as floods:
            for sender, _, address, _ in ways:
                floods.enter_context(traffic.udp_flood(self.lab, sender, address, FLOOD_BITS, FLOOD_BYTES))
            transfers = [traffic.Bulk(self.lab, *way, MEGABYTES << 20) for way in ways]
            for transfer in transfers:
                sent, received = transfer.finish(LATEST)
                self.assertEqual(received, sent)
                self.assertEqual(sent.bytes, MEGABYTES << 20)
        after = self.unit.peer(host.name)
        for way in ("rx", "tx"):
            count, octets = (after[f"{way}_{what}"] - frames[f"{way}_{what}"] for what in ("frames", "bytes"))
            self.assertGreater(octets, MEGABYTES << 20)
            # Without the flood, acknowledgements and segments would be all.
            self.assertGreater(count, 1000, f"{way}: frames")
        counts = self.unit.stats()["counts"]
        self.assertEqual(counts["passed_unfinished"] > 0, self.passes_unfinished)
        self.assertEqual(counts["host_segmented"] > 0, self.segments)
        for daemon in (self.unit, host):
            drops = daemon.drops()
            for cause in ("from_host_bad_offload", "lan_bad_offload", "rx_bad_offload", "rx_bad_length",
                          "session_faults", "to_unit_unfinished", "rx_lost_elements", "bad_messages"):
                self.assertEqual(drops.get(cause, 0), 0, f"{daemon.name}: {cause}")


class BulkWithoutOffloads(Bulk):
    unit_args = host_args = ("--offloads", "off")
    passes_unfinished = False


class BulkThroughLibpcap(Bulk):
    """With offloads on the bridge: the unit segments what the host sends, and merges what the LAN sends it."""

    unit_args = ("--lan-engine", "pcap")
    segments = True


if __name__ == "__main__":
    support.main()
