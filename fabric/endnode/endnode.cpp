#include "fabric/endnode/endnode.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/check.h"
#include "common/os/errno_text.h"
#include "common/os/runtime_directory.h"
#include "fabric/endnode/counter_files.h"

namespace splitnic::fabric {
namespace {

constexpr Duration kFirstWait = std::chrono::milliseconds(2);
constexpr Duration kLongestRetry = std::chrono::milliseconds(250);
/// Calls and knocks that one poll() takes.
constexpr std::size_t kTakenAtOnce = 64;

std::string socket_path(const std::string& directory, LocalId id) { return fmt::format("{}/{}", directory, id.value); }
std::string knock_path(const std::string& directory, LocalId id) { return socket_path(directory, id) + ".knock"; }

/// "17", "17.knock": 17. nullopt: not a file of an endnode.
std::optional<LocalId> parse_id(std::string_view name) {
  std::uint16_t value = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
  const std::string_view rest(end, static_cast<std::size_t>(name.data() + name.size() - end));
  if (error != std::errc() || value == 0 || value > kMaxLocalId || (!rest.empty() && rest != ".knock"))
    return std::nullopt;
  return LocalId{value};
}

void remove_sockets(const std::string& directory, LocalId id) {
  ::unlink(socket_path(directory, id).c_str());
  ::unlink(knock_path(directory, id).c_str());
}

/// Endnodes that were killed leave their sockets, and what they have counted.
void remove_left_over(const std::string& directory, const std::string& own, LocalIds& ids) {
  for (const std::string& folder : {directory, endnodes_folder(own)}) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const auto id = parse_id(entry->path().filename().string());
      if (!id || !ids.take(*id)) continue;
      remove_sockets(directory, *id);
      remove_counter_files(own, *id);
      ids.give_back(*id);
    }
  }
}

ShmListenOptions listen_options(const EndnodeOptions& options, LocalId id) {
  ShmListenOptions listen;
  listen.path = socket_path(options.directory, id);
  listen.window_bytes = options.window_bytes;
  listen.prefault_bytes = options.window_bytes / kShmRingsShare;  // programs register memory of their own
  // Peers belong to one user, or to members of a group who trust each other. Their programs come and go as they like.
  listen.limits = {.places = options.max_peers, .places_per_user = options.max_peers, .pause_min = {}, .pause_max = {}};
  listen.purposes = {ShmPurpose::endnode};
  struct stat folder {};
  if (os::others_can_reach(listen.path) && ::stat(options.directory.c_str(), &folder) == 0) {
    listen.allow_gids = {folder.st_gid};
  }
  return listen;
}

