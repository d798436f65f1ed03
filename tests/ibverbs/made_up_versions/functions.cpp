// What the table beside this file calls implemented.
#include <cstdint>

extern "C" {

int made_up_old();
int made_up_old() { return 11; }

int made_up_sum(const int* first, std::uint8_t second, std::uint64_t third, unsigned fourth, const int* fifth,
                std::int16_t sixth);
int made_up_sum(const int* first, std::uint8_t second, std::uint64_t third, unsigned fourth, const int* fifth,
                std::int16_t sixth) {
  return *first + second + static_cast<int>(third) + static_cast<int>(fourth) + *fifth + sixth;
}

}  // extern "C"
