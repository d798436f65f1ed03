#include "fabric/placement/local_placements.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/uncancelled.h"
#include "fabric/bridge/full_fence.h"
#include "fabric/placement/shared_file.h"

namespace splitnic::fabric {
namespace {

// The peer makes its board before it has bridges, or a moment later.
constexpr unsigned kTries = 3;
constexpr std::size_t kWantedAtMost = 64;
// A peer whose bridge has gone is dead, or about to end what it is at.
constexpr Duration kLostWithin = std::chrono::milliseconds(10);

/// The peer is not at work in the memory of the endnode any more, as far as it was when this was called. False: it
/// still is.
bool await_quiet_peer(const PeerBoard& peer, std::uint16_t local_id, Time until) {
  full_fence();  // pairs with Board::enter()
  const std::uint64_t ended = peer.work_ended();
  while (peer.is_busy_with(local_id) && peer.work_ended() == ended && !peer.ended()) {
    if (monotonic_now() > until) return false;
    sched_yield();
  }
  return true;
}

}  // namespace

LocalPlacements::~LocalPlacements() { stop(); }

Result<void> LocalPlacements::start(SharedAdapter& adapter, std::uint16_t local_id, RandomSource& random,
                                    std::function<std::uint16_t(PathNumber)> peer_of) {
  if (reach_ == PlacementReach::none) return {};
  auto board = Board::create(local_id, reach_ == PlacementReach::process, random);
  if (!board) return tl::unexpected(board.error());
  wake_ = os::UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_) return fail("no descriptor for placements: {}", os::errno_text());
  auto watch = adapter.watch(wake_.get(), [this] { prepare_wanted(); });
  if (!watch) return tl::unexpected(watch.error());
  watch_ = *watch;
  adapter_ = &adapter;
  local_id_ = local_id;
  peer_of_ = std::move(peer_of);
  board_ = std::move(*board);
  adapter.use([&](ChannelAdapter&) {
    wanted_.reserve(kWantedAtMost);
    stopped_ = false;
  });
  return {};
}

void LocalPlacements::stop() {
  if (adapter_ == nullptr) return;
  static_cast<void>(adapter_->unwatch(watch_));
  std::vector<Peer> ended;
  adapter_->use([&](ChannelAdapter&) {
    stopped_ = true;
    ended.swap(peers_);
  });
  board_->clear();
  static_cast<void>(await_quiet());
  adapter_ = nullptr;
}

void LocalPlacements::reached(PathNumber path, std::uint16_t peer, const std::optional<BridgePeer>& process) {
  if (adapter_ == nullptr || !process || process->pid <= 0 || process->uid != geteuid()) return;
  adapter_->use([&](ChannelAdapter&) {
    if (peers_.size() <= path.value) peers_.resize(path.value + 1);
    peers_[path.value] = {peer, process->pid, kTries, nullptr};
  });
  find_board(path);
}

void LocalPlacements::find_board(PathNumber path) {
  Peer peer;
  adapter_->use([&](ChannelAdapter&) {
    Peer* at = peer_at(path);
    if (at == nullptr || at->tries == 0 || at->board != nullptr) return;
    --at->tries;
    peer = *at;
  });
  if (peer.process == 0) return;
  peer.board = PeerBoard::open(peer.process, peer.local_id, reach_ == PlacementReach::process);
  if (peer.board == nullptr) return;
  {
    const std::lock_guard guard(lock_);
    boards_.push_back(peer.board);
  }
  // From now on the peer may be at work here: its `busy` is looked at.
  board_->admit_peer(peer.local_id, peer.board->identity());
  const bool still_there = adapter_->use([&](ChannelAdapter&) {
    Peer* at = peer_at(path);
    const bool same = at != nullptr && at->process == peer.process && at->local_id == peer.local_id;
    if (same) at->board = peer.board;
    return same;
  });
  if (!still_there) forget(peer);
}