/// An event of its descriptor may be late: meant for a process whose ID another one has taken since.
bool has_ended(const os::UniqueFd& process) {
  pollfd one{process.get(), POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

std::uint64_t tag_of(std::uint8_t source, LocalId peer) { return std::uint64_t{source} << 32U | peer.value; }

}  // namespace

Result<std::unique_ptr<Endnode>> Endnode::open(EndnodeOptions options, RandomSource& random) {
  // A shorter ID might fit where the next one does not.
  const std::string longest = knock_path(options.directory, LocalId{kMaxLocalId});
  if (auto fits = os::check_socket_path(longest); !fits) return tl::unexpected(fits.error());
  auto ids = LocalIds::open(options.directory);
  if (!ids) return tl::unexpected(ids.error());
  if (options.own_directory.empty()) options.own_directory = options.directory;
  remove_left_over(options.directory, options.own_directory, **ids);
  const auto id = (*ids)->take(random);
  if (!id) return fail("{}: all {} local IDs are taken", options.directory, kMaxLocalId);
  HeldId held(*ids, *id);
  // Only the holder of an ID has sockets for it, so what is there was left over.
  remove_sockets(options.directory, *id);
  auto knock = Knock::listen(knock_path(options.directory, *id), *id);
  if (!knock) return tl::unexpected(knock.error());
  auto listener = ShmListener::listen(listen_options(options, *id));
  if (!listener) return tl::unexpected(listener.error());
  auto doorman = DoormanThread::start(std::move(*listener));
  if (!doorman) return tl::unexpected(doorman.error());
  os::UniqueFd events(epoll_create1(EPOLL_CLOEXEC));
  if (!events) return fail("cannot open an endnode: {}", os::errno_text());
  std::unique_ptr<Endnode> endnode(
      new Endnode(std::move(options), std::move(held), std::move(*doorman), std::move(*knock), std::move(events)));
  if (!endnode->watch(endnode->doorman_->descriptor(), Source::doorman) ||
      !endnode->watch(endnode->knock_.descriptor(), Source::knock)) {
    return fail("cannot open an endnode: {}", os::errno_text());
  }
  return endnode;
}

Endnode::Endnode(EndnodeOptions options, HeldId held, std::unique_ptr<Doorman> doorman, Knock knock,
                 os::UniqueFd events)
    : options_(std::move(options)),
      held_(std::move(held)),
      events_(std::move(events)),
      doorman_(std::move(doorman)),
      knock_(std::move(knock)) {}

bool Endnode::watch(int descriptor, Source source, LocalId peer) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag_of(static_cast<std::uint8_t>(source), peer);
  return epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

/// Before each close: a forked child may hold a copy of the descriptor, and then closing alone does not end the watch.
void Endnode::unwatch(int descriptor) { epoll_ctl(events_.get(), EPOLL_CTL_DEL, descriptor, nullptr); }

bool Endnode::reach(LocalId id, Time now) {
  SPLITNIC_CHECK(id != local_id());
  const auto found = peers_.find(id);
  if (found == peers_.end() && peers_.size() >= options_.max_peers) return false;
  Peer& peer = peers_[id];
  if (peer.wanted || in_use(peer)) return true;
  end_bridge(id, peer);
  peer.wanted = true;
  peer.try_at = now;
  peer.wait = kFirstWait;
  work_on(id, peer, now);
  return true;
}

void Endnode::forget(LocalId id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  end_bridge(id, found->second);
  if (found->second.call) unwatch(found->second.call->descriptor());
  peers_.erase(found);
}

bool Endnode::has_bridge(LocalId id) const {
  const auto found = peers_.find(id);
  return found != peers_.end() && in_use(found->second);
}

bool Endnode::in_use(const Peer& peer) {
  const auto bridge = peer.bridge.lock();
  return peer.bridged && bridge && bridge->link() == LinkState::up;
}

/// The bridge is not handed out any more, or of no more use.
void Endnode::end_bridge(LocalId id, Peer& peer) {
  if (!peer.bridged) return;
  if (peer.process) unwatch(peer.process.get());
  peer.process.reset();
  peer.bridged = false;
  peer.bridge.reset();
  peer.unseen = false;
  std::erase_if(changes_, [id](const EndnodeChange& change) { return change.peer == id && change.bridge; });
}

std::optional<EndnodeChange> Endnode::poll(Time now) {
  if (changes_.empty()) take_events(now);
  if (changes_.empty()) return std::nullopt;
  EndnodeChange next = std::move(changes_.front());
  changes_.pop_front();
  return next;
}

void Endnode::take_events(Time now) {
  std::array<epoll_event, 16> events{};
  const int count = epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int index = 0; index < count; ++index) {
    const std::uint64_t tag = events[static_cast<std::size_t>(index)].data.u64;
    const LocalId id{static_cast<std::uint16_t>(tag)};
    switch (static_cast<Source>(tag >> 32U)) {
      case Source::doorman:
        take_calls(now);
        break;
      case Source::knock:
        take_knocks(now);
        break;
      case Source::call:
        break;  // below
      case Source::process:
        if (const auto found = peers_.find(id);
            found != peers_.end() && found->second.process && has_ended(found->second.process)) {
          ++counters_.peers_died;
          end_bridge(id, found->second);
          changes_.push_back({id, nullptr});
        }
        break;
    }
  }
  for (auto next = peers_.begin(); next != peers_.end();) {
    const auto current = next++;
    work_on(current->first, current->second, now);
    const Peer& peer = current->second;
    if (!peer.wanted && !peer.asked_for && !peer.call && !peer.bridged) peers_.erase(current);
  }
}

/// Bridges that lower IDs have made.
void Endnode::take_calls(Time now) {
  for (std::size_t taken = 0; taken < kTakenAtOnce; ++taken) {
    auto accepted = doorman_->take();
    if (!accepted) return;
    const auto id = parse_id(accepted->name);
    if (!id || *id >= local_id() || !is_process_of(*id, accepted->bridge->peer()) ||
        !adopt(*id, std::move(accepted->bridge), now)) {
      ++counters_.refused_bridges;
    }
  }
}

