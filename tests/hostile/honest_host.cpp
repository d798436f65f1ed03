#include "tests/hostile/honest_host.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <source_location>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/bridge/link.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/bridge/shm_connector.h"

namespace splitnic::fabric::hostile {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMostBytes = 8U << 10U;

/// Thrown when the honest initiator got a wrong result; `line` is the line of the check.
struct Disappointment {
  std::uint_least32_t line = 0;
};
void insist(bool condition, const std::source_location& where = std::source_location::current()) {
  if (!condition) throw Disappointment{where.line()};
}

std::unique_ptr<Bridge> connect(const std::string& path) {
  ShmConnectOptions options;
  options.path = path;
  options.local_bytes = options.window_bytes = kShmMinBytes;
  auto connector = ShmConnector::start(options, monotonic_now());
  insist(connector.has_value());
  for (;;) {
    auto bridge = (*connector)->poll(monotonic_now());
    if (!bridge) {
      pollfd readable{(*connector)->descriptor(), POLLIN, 0};
      static_cast<void>(::poll(&readable, 1, 100));
      continue;
    }
    insist(bridge->has_value());
    return std::move(**bridge);
  }
}

class HonestHost {
 public:
  HonestHost(const std::string& path, Board& board, std::uint64_t seed)
      : board_(board),
        random_(seed),
        bridge_(connect(path)),
        link_(*bridge_, link_options(), random_),
        adapter_(link_, adapter_options(), random_),
        buffer_(2 * kMostBytes) {}

  void set_up() {
    link_.restart();
    wait_until([this] { return link_.up(); });
    const ProtectionDomain domain = adapter_.allocate_domain();
    QueuePairAttributes options;
    options.domain = domain;
    options.send_completions = options.receive_completions = completions_ = adapter_.create_completion_queue(256);
    number_ = adapter_.create_queue_pair(options).value();
    tag_ = adapter_.register_memory(domain, buffer_, Right::local_read | Right::local_write).value();
    board_.number = number_;
    board_.stage.store(Stage::linked);
    wait_until([this] { return board_.stage.load() == Stage::introduced; });
    owner_ = board_.introduction;
    insist(adapter_.connect(number_, {owner_.queue_pair, kPsnToOwner, kPsnFromOwner}) == Status::ok);
  }

  void work() {
    for (std::uint64_t n = 0; board_.stage.load() != Stage::finish; ++n) {
      const bool direct = random_.below(4) == 0;
      write_and_read(direct ? owner_.direct : owner_.open, direct ? whole(board_.direct_model) : whole(board_.model));
      if (n % 4 == 0) count_up();
      if (n % 8 == 0) greet();
    }
  }

 private:
  static LinkOptions link_options() {
    LinkOptions options;
    options.port_address = kHonestPort;
    return options;
  }
  static AdapterOptions adapter_options() {
    AdapterOptions options;
    options.cell_payload_bytes = 256;  // so that a message of some hundred bytes has several cells
    options.ack_timeout = seconds(2);
    return options;
  }
  template <class Model>
  static std::span<std::byte> whole(Model& model) {
    return std::span(model);
  }

  std::size_t poll() {
    const Time now = monotonic_now();
    return link_.poll(now) + adapter_.poll(now);
  }
  template <class Condition>
  void wait_until(Condition condition) {
    const Time give_up = monotonic_now() + seconds(20);
    while (!condition()) {
      insist(monotonic_now() < give_up);
      if (poll() != 0 || condition() || !link_.prepare_sleep()) continue;
      pollfd bell{bridge_->doorbell_descriptor(), POLLIN, 0};
      static_cast<void>(::poll(&bell, 1, link_.up() ? 100 : 1));
      link_.disarm();
    }
  }

  LocalSegment segment(std::size_t offset, std::size_t bytes) {
    return {buffer_.data() + offset, static_cast<std::uint32_t>(bytes), tag_};
  }
  WorkRequest request(Operation operation, const Grant& grant, std::size_t offset, LocalSegment local) {
    WorkRequest made;
    made.id = ++last_id_;
    made.operation = operation;
    made.remote = {grant.address + offset, grant.tag};
    made.segments[0] = local;
    made.segment_count = 1;
    return made;
  }
  void post(const WorkRequest& request) {
    insist(adapter_.post_send(number_, request) == Status::ok);
    ++outstanding_;
  }
  void complete_all() {
    wait_until([this] {
      std::array<Completion, 8> completions;
      const std::size_t count = adapter_.poll_completions(completions_, completions);
      for (const Completion& completion : std::span(completions).first(count)) {
        insist(completion.status == CompletionStatus::success);
        --outstanding_;
        board_.operations.fetch_add(1);
      }
      return outstanding_ == 0;
    });
  }

  /// Writes and reads any bytes except the last word of the memory, which is the counter.
  void write_and_read(const Grant& grant, std::span<std::byte> model) {
    const std::size_t most = model.size() - sizeof(std::uint64_t);
    const std::size_t bytes = 1 + random_.below(std::min(most, kMostBytes));
    const std::size_t at = random_.below(most - bytes + 1);
    const std::size_t read_at = random_.below(most - bytes + 1);
    for (std::size_t i = 0; i < bytes; ++i) model[at + i] = buffer_[i] = static_cast<std::byte>(random_.next());
    post(request(Operation::rdma_write, grant, at, segment(0, bytes)));
    post(request(Operation::rdma_read, grant, read_at, segment(kMostBytes, bytes)));
    complete_all();
    insist(std::equal(model.begin() + static_cast<std::ptrdiff_t>(read_at),
                      model.begin() + static_cast<std::ptrdiff_t>(read_at + bytes), buffer_.begin() + kMostBytes));
  }
  void count_up() {
    WorkRequest add =
        request(Operation::fetch_add, owner_.open, kHonestBytes - sizeof counted_, segment(0, sizeof counted_));
    add.swap_or_add = 3;
    post(add);
    complete_all();
    std::uint64_t before = 0;
    std::memcpy(&before, buffer_.data(), sizeof before);
    insist(before == counted_);
    counted_ += 3;
    std::memcpy(&board_.model[kHonestBytes - sizeof counted_], &counted_, sizeof counted_);
  }
  void greet() {
    for (std::size_t i = 0; i < kGreetingBytes; ++i) buffer_[i] = greeting_byte(greetings_, i);
    ++greetings_;
    post(request(Operation::send, {}, 0, segment(0, kGreetingBytes)));
    complete_all();
  }

  Board& board_;
  SeededRandom random_;
  std::unique_ptr<Bridge> bridge_;
  FabricLink link_;
  ChannelAdapter adapter_;
  std::vector<std::byte> buffer_;
  CqNumber completions_{};
  QpNumber number_{};
  Stag tag_{};
  Introduction owner_{};
  std::uint64_t last_id_ = 0;
  std::size_t outstanding_ = 0;
  std::uint64_t counted_ = 0;
  std::uint64_t greetings_ = 0;
};

}  // namespace

int run_honest_host(const std::string& path, Board& board, std::uint64_t seed) try {
  HonestHost host(path, board, seed);
  host.set_up();
  host.work();
  return 0;
} catch (const Disappointment& disappointment) {
  std::fprintf(stderr, "%s:%u: the honest initiator was let down\n", __FILE__, disappointment.line);
  return static_cast<int>(disappointment.line % 255) + 1;
}

}  // namespace splitnic::fabric::hostile
