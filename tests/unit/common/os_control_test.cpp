#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <capnp/any.h>
#include <capnp/message.h>
#include <capnp/schema.h>
#include <capnp/serialize.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/describe/members.hpp>
#include <boost/json.hpp>
#include <boost/mp11/algorithm.hpp>
#include <catch2/catch.hpp>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "common/os/control.capnp.h"
#include "common/os/control_client.h"
#include "common/os/control_protocol.h"
#include "common/os/control_server.h"
#include "common/random.h"
#include "os_temporary_directory.h"

namespace splitnic::os::os_control_test {
namespace {

using namespace std::chrono_literals;

DaemonStatus sample() {
  DaemonStatus status;
  status.role = "iounit";
  status.name = "rack1";
  status.state = "up";
  status.epoch = 0xfedcba9876543210;
  status.mac = "02:00:00:00:00:01";
  status.mtu = 1500;
  status.carrier = true;
  status.lan = "eth0";
  status.lan_engine = "packet";
  status.threads = 2;
  status.tap = "vnic0";
  status.mode = "r";
  status.peers = {
      {"web1", "up", "02:00:00:00:00:02", 1, 2, 3, 4, {{"filtered", 5}, {"pool-empty", 6}}, {{"SendData", 7}}},
      {"web2", "down", "", 0, 0, 0, 0, {}, {}}};
  status.drops = {{"lan-full", 8}};
  status.counts = {{"moved", 9}};
  status.pid = 4711;
  status.version = "0.1.0";
  status.uptime_ms = 123456789012;
  return status;
}

/// A server with its own thread, so that the blocking client can be used on it.
class Daemon {
 public:
  explicit Daemon(ControlServerOptions options = {}, DaemonStatus answer = sample()) : status(std::move(answer)) {
    auto opened =
        ControlServer::open(context_, path(), answered_at_once([this](ControlRequest request) -> Result<ControlAnswer> {
                              ++answers_;
                              if (request == ControlRequest::show_policy) return std::string("[policy]\n");
                              if (request == ControlRequest::reload_policy) return fail("p.toml:3: wrong");
                              if (request == ControlRequest::clear) ++clears_;
                              return status;
                            }),
                            log_, options);
    REQUIRE(opened);
    server_ = std::move(*opened);
    thread_ = std::thread([this] { context_.run(); });
  }
  ~Daemon() {
    context_.stop();
    thread_.join();
  }
  std::string path() const { return directory_.path("control.sock"); }
  int answers() const { return answers_; }
  int clears() const { return clears_; }

  const DaemonStatus status;

