// bench-peer-ucx: active messages and puts of UCX over shared memory.
#include <ucp/api/ucp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/peers/harness.h"

namespace splitnic::bench::peers {

namespace {

constexpr unsigned kMessage = 1;
constexpr std::size_t kMostUnderWay = 64;
constexpr unsigned kLooksAtMemory = 64;  // of a put's target, between two turns of UCX; as splitnic's
constexpr std::size_t kRemoteBytes = 1U << 20U;
enum Operation : std::uint32_t { active_message, put };

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) throw std::runtime_error(std::string(what) + ": " + ucs_status_string(status));
}

class Ucx final : public Side {
 public:
  explicit Ucx(int channel) : source_(kMostUnderWay * kMaxBytes, std::byte{1}), sink_(kMaxBytes) {
    // Shared memory alone, unless the user chooses.
    ::setenv("UCX_TLS", "shm", 0);
    open_context();
    open_worker(channel);
    open_memory(channel);
  }

  void begin(const Task& task) override {
    task_ = task;
    started_ = completed_ = arrived_ = 0;
    stride_ = (task.bytes + 63U) / 64 * 64;
    places_ = std::clamp<std::size_t>(kRemoteBytes / stride_, 2, kMostUnderWay);
    if (task.operation == put) std::memset(window_, 0, kRemoteBytes);
  }

  std::size_t send(std::uint64_t first, std::size_t count) override {
    for (std::size_t taken = 0; taken < count; ++taken) {
      if (started_ - completed_ >= places_) {
        ucp_worker_progress(worker_);
        if (started_ - completed_ >= places_) return taken;
      }
      start(first + taken);
    }
    return count;
  }

  std::size_t receive(std::uint64_t next) override {
    if (task_.operation == put) return poll_memory(next);
    ucp_worker_progress(worker_);
    if (!failure_.empty()) throw std::runtime_error(failure_);
    return static_cast<std::size_t>(arrived_ - next);
  }

  bool flush() override {
    ucp_worker_progress(worker_);
    return completed_ == started_;
  }
  void progress() override { ucp_worker_progress(worker_); }

 private:
  void open_context() {
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = UCP_FEATURE_AM | UCP_FEATURE_RMA;
    ucp_config_t* config = nullptr;
    check(ucp_config_read(nullptr, nullptr, &config), "the configuration");
    const auto opened = ucp_init(&parameters, config, &context_);
    ucp_config_release(config);
    check(opened, "a context");
  }

  void open_worker(int channel) {
    ucp_worker_params_t parameters{};
    parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    parameters.thread_mode = UCS_THREAD_MODE_SINGLE;
    check(ucp_worker_create(context_, &parameters, &worker_), "a worker");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessage;
    handler.cb = &Ucx::arrived;
    handler.arg = this;
    check(ucp_worker_set_am_recv_handler(worker_, &handler), "a handler");

    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    check(ucp_worker_get_address(worker_, &address, &bytes), "an address");
    const auto other = exchange(channel, address, bytes);
    ucp_worker_release_address(worker_, address);
    ucp_ep_params_t endpoint{};
    endpoint.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    endpoint.address = reinterpret_cast<const ucp_address_t*>(other.data());
    check(ucp_ep_create(worker_, &endpoint, &endpoint_), "an endpoint");
  }

  /// Memory that UCX allocates, so that the other process can map it.
  void open_memory(int channel) {
    ucp_mem_map_params_t parameters{};
    parameters.field_mask =
        UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    parameters.length = kRemoteBytes;
    parameters.flags = UCP_MEM_MAP_ALLOCATE;
    check(ucp_mem_map(context_, &parameters, &memory_), "memory");
    ucp_mem_attr_t attributes{};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    check(ucp_mem_query(memory_, &attributes), "memory");
    window_ = static_cast<std::byte*>(attributes.address);

    const auto at = exchange(channel, &attributes.address, sizeof attributes.address);
    std::memcpy(&remote_, at.data(), sizeof remote_);
    void* packed = nullptr;
    std::size_t bytes = 0;
    check(ucp_rkey_pack(context_, memory_, &packed, &bytes), "a remote key");
    const auto other = exchange(channel, packed, bytes);
    ucp_rkey_buffer_release(packed);
    check(ucp_ep_rkey_unpack(endpoint_, other.data(), &remote_key_), "a remote key");
  }

