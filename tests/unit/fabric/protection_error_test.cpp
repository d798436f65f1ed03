#include "fabric/memory/protection_error.h"

#include <array>
#include <set>
#include <string>

#include <catch2/catch.hpp>

namespace splitnic::fabric::protection_error_test {
namespace {

using Error = ProtectionError;
using Use = ProtectedUse;
constexpr auto kFirst = Error::invalid_stag;
constexpr auto kLast = Error::bad_range;
constexpr std::array kEveryUse{Use::local_request, Use::bind_request,  Use::receive, Use::write,
                               Use::read_request,  Use::read_response, Use::atomic,  Use::invalidate};

struct Row {
  Error error;
  Use use;
  TerminateCode code;
};

/// IANA's registry of RDMAP and DDP errors: what each refusal is to the peer, by who finds it.
constexpr Row kRows[] = {
    {Error::invalid_stag, Use::write, {1, 1, 0x00}},
    {Error::stale_stag, Use::write, {1, 1, 0x00}},
    {Error::wrong_kind, Use::read_response, {1, 1, 0x00}},
    {Error::base_or_bounds_violation, Use::write, {1, 1, 0x01}},
    {Error::stag_not_associated, Use::write, {1, 1, 0x02}},
    {Error::wrong_queue_pair, Use::read_response, {1, 1, 0x02}},
    {Error::to_wrap, Use::write, {1, 1, 0x03}},
    {Error::access_rights_violation, Use::write, {0, 1, 0x02}},
    {Error::touched_twice, Use::write, {0, 1, 0x02}},
    {Error::invalid_stag, Use::read_request, {0, 1, 0x00}},
    {Error::base_or_bounds_violation, Use::read_request, {0, 1, 0x01}},
    {Error::access_rights_violation, Use::read_request, {0, 1, 0x02}},
    {Error::stag_not_associated, Use::atomic, {0, 1, 0x03}},
    {Error::to_wrap, Use::read_request, {0, 1, 0x04}},
    {Error::misaligned_atomic, Use::atomic, {0, 1, 0xff}},
    {Error::invalid_stag, Use::invalidate, {0, 1, 0x00}},
    {Error::stag_not_associated, Use::invalidate, {0, 1, 0x03}},
    {Error::wrong_kind, Use::invalidate, {0, 1, 0x09}},
    {Error::cannot_invalidate, Use::invalidate, {0, 1, 0x09}},
    {Error::windows_bound, Use::invalidate, {0, 1, 0x09}},
    {Error::no_read_resource, Use::read_request, {1, 2, 0x02}},
    {Error::unexpected_sequence, Use::read_request, {1, 2, 0x03}},
    {Error::memory_is_gone, Use::write, {0, 0, 0x00}},
};

}  // namespace

TEST_CASE("each refusal has a name of its own", "[fabric][memory]") {
  std::set<std::string> names;
  for (int i = static_cast<int>(kFirst); i <= static_cast<int>(kLast); ++i) {
    const std::string name = to_string(static_cast<Error>(i));
    CHECK(name != "?");
    CHECK(names.insert(name).second);
  }
  CHECK(std::string(to_string(static_cast<Error>(static_cast<int>(kLast) + 1))) == "?");
}

TEST_CASE("a terminate message names layer, type and code as RFC 5040 and 5041 do", "[fabric][memory]") {
  for (const Row& row : kRows) {
    INFO(to_string(row.error) << " by use " << static_cast<int>(row.use));
    const TerminateCode code = terminate_code(row.error, row.use);
    CHECK(int(code.layer) == int(row.code.layer));
    CHECK(int(code.type) == int(row.code.type));
    CHECK(int(code.code) == int(row.code.code));
  }
  // The peer is not told what is wrong with memory that it did not name.
  for (int i = static_cast<int>(kFirst); i <= static_cast<int>(kLast); ++i) {
    CHECK(terminate_code(static_cast<Error>(i), Use::receive) == TerminateCode{});
    CHECK(terminate_code(static_cast<Error>(i), Use::local_request) == TerminateCode{});
  }
}

TEST_CASE("a refused request ends by the verbs' name for it", "[fabric][memory]") {
  for (int i = static_cast<int>(kFirst); i <= static_cast<int>(kLast); ++i) {
    const auto error = static_cast<Error>(i);
    for (const Use use : kEveryUse) {
      RefusedAs expected = RefusedAs::remote_access_error;
      if (use == Use::bind_request) {
        expected = RefusedAs::window_bind_error;
      } else if (use == Use::local_request || use == Use::receive) {
        expected = RefusedAs::local_protection_error;
      } else if (error == Error::memory_is_gone) {
        expected = RefusedAs::remote_operation_error;
      } else if (error == Error::misaligned_atomic || error == Error::no_read_resource ||
                 error == Error::unexpected_sequence) {
        expected = RefusedAs::remote_invalid_request_error;
      }
      CHECK(refused_as(error, use) == expected);
    }
  }
}

}  // namespace splitnic::fabric::protection_error_test
