// A session in the I/O unit's role against a hostile host.
#include "tests/fuzz/attack_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return splitnic::hostile::fuzz(&splitnic::hostile::attack_session, data, size);
}
