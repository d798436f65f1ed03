#include "iounit/libpcap.h"

#include <dlfcn.h>

#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <string>
#include <type_traits>

#include "common/check.h"

namespace splitnic::iounit {
namespace {

/// Debian's name of the library, and that of others.
constexpr const char* kNames[] = {"libpcap.so.0.8", "libpcap.so.1"};

Result<Libpcap> loaded() {
  void* library = nullptr;
  std::string why;
  for (const char* name : kNames) {
    if (library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) break;
    if (why.empty()) why = ::dlerror();
  }
  if (library == nullptr) return fail("libpcap can't be loaded: {}", why);
  Libpcap functions;
  std::string missing;
  using Members = boost::describe::describe_members<Libpcap, boost::describe::mod_public>;
  boost::mp11::mp_for_each<Members>([&](auto member) {
    auto& function = functions.*member.pointer;
    const std::string name = fmt::format("pcap_{}", member.name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name.c_str()));
    if (function == nullptr) missing = name;
  });
  if (!missing.empty()) return fail("libpcap has no {}: it is too old", missing);
  return functions;
}

const Result<Libpcap>& the_library() {
  static const Result<Libpcap> library = loaded();
  return library;
}

}  // namespace

Result<void> Libpcap::load() {
  if (!the_library()) return tl::unexpected(the_library().error());
  return {};
}

const Libpcap& Libpcap::get() {
  SPLITNIC_CHECK(the_library().has_value());
  return *the_library();
}

}  // namespace splitnic::iounit
