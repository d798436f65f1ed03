// Multicast groups: who gets what is sent to one, and their limits.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::groups_test {
namespace {

constexpr std::uint32_t kMulticast = 0xffffff;
constexpr std::uint32_t kRouteHeaderBytes = 40;

ibv_gid group_of(int number) {
  ibv_gid gid{};
  gid.raw[0] = 0xff;
  gid.raw[1] = 0x12;
  gid.raw[14] = static_cast<std::uint8_t>(number >> 8);
  gid.raw[15] = static_cast<std::uint8_t>(number);
  return gid;
}

ibv_ah* handle_to(Device& device, const ibv_gid& gid) {
  ibv_ah_attr address{};
  address.is_global = 1;
  address.grh.dgid = gid;
  address.port_num = 1;
  return ibv_create_ah(device.pd, &address);
}

/// Whether a process has locked a membership of the group in the fabric's file, as docs/protocol.md has it. Asked by a
/// child, because the kernel does not tell a process of its own locks.
bool has_members(const ibv_gid& gid) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::uint8_t byte : gid.raw) hash = (hash ^ byte) * 0x100000001b3U;
  hash = (hash ^ hash >> 45U) & ((std::uint64_t{1} << 45U) - 1);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(std::uint64_t{1} << 61U | hash << 16U);
  lock.l_len = 65536;
  const std::string path = std::string(std::getenv("XDG_RUNTIME_DIR")) + "/splitnic/fabric-default/local-ids";
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int file = open(path.c_str(), O_RDWR);
    _exit(file >= 0 && fcntl(file, F_GETLK, &lock) == 0 ? (lock.l_type == F_UNLCK ? 0 : 1) : 2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) < 2));
  return WEXITSTATUS(status) == 1;
}

/// A device with a datagram queue pair that is ready.
struct End {
  explicit End(std::uint32_t depth = 16)
      : device(static_cast<int>(2 * depth)), queue(device, {.type = IBV_QPT_UD, .depth = depth}) {
    queue.connect(0, 0);
  }
  ~End() {
    while (!groups.empty() && detach(*groups.begin()) == 0) {
    }
    CHECK(groups.empty());
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  void attach(int group) {
    const ibv_gid gid = group_of(group);
    REQUIRE(ibv_attach_mcast(queue.qp, &gid, 0) == 0);
    groups.insert(group);
  }
  int detach(int group) {
    const ibv_gid gid = group_of(group);
    const int error = ibv_detach_mcast(queue.qp, &gid, 0);
    if (error == 0) groups.erase(group);
    return error;
  }
  /// Posts more receives than send_until_noticed() leaves datagrams over.
  void listen() {
    for (std::uint64_t id = 0; id < 12; ++id) receive(id);
  }
  /// Passes over what was left over. Returns the completion that has this number.
  ibv_wc expect(std::uint32_t number) {
    for (;;) {
      const ibv_wc wc = device.next();
      const std::uint32_t got = ntohl(wc.imm_data);
      if (got == number) return wc;
      REQUIRE(got == 0);
    }
  }
  void receive(std::uint64_t id) { REQUIRE(queue.receive(id, 0, kRouteHeaderBytes + 4096) == 0); }

  Device device;
  Queue queue;
  std::set<int> groups{};  ///< to which the queue pair is attached
};

struct Sender : End {
  explicit Sender(int group, std::uint32_t depth = 16) : End(depth), ah(handle_to(device, group_of(group))) {
    REQUIRE(ah != nullptr);
  }
  ~Sender() { CHECK(ibv_destroy_ah(ah) == 0); }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  /// The number goes along, and the send is done.
  void send(std::uint32_t number, std::size_t bytes = 64) {
    ibv_sge part = device.part(8192, bytes);
    ibv_send_wr made = queue.request(number, IBV_WR_SEND_WITH_IMM, part);
    made.imm_data = htonl(number);
    made.wr.ud = {ah, kMulticast, kQueueKey};
    REQUIRE(queue.post(made) == 0);
    device.expect(number);
  }
  /// Sends number 0 until the receiver has got one: then it has been noticed. Some may be left over.
  void send_until_noticed(End& receiver) {
    receiver.receive(0);
    ibv_wc wc{};
    wait_until([&] {
      send(0);
      const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      int got = 0;
      while (got == 0 && std::chrono::steady_clock::now() < limit) got = ibv_poll_cq(receiver.device.cq, 1, &wc);
      return got == 1;
    });
  }

