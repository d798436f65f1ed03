#include "tools/policy_bytes.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace splitnic::tools {
namespace {

// A structured binding names every member: a new one that is not sent does not compile.
auto fields_of(iounit::IpGuard& guard) {
  auto& [addresses, dhcp_server, router] = guard;
  return std::tie(addresses, dhcp_server, router);
}
auto fields_of(iounit::HostRights& rights) {
  auto& [addresses, foreign_sources, promiscuous, multicast, access_vlan, trunk_vlans, send, receive, broadcasts,
         multicasts, multicast_copies, ip] = rights;
  return std::tie(addresses, foreign_sources, promiscuous, multicast, access_vlan, trunk_vlans, send, receive,
                  broadcasts, multicasts, multicast_copies, ip);
}
auto fields_of(iounit::HostRule& rule) {
  auto& [name, user, group, rights, inherits_foreign_sources] = rule;
  return std::tie(name, user, group, rights, inherits_foreign_sources);
}
auto fields_of(iounit::PolicyRules& rules) {
  auto& [others, hosts, listed_only, lan_addresses, station_memory, address_hold] = rules;
  return std::tie(others, hosts, listed_only, lan_addresses, station_memory, address_hold);
}

template <class Value>
concept HasFields = requires(Value& value) {
  fields_of(value);
};
/// Its memory is its value: a number, an address, a duration.
template <class Value>
concept Plain = !HasFields<Value> && std::is_trivially_copyable_v<Value> &&
                std::has_unique_object_representations_v<Value> && !std::is_pointer_v<Value>;

class Writer {
 public:
  void put(bool value) { bytes_ += value ? '\1' : '\0'; }
  template <Plain Value>
  void put(Value& value) {
    const auto bytes = std::bit_cast<std::array<char, sizeof value>>(value);
    bytes_.append(bytes.data(), bytes.size());
  }
  template <HasFields Value>
  void put(Value& value) {
    std::apply([this](auto&... field) { (this->put(field), ...); }, fields_of(value));
  }
  template <class Value>
  void put(std::optional<Value>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class Value>
  void put(std::vector<Value>& values) {
    put_size(values.size());
    for (Value& value : values) put(value);
  }
  void put(std::string& text) {
    put_size(text.size());
    bytes_ += text;
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  void put_size(std::uint64_t size) { put(size); }

  std::string bytes_;
};

/// After a value that is cut or wrong, there are no more bytes, and ended_well() says so.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  void get(bool& value) {
    std::uint8_t byte = 0;
    get(byte);
    value = byte != 0;
  }
  template <Plain Value>
  void get(Value& value) {
    const std::string_view bytes = next(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
  }
  template <HasFields Value>
  void get(Value& value) {
    std::apply([this](auto&... field) { (this->get(field), ...); }, fields_of(value));
  }
  template <class Value>
  void get(std::optional<Value>& value) {
    bool there = false;
    get(there);
    value.reset();
    if (there) get(value.emplace());
  }
  template <class Value>
  void get(std::vector<Value>& values) {
    std::uint64_t size = 0;
    get(size);
    values.clear();
    for (std::uint64_t number = 0; number < size && !cut_; ++number) get(values.emplace_back());
  }
  void get(std::string& text) {
    std::uint64_t size = 0;
    get(size);
    text = next(size);
  }
  [[nodiscard]] bool ended_well() const { return !cut_ && rest_.empty(); }

 private:
  std::string_view next(std::uint64_t size) {
    cut_ = cut_ || size > rest_.size();
    if (cut_) return {};
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
  bool cut_ = false;
};

}  // namespace

std::string to_bytes(iounit::PolicyRules rules) {
  Writer writer;
  writer.put(rules);
  return writer.take();
}

Result<iounit::PolicyRules> rules_in(std::string_view bytes) {
  iounit::PolicyRules rules;
  Reader reader(bytes);
  reader.get(rules);
  if (!reader.ended_well()) return fail("these bytes are no policy");
  return rules;
}

}  // namespace splitnic::tools
