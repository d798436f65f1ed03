#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/random.h"
#include "fabric/memory/protection_table.h"

namespace splitnic::fabric {

inline constexpr std::array kEveryRight{Right::local_read,   Right::local_write,   Right::remote_read,
                                        Right::remote_write, Right::remote_atomic, Right::window_binding};
inline constexpr Rights kAllRights{0x3f};
inline constexpr Rights kRemoteRights = Right::remote_read | Right::remote_write | Right::remote_atomic;

/// "ok", or the name of the refusal.
template <class T>
std::string verdict(const tl::expected<T, ProtectionError>& result) {
  return result ? "ok" : to_string(result.error());
}

/// A table with one domain, a queue pair in it, and 4 KiB of the process's memory.
struct ProtectionFixture {
  SeededRandom random{1};
  ProtectionTable table{64, random};
  alignas(64) std::array<std::byte, 4096> memory{};
  ProtectionDomain domain{1};
  ProtectionDomain other_domain{2};
  Consumer me{domain, QpNumber{7}};
  Consumer another{domain, QpNumber{8}};
  Consumer foreigner{other_domain, QpNumber{9}};

  RegionMemory all_memory() { return RegionMemory::of_process(memory); }
  Stag region(Rights rights = kAllRights) {
    EntryOptions options;
    options.rights = rights;
    return region(options);
  }
  Stag region(const EntryOptions& options) { return table.register_region(domain, all_memory(), options).value(); }
  Stag window(EntryKind kind) {
    std::array<Stag, 1> tags{};
    if (!table.allocate_windows(domain, kind, tags)) std::abort();
    return tags[0];
  }
  std::uint64_t base(Stag tag) const { return table.find(tag)->base; }
  /// 1000 bytes at 100 of the region.
  Bind binding(Stag window, Stag region, Rights rights = kRemoteRights) const {
    Bind bind;
    bind.window = window;
    bind.region = region;
    bind.address = base(region) + 100;
    bind.length = 1000;
    bind.rights = rights;
    bind.key = 0x5a;
    return bind;
  }
  Stag bound(EntryKind kind, Stag region, Rights rights = kRemoteRights) {
    return table.bind(binding(window(kind), region, rights), me).value();
  }

  Access access(Stag tag, std::uint64_t bytes, Right right) const {
    return {tag, domain, bytes, right, me.queue_pair, 0};
  }
  std::string remote(Stag tag, std::uint64_t address, std::uint64_t bytes = 8, Right right = Right::remote_write) {
    return verdict(table.check_remote(access(tag, bytes, right), address));
  }
  /// At the start of whatever the tag names.
  std::string use(Stag tag, Right right = Right::remote_write) { return remote(tag, base(tag), 1, right); }
};

}  // namespace splitnic::fabric
