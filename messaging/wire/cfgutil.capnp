@0xa58e90e981cdf2ac;
# The data of CfgUtilRequest and CfgUtilReply (docs/protocol.md, "Messages"). Each request code has one root struct for
# the request and one for the reply; a reply whose status is not ok carries a Refusal, or nothing.
#
# Fields are only ever appended, with defaults that mean what their absence meant. HelloRequest, HelloReply, ChannelTerms
# and Refusal are read by every version for ever: their existing fields never change place, type or meaning.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("splitnic::messaging::schema");

# A MAC address as a number: the first octet in bits 47..40, bits 63..48 zero.
using Mac = UInt64;

enum Role {
  unset @0;
  host @1;
  ioUnit @2;
}

enum Mode {
  unset @0;
  rdma @1;   # mode R, S1 Fig. 7: data by RDMA write
  send @2;   # mode S, S1 Fig. 6: data by send/receive
}

struct ChannelTerms {
  # What one side offers for the two channels; in the reply, what is settled (never more than was offered) and the
  # replier's own end of the data channel.
  maxMessageBytes @0 :UInt32;
  maxListEntries @1 :UInt32;
  maxFrameBytes @2 :UInt32;
  cellBytes @3 :UInt32;          # payload of a cell
  receiveDepth @4 :UInt32;       # receives that are kept posted on the control channel
  dataChannel @5 :Bool;          # false: frames travel as SendData on the control channel, the next three are zero
  dataQueuePair @6 :UInt32;      # the sender's end, 24 bits
  dataReceiveDepth @7 :UInt32;   # receives that are kept posted on the data channel
  initialPsn @8 :UInt32;         # the first packet sequence number that the sender uses on it
}

struct HelloRequest {
  lowestVersion @0 :UInt16;
  highestVersion @1 :UInt16;
  role @2 :Role;
  mode @3 :Mode;
  features @4 :UInt64;           # what the sender could do; unknown bits are ignored
  name @5 :Text;
  requestedMac @6 :Mac;          # zero: the unit chooses
  terms @7 :ChannelTerms;
}

struct HelloReply {
  version @0 :UInt16;            # the highest that both speak, for everything after this reply
  role @1 :Role;
  mode @2 :Mode;
  features @3 :UInt64;           # the intersection
  name @4 :Text;                 # the replier's
  assignedMac @5 :Mac;
  maxMtu @6 :UInt32;
  linkUp @7 :Bool;
  linkSpeedMbps @8 :UInt32;      # zero: unknown
  terms @9 :ChannelTerms;
}

struct Refusal {
  text @0 :Text;                 # for people
}

struct Empty {}

struct MacAddress {              # SetMacAddress: wanted; its reply: in force
  address @0 :Mac;
}

struct Mtu {                     # SetMtu: wanted; its reply: in force
  bytes @0 :UInt32;
}

struct LinkState {               # from the unit: the LAN's carrier; from the host: its interface's administrative state
  up @0 :Bool;
  speedMbps @1 :UInt32;          # zero: unknown
  maxMtu @2 :UInt32;             # zero: as before
}

struct ReceiveFilter {           # replaces the one before; broadcast and the host's own address always pass
  unicast @0 :List(Mac);         # further addresses
  multicast @1 :List(Mac);
  allMulticast @2 :Bool;
  promiscuous @3 :Bool;
}

struct VlanFilter {              # replaces the one before; untagged frames always pass
  union {
    all @0 :Void;
    only @1 :List(UInt16);       # ascending
  }
}

struct Moderation {              # the doorbell waits until one of these is reached; zero: that one does not count
  entries @0 :UInt32;
  bytes @1 :UInt32;
  nanoseconds @2 :UInt64;
}

struct Statistics {              # reply of StatisticsReport, and of StatisticsClear: the values just before they were cleared
  counters @0 :List(Counter);    # the causes of errors and drops, by name
  countedForNs @1 :UInt64;       # the time since everything here was zero, up to the reply; below 2^63
  fromPeer @2 :Flow;             # what the replier received from the one who asks
  toPeer @3 :Flow;
  fromInterface @4 :Flow;        # the replier's network interface: of an I/O unit the LAN, of a host its virtual NIC
  toInterface @5 :Flow;

  struct Counter {
    name @0 :Text;
    value @1 :UInt64;
  }
}

struct Flow {                    # Ethernet frames one way
  frames @0 :UInt64;             # that came through or went out
  bytes @1 :UInt64;              # of them, from the destination address on, without FCS
  errors @2 :UInt64;             # frames that were damaged or impossible, or lost on the way
  drops @3 :UInt64;              # sound frames that were not passed on: no room, not wanted, not permitted
}

struct StatusReport {
  code @0 :UInt32;  # 1: frames were lost; 2: not all of a request was permitted
  text @1 :Text;
}

struct HeartbeatRequest {
  sequence @0 :UInt64;
  # The sender asks again within so many milliseconds. 0: it does not say.
  nextMs @1 :UInt32;
}

struct HeartbeatReply {
  echo @0 :UInt64;
}

struct Reset {                   # the sender ends the session after the reply; both start over
  code @0 :UInt32;
  text @1 :Text;
}
