// An MPI program that computes and checks: heat in a rod of which each rank has a part, blocks from every rank to every
// other one, and memory that ranks write, read and count in without its owner. Prints one line, by rank 0, and ends
// with 0 if everything is right at every rank.
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

namespace {

constexpr int kCells = 4096;  // of all ranks
constexpr int kSteps = 300;
constexpr std::size_t kWords = 65536;  // of a block: half a megabyte, far more than fits a small message
constexpr long kAdditions = 50;        // of each rank

double heat_at_start(int cell) { return cell % 97 == 0 ? 100.0 : std::sin(cell); }
double next_heat(double left, double here, double right) { return here + 0.25 * (left - 2 * here + right); }

/// The whole rod, by this rank alone.
std::vector<double> all_alone() {
  std::vector<double> now(kCells + 2);
  for (int cell = 0; cell < kCells; ++cell) now[static_cast<std::size_t>(cell) + 1] = heat_at_start(cell);
  std::vector<double> next = now;
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t at = 1; at <= kCells; ++at) next[at] = next_heat(now[at - 1], now[at], now[at + 1]);
    std::swap(now, next);
  }
  return now;
}

/// The same with neighbours, which exchange the cells at their borders in each step.
bool heat_is_right(int rank, int ranks) {
  const int share = kCells / ranks;
  const auto cells = static_cast<std::size_t>(share);
  std::vector<double> now(cells + 2);
  for (int cell = 0; cell < share; ++cell) now[static_cast<std::size_t>(cell) + 1] = heat_at_start(rank * share + cell);
  std::vector<double> next = now;
  const int left = rank == 0 ? MPI_PROC_NULL : rank - 1;
  const int right = rank == ranks - 1 ? MPI_PROC_NULL : rank + 1;
  for (int step = 0; step < kSteps; ++step) {
    MPI_Sendrecv(&now[1], 1, MPI_DOUBLE, left, 0, &now[cells + 1], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&now[cells], 1, MPI_DOUBLE, right, 1, now.data(), 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (std::size_t at = 1; at <= cells; ++at) next[at] = next_heat(now[at - 1], now[at], now[at + 1]);
    std::swap(now, next);
  }
  const std::vector<double> alone = all_alone();
  const auto begin = static_cast<std::size_t>(rank) * cells;
  return std::equal(now.begin() + 1, now.end() - 1, alone.begin() + 1 + static_cast<std::ptrdiff_t>(begin));
}

std::uint64_t word(int from, int to, std::size_t at) {
  return (static_cast<std::uint64_t>(from) << 40U | static_cast<std::uint64_t>(to) << 32U) + at * 2654435761U;
}

bool blocks_are_right(int rank, int ranks) {
  const std::size_t all = kWords * static_cast<std::size_t>(ranks);
  std::vector<std::uint64_t> sent(all);
  std::vector<std::uint64_t> received(all);
  for (std::size_t at = 0; at < all; ++at) sent[at] = word(rank, static_cast<int>(at / kWords), at % kWords);
  MPI_Alltoall(sent.data(), static_cast<int>(kWords), MPI_UINT64_T, received.data(), static_cast<int>(kWords),
               MPI_UINT64_T, MPI_COMM_WORLD);
  for (std::size_t at = 0; at < all; ++at) {
    if (received[at] != word(static_cast<int>(at / kWords), rank, at % kWords)) return false;
  }
  return true;
}

/// Each rank writes a block to the next rank, reads it back, and adds to a counter of rank 0.
bool window_is_right(int rank, int ranks) {
  std::vector<std::uint64_t> memory(kWords + 1);
  MPI_Win window{};
  MPI_Win_create(memory.data(), static_cast<MPI_Aint>(memory.size() * sizeof memory[0]), sizeof memory[0],
                 MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  const int next = (rank + 1) % ranks;
  std::vector<std::uint64_t> block(kWords);
  std::vector<std::uint64_t> back(kWords);
  for (std::size_t at = 0; at < kWords; ++at) block[at] = word(rank, next, at);
  MPI_Win_lock_all(0, window);
  MPI_Put(block.data(), static_cast<int>(kWords), MPI_UINT64_T, next, 0, static_cast<int>(kWords), MPI_UINT64_T,
          window);
  MPI_Win_flush(next, window);
  MPI_Get(back.data(), static_cast<int>(kWords), MPI_UINT64_T, next, 0, static_cast<int>(kWords), MPI_UINT64_T, window);
  const std::uint64_t one = 1;
  std::uint64_t before = 0;
  for (long i = 0; i < kAdditions; ++i) {
    MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, 0, static_cast<MPI_Aint>(kWords), MPI_SUM, window);
    MPI_Win_flush(0, window);
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
  const bool counted = rank != 0 || memory[kWords] == static_cast<std::uint64_t>(kAdditions * ranks);
  bool written = true;
  for (std::size_t at = 0; at < kWords; ++at)
    written = written && memory[at] == word((rank + ranks - 1) % ranks, rank, at);
  MPI_Win_unlock(rank, window);
  MPI_Win_free(&window);
  return counted && written && back == block;
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int right[3] = {static_cast<int>(heat_is_right(rank, ranks)), static_cast<int>(blocks_are_right(rank, ranks)),
                  static_cast<int>(window_is_right(rank, ranks))};
  int everywhere[3] = {};
  MPI_Allreduce(static_cast<int*>(right), static_cast<int*>(everywhere), 3, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  const bool good = everywhere[0] != 0 && everywhere[1] != 0 && everywhere[2] != 0;
  if (rank == 0) {
    std::printf("%d ranks: heat %s, blocks %s, window %s\n", ranks, everywhere[0] != 0 ? "right" : "WRONG",
                everywhere[1] != 0 ? "right" : "WRONG", everywhere[2] != 0 ? "right" : "WRONG");
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