 private:
  TemporaryDirectory directory_;
  std::atomic<int> answers_{0};
  std::atomic<int> clears_{0};
  Log log_{"test", {.write = [](std::string_view) {}}};
  boost::asio::io_context context_;
  std::unique_ptr<ControlServer> server_;
  std::thread thread_;
};

UniqueFd connect_to(const std::string& path) {
  UniqueFd descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::connect(descriptor.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const timeval patience{10, 0};
  REQUIRE(::setsockopt(descriptor.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
  return descriptor;
}

void send_bytes(const UniqueFd& socket, const std::string& bytes) {
  REQUIRE(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

std::string framed(ControlRequest what) {
  const ControlMessage request = encode_request(what);
  std::string bytes(4, '\0');
  bytes[0] = static_cast<char>(request.size() * 8);
  bytes.append(reinterpret_cast<const char*>(request.data()), request.size() * 8);
  return bytes;
}

Result<ControlAnswer> receive_reply(const UniqueFd& socket) {
  ControlLength length;
  REQUIRE(::recv(socket.get(), &length, sizeof length, MSG_WAITALL) == sizeof length);
  ControlMessage reply(length.value() / 8);
  REQUIRE(::recv(socket.get(), reply.data(), length.value(), MSG_WAITALL) == length.value());
  return decode_reply(reply);
}

// Whether the server hangs up (possibly with bytes of ours unread, a reset) rather than stay silent.
bool is_cut_off(const UniqueFd& socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

bool readable(const UniqueFd& socket) {
  pollfd state{socket.get(), POLLIN, 0};
  return ::poll(&state, 1, 0) == 1;
}

TEST_CASE("a status survives the control socket's encoding", "[common][control]") {
  for (const auto request :
       {ControlRequest::status, ControlRequest::clear, ControlRequest::show_policy, ControlRequest::reload_policy}) {
    CHECK(decode_request(encode_request(request)) == request);
  }
  const auto decoded = decode_reply(encode_reply(sample()));
  REQUIRE(decoded);
  CHECK(*decoded == ControlAnswer(sample()));
  CHECK(*decode_reply(encode_reply(DaemonStatus{})) == ControlAnswer(DaemonStatus{}));
  CHECK(*decode_reply(encode_reply(std::string("text"))) == ControlAnswer(std::string("text")));
  const auto error = decode_reply(encode_error_reply("too\nlarge"));
  REQUIRE_FALSE(error);
  CHECK(error.error().message == "too?large");
}

TEST_CASE("a daemon answers a request for a text, or says why it can't", "[common][control]") {
  Daemon daemon;
  const auto text = query_text(daemon.path(), ControlRequest::show_policy);
  REQUIRE(text);
  CHECK(*text == "[policy]\n");
  const auto refused = query_text(daemon.path(), ControlRequest::reload_policy);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == daemon.path() + ": p.toml:3: wrong");
  CHECK_FALSE(query_status(daemon.path(), ControlRequest::show_policy));  // an answer of another kind
}

template <class Struct>
std::set<std::string> members_of() {
  std::set<std::string> names;
  boost::mp11::mp_for_each<boost::describe::describe_members<Struct, boost::describe::mod_public>>(
      [&](auto member) { names.insert(member.name); });
  return names;
}

/// The schema's fields, txFrames as tx_frames.
std::set<std::string> fields_of(capnp::StructSchema schema) {
  std::set<std::string> names;
  for (const auto field : schema.getFields()) {
    std::string name;
    for (const char character : std::string(field.getProto().getName().cStr())) {
      if (std::isupper(static_cast<unsigned char>(character)) != 0) name += '_';
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
    }
    names.insert(name);
  }
  return names;
}

TEST_CASE("the control socket's schema and the status have the same members", "[common][control]") {
  CHECK(members_of<DaemonStatus>() == fields_of(capnp::Schema::from<control::DaemonStatus>()));
  CHECK(members_of<PeerStatus>() == fields_of(capnp::Schema::from<control::Peer>()));
  CHECK(members_of<NamedCount>() == fields_of(capnp::Schema::from<control::NamedCount>()));
}

TEST_CASE("damaged control messages are errors, never more", "[common][control]") {
  SeededRandom random(1);
  const ControlMessage good = encode_reply(sample());
  for (int round = 0; round < 20000; ++round) {
    ControlMessage bad = good;
    for (std::uint64_t flip = 0; flip <= random.below(4); ++flip) {
      bad[random.below(bad.size())] ^= std::uint64_t{1} << random.below(64);
    }
    if (random.below(4) == 0) bad.resize(random.below(bad.size()));
    static_cast<void>(decode_reply(bad));
    static_cast<void>(decode_request(bad));
  }
  CHECK_FALSE(decode_reply({}));
  CHECK_FALSE(decode_request({}));
  CHECK_FALSE(decode_request({~std::uint64_t{0}, ~std::uint64_t{0}}));
}

TEST_CASE("a list that claims entries without a size is no answer", "[common][control]") {
  const auto peers = capnp::Schema::from<control::DaemonStatus>().getFieldByName("peers");
  const auto answer = [&](unsigned entries) {
    capnp::MallocMessageBuilder builder;
    auto status = capnp::toAny(builder.initRoot<control::Reply>().initStatus());
    status.getPointerSection()[peers.getProto().getSlot().getOffset()].initAsListOfAnyStruct(0, 0, entries);
    const auto words = capnp::messageToFlatArray(builder);
    ControlMessage message(words.size());
    std::memcpy(message.data(), words.begin(), words.asBytes().size());
    return decode_reply(message);
  };
  CHECK(std::get<DaemonStatus>(answer(3).value()).peers.size() == 3);
  const auto refused = answer(100000);
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, Catch::Contains("more entries than the message has room for"));
}

TEST_CASE("the JSON of a status has the documented keys", "[common][control]") {
  CHECK(
      to_json(sample()) ==
      R"({"schema_version":1,"role":"iounit","name":"rack1","state":"up","epoch":"fedcba9876543210","mac":"02:00:00:00:00:01",)"
      R"("mtu":1500,"carrier":true,"lan":"eth0","lan_engine":"packet","tap":"vnic0","mode":"r",)"
      R"("peers":[{"name":"web1","state":"up",)"
      R"("mac":"02:00:00:00:00:02","tx_frames":1,"rx_frames":2,"tx_bytes":3,"rx_bytes":4,)"
      R"("drops":{"filtered":5,"pool-empty":6},"messages":{"SendData":7}},{"name":"web2","state":"down","mac":"",)"
      R"("tx_frames":0,"rx_frames":0,"tx_bytes":0,"rx_bytes":0,"drops":{},"messages":{}}],)"
      R"("drops":{"lan-full":8},"counts":{"moved":9},)"
      R"("pid":4711,"version":"0.1.0","uptime_ms":123456789012,"threads":2})");
}

TEST_CASE("names that are no text still give valid JSON", "[common][control]") {
  DaemonStatus status;
  status.name = "a\xff\"\n";
  const auto parsed = boost::json::parse(to_json(status));
  CHECK(parsed.at("name").as_string() == "a?\"?");
}

TEST_CASE("a client gets the daemon's status, again and again", "[common][control]") {
  const Daemon daemon;
  struct stat status {};
  REQUIRE(::stat(daemon.path().c_str(), &status) == 0);
  CHECK((status.st_mode & 07777U) == 0600);
  for (int round = 0; round < 100; ++round) {
    auto answer = query_status(daemon.path());
    REQUIRE(answer);
    answer->pid = daemon.status.pid;
    CHECK(*answer == daemon.status);
  }
}

TEST_CASE("a status names the daemon's process as the asking one sees it", "[common][control]") {
  const Daemon daemon;  // as in a PID namespace of its own, it has another number there
  const auto answer = query_status(daemon.path());
  REQUIRE(answer);
  CHECK(daemon.status.pid == 4711);
  CHECK(answer->pid == static_cast<std::uint32_t>(::getpid()));
}

TEST_CASE("one connection may ask more than once", "[common][control]") {
  const Daemon daemon;
  const UniqueFd socket = connect_to(daemon.path());
  for (int round = 0; round < 3; ++round) {
    for (const char byte : framed(ControlRequest::status)) send_bytes(socket, std::string(1, byte));  // in pieces
    CHECK(receive_reply(socket));
  }
}

/// A daemon in the test's thread that replies to reload_policy when the test does, and to other requests at once.
class SlowDaemon {
 public:
  explicit SlowDaemon(ControlServerOptions options = {}) {
    auto opened = ControlServer::open(
        *context_, path(),
        [this](ControlRequest request, ControlReply reply) {
          if (request == ControlRequest::reload_policy) return waiting.push_back(std::move(reply));
          reply(std::string("at once"));
        },
        log_, options);
    REQUIRE(opened);
    server_ = std::move(*opened);
  }
  [[nodiscard]] std::string path() const { return directory_.path("control.sock"); }
  [[nodiscard]] std::size_t connections() const { return server_->connections(); }
  template <class Done>
  bool serve_until(Done done) {
    const auto give_up = std::chrono::steady_clock::now() + 10s;
    while (!done() && std::chrono::steady_clock::now() < give_up) context_->run_one_for(1ms);
    return done();
  }
  /// A client whose request has been read so many times in all.
  UniqueFd ask_for_reload(std::size_t requests) {
    UniqueFd client = connect_to(path());
    send_bytes(client, framed(ControlRequest::reload_policy));
    REQUIRE(serve_until([&] { return waiting.size() == requests; }));
    return client;
  }
  void end() {
    server_.reset();
    context_.reset();
  }

  std::vector<ControlReply> waiting;

 private:
  TemporaryDirectory directory_;
  Log log_{"test", {.write = [](std::string_view) {}}};
  std::unique_ptr<boost::asio::io_context> context_ = std::make_unique<boost::asio::io_context>();
  std::unique_ptr<ControlServer> server_;
};

TEST_CASE("a reply may come later than a client's time is up, and others are served meanwhile", "[common][control]") {
  SlowDaemon daemon({.request_timeout = 200ms});
  const UniqueFd client = daemon.ask_for_reload(1);
  const UniqueFd silent = connect_to(daemon.path());
  REQUIRE(daemon.serve_until([&] { return daemon.connections() == 2; }));
  REQUIRE(daemon.serve_until([&] { return daemon.connections() == 1; }));
  CHECK(is_cut_off(silent));  // its time has begun after the client's

  const UniqueFd other = connect_to(daemon.path());
  send_bytes(other, framed(ControlRequest::show_policy));
  REQUIRE(daemon.serve_until([&] { return readable(other); }));
  CHECK(receive_reply(other).value() == ControlAnswer(std::string("at once")));

  CHECK_FALSE(readable(client));
  daemon.waiting[0](std::string("later"));
  CHECK(receive_reply(client).value() == ControlAnswer(std::string("later")));
  // The connection goes on.
  send_bytes(client, framed(ControlRequest::show_policy));
  REQUIRE(daemon.serve_until([&] { return readable(client); }));
  CHECK(receive_reply(client).value() == ControlAnswer(std::string("at once")));
}

TEST_CASE("a later reply to a client that is gone, or of a daemon that is gone, goes nowhere", "[common][control]") {
  SlowDaemon daemon({.max_connections = 2});
  { const UniqueFd hangs_up = daemon.ask_for_reload(1); }
  daemon.waiting[0](std::string("later"));
  REQUIRE(daemon.serve_until([&] { return daemon.connections() == 0; }));

  const UniqueFd replaced = daemon.ask_for_reload(2);
  const UniqueFd second = daemon.ask_for_reload(3);
  const UniqueFd third = daemon.ask_for_reload(4);
  CHECK(daemon.connections() == 2);
  daemon.waiting[1](std::string("later"));
  CHECK(is_cut_off(replaced));
  for (int time = 0; time < 2; ++time) daemon.waiting[2](std::string("once"));
  CHECK(receive_reply(second).value() == ControlAnswer(std::string("once")));
  CHECK_FALSE(readable(second));

  daemon.end();
  daemon.waiting[3](std::string("later"));
  CHECK(is_cut_off(third));
}

TEST_CASE("clients that send nonsense are cut off and others served", "[common][control]") {
  const Daemon daemon;
  const std::string nonsense[] = {
      std::string("\xff\xff\xff\xff", 4),    // too long
      std::string("\0\0\0\0", 4),            // empty
      std::string("\x07\0\0\0xxxxxxx", 11),  // not a multiple of a word
      std::string("\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 12),
      "GET / HTTP/1.1\r\n\r\n",
  };
  for (const auto& bytes : nonsense) {
    const UniqueFd socket = connect_to(daemon.path());
    send_bytes(socket, bytes);
    CHECK(is_cut_off(socket));
  }
  CHECK(daemon.answers() == 0);
  CHECK(query_status(daemon.path()));
}

TEST_CASE("silent clients are cut off when their time is up", "[common][control]") {
  const Daemon daemon({.request_timeout = 20ms});
  const UniqueFd silent = connect_to(daemon.path());
  const UniqueFd slow = connect_to(daemon.path());
  send_bytes(slow, std::string("\x10\0\0\0xx", 6));
  CHECK(is_cut_off(silent));
  CHECK(is_cut_off(slow));
}

TEST_CASE("two hundred idle connections keep nobody from asking", "[common][control]") {
  const Daemon daemon;
  std::vector<UniqueFd> idle;
  for (int connection = 0; connection < 200; ++connection) idle.push_back(connect_to(daemon.path()));
  CHECK(query_status(daemon.path()));
  for (int connection = 0; connection < 200 - 32; ++connection)
    CHECK(is_cut_off(idle[static_cast<std::size_t>(connection)]));
}

TEST_CASE("a reply has room for every counter of as many hosts as a unit may have", "[common][control]") {
  DaemonStatus status = sample();
  PeerStatus host = status.peers.front();
  host.name.assign(64, 'x');
  // What `splitnic stats` shows of a host: 57 causes of losses and 40 kinds of messages, with names of 22 bytes.
  host.drops.assign(57, {std::string(22, 'd'), 1});
  host.messages.assign(40, {std::string(22, 'm'), 1});
  status.peers.assign(1024, host);
  const ControlMessage reply = encode_reply(status);
  CHECK(reply.size() * sizeof reply[0] <= kMaxControlBytes);
  const auto read = decode_reply(reply);
  REQUIRE(read);
  CHECK(std::get<DaemonStatus>(*read).peers.size() == 1024);
}

TEST_CASE("a status too large for a reply is an error text", "[common][control]") {
  DaemonStatus status;
  status.name.resize(kMaxControlBytes, 'x');
  const Daemon daemon({}, status);
  const auto answer = query_status(daemon.path(), ControlRequest::status, 10s);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().message == daemon.path() + ": the status is too large for one reply");
}

TEST_CASE("asking where no daemon answers is a clear error", "[common][control]") {
  const TemporaryDirectory directory;
  const auto error_of = [](const std::string& path) {
    return query_status(path, ControlRequest::status, 20ms).error().message;
  };
  const std::string path = directory.path("s");
  CHECK(error_of(path) == path + ": No such file or directory");
  const auto mute = UnixListener::listen(path);
  REQUIRE(mute);
  CHECK(error_of(path) == path + ": no answer (is the daemon stopped?)");
  {
    auto gone = UnixListener::listen(directory.path("gone"));
    std::filesystem::rename(gone->path(), directory.path("stale"));
  }
  const std::string stale = directory.path("stale");
  CHECK(error_of(stale) == stale + ": nobody listens there (left behind by a daemon that died)");
  CHECK(error_of("/dev/null") == "/dev/null: is no socket");
  const std::string too_long(200, 'x');
  CHECK(error_of(too_long) == too_long + ": a socket's path has at most 107 bytes, this one has 200");
}

TEST_CASE("a client waits for room in a daemon's queue, but not for ever", "[common][control]") {
  const TemporaryDirectory directory;
  const auto full = UnixListener::listen(directory.path("s"), 0600, 0);
  REQUIRE(full);
  const UniqueFd first = connect_to(full->path());
  CHECK(query_status(full->path(), ControlRequest::status, 30ms).error().message ==
        full->path() + ": no answer (is the daemon stopped?)");
}

TEST_CASE("a request to clear reaches the daemon as such", "[common][control]") {
  const Daemon daemon;
  CHECK(query_status(daemon.path()));
  CHECK(daemon.clears() == 0);
  CHECK(query_status(daemon.path(), ControlRequest::clear));
  CHECK(daemon.answers() == 2);
  CHECK(daemon.clears() == 1);
}

TEST_CASE("cleared counts start from nothing, and state stays", "[common][control]") {
  ClearedCounts cleared;
  DaemonStatus status = sample();
  CHECK(cleared.answer(status, ControlRequest::status) == status);
  CHECK(cleared.answer(status, ControlRequest::clear) == status);  // as they were
  const DaemonStatus told = cleared.answer(status, ControlRequest::status);
  CHECK(told.drops == std::vector<NamedCount>{{"lan-full", 0}});
  CHECK(told.counts == std::vector<NamedCount>{{"moved", 0}});
  CHECK(told.uptime_ms == status.uptime_ms);
  CHECK(told.epoch == status.epoch);
  REQUIRE(told.peers.size() == status.peers.size());
  for (const auto& peer : told.peers) {
    CHECK(peer.tx_frames + peer.rx_frames + peer.tx_bytes + peer.rx_bytes == 0);
    for (const auto& count : peer.messages) CHECK(count.count == 0);
  }
  status.peers[0].rx_frames += 5;
  status.counts.push_back({"new", 3});
  const DaemonStatus later = cleared.answer(status, ControlRequest::clear);
  CHECK(later.peers[0].rx_frames == 5);
  CHECK(later.counts == std::vector<NamedCount>{{"moved", 0}, {"new", 3}});
  CHECK(cleared.answer(status, ControlRequest::status).peers[0].rx_frames == 0);

  DaemonStatus restarted = status;
  restarted.peers[0].tx_frames = 0;  // less than before: the peer is a new one of the same name
  CHECK(cleared.answer(restarted, ControlRequest::status).peers[0] == restarted.peers[0]);
}

TEST_CASE("a control socket that is in use is refused at start", "[common][control]") {
  const Daemon daemon;
  boost::asio::io_context context;
  Log log("test", {.write = [](std::string_view) {}});
  const auto second =
      ControlServer::open(context, daemon.path(), answered_at_once([](ControlRequest) { return DaemonStatus(); }), log);
  REQUIRE_FALSE(second);
  CHECK(second.error().message == "control socket: address in use: " + daemon.path() + " (somebody listens there)");
}

}  // namespace
}  // namespace splitnic::os::os_control_test
