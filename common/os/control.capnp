@0xd3a1f0c27b5e4486;

# What daemons answer on their control socket. One message per request and one per reply, each behind its length as a
# little-endian 32-bit number. Fields are only ever added, so that tools and daemons of different versions understand
# each other.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("splitnic::control");

struct Request {
  what @0 :What;

  enum What {
    status @0;  # identity, state and every counter
    clear @1;   # the same; afterwards the counters start from zero
    showPolicy @2;    # an I/O unit's policy, as text
    reloadPolicy @3;  # the unit reads its policy file again; a line for people
  }
}

struct Reply {
  union {
    error @0 :Text;
    status @1 :DaemonStatus;
    text @2 :Text;
  }
}

# The fields of DaemonStatus, Peer and NamedCount have the names of the structs in daemon_status.h, there with
# underscores; a test compares them.
struct DaemonStatus {
  role @0 :Text;      # "host", "iounit"
  name @1 :Text;
  state @2 :Text;
  epoch @3 :UInt64;
  mac @4 :Text;       # "02:..": empty where there is none
  mtu @5 :UInt32;
  carrier @6 :Bool;
  lan @7 :Text;       # what the I/O unit serves: an interface or savefiles
  mode @8 :Text;      # messaging mode, "r" or "s"
  peers @9 :List(Peer);
  drops @10 :List(NamedCount);
  pid @11 :UInt32;
  version @12 :Text;
  uptimeMs @13 :UInt64;
  counts @14 :List(NamedCount);
  tap @15 :Text;      # what the host serves: the name of its virtual NIC
  threads @17 :UInt32 = 1;  # of an I/O unit: those that move frames
  lanEngine @16 :Text;  # how the I/O unit reaches its LAN: "packet", "pcap", "savefile"
}

struct Peer {
  name @0 :Text;
  state @1 :Text;
  mac @2 :Text;
  txFrames @3 :UInt64;  # sent to the peer
  rxFrames @4 :UInt64;  # received from it
  txBytes @5 :UInt64;
  rxBytes @6 :UInt64;
  drops @7 :List(NamedCount);     # by cause
  messages @8 :List(NamedCount);  # by type
}

struct NamedCount {
  name @0 :Text;
  count @1 :UInt64;
}
