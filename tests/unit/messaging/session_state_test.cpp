#include "messaging/session_state.h"

#include <catch2/catch.hpp>
#include <set>

namespace splitnic::messaging::session_state_test {

TEST_CASE("every move of a session is legal or forbidden for a reason", "[messaging][session]") {
  for (std::size_t from = 0; from < kSessionStates; ++from) {
    for (std::size_t to = 0; to < kSessionStates; ++to) {
      const auto move = session_move(static_cast<SessionState>(from), static_cast<SessionState>(to));
      CAPTURE(from, to);
      REQUIRE(move.legal == move.reason.empty());
    }
  }
}

TEST_CASE("a session climbs one state at a time and falls to down from any", "[messaging][session]") {
  for (std::size_t from = 0; from < kSessionStates; ++from) {
    for (std::size_t to = 0; to < kSessionStates; ++to) {
      const bool climbs = to == from + 1;
      const bool falls = to == 0 && from != 0;
      CAPTURE(from, to);
      REQUIRE(session_move(static_cast<SessionState>(from), static_cast<SessionState>(to)).legal == (climbs || falls));
    }
  }
}

TEST_CASE("session states have names of their own", "[messaging][session]") {
  std::set<std::string_view> names;
  for (std::size_t state = 0; state < kSessionStates; ++state)
    names.insert(to_string(static_cast<SessionState>(state)));
  REQUIRE(names.size() == kSessionStates);
  REQUIRE(names.count("") == 0);
}

}  // namespace splitnic::messaging::session_state_test
