// splitnic uses Boost.JSON without its library; this file contains the implementation.
#include <boost/describe/members.hpp>
#include <boost/json/src.hpp>
#include <boost/mp11/algorithm.hpp>

#include "common/os/daemon_status.h"
#include "common/os/printable.h"
#include "common/result.h"

namespace splitnic::os {
namespace {

namespace json = boost::json;

json::value value_of(const std::string& text) { return json::value(printable(text)); }

template <class Number>
requires std::is_arithmetic_v<Number> json::value value_of(Number number) { return json::value(number); }

json::value value_of(const std::vector<NamedCount>& counts) {
  json::object object;
  for (const auto& [name, count] : counts) object[printable(name)] = count;
  return object;
}

template <class Struct>
void add_members(json::object& object, const Struct& from);

json::value value_of(const std::vector<PeerStatus>& peers) {
  json::array array;
  for (const auto& peer : peers) add_members(array.emplace_back(json::object()).as_object(), peer);
  return array;
}

template <class Struct>
void add_members(json::object& object, const Struct& from) {
  boost::mp11::mp_for_each<boost::describe::describe_members<Struct, boost::describe::mod_public>>(
      [&](auto member) { object[member.name] = value_of(from.*member.pointer); });
}

}  // namespace

std::string to_json(const DaemonStatus& status) {
  json::object object;
  object["schema_version"] = kStatusSchemaVersion;
  add_members(object, status);
  object["epoch"] = fmt::format("{:016x}", status.epoch);  // 64 bits don't fit the numbers of most JSON readers
  return json::serialize(object);
}

}  // namespace splitnic::os
