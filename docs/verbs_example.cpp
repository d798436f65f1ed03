// Two processes over a bridge of shared memory. The server opens a board to its client, who writes on it, reads it and
// counts the visit: messages, a memory window, RDMA write and read, an atomic; asleep while there is nothing to do.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "fabric/bridge/shm_bridge.h"
#include "fabric/verbs/connection.h"
#include "fabric/verbs/verbs.h"
#include "fabric/verbs/wait.h"

using namespace splitnic;
using verbs::Right, verbs::Status;

namespace {

constexpr verbs::ServiceNumber kBoardService{1};

// Names of requests, which come back in their completions.
enum : std::uint64_t { kHello = 1, kOffer, kWrite, kRead, kVisit, kGoodbye };

/// The server's memory.
struct Board {
  std::uint64_t visits = 0;
  char text[56] = {};
};

/// The client's.
struct Desk {
  std::array<std::byte, verbs::kRemoteKeyBytes> key{};
  std::uint64_t visits_before = 99;
  char text[56] = "Push, do not ask.";
  char read_back[56] = {};
};

[[noreturn]] void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

void check(Status status, const char* what) {
  if (status != Status::ok) give_up(what, to_string(status));
}

template <class T>
T made(verbs::Expected<T> object, const char* what) {
  if (!object) give_up(what, to_string(object.error()));
  return std::move(*object);
}

template <class T>
std::span<std::byte> bytes_of(T& object) {
  return std::as_writable_bytes(std::span(&object, 1));
}

/// What both programs need: a context with a path to the other, a domain, a completion queue, a queue pair.
struct End {
  explicit End(std::shared_ptr<fabric::Bridge> bridge)
      : context(made(verbs::Context::open(), "context")),
        path(made(context.add_path(std::move(bridge)), "path")),
        domain(made(context.allocate_domain(), "domain")),
        completions(made(context.create_completion_queue(64), "completion queue")) {
    verbs::QueuePairOptions options;
    options.send_completions = options.receive_completions = &completions;
    options.memory_requests = true;  // windows are bound through the send queue
    options.max_inline_bytes = verbs::kRemoteKeyBytes;
    queue_pair = made(domain.create_queue_pair(options), "queue pair");
    run_until([this] { return path.up(); });
  }

  /// The whole event loop: poll; when nothing moves any more, sleep until the peer rings.
  template <class Done>
  void run_until(Done done) {
    const Time limit = monotonic_now() + std::chrono::seconds(10);
    for (Time now = monotonic_now();; now = monotonic_now()) {
      const std::size_t moved = context.poll(now);
      if (done()) return;
      if (now >= limit) give_up("peer", "silent for 10 s");
      if (moved == 0) check(verbs::wait(context, now, limit), "wait");
    }
  }

  /// The next completion, which must be this request's.
  verbs::Completion expect(std::uint64_t id) {
    std::array<verbs::Completion, 1> next;
    run_until([&] { return completions.poll(next) == 1; });
    if (next[0].status != verbs::CompletionStatus::success) give_up("request", to_string(next[0].status));
    if (next[0].id != id) give_up("completion", "of another request");
    return next[0];
  }

