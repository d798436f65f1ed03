// A host driver against a hostile unit.
#include "tests/fuzz/attack_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return splitnic::hostile::fuzz(&splitnic::hostile::attack_host_driver, data, size);
}