void LocalPlacements::lost(PathNumber path) {
  if (adapter_ == nullptr) return;
  Peer peer;
  adapter_->use([&](ChannelAdapter&) {
    if (Peer* at = peer_at(path)) peer = std::exchange(*at, Peer{});
  });
  if (peer.board != nullptr) forget(peer);
}

void LocalPlacements::forget(const Peer& peer) {
  board_->admit_peer(peer.local_id, 0);
  static_cast<void>(await_quiet_peer(*peer.board, local_id_, monotonic_now() + kLostWithin));
  peer.board->end();
  const std::lock_guard guard(lock_);
  std::erase(boards_, peer.board);
}

void LocalPlacements::publish(const PublishedRegion& region) {
  const bool remote = region.rights.has(Right::remote_read) || region.rights.has(Right::remote_write);
  if (adapter_ == nullptr || !remote || region.memory.empty()) return;
  BoardRegion about{};
  about.tag = region.tag.value;
  about.base = region.base;
  about.length = region.memory.size();
  about.domain = region.domain.value;
  about.rights = region.rights.bits;
  const auto file = region.may_move ? std::nullopt : shared_file_behind(region.memory);
  const std::lock_guard guard(lock_);
  const SharedDescriptor descriptor = file ? descriptor_of(*file) : nullptr;
  if (descriptor != nullptr) {
    about.memory = BoardMemory::file;
    about.descriptor = static_cast<std::uint32_t>(descriptor->get());
    about.device = file->device;
    about.inode = file->inode;
    about.place = file->offset;
  } else if (reach_ == PlacementReach::process && region.memory.data() != nullptr) {
    about.memory = BoardMemory::process;
    about.place = reinterpret_cast<std::uintptr_t>(region.memory.data());
  } else {
    return;
  }
  if (board_->publish(about) && descriptor != nullptr) files_[about.tag] = descriptor;
}

/// Regions of one file share it. Under lock_. Null: there is none.
LocalPlacements::SharedDescriptor LocalPlacements::descriptor_of(const SharedFile& file) {
  std::erase_if(known_files_, [](const auto& known) { return known.second.expired(); });
  auto& known = known_files_[{file.device, file.inode}];
  if (auto descriptor = known.lock()) return descriptor;
  auto opened = open_shared_file(file);
  if (!opened) return nullptr;
  auto descriptor = std::make_shared<const os::UniqueFd>(std::move(opened));
  known = descriptor;
  return descriptor;
}

bool LocalPlacements::revoke(Stag tag) {
  if (adapter_ == nullptr) return true;
  const bool shown = board_->revoke(tag);
  const auto outlasted = [&] {
    const std::lock_guard guard(lock_);
    return unquiet_.contains(tag.value);
  };
  if (!shown && !outlasted()) return true;  // no peer has ever seen it
  const bool quiet = await_quiet();
  const std::lock_guard guard(lock_);
  if (quiet) {
    unquiet_.erase(tag.value);
    files_.erase(tag.value);
  } else {
    unquiet_.insert(tag.value);
  }
  return quiet;
}

void LocalPlacements::settle(QpNumber number, bool gone) {
  if (adapter_ == nullptr) return;
  for (;;) {
    std::optional<BoardAccess> access;
    adapter_->use([&](ChannelAdapter&) {
      const auto found = std::ranges::find(unsettled_, number, &BoardAccess::queue_pair);
      if (found == unsettled_.end()) return;
      access = *found;
      unsettled_.erase(found);
    });
    if (!access) return;
    if (await_quiet(access->peer) || gone) continue;
    return adapter_->use([&](ChannelAdapter&) { note_unsettled(access); });
  }
}

bool LocalPlacements::await_quiet(std::optional<std::uint16_t> peer) {
  std::vector<std::shared_ptr<PeerBoard>> boards;
  {
    const std::lock_guard guard(lock_);
    boards = boards_;
  }
  const Time until = monotonic_now() + kQuietWithin;
  return std::ranges::all_of(boards, [&](const auto& board) {
    return (peer && board->local_id() != *peer) || await_quiet_peer(*board, local_id_, until);
  });
}