  ibv_ah* ah;
};

TEST_CASE("a group's datagram reaches every endnode with a queue pair in it, also one that joins late",
          "[ibverbs][groups]") {
  End first;
  first.attach(1);
  Sender sender(1);  // who is there already is known at once
  first.receive(1);
  sender.send(10);
  const ibv_wc wc = first.device.expect(1);
  CHECK(ntohl(wc.imm_data) == 10);
  CHECK(wc.src_qp == sender.queue.qp->qp_num);
  CHECK(wc.slid == sender.device.lid());
  CHECK((wc.wc_flags & IBV_WC_GRH) != 0);
  const ibv_gid gid = group_of(1);
  CHECK(std::equal(std::begin(gid.raw), std::end(gid.raw), first.device.memory.begin() + 24));
  End second;
  second.attach(1);
  sender.send_until_noticed(second);
  first.listen();
  second.listen();
  sender.send(11);
  first.expect(11);
  second.expect(11);
  // Who leaves gets no more.
  REQUIRE(first.detach(1) == 0);
  sender.send(12);
  second.expect(12);
  first.device.expect_nothing();
}

TEST_CASE("a sender that is a member gets its own datagrams, and groups are apart", "[ibverbs][groups]") {
  Sender sender(1);
  End other;
  other.attach(2);
  other.receive(1);
  sender.attach(1);
  sender.receive(2);
  ibv_sge part = sender.device.part(8192, 8);
  ibv_send_wr made = sender.queue.request(3, IBV_WR_SEND, part);
  made.wr.ud = {sender.ah, kMulticast, kQueueKey};
  REQUIRE(sender.queue.post(made) == 0);
  const std::uint64_t first = sender.device.next().wr_id;
  const std::uint64_t second = sender.device.next().wr_id;
  CHECK(first + second == 5);
  other.device.expect_nothing();
}

TEST_CASE("a queue pair that is attached to a group is not destroyed until it is detached", "[ibverbs][groups]") {
  End end;
  end.attach(1);
  end.attach(2);
  CHECK(ibv_destroy_qp(end.queue.qp) == EBUSY);
  CHECK(end.detach(1) == 0);
  CHECK(ibv_destroy_qp(end.queue.qp) == EBUSY);
  CHECK(end.queue.state() == IBV_QPS_RTS);
  CHECK(has_members(group_of(2)));
  CHECK(end.detach(2) == 0);
  CHECK(ibv_destroy_qp(end.queue.qp) == 0);
  end.queue.qp = nullptr;
}

TEST_CASE("an endnode stays in a group until its last queue pair has left", "[ibverbs][groups]") {
  End member;
  Sender sender(1);
  {
    Queue second(member.device, {.type = IBV_QPT_UD});
    second.connect(0, 0);
    const ibv_gid gid = group_of(1);
    REQUIRE(ibv_attach_mcast(second.qp, &gid, 0) == 0);
    member.attach(1);
    member.attach(1);  // the second time changes nothing
    sender.send_until_noticed(member);
    REQUIRE(member.detach(1) == 0);
    CHECK(member.detach(1) == EINVAL);
    for (std::uint64_t id = 7; id < 15; ++id) REQUIRE(second.receive(id, 0, 128) == 0);
    sender.send(1);
    CHECK(member.expect(1).qp_num == second.qp->qp_num);
    CHECK(has_members(group_of(1)));
    CHECK(ibv_detach_mcast(second.qp, &gid, 0) == 0);
  }
  CHECK_FALSE(has_members(group_of(1)));
}

TEST_CASE("groups have limits, which are errors for who meets them and for nobody else", "[ibverbs][groups]") {
  constexpr int kGroups = 256;
  End end;
  ibv_device_attr about{};
  REQUIRE(ibv_query_device(end.device.context, &about) == 0);
  CHECK(about.max_mcast_grp == kGroups);
  std::vector<ibv_ah*> handles;
  for (int group = 0; group < kGroups - 1; ++group) {
    handles.push_back(handle_to(end.device, group_of(group)));
    REQUIRE(handles.back() != nullptr);
  }
  end.attach(kGroups);
  const ibv_gid late = group_of(kGroups + 1);
  errno = 0;
  CHECK(handle_to(end.device, late) == nullptr);
  CHECK(errno == ENOMEM);
  CHECK(ibv_attach_mcast(end.queue.qp, &late, 0) == ENOMEM);
  // A group that is known already is no new one.
  end.attach(0);
  handles.push_back(handle_to(end.device, group_of(kGroups)));
  CHECK(handles.back() != nullptr);
  CHECK(end.detach(0) == 0);
  CHECK(ibv_destroy_ah(handles.front()) == 0);
  handles.erase(handles.begin());
  end.attach(kGroups + 1);
  for (ibv_ah* handle : handles) CHECK(ibv_destroy_ah(handle) == 0);
  Queue connected(end.device, {});
  const ibv_gid no_group{};
  CHECK(ibv_attach_mcast(connected.qp, &late, 0) == EINVAL);
  CHECK(ibv_attach_mcast(end.queue.qp, &no_group, 0) == EINVAL);
}

TEST_CASE("so many queue pairs of a device are in one group", "[ibverbs][groups]") {
  constexpr int kAttached = 256;
  Device device;
  std::vector<std::unique_ptr<Queue>> queues;
  const ibv_gid gid = group_of(1);
  for (int i = 0; i < kAttached; ++i) {
    queues.push_back(std::make_unique<Queue>(device, Shape{.type = IBV_QPT_UD, .depth = 1}));
    REQUIRE(ibv_attach_mcast(queues.back()->qp, &gid, 0) == 0);
  }
  Queue late(device, {.type = IBV_QPT_UD});
  CHECK(ibv_attach_mcast(late.qp, &gid, 0) == ENOMEM);
  CHECK(ibv_attach_mcast(queues.front()->qp, &gid, 0) == 0);  // it is in
  CHECK(ibv_detach_mcast(queues.back()->qp, &gid, 0) == 0);
  queues.pop_back();
  CHECK(ibv_attach_mcast(late.qp, &gid, 0) == 0);
  CHECK(ibv_detach_mcast(late.qp, &gid, 0) == 0);
  for (const auto& queue : queues) CHECK(ibv_detach_mcast(queue->qp, &gid, 0) == 0);
}

// ---- members in other processes

constexpr std::uint32_t kMessages = 2000;

/// Of a receiver's process: how it stands, one byte each.
constexpr char kJoined = 'j';
constexpr char kDone = 'd';
constexpr char kWrong = 'w';

/// Receives message 0 as often as it comes, and then 1, 2, 3, ..., each once.
char receive_in_order(int channel, std::uint32_t messages) {
  End end(messages + 512);
  for (std::uint32_t id = 0; id < messages + 512; ++id) end.receive(id);
  end.attach(1);
  if (write(channel, &kJoined, 1) != 1) return kWrong;
  for (std::uint32_t expected = 1; expected <= messages;) {
    const ibv_wc wc = end.device.next();
    const std::uint32_t number = ntohl(wc.imm_data);
    if (number == 0) {
      end.receive(0);
      continue;
    }
    if (wc.status != IBV_WC_SUCCESS || number != expected) return kWrong;
    ++expected;
  }
  return kDone;
}

class Receiver {
 public:
  explicit Receiver(std::uint32_t messages = kMessages) {
    name_fabric();
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel_) == 0);
    process_ = fork();
    REQUIRE(process_ >= 0);
    if (process_ != 0) return;
    alarm(60);  // if it hangs
    const char end = receive_in_order(channel_[1], messages);
    _exit(write(channel_[1], &end, 1) == 1 ? 0 : 1);
  }
  ~Receiver() {
    end();
    close(channel_[0]);
    close(channel_[1]);
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  char hear() {
    char said = 0;
    REQUIRE(read(channel_[0], &said, 1) == 1);
    return said;
  }
  void stop() {
    REQUIRE(kill(process_, SIGSTOP) == 0);
    REQUIRE(waitpid(process_, nullptr, WUNTRACED) == process_);
  }
  void go_on() { REQUIRE(kill(process_, SIGCONT) == 0); }
  /// As kill -9.
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  int channel_[2]{};
  pid_t process_ = 0;
};

