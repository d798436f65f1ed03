#include "host/tap_steering.h"

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "common/frame/ethernet.h"
#include "common/frame/headers.h"
#include "common/os/errno_text.h"

namespace splitnic::host {
namespace {

// Registers: r0 what a load has read; r6 the frame, for loads; r7 where the transport header is; r8 the number of the
// flow; r9 the protocol.
constexpr std::uint8_t kRead = 0;
constexpr std::uint8_t kFrame = 6;
constexpr std::uint8_t kTransport = 7;
constexpr std::uint8_t kFlow = 8;
constexpr std::uint8_t kProtocol = 9;

using frame::Ipv4Header;
using frame::Ipv6Header;
constexpr std::size_t kIp = frame::kEthernetHeaderBytes;

constexpr bpf_insn instruction(unsigned code, std::uint8_t to, std::uint8_t from, std::int16_t jump,
                               std::size_t value) {
  bpf_insn made{};
  made.code = static_cast<std::uint8_t>(code);
  made.dst_reg = to & 0xfU;
  made.src_reg = from & 0xfU;
  made.off = jump;
  made.imm = static_cast<std::int32_t>(value);
  return made;
}
constexpr bpf_insn load(unsigned size, std::size_t at) { return instruction(BPF_LD | BPF_ABS | size, 0, 0, 0, at); }
constexpr bpf_insn load_port(std::size_t at) { return instruction(BPF_LD | BPF_IND | BPF_H, 0, kTransport, 0, at); }
constexpr bpf_insn move(std::uint8_t to, std::uint8_t from) {
  return instruction(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0);
}
constexpr bpf_insn set(std::uint8_t to, std::size_t value) {
  return instruction(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value);
}
constexpr bpf_insn change(unsigned how, std::uint8_t what, std::size_t value) {
  return instruction(BPF_ALU64 | how | BPF_K, what, 0, 0, value);
}
constexpr bpf_insn add(std::uint8_t to, std::uint8_t from) {
  return instruction(BPF_ALU64 | BPF_ADD | BPF_X, to, from, 0, 0);
}
/// Skips so many instructions if the register compares so.
constexpr bpf_insn skip_if(unsigned how, std::uint8_t what, std::size_t value, std::int16_t instructions) {
  return instruction(BPF_JMP | how | BPF_K, what, 0, instructions, value);
}
constexpr bpf_insn skip(std::int16_t instructions) { return instruction(BPF_JMP | BPF_JA, 0, 0, instructions, 0); }

constexpr std::size_t kStir = 0x01000193;  // the prime of FNV

/// Loads whose results all go into the flow's number, each by three instructions.
template <std::size_t N>
constexpr auto stirred(const std::array<bpf_insn, N>& loads) {
  std::array<bpf_insn, 3 * N> all{};
  for (std::size_t at = 0; at < N; ++at) {
    all[3 * at] = loads[at];
    all[3 * at + 1] = change(BPF_MUL, kFlow, kStir);
    all[3 * at + 2] = add(kFlow, kRead);
  }
  return all;
}

template <std::size_t... N>
constexpr auto joined(const std::array<bpf_insn, N>&... parts) {
  std::array<bpf_insn, (N + ...)> all{};
  std::size_t at = 0;
  const auto append = [&](const auto& part) {
    for (const bpf_insn& each : part) all[at++] = each;
  };
  (append(parts), ...);
  return all;
}

template <std::size_t N>
constexpr auto size_of(const std::array<bpf_insn, N>&) {
  return static_cast<std::int16_t>(N);
}

constexpr std::size_t kFragmentBits = frame::kIpv4MoreFragments | frame::kIpv4FragmentOffset;

// The ports, of TCP and UDP, and the end. A frame that is cut off in front of what is loaded gets the first queue.
constexpr auto kPorts = stirred(std::array{load_port(0), load_port(2)});
constexpr auto kOnlyWithPorts =
    std::array{skip_if(BPF_JEQ, kProtocol, static_cast<std::size_t>(frame::IpProtocol::tcp), 1),
               skip_if(BPF_JNE, kProtocol, static_cast<std::size_t>(frame::IpProtocol::udp), size_of(kPorts))};
constexpr auto kEnd = std::array{add(kFlow, kProtocol), change(BPF_MUL, kFlow, 0x5bd1e995), change(BPF_RSH, kFlow, 24),
                                 move(kRead, kFlow), instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)};
// Membership reports: IGMP, and MLD behind options for each hop. Only the first queue's driver looks for them.
constexpr auto kMemberships =
    std::array{skip_if(BPF_JEQ, kProtocol, static_cast<std::size_t>(frame::IpProtocol::igmp), 1),
               skip_if(BPF_JNE, kProtocol, static_cast<std::size_t>(frame::IpProtocol::hop_by_hop), 2), set(kRead, 0),
               instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)};
constexpr std::int16_t kPastPorts = size_of(kMemberships) + size_of(kOnlyWithPorts) + size_of(kPorts);

constexpr auto kIpv4 = joined(
    stirred(std::array{load(BPF_W, kIp + offsetof(Ipv4Header, source)),
                       load(BPF_W, kIp + offsetof(Ipv4Header, destination))}),
    std::array{
        load(BPF_B, kIp),  // the lower half: words of the header
        move(kTransport, kRead), change(BPF_AND, kTransport, 0xf), change(BPF_LSH, kTransport, 2),
        change(BPF_ADD, kTransport, kIp), load(BPF_B, kIp + offsetof(Ipv4Header, protocol)), move(kProtocol, kRead),
        load(BPF_H, kIp + offsetof(Ipv4Header, flags_and_fragment)), change(BPF_AND, kRead, kFragmentBits),
        skip_if(BPF_JNE, kRead, 0, kPastPorts),  // a fragment: without ports
    });

constexpr auto ipv6_addresses() {
  std::array<bpf_insn, 8> loads{};
  for (std::size_t word = 0; word < loads.size(); ++word) {
    loads[word] = load(BPF_W, kIp + offsetof(Ipv6Header, source) + 4 * word);
  }
  return loads;
}
constexpr auto kIpv6 = joined(stirred(ipv6_addresses()), std::array{
                                                             load(BPF_B, kIp + offsetof(Ipv6Header, next_header)),
                                                             move(kProtocol, kRead),
                                                             set(kTransport, kIp + sizeof(Ipv6Header)),
                                                             skip(size_of(kIpv4)),
                                                         });

constexpr auto kBegin = std::array{
    move(kFrame, 1),
    set(kFlow, 0),
    load(BPF_H, 2 * sizeof(MacAddress)),
    move(kProtocol, kRead),
    skip_if(BPF_JEQ, kProtocol, frame::kEtherTypeIpv4, 1 + size_of(kIpv6)),
    skip_if(BPF_JNE, kProtocol, frame::kEtherTypeIpv6, size_of(kIpv6) + size_of(kIpv4) + kPastPorts),
};
constexpr auto kProgram = joined(kBegin, kIpv6, kIpv4, kMemberships, kOnlyWithPorts, kPorts, kEnd);

}  // namespace

Result<os::UniqueFd> load_tap_steering() {
  constexpr const char* kLicense = "Apache-2.0";
  bpf_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
  attributes.insn_cnt = kProgram.size();
  attributes.insns = std::bit_cast<std::uintptr_t>(kProgram.data());
  attributes.license = std::bit_cast<std::uintptr_t>(kLicense);
  os::UniqueFd program(static_cast<int>(::syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof attributes)));
  if (!program) return fail("loading a program for the TAP's queues: {}", os::errno_text());
  return program;
}

}  // namespace splitnic::host
