"""Savefiles as a LAN: the hosts get the frames of one file, and the other file gets the frames of the hosts."""

import os
import struct
import subprocess
import time
import unittest

import support
from lab import Host, IoUnit, Lab, frames, wait_until
from lab.capture import read_savefile, write_savefile

MAC = "02:77:00:00:00:11"
PLAYER = "02:77:00:00:00:01"
LINKTYPE_RAW_IP = 101
PACE_SLACK = 0.1  # seconds
PACE_TRIES = 4
SAVEFILE_HEADER_BYTES = 24


def numbered(index, destination=MAC, size=100):
    return frames.frame(destination, PLAYER, struct.pack("!I", index).ljust(size, b"s"))


class Savefile(unittest.TestCase):
    def setUp(self):
        self.lab = Lab()
        self.lab.__enter__()
        self.addCleanup(self.lab.close)
        self.source, self.target = self.lab.dir / "in.pcap", self.lab.dir / "out.pcap"

    def unit(self, *args, pace=",pace=max"):
        return IoUnit(self.lab, files=f"file:{self.source},{self.target}{pace}", args=args)

    def host(self, unit, number=1):
        """A host whose interface is up before its session, so that no frame comes too early."""
        host = Host(self.lab, unit, number, ["--mac", MAC[:-1] + str(number)])
        host.ns.sysctl("net/ipv6/conf/default/disable_ipv6", 1)
        host.ns.ip("tuntap", "add", "dev", host.tap, "mode", "tap")
        host.ns.ip("link", "set", host.tap, "up")
        return host

    def played(self, port, count, seconds=5):
        """The numbers of the received frames, in order, with their times."""
        seen = []
        for raw in port.received(time.monotonic() + seconds):
            if raw[6:12] == frames.mac_bytes(PLAYER):
                seen.append((struct.unpack("!I", raw[14:18])[0], time.monotonic()))
            if len(seen) == count:
                break
        return seen

    def test_every_frame_arrives_once_and_in_order(self):
        write_savefile(self.source, [numbered(n) for n in range(200)])
        unit = self.unit().start()
        host = self.host(unit)
        with frames.RawPort(host.ns, host.tap) as port:
            host.start(addresses=False)
            self.assertEqual([n for n, _ in self.played(port, 200)], list(range(200)))

    def test_more_than_a_host_can_take_at_full_speed_is_dropped_and_counted(self):
        write_savefile(self.source, [numbered(n) for n in range(5000)])
        unit = self.unit().start()
        host = self.host(unit)
        with frames.RawPort(host.ns, host.tap) as port:
            host.start(addresses=False)

            def all_accounted_for():
                seen.extend(n for n, _ in self.played(port, 5000, seconds=0.3))
                return len(seen) + unit.drops().get("to_host_no_element", 0) == 5000
            seen = []
            wait_until(all_accounted_for, 5, "every frame to have arrived or been counted")
        self.assertEqual(seen, sorted(set(seen)), "in order and none twice")

    def test_the_recorded_pace_is_kept(self):
        write_savefile(self.source, [numbered(n) for n in range(3)], times=[1000.0, 1000.4, 1000.8])
        unit = self.unit(pace="")
        host = self.host(unit)
        # Both the unit and this process may be late now and then. A wrong pace is wrong every time.
        worst = []  # of each run: by how much a frame was too early or too late after the one before it
        with frames.RawPort(host.ns, host.tap) as port:
            while len(worst) < PACE_TRIES and min(worst, default=PACE_SLACK) >= PACE_SLACK:
                unit.start()
                host.launch()  # playback begins when its session is up; this process looks out for the frames before that
                seen = self.played(port, 3, seconds=10)
                self.assertEqual([n for n, _ in seen], [0, 1, 2])
                worst.append(max(abs(later - earlier - 0.4) for (_, earlier), (_, later) in zip(seen, seen[1:])))
                host.stop()
                unit.stop()
        self.assertLess(min(worst), PACE_SLACK, worst)

    def test_playback_waits_for_as_many_hosts_as_it_is_told(self):
        write_savefile(self.source, [numbered(n, frames.BROADCAST) for n in range(5)])
        unit = self.unit("--wait-hosts", "2").start()
        first, second = self.host(unit, 1), self.host(unit, 2)
        with frames.RawPort(first.ns, first.tap) as one, frames.RawPort(second.ns, second.tap) as two:
            first.start(addresses=False)
            self.assertEqual(self.played(one, 1, seconds=0.7), [])
            second.start(addresses=False)
            self.assertEqual([n for n, _ in self.played(one, 5)], list(range(5)))
            self.assertEqual([n for n, _ in self.played(two, 5)], list(range(5)))

    def test_what_a_host_sends_is_in_the_output_while_the_unit_still_runs(self):
        write_savefile(self.source, [])
        unit = self.unit().start()
        host = self.host(unit)
        host.start(addresses=False)
        wait_until(lambda: host.ns.carrier(host.tap), 5, "the carrier")
        sent = [frames.frame(PLAYER, MAC, struct.pack("!I", n).ljust(size, b"h"))
                for n, size in enumerate((46, 60, 500, 1500))]
        with frames.RawPort(host.ns, host.tap) as port:
            for raw in sent:
                port.send(raw)

        def written():
            return [raw for raw in read_savefile(self.target) if raw[6:12] == frames.mac_bytes(MAC)] == sent
        wait_until(written, 5, "the host's frames in the savefile")

    def test_the_output_goes_on_with_whole_records_when_a_full_disk_has_room_again(self):
        disk = self.lab.dir / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", disk], check=True)
        write_savefile(self.source, [])
        self.target = disk / "out.pcap"
        unit = self.unit().start()
        self.addCleanup(unit.stop)
        host = self.host(unit)
        host.start(addresses=False)
        wait_until(lambda: host.ns.carrier(host.tap), 5, "the carrier")
        frame = frames.frame(PLAYER, MAC, b"h" * 1000)
        with frames.RawPort(host.ns, host.tap) as port:
            def refused():
                for _ in range(50):
                    port.send(frame)
                return unit.drops().get("from_host_lan_refused", 0) > 0
            wait_until(refused, 5, "a full disk")
            before = len(read_savefile(self.target))
            with open(self.target, "rb") as file:
                size = file.seek(0, os.SEEK_END)
            # Each record is of one size, and the last one is cut.
            self.assertNotEqual((size - SAVEFILE_HEADER_BYTES) % (16 + len(frame)), 0)
            subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)

            def written():
                port.send(frame)
                return len(read_savefile(self.target)) > before + 1
            wait_until(written, 15, "frames in the savefile again")
        self.assertEqual([raw for raw in read_savefile(self.target) if raw != frame], [])

    def test_a_unit_without_standard_error_writes_no_log_lines_into_the_output(self):
        unit = IoUnit(self.lab, files=f"file:,{self.target}")
        unit.process = self.lab.start("silent", ["sh", "-c", 'exec "$0" "$@" 2>&-', *unit.argv()])
        unit.wait_state("serving")
        self.assertEqual(unit.stop(), 0)
        self.assertEqual(self.target.stat().st_size, SAVEFILE_HEADER_BYTES)

    def test_records_cut_short_are_counted_and_left_out(self):
        write_savefile(self.source, [numbered(n) for n in range(6)], cut={2: 40, 4: 0})
        unit = self.unit().start()
        host = self.host(unit)
        with frames.RawPort(host.ns, host.tap) as port:
            host.start(addresses=False)
            self.assertEqual([n for n, _ in self.played(port, 4)], [0, 1, 3, 5])
        self.assertEqual(unit.drops().get("lan_truncated"), 2, str(unit.drops()))

    def refused(self, *args):
        done = self.lab.run_splitnic("iounit", "--listen", self.lab.dir / "unit.sock", "--lan", *args)
        self.assertIn(done.returncode, (1, 2))
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0]

    def test_savefiles_that_are_none_are_refused_in_one_line(self):
        write_savefile(self.source, [numbered(0)], link_type=LINKTYPE_RAW_IP)
        self.assertIn("in.pcap", self.refused(f"file:{self.source},{self.target}"))
        self.source.write_bytes(b"this is no savefile at all, whatever its name says")
        self.assertIn("in.pcap", self.refused(f"file:{self.source},{self.target}"))
        self.source.write_bytes(b"")
        self.assertIn("in.pcap", self.refused(f"file:{self.source},{self.target}"))
        self.source.unlink()
        self.assertIn("in.pcap", self.refused(f"file:{self.source},{self.target}"))
        write_savefile(self.source, [])
        self.assertIn("nowhere", self.refused(f"file:{self.source},/nowhere/at/all/out.pcap"))

    def test_a_file_that_ends_within_a_record_is_played_up_to_there(self):
        write_savefile(self.source, [numbered(n) for n in range(3)])
        self.source.write_bytes(self.source.read_bytes()[:-30])
        unit = self.unit().start()
        host = self.host(unit)
        with frames.RawPort(host.ns, host.tap) as port:
            host.start(addresses=False)
            self.assertEqual([n for n, _ in self.played(port, 2)], [0, 1])
        self.assertEqual(unit.state(), "serving")


if __name__ == "__main__":
    support.main()
