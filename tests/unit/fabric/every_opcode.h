#pragma once

#include <cstdint>
#include <vector>

#include "fabric/wire/cell.h"

namespace splitnic::fabric::test {

/// Every opcode that a cell may have, in ascending order. Any thread.
inline std::vector<Opcode> every_opcode() {
  std::vector<Opcode> opcodes;
  for (unsigned number = 0; number < 256; ++number) {
    const auto opcode = static_cast<std::uint8_t>(number);
    if (traits(opcode).kind != MessageKind::none) opcodes.push_back(static_cast<Opcode>(opcode));
  }
  return opcodes;
}

}  // namespace splitnic::fabric::test
