#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/ids.h"
#include "fabric/link/record_ring.h"
#include "fabric/link/udp_wire.h"

namespace splitnic::fabric {

/// Takes datagrams for one peer: a socket, or a test's network.
class DatagramSink {
 public:
  virtual ~DatagramSink() = default;
  /// False: no room now, and the datagram has not left; the caller may offer it again. What leaves may still be lost.
  [[nodiscard]] virtual bool send(std::span<const std::byte> datagram) = 0;
};

struct UdpOptions {
  PortAddress port_address{};
  /// Bytes of records that this end stores for its owner, by lane; at least datagram_bytes.
  std::array<std::uint32_t, kLanes> window_bytes{64U << 10U, 256U << 10U};
  /// The largest datagram that this end sends and takes, kUdpMinDatagram .. kUdpMaxDatagram; 1472 fits Ethernet.
  std::uint32_t datagram_bytes = 1472;
  /// How often an end repeats a hello that was not answered.
  Duration hello_again = std::chrono::milliseconds(50);
  /// An end that has sent nothing for this time sends an empty datagram.
  Duration keep_alive = std::chrono::milliseconds(250);
  /// A peer that was not heard for this time is gone.
  Duration silence = std::chrono::seconds(2);
  /// How often an end without room in a lane asks for more; the peer's grant may have been lost.
  Duration ask_again = std::chrono::milliseconds(5);
};

/// By name: see describe() in udp_peer.cpp and docs/protocol.md.
struct UdpCounters {
  std::uint64_t datagrams_sent = 0;
  std::uint64_t datagrams_received = 0;  ///< that were of use
  std::uint64_t hellos_answered = 0;
  std::uint64_t peers_new = 0;     ///< incarnations of the peer
  std::uint64_t peers_silent = 0;  ///< were not heard for too long
  std::uint64_t asked_for_room = 0;
  std::array<std::uint64_t, kUdpFaults> dropped_malformed{};  ///< by UdpFault
  std::uint64_t dropped_wrong_key = 0;                        ///< forged, or of an incarnation that is over
  std::uint64_t dropped_wrong_epochs = 0;
  std::uint64_t dropped_wrong_peer = 0;     ///< a hello with the present key, but of another peer than the present one
  std::uint64_t dropped_reflected = 0;      ///< a hello of this end's own
  std::uint64_t dropped_hello_limit = 0;    ///< hellos that came too fast to be answered
  std::uint64_t dropped_too_long = 0;       ///< more than this end said that it takes
  std::uint64_t dropped_beyond_window = 0;  ///< more than was granted
  std::uint64_t dropped_no_room = 0;        ///< duplicates that came when the buffer was full
  friend bool operator==(const UdpCounters&, const UdpCounters&) = default;
};
struct NamedCounter {
  const char* name;
  std::uint64_t value;
};
/// Every counter with its name; one per UdpFault.
[[nodiscard]] std::vector<NamedCounter> describe(const UdpCounters& counters);

/// One end of a link over datagrams that may be lost, duplicated, reordered, damaged or forged. It has no socket: its
/// owner gives it the datagrams from the peer's address, and a sink. Every record that arrives was sent by the peer in
/// this incarnation. A record may arrive twice, late or never, and this class repairs nothing. Thread: the owner.
///
/// Set-up. Each end has an offer, a random key and epoch that nobody uses yet:
///
///     not up                      every 50 ms: hello(receiver key 0, own offer)
///     hello with receiver key 0   changes nothing; the answer is hello(its sender's key, own offer), or, if the sender
///                                 is the present peer, the key and epoch that this peer is to use
///     hello with the offer's key  its sender receives what is sent to the peer's address: up. The offer becomes the
///                                 own key and epoch, a new offer is drawn, queues start empty; sends hello(the peer's
///                                 key, own key), repeated until a datagram with data comes
///
/// So a forged hello, or one that was on its way for long, never ends an incarnation; a peer that has restarted ends it
/// at once. Source: DTLS's and TCP's cookies (RFC 6347 section 4.2.1, RFC 4987 section 3.6) for the two steps.
class UdpPeer {
 public:
  /// sink: lent.
  UdpPeer(DatagramSink& sink, const UdpOptions& options, RandomSource& random);

  /// Offers the peer no more than this in both lanes together, in the proportions of the options: what the socket keeps
  /// for this peer. At least kLeastWindow or a datagram in each lane, if the options have as much. What was granted
  /// before stays granted.
  void limit_windows(std::uint64_t bytes);
  /// Several datagrams, so that they need not be sent one by one.
  static constexpr std::uint32_t kLeastWindow = 16U << 10U;
  /// Voids the present incarnation and begins anew. Call at start-up too.
  void restart();
  /// A datagram from the peer's address; malformed and forged ones are counted and change nothing.
  void take(std::span<const std::byte> datagram, Time now);
  /// Hellos, keep-alives, silence. Returns 1 if up() or the incarnation changed since the last call, else 0.
  std::size_t poll(Time now);
  [[nodiscard]] Time next_deadline() const;

