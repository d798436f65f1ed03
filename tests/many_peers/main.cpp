// many_peers: one program with 64 peers over bridges, UDP and loop-back, each in a process of its own where it is not
// loop-back. One peer after the other is killed (kill -9) under traffic, and its successor begins at once. Each peer
// adds to a word of the program's private memory, writes into it and sends messages, which the program answers. All is
// counted at both ends: the other 63 must lose nothing, repeat nothing and fail nothing, and the one tag of the
// program's memory must open it all the time.
//
//   many_peers --kills 4              the test
//   many_peers --kills 600 --seed 7   ten minutes
#include <CLI/CLI.hpp>

#include "program.h"

namespace {

using namespace splitnic;
using namespace splitnic::many_peers;

struct Options {
  std::uint64_t kills = 4;
  std::uint64_t seed = 1;
  unsigned interval_ms = 1000;
  std::optional<std::size_t> peer;
  Way way;
};

int run(const Options& options) {
  constexpr std::uint64_t kAnswers = 3;  // of each peer, before and after a kill
  SeededRandom random(options.seed);
  Program program("/proc/self/exe");
  program.serve(kAnswers, monotonic_now());
  const Time begin = monotonic_now();
  const std::uint64_t before = program.answers();
  for (std::uint64_t kill = 0; kill < options.kills; ++kill) {
    std::size_t victim = 0;
    do {
      victim = random.below(kPeers);
    } while (kind_of(victim) == Kind::loopback || (kind_of(victim) == Kind::udp) != (kill % 2 == 1));
    const Time next = monotonic_now() + std::chrono::milliseconds(options.interval_ms);
    program.kill(victim);
    program.serve(kAnswers, next);
    program.judge(1);
  }
  const double seconds = std::chrono::duration<double>(monotonic_now() - begin).count();
  fmt::print("{} kills in {:.1f} s; {} messages were answered meanwhile, and none was lost\n", options.kills, seconds,
             program.answers() - before);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("One program with 64 peers, of which one after the other is killed. Exit: 0 nothing lost, 1 something.");
  app.add_option("--kills", options.kills, "how many");
  app.add_option("--seed", options.seed, "of who is killed");
  app.add_option("--interval", options.interval_ms, "ms between two kills, or more where a machine is slow");
  app.add_option("--peer", options.peer, "(for the program's own use) be this peer");
  app.add_option("--socket", options.way.socket, "(likewise) over the bridge that is made here");
  app.add_option("--ip", options.way.own_ip, "(likewise) over UDP, from this address");
  app.add_option("--program", options.way.program_ip, "(likewise) to this one");
  CLI11_PARSE(app, argc, argv);
  if (!options.peer) return run(options);
  options.way.name = std::to_string(*options.peer);
  run_peer(*options.peer, options.way);
}