TEST_CASE("a member that is stopped, and then killed, takes nothing from the others", "[ibverbs][groups]") {
  Receiver dying;  // before this process has threads
  Receiver living;
  CHECK(dying.hear() == kJoined);
  CHECK(living.hear() == kJoined);
  Sender sender(1);
  // The first one waits for the paths to both.
  sender.send(0);
  dying.stop();
  const auto begin = std::chrono::steady_clock::now();
  // More than the stopped one has room for: copies to it are dropped after one timeout of a second.
  for (std::uint32_t number = 1; number <= kMessages; ++number) {
    if (number == kMessages / 2) dying.end();
    sender.send(number, 4096);
  }
  CHECK(living.hear() == kDone);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("a group's datagram arrives although its address handle is destroyed before there is a path to a member",
          "[ibverbs][groups]") {
  Receiver member(1);
  CHECK(member.hear() == kJoined);
  End sender;
  member.stop();  // so that there is no path to it
  ibv_ah* ah = handle_to(sender.device, group_of(1));
  REQUIRE(ah != nullptr);
  ibv_sge part = sender.device.part(8192, 8);
  ibv_send_wr made = sender.queue.request(1, IBV_WR_SEND_WITH_IMM, part);
  made.imm_data = htonl(1);
  made.wr.ud = {ah, kMulticast, kQueueKey};
  REQUIRE(sender.queue.post(made) == 0);
  REQUIRE(ibv_destroy_ah(ah) == 0);
  member.go_on();
  sender.device.expect(1);
  CHECK(member.hear() == kDone);
}

TEST_CASE("a device that is closed is in no group any more, although its queue pairs were not destroyed",
          "[ibverbs][groups]") {
  name_fabric();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(static_cast<unsigned>(kLimit.count()));  // if it hangs
    auto* end = new End;
    end->attach(1);
    const bool before = has_members(group_of(1));
    const bool closed = ibv_close_device(end->device.context) == 0;
    _exit(before && closed && !has_members(group_of(1)) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::groups_test