/// Under the adapter's lock.
void LocalPlacements::note_unsettled(const std::optional<BoardAccess>& access) {
  if (access && std::ranges::find(unsettled_, *access) == unsettled_.end()) unsettled_.push_back(*access);
}

void LocalPlacements::admit(const PlacementUser& user) {
  if (!stopped_) note_unsettled(board_->connect(user, peer_of_(user.path)));
}

void LocalPlacements::dismiss(QpNumber number) {
  if (!stopped_) note_unsettled(board_->disconnect(number));
}

void LocalPlacements::want(const Wanted& what) {
  if (wanted_.size() == kWantedAtMost || std::ranges::find(wanted_, what) != wanted_.end()) return;
  wanted_.push_back(what);
  const os::Uncancelled whole;
  if (wanted_.size() == 1) eventfd_write(wake_.get(), 1);
}

const PlacedRegion* LocalPlacements::find(Peer& peer, const PlacementTarget& target, Right right) {
  if (peer.board == nullptr) {
    if (peer.tries != 0) want({target.path, 0});
    return nullptr;
  }
  std::optional<std::size_t> wanted;
  const PlacedRegion* region = peer.board->find(target.remote.tag, wanted);
  if (wanted) want({target.path, *wanted});
  return region != nullptr && region->allows(target, right) ? region : nullptr;
}

/// On the progress thread: opens and maps what requests have asked for.
void LocalPlacements::prepare_wanted() {
  eventfd_t wakes = 0;
  eventfd_read(wake_.get(), &wakes);
  std::vector<Wanted> wanted;
  wanted.reserve(kWantedAtMost);
  adapter_->use([&](ChannelAdapter&) { wanted = wanted_; });
  for (const Wanted& what : wanted) {
    if (what.at == 0) {
      find_board(what.path);
      continue;
    }
    std::shared_ptr<PeerBoard> board;
    adapter_->use([&](ChannelAdapter&) {
      if (const Peer* peer = peer_at(what.path)) board = peer->board;
    });
    if (board == nullptr) continue;
    PlacedRegion region = board->prepare(what.at);
    std::vector<PlacedRegion> ended;  // unmapped without the lock
    adapter_->use([&](ChannelAdapter&) { ended = board->install(std::move(region)); });
  }
  const bool more = adapter_->use([&](ChannelAdapter&) {
    wanted_.erase(wanted_.begin(), wanted_.begin() + static_cast<std::ptrdiff_t>(wanted.size()));
    return !wanted_.empty();
  });
  if (more) eventfd_write(wake_.get(), 1);
}

template <class Move>
bool LocalPlacements::move(const PlacementTarget& target, Right right, Move&& copy) {
  Peer* peer = peer_at(target.path);
  if (peer == nullptr) return false;
  const PlacedRegion* region = find(*peer, target, right);
  if (region == nullptr) return false;
  board_->enter(peer->local_id);
  const bool moved =
      peer->board->admits(target, *region, right, local_id_, board_->identity()) && copy(*peer->board, *region);
  board_->leave();
  return moved;
}

bool LocalPlacements::offers(const PlacementTarget& target) {
  Peer* peer = peer_at(target.path);
  return peer != nullptr &&
         (find(*peer, target, Right::remote_write) != nullptr || find(*peer, target, Right::remote_read) != nullptr);
}

bool LocalPlacements::write(const PlacementTarget& target, std::span<const iovec> from) {
  return move(target, Right::remote_write,
              [&](const PeerBoard& peer, const PlacedRegion& region) { return peer.store(target, region, from); });
}

bool LocalPlacements::read(const PlacementTarget& target, std::span<const iovec> to) {
  return move(target, Right::remote_read,
              [&](const PeerBoard& peer, const PlacedRegion& region) { return peer.load(target, region, to); });
}

}  // namespace splitnic::fabric
