#include "fabric/rdmacm/calls.h"

#include <array>
#include <initializer_list>

namespace splitnic::rdmacm {
namespace {

constexpr std::uint16_t in(std::initializer_list<State> states) {
  std::uint16_t set = 0;
  for (const State state : states) set = static_cast<std::uint16_t>(set | 1U << static_cast<unsigned>(state));
  return set;
}

/// By act: the states in which it is legal. What is forbidden would lose a binding, a request or a connection that the
/// identifier has already.
constexpr std::array<std::uint16_t, kActs> kLegal{
    in({State::idle}),                          // bind
    in({State::idle, State::bound}),            // listen
    in({State::idle, State::bound}),            // resolve_address
    in({State::address_resolved}),              // resolve_route
    in({State::route_resolved}),                // connect
    in({State::requested, State::answered}),    // accept: the older way to say establish
    in({State::requested}),                     // reject
    in({State::answered}),                      // establish
    in({State::accepted, State::established}),  // notify
    in({State::calling, State::answered, State::requested, State::accepted, State::established, State::disconnected,
        State::failed}),                                                 // disconnect: also what never was connected
    in({State::bound, State::address_resolved, State::route_resolved}),  // join
};

}  // namespace

bool permits(State state, Act act) {
  return (kLegal[static_cast<std::size_t>(act)] >> static_cast<unsigned>(state) & 1U) != 0;
}

}  // namespace splitnic::rdmacm