  verbs::Context context;
  verbs::Path path;
  verbs::ProtectionDomain domain;
  verbs::CompletionQueue completions;
  verbs::QueuePair queue_pair;
};

void serve(End& end) {
  Board board;
  auto region =
      made(end.domain.register_memory(bytes_of(board), Right::local_read | Right::local_write | Right::window_binding),
           "board");
  auto window = made(end.domain.allocate_window(verbs::WindowType::type_2), "window");
  check(end.queue_pair.post_receive(verbs::receive(kHello, {})), "receive");  // nothing but the message counts
  check(end.queue_pair.post_receive(verbs::receive(kGoodbye, {})), "receive");
  // Without a poll in between: a request that comes before is repeated, one that finds no listener is rejected.
  auto connections = made(verbs::Connections::open(end.context), "connections");
  auto listener = made(connections.listen(kBoardService), "listener");
  std::optional<verbs::Connection> connection;
  end.run_until([&] { return (connection = listener.take()).has_value(); });
  check(connection->accept(end.queue_pair), "accept");
  end.expect(kHello);

  // The queue works in order: when the key leaves, the window is open.
  verbs::Binding binding;
  binding.bytes = sizeof(Board);
  binding.rights = Right::remote_read | Right::remote_write | Right::remote_atomic;
  verbs::RequestOptions quiet;
  quiet.signalled = false;
  check(end.queue_pair.post_bind(window, region, binding, quiet), "bind");
  auto key = encode(window.remote_key());
  auto offer = verbs::send(kOffer, {{key.data(), verbs::kRemoteKeyBytes, {}}});
  offer.inline_data = true;  // copied now; needs no region
  check(end.queue_pair.post_send(offer), "offer");
  end.expect(kOffer);

  // The client works on the board now, without us. With its last message it closes the window.
  const auto goodbye = end.expect(kGoodbye);
  const bool closed = goodbye.has_invalidated && !window.valid();
  if (!closed || board.visits != 1 || board.text[0] == 0) give_up("board", "not as a client leaves it");
  // The client leaves in order; a client that died would be lost instead.
  end.run_until([&] { return connection->state() == verbs::ConnectionState::ended; });
  if (connection->info().ending != verbs::ConnectionEventKind::disconnected) give_up("client", "lost");
  std::printf("server: visit %d says \"%s\"\n", static_cast<int>(board.visits), board.text);
}

void visit(End& end) {
  Desk desk;
  auto region = made(end.domain.register_memory(bytes_of(desk), Right::local_read | Right::local_write), "desk");
  check(end.queue_pair.post_receive(verbs::receive(kOffer, region.segment(0, sizeof(desk.key)))), "receive");
  auto connections = made(verbs::Connections::open(end.context), "connections");
  auto connection = made(connections.connect(end.path, kBoardService, end.queue_pair), "connection");
  end.run_until([&] { return connection.state() != verbs::ConnectionState::connecting; });
  if (connection.state() != verbs::ConnectionState::established) give_up("server", "does not answer");
  auto hello = verbs::send(kHello, {});
  hello.signalled = false;  // a completion only if it fails
  check(end.queue_pair.post_send(hello), "hello");
  end.expect(kOffer);
  const auto board = verbs::decode_remote_key(desk.key);
  if (!board || board->bytes != sizeof(Board)) give_up("offer", "no board");

  // One after the other at the server, without a word in between.
  auto write = verbs::rdma_write(kWrite, {region.segment(offsetof(Desk, text), sizeof(desk.text))},
                                 board->at(offsetof(Board, text)));
  write.signalled = false;
  check(end.queue_pair.post_send(write), "write");
  check(end.queue_pair.post_send(verbs::rdma_read(kRead,
                                                  {region.segment(offsetof(Desk, read_back), sizeof(desk.read_back))},
                                                  board->at(offsetof(Board, text)))),
        "read");
  check(end.queue_pair.post_send(verbs::compare_swap(kVisit, region.segment(offsetof(Desk, visits_before), 8),
                                                     board->at(offsetof(Board, visits)), 0, 1)),
        "compare and swap");
  end.expect(kRead);
  end.expect(kVisit);
  check(end.queue_pair.post_send(verbs::send_with_invalidate(kGoodbye, {}, board->tag)), "goodbye");
  end.expect(kGoodbye);
  const bool as_written = std::memcmp(desk.text, desk.read_back, sizeof(desk.text)) == 0;
  if (!as_written || desk.visits_before != 0) give_up("board", "not as written");
  check(connection.disconnect(), "disconnect");
  end.run_until([&] { return connection.state() == verbs::ConnectionState::ended; });
  std::printf("client: wrote, read back and was the first\n");
}

}  // namespace

int main() {
  auto ends = fabric::shm_pair();
  if (!ends) give_up("bridge", "cannot be made");
  const pid_t client = fork();
  if (client < 0) give_up("client", "cannot be started");
  auto& [servers, clients] = *ends;
  if (client == 0) {
    servers.reset();
    End end(std::move(clients));
    visit(end);
    return 0;
  }
  clients.reset();
  End end(std::move(servers));
  serve(end);
  int status = 0;
  waitpid(client, &status, 0);
  return status == 0 ? 0 : 1;
}
