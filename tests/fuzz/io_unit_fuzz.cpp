// An I/O unit with two honest hosts against a hostile third.
#include "tests/fuzz/attack_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return splitnic::hostile::fuzz(&splitnic::hostile::attack_io_unit, data, size);
}
