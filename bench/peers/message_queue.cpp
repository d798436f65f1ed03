// bench-peer-message-queue: Boost.Interprocess's message queue in shared memory, one for each direction. Both ends
// poll.
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/ipc/message_queue.hpp>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/peers/harness.h"

namespace splitnic::bench::peers {

namespace {

namespace ipc = boost::interprocess;

class MessageQueues final : public Side {
 public:
  MessageQueues(Role role, std::string name)
      : role_(role), name_(std::move(name)), source_(kMaxBytes, std::byte{1}), sink_(kMaxBytes) {}
  ~MessageQueues() override { remove_names(); }

  void begin(const Task& task) override {
    remove_names();
    task_ = task;
    ++tasks_;
    const std::size_t depth = std::clamp<std::size_t>((1U << 20U) / task.bytes, 2, 256);
    const bool client = role_ == Role::client;
    out_ = std::make_unique<ipc::message_queue>(ipc::open_or_create, name(client).c_str(), depth, task.bytes);
    in_ = std::make_unique<ipc::message_queue>(ipc::open_or_create, name(!client).c_str(), depth, task.bytes);
    named_ = true;
  }
  std::size_t send(std::uint64_t first, std::size_t count) override {
    for (std::size_t taken = 0; taken < count; ++taken) {
      const std::uint64_t stamp = first + taken + 1;
      std::memcpy(source_.data(), &stamp, sizeof stamp);
      if (!out_->try_send(source_.data(), task_.bytes, 0)) return taken;
    }
    return count;
  }
  std::size_t receive(std::uint64_t next) override {
    constexpr std::size_t kAtOnce = 32;
    for (std::size_t count = 0; count < kAtOnce; ++count) {
      ipc::message_queue::size_type bytes = 0;
      unsigned priority = 0;
      if (!in_->try_receive(sink_.data(), sink_.size(), bytes, priority)) return count;
      std::uint64_t stamp = 0;
      std::memcpy(&stamp, sink_.data(), sizeof stamp);
      if (stamp != next + count + 1 || bytes != task_.bytes) throw std::runtime_error("another message came");
      // The sender has both queues open, so nobody needs their names any more.
      remove_names();
    }
    return kAtOnce;
  }

 private:
  [[nodiscard]] std::string name(bool from_client) const {
    return name_ + (from_client ? "-c" : "-s") + std::to_string(tasks_);
  }
  void remove_names() {
    if (!named_) return;
    named_ = false;
    for (const bool from_client : {true, false}) ipc::message_queue::remove(name(from_client).c_str());
  }

  Role role_;
  std::string name_;
  Task task_;
  std::uint64_t tasks_ = 0;
  bool named_ = false;
  std::unique_ptr<ipc::message_queue> out_;
  std::unique_ptr<ipc::message_queue> in_;
  std::vector<std::byte> source_;
  std::vector<std::byte> sink_;
};

}  // namespace

}  // namespace splitnic::bench::peers

int main(int argc, char** argv) {
  using namespace splitnic::bench::peers;
  const std::string name = "bench-peer-message-queue-" + std::to_string(::getpid());
  return run(argc, argv, {"bench-peer-message-queue", {"send"}, [name](Role role, int) -> std::unique_ptr<Side> {
                            return std::make_unique<MessageQueues>(role, name);
                          }});
}