  void start(std::uint64_t number) {
    const std::size_t place = started_ % places_ * stride_;
    std::byte* from = source_.data() + place;
    const std::uint64_t stamp = number + 1;
    // A put's target polls the message's last word.
    std::memcpy(from + (task_.operation == put ? stamp_at() : 0), &stamp, sizeof stamp);
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.cb.send = &Ucx::completed;
    parameters.user_data = this;
    const ucs_status_ptr_t started =
        task_.operation == put ? ucp_put_nbx(endpoint_, from, task_.bytes, remote_ + place, remote_key_, &parameters)
                               : ucp_am_send_nbx(endpoint_, kMessage, nullptr, 0, from, task_.bytes, &parameters);
    if (UCS_PTR_IS_ERR(started)) check(UCS_PTR_STATUS(started), "sending");
    ++started_;
    if (started == nullptr) ++completed_;
  }

  [[nodiscard]] std::size_t stamp_at() const { return (task_.bytes - sizeof(std::uint64_t)) / 8 * 8; }

  std::size_t poll_memory(std::uint64_t next) {
    const std::byte* at = window_ + next % places_ * stride_ + stamp_at();
    const std::atomic_ref<const std::uint64_t> word(*reinterpret_cast<const std::uint64_t*>(at));
    for (unsigned look = 0; look < kLooksAtMemory; ++look) {
      if (word.load(std::memory_order_acquire) == next + 1) return 1;
    }
    return 0;
  }

  static void completed(void* request, ucs_status_t status, void* self) {
    auto& side = *static_cast<Ucx*>(self);
    if (status != UCS_OK) side.failure_ = ucs_status_string(status);
    ++side.completed_;
    ucp_request_free(request);
  }
  static void fetched(void* request, ucs_status_t status, std::size_t, void* self) {
    auto& side = *static_cast<Ucx*>(self);
    if (status != UCS_OK) side.failure_ = ucs_status_string(status);
    side.take(side.sink_.data());
    ucp_request_free(request);
  }
  static ucs_status_t arrived(void* self, const void*, std::size_t, void* data, std::size_t bytes,
                              const ucp_am_recv_param_t* how) {
    auto& side = *static_cast<Ucx*>(self);
    if ((how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      side.take(static_cast<const std::byte*>(data));
      return UCS_OK;
    }
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.cb.recv_am = &Ucx::fetched;
    parameters.user_data = self;
    const auto started = ucp_am_recv_data_nbx(side.worker_, data, side.sink_.data(), bytes, &parameters);
    if (started == nullptr) {
      side.take(side.sink_.data());
      return UCS_OK;
    }
    if (UCS_PTR_IS_ERR(started)) {
      side.failure_ = ucs_status_string(UCS_PTR_STATUS(started));
      return UCS_OK;
    }
    return UCS_INPROGRESS;
  }
  /// Messages that the receiver fetches may overtake each other, so only messages of one path are held to their order.
  void take(const std::byte* message) {
    std::uint64_t stamp = 0;
    std::memcpy(&stamp, message, sizeof stamp);
    if (stamp == 0 || (task_.bytes <= kOrderedBytes && stamp != arrived_ + 1)) failure_ = "another message came";
    ++arrived_;
  }
  static constexpr std::size_t kOrderedBytes = 4096;

  Task task_;
  std::vector<std::byte> source_;
  std::vector<std::byte> sink_;
  std::byte* window_ = nullptr;
  std::uint64_t remote_ = 0;
  std::size_t stride_ = 64;
  std::size_t places_ = kMostUnderWay;
  std::uint64_t started_ = 0, completed_ = 0, arrived_ = 0;
  std::string failure_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  ucp_mem_h memory_ = nullptr;
  ucp_rkey_h remote_key_ = nullptr;
};

}  // namespace

}  // namespace splitnic::bench::peers

int main(int argc, char** argv) {
  using namespace splitnic::bench::peers;
  return run(argc, argv, {"bench-peer-ucx", {"active-message", "put"}, [](Role, int channel) -> std::unique_ptr<Side> {
                            return std::make_unique<Ucx>(channel);
                          }});
}