  [[nodiscard]] bool up() const { return up_; }
  /// Counts transitions to up.
  [[nodiscard]] std::uint64_t incarnation() const { return incarnation_; }
  [[nodiscard]] PortAddress port_address() const { return options_.port_address; }
  [[nodiscard]] PortAddress peer_port_address() const { return peer_.port_address; }
  [[nodiscard]] const UdpCounters& counters() const { return counters_; }

  // While up only.

  /// Of a record, the same in one incarnation.
  [[nodiscard]] std::size_t max_record_bytes() const;
  /// A place for a record of so many bytes, in the datagram under construction; empty: no room now. kUdpMinRecord ..
  /// max_record_bytes(). Good until the next call; a claim that is not released is forgotten.
  [[nodiscard]] std::span<std::byte> claim(VirtualLane lane, std::size_t bytes);
  /// Takes what was claimed, its first `bytes` bytes.
  void release(VirtualLane lane, std::size_t bytes);
  /// The last claim() of the lane found no room.
  [[nodiscard]] bool wants_room(VirtualLane lane) const { return out(lane).wants_room; }
  /// The peer has granted more since then, and since the last call that said so.
  [[nodiscard]] bool room_again(VirtualLane lane) {
    Out& of = out(lane);
    return of.wants_room && std::exchange(of.granted_known, of.granted) != of.granted;
  }
  /// Sends the datagrams under construction, and what the peer waits for. False: the sink had no room for all of it.
  bool flush();
  /// Nothing waits to be sent.
  [[nodiscard]] bool drained(VirtualLane lane) const { return out(lane).used == sizeof(UdpDataBytes); }

  /// The oldest record; empty: there is none. Good until pop().
  [[nodiscard]] std::span<std::byte> front(VirtualLane lane);
  void pop(VirtualLane lane);

 private:
  struct Identity {
    UdpKey key{};
    Epoch epoch{};
    std::array<std::uint32_t, kLanes> windows{};  // as its first hello said; 0: it was not said yet
  };
  struct Out {
    std::vector<std::byte> datagram;
    std::size_t used = sizeof(UdpDataBytes);
    std::uint64_t position = 0;  // of the first record in the datagram
    std::uint64_t granted = 0;
    std::uint64_t granted_known = 0;  // when claim() last found no room, or room_again() last answered
    bool wants_room = false;
    Time ask_next = kNever;
  };
  struct In {
    RecordRing runs;
    std::span<std::byte> rest{};  // of the oldest run, from the oldest record on
    std::uint64_t seen = 0;       // the position behind the last record that was sent, as far as it is known
    std::uint64_t granted = 0;    // the last grant sent to the peer
  };

  [[nodiscard]] Out& out(VirtualLane lane) { return out_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] const Out& out(VirtualLane lane) const { return out_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] In& in(VirtualLane lane) { return in_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] Identity draw();
  void void_incarnation();
  void take_hello(const UdpHello& hello);
  void take_data(const UdpData& data);
  [[nodiscard]] bool store(const UdpData& data);
  void answer(const UdpHello& hello, Identity& as);
  void accept(const UdpHello& hello);
  void say_hello(UdpKey receiver, Identity& as);
  [[nodiscard]] std::uint64_t grantable(std::size_t lane) const;
  [[nodiscard]] bool grant_is_due() const;
  [[nodiscard]] bool send_datagram(VirtualLane lane, bool ask);
  void ask_for_room();

  DatagramSink& sink_;
  UdpOptions options_;
  std::array<std::uint32_t, kLanes> windows_;  // that are offered, at most the options'
  RandomSource& random_;
  UdpCounters counters_{};
  Identity offer_{};
  Identity own_{};  // while up
  UdpHello peer_{};
  std::uint32_t epochs_out_ = 0;
  std::uint32_t epochs_in_ = 0;
  std::size_t datagram_bytes_ = 0;  // that both ends take
  std::array<Out, kLanes> out_{};
  std::array<In, kLanes> in_{};
  std::uint64_t incarnation_ = 0;
  bool up_ = false;
  bool confirmed_ = false;  // the peer has sent data in this incarnation
  bool owes_answer_ = false;
  bool changed_ = false;
  Time now_{};
  Time up_since_{};
  Time heard_{};
  Time sent_{};
  Time hello_next_{};
  Time answer_next_{};
};

}  // namespace splitnic::fabric