void Endnode::take_knocks(Time now) {
  for (std::size_t taken = 0; taken < kTakenAtOnce; ++taken) {
    LocalId from{};
    const auto heard = knock_.hear(from);
    if (heard == Knock::Heard::nothing) return;
    const bool known = heard == Knock::Heard::knock && peers_.contains(from);
    if (heard == Knock::Heard::garbage || from <= local_id() || !ids()->holder(from) ||
        (!known && peers_.size() >= options_.max_peers)) {
      ++counters_.refused_knocks;
      continue;
    }
    ++counters_.knocks;
    Peer& peer = peers_[from];
    // Knocks are repeated until the bridge is there, so one may be late.
    if (peer.call || in_use(peer)) continue;
    if (peer.bridged) {
      end_bridge(from, peer);
      changes_.push_back({from, nullptr});
    }
    peer.asked_for = true;
    peer.try_at = now;
    peer.wait = kFirstWait;
  }
}

void Endnode::work_on(LocalId id, Peer& peer, Time now) {
  if (peer.bridged) {
    if (!peer.unseen || now < peer.try_at) return;
    peer.try_at = now + kWatchInterval;
    if (ids()->holder(id)) return;
    ++counters_.peers_died;
    end_bridge(id, peer);
    changes_.push_back({id, nullptr});
    return;
  }
  if (peer.call) {
    finish_call(id, peer, now);
  } else if ((peer.wanted || peer.asked_for) && now >= peer.try_at) {
    start(id, peer, now);
  }
}

void Endnode::retry(Peer& peer, Time now) {
  peer.asked_for = false;  // it will knock again
  peer.try_at = now + peer.wait;
  peer.wait = std::min(2 * peer.wait, kLongestRetry);
}

/// Calls a peer with a higher ID; asks one with a lower ID to call.
void Endnode::start(LocalId id, Peer& peer, Time now) {
  if (!ids()->holder(id)) {
    retry(peer, now);
    return;
  }
  if (id < local_id()) {
    static_cast<void>(knock_.send(knock_path(options_.directory, id)));
    retry(peer, now);
    return;
  }
  auto call = ShmConnector::start({.path = socket_path(options_.directory, id),
                                   .purpose = ShmPurpose::endnode,
                                   .name = fmt::format("{}", local_id().value),
                                   .closes_elsewhere = true},
                                  now);
  if (!call || !watch((*call)->descriptor(), Source::call, id)) {
    retry(peer, now);
    return;
  }
  peer.call = std::move(*call);
  finish_call(id, peer, now);
}

void Endnode::finish_call(LocalId id, Peer& peer, Time now) {
  auto outcome = peer.call->poll(now);
  if (!outcome) return;
  unwatch(peer.call->descriptor());
  peer.call.reset();
  if (!*outcome) {
    retry(peer, now);
    return;
  }
  if (is_process_of(id, (**outcome)->peer()) && adopt(id, std::move(**outcome), now)) return;
  ++counters_.refused_bridges;
  retry(peer, now);
}

/// The process exists, and holds the ID. pid 0: it is in another PID namespace, where the kernel names no holder
/// either.
bool Endnode::is_process_of(LocalId id, const std::optional<BridgePeer>& process) const {
  const auto holder = ids()->holder(id);
  return process && holder && holder->pid == process->pid;
}

/// False: the peer has died meanwhile, or there are too many.
bool Endnode::adopt(LocalId id, std::shared_ptr<Bridge> bridge, Time now) {
  const auto found = peers_.find(id);
  if (found == peers_.end() && peers_.size() >= options_.max_peers) return false;
  const auto process = bridge->peer();
  os::UniqueFd watched;
  if (process->pid != 0 && process->pid != ::getpid()) {
    watched = os::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, process->pid, 0)));
    // Look again: what the descriptor means now is the process that holds the ID.
    if (!watched || !is_process_of(id, process) || !watch(watched.get(), Source::process, id)) return false;
  }
  Peer& peer = peers_[id];
  if (peer.bridged) {
    // The peer has given its end up, or there was another process under this ID.
    end_bridge(id, peer);
    changes_.push_back({id, nullptr});
  }
  if (peer.call) unwatch(peer.call->descriptor());
  peer.call.reset();
  peer.wanted = false;
  peer.asked_for = false;
  peer.bridged = true;
  peer.bridge = bridge;
  peer.unseen = process->pid == 0;
  peer.process = std::move(watched);
  peer.try_at = now + kWatchInterval;
  ++counters_.bridges_made;
  changes_.push_back({id, std::move(bridge)});
  return true;
}

Time Endnode::next_deadline() const {
  if (!changes_.empty()) return Time{};
  Time next = kNever;
  for (const auto& [id, peer] : peers_) {
    if (peer.call) {
      next = std::min(next, peer.call->next_deadline());
    } else if (peer.bridged ? peer.unseen : peer.wanted || peer.asked_for) {
      next = std::min(next, peer.try_at);
    }
  }
  return next;
}

}  // namespace splitnic::fabric
