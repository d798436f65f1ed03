// Attacks by a host that is up: frames, how it treats the frames that it gets, its memory and its doorbells.
#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/hostile_host/ends.h"

namespace splitnic::hostile {

namespace {

using std::chrono::milliseconds;

void send_honestly(Target& target, Counts& counts) {
  flood(target, counts, [](HostEnd& end) { return frame_of(kNobody, end.mac(), 1514); });
}
void send_small(Target& target, Counts& counts) {
  flood(target, counts, [](HostEnd& end) { return frame_of(kNobody, end.mac(), 60); });
}
void send_to_all(Target& target, Counts& counts) {
  flood(target, counts, [](HostEnd& end) { return frame_of(kBroadcastMac, end.mac(), 1514); });
}
/// All nodes (IPv6) and all hosts (IPv4): every Linux interface has joined them.
constexpr MacAddress kJoinedGroups[] = {{{0x33, 0x33, 0, 0, 0, 1}}, {{0x01, 0x00, 0x5e, 0, 0, 1}}};

void send_to_groups(Target& target, Counts& counts) {
  flood(target, counts, [&](HostEnd& end) {
    return frame_of(kJoinedGroups[target.random.below(std::size(kJoinedGroups))], end.mac(), 1514);
  });
}
void send_to_itself(Target& target, Counts& counts) {
  flood(target, counts, [](HostEnd& end) { return frame_of(end.mac(), end.mac(), 60); });
}
void send_to_victim(Target& target, Counts& counts) {
  flood(target, counts, [&](HostEnd& end) { return frame_of(stable_mac_for(target.victim), end.mac(), 1514); });
}
void pretend(Target& target, Counts& counts) {
  flood(target, counts, [&](HostEnd&) {
    return frame_of(kBroadcastMac, target.random.below(2) == 0 ? stable_mac_for(target.victim) : kNobody, 60);
  });
}
/// To the groups of the spanning tree, of pauses, LACP and others between neighbours on one link.
void send_to_the_switch(Target& target, Counts& counts) {
  std::uint8_t group = 0;
  flood(target, counts, [&](HostEnd& end) {
    return frame_of({{0x01, 0x80, 0xc2, 0, 0, static_cast<std::uint8_t>(group++ & 0xfU)}}, end.mac(), 60);
  });
}
void send_tags_and_stumps(Target& target, Counts& counts) {
  flood(target, counts, [&](HostEnd& end) {
    std::vector<std::uint16_t> tags(target.random.below(6));
    for (auto& tag : tags) tag = static_cast<std::uint16_t>(target.random.next());
    auto frame = frame_of(kNobody, end.mac(), 60, tags);
    frame.resize(14 + target.random.below(50));
    return frame;
  });
}

void send_bad_headers(Target& target, Counts& counts) {
  auto& frames = counts["frames"];
  const auto act = [&](HostEnd& end) {
    const auto any = [&] { return static_cast<std::uint16_t>(target.random.next()); };
    frame::FrameOffload offload{.partial_checksum = target.random.below(2) == 0,
                                .checksum_start = any(),
                                .checksum_offset = any(),
                                .kind = static_cast<frame::SegmentKind>(target.random.below(4)),
                                .segment_bytes = static_cast<std::uint16_t>(1 + target.random.below(8)),
                                .header_bytes = any()};
    auto frame = frame_of(kNobody, end.mac(), 1514);
    frame[12] = std::byte{0x08};
    frame[13] = std::byte{0x00};
    for (std::size_t at = 14; at < 60; ++at) frame[at] = static_cast<std::byte>(target.random.next());
    frames += end.send_all(frame, offload);
  };
  while_up(target, counts, act, true);
}

void read_slowly(Target& target, Counts& counts) {
  auto& polls = counts["polls"];
  while_up(target, counts, [&](HostEnd& end) {
    end.send_all(frame_of(kBroadcastMac, end.mac(), 60));
    target.be_idle(milliseconds(20));
    ++polls;
  });
}

void stop_reading(Target& target, Counts& counts) {
  auto& stalls = counts["stalls"];
  while_up(target, counts, [&](HostEnd& end) {
    end.send_all(frame_of(stable_mac_for(target.victim), end.mac(), 60));
    target.be_idle(milliseconds(500));
    ++stalls;
  });
}

void ring(Target& target, Counts& counts) {
  auto& rings = counts["doorbells"];
  while_up(target, counts, [&](HostEnd& end) {
    for (unsigned time = 0; time < 256; ++time) end.bridge().ring();
    rings += 256;
  });
}

/// The shared memory of this process's bridges.
std::vector<std::span<std::byte>> bridge_mappings() {
  std::vector<std::span<std::byte>> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("splitnic-bridge") == std::string::npos) continue;
    const auto dash = line.find('-');
    const auto start = std::stoull(line.substr(0, dash), nullptr, 16);
    const auto end = std::stoull(line.substr(dash + 1), nullptr, 16);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel's own numbers
    found.emplace_back(reinterpret_cast<std::byte*>(start), end - start);
  }
  return found;
}

/// Takes the memory away under the unit's hands, all of it behind the first page, and goes on.
void punch_holes(Target& target, Counts& counts) {
  auto& holes = counts["holes"];
  auto& frames = counts["frames"];
  constexpr std::size_t kPage = 4096;
  while_up(target, counts, [&](HostEnd& end) {
    frames += end.send_all(frame_of(kNobody, end.mac(), 1514));
    for (const auto memory : bridge_mappings()) {
      const std::size_t first = (1 + target.random.below(memory.size() / kPage / 2)) * kPage;
      holes += madvise(memory.data() + first, memory.size() - first, MADV_REMOVE) == 0 ? 1 : 0;
    }
  });
}

/// Shortens the files of its shared memory, which are sealed.
void truncate(Target& target, Counts& counts) {
  auto& tried = counts["tried"];
  counts.erase("succeeded");
  while_up(target, counts, [&](HostEnd& end) {
    end.send_all(frame_of(kNobody, end.mac(), 60));
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/map_files")) {
      std::error_code error;
      const auto file = std::filesystem::read_symlink(entry.path(), error);
      if (error || file.string().find("splitnic-bridge") == std::string::npos) continue;
      ++tried;
      if (::truncate(entry.path().c_str(), 0) == 0) ++counts["succeeded"];
    }
  });
}

constexpr Attack kFrameAttacks[] = {
    {"honest", "no attack: sends as many frames of 1514 bytes to a station as it can", send_honestly},
    {"small", "no attack: the same with 60 bytes", send_small},
    {"broadcasts", "sends broadcasts", send_to_all},
    {"groups", "sends to groups that its neighbours have joined", send_to_groups},
    {"itself", "sends to its own address", send_to_itself},
    {"victim", "sends to a neighbour", send_to_victim},
    {"spoofing", "sends from its neighbour's address and from foreign ones", pretend},
    {"bpdu", "sends to the groups of the LAN's switches", send_to_the_switch},
    {"tags", "sends frames that end in the middle of headers, with up to five tags", send_tags_and_stumps},
    {"headers", "sends frames with random virtio-net headers", send_bad_headers},
    {"slow-reader", "reads fifty times a second", read_slowly},
    {"stalled-reader", "reads nothing for half a second at a time", stop_reading},
    {"doorbells", "rings without a reason", ring},
    {"holes", "punches holes into its shared memory", punch_holes},
    {"truncation", "tries to shorten the files of its shared memory", truncate},
};

}  // namespace

std::span<const Attack> frame_attacks() { return kFrameAttacks; }

}  // namespace splitnic::hostile
