#include <catch2/catch.hpp>
#include <string>

#include "common/result.h"
#include "messaging/session.h"

namespace splitnic::messaging::session_options_test {
namespace {

/// What is wrong with the options; empty: nothing.
std::string refusal(const SessionOptions& options) {
  try {
    require_valid(options);
    return "";
  } catch (const StartupError& error) {
    return error.message;
  }
}

TEST_CASE("invalid session options are refused with the reason", "[messaging][session]") {
  SessionOptions options;
  CHECK(refusal(options) == "SessionOptions::name is empty: a session needs one");
  options.name = "a/b";
  CHECK(refusal(options) ==
        "SessionOptions::name is not valid: it must be 1 to 64 bytes of UTF-8 without '/' and control characters, and "
        "has 3");
  options.name = std::string(65, 'x');
  CHECK_FALSE(refusal(options).empty());
  options.name = std::string(64, 'x');
  CHECK(refusal(options).empty());
  options.pool_elements = 0;
  CHECK(refusal(options) == "SessionOptions::pool_elements is 0: it must be at least 1");
  options.pool_elements = 1;
  CHECK(refusal(options).empty());
}

}  // namespace
}  // namespace splitnic::messaging::session_options_test
