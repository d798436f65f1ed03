// bench-peer-libfabric: sends and receives of libfabric's shared-memory provider.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/peers/harness.h"

namespace splitnic::bench::peers {

namespace {

constexpr std::size_t kMostUnderWay = 64;
constexpr std::size_t kReceives = 2 * kMostUnderWay;

void check(long status, const char* what) {
  if (status < 0) throw std::runtime_error(std::string(what) + ": " + fi_strerror(static_cast<int>(-status)));
}

class Libfabric final : public Side {
 public:
  explicit Libfabric(int channel)
      : source_(kMostUnderWay * kMaxBytes, std::byte{1}), sink_(kReceives * Places::kStride) {
    open();
    std::array<char, 512> name{};
    std::size_t bytes = name.size();
    check(fi_getname(&endpoint_->fid, name.data(), &bytes), "the endpoint's name");
    const auto other = exchange(channel, name.data(), bytes);
    if (fi_av_insert(addresses_, other.data(), 1, &peer_, 0, nullptr) != 1) throw std::runtime_error("no such address");
    post_receives();
  }

  /// Removes the endpoint's file in /dev/shm.
  ~Libfabric() override {
    for (fid* object :
         {&endpoint_->fid, &sent_->fid, &received_->fid, &addresses_->fid, &domain_->fid, &fabric_->fid}) {
      fi_close(object);
    }
  }

  void begin(const Task& task) override {
    task_ = task;
    started_ = completed_ = 0;
    stride_ = (task.bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    places_ = std::clamp<std::size_t>(kCachedBytes / stride_, 2, kMostUnderWay);
    post_receives();
  }

  std::size_t send(std::uint64_t first, std::size_t count) override {
    for (std::size_t taken = 0; taken < count; ++taken) {
      if (started_ - completed_ >= places_) {
        complete();
        if (started_ - completed_ >= places_) return taken;
      }
      std::byte* from = source_.data() + started_ % places_ * stride_;
      const std::uint64_t stamp = first + taken + 1;
      std::memcpy(from, &stamp, sizeof stamp);
      const auto status = fi_send(endpoint_, from, task_.bytes, nullptr, peer_, nullptr);
      if (status == -FI_EAGAIN) {
        complete();
        return taken;
      }
      check(status, "sending");
      ++started_;
    }
    return count;
  }

  std::size_t receive(std::uint64_t next) override {
    std::array<fi_cq_msg_entry, 32> entries;
    const auto got = fi_cq_read(received_, entries.data(), entries.size());
    if (got == -FI_EAGAIN) return 0;
    check(got, "receiving");
    for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
      std::uint64_t stamp = 0;
      const auto* at = static_cast<const std::byte*>(entries[i].op_context);
      std::memcpy(&stamp, at, sizeof stamp);
      if (stamp != next + i + 1 || entries[i].len != task_.bytes) throw std::runtime_error("another message came");
      receive_places_.give_back(static_cast<std::size_t>(at - sink_.data()));
    }
    posted_ -= static_cast<std::size_t>(got);
    post_receives();
    return static_cast<std::size_t>(got);
  }

  bool flush() override {
    complete();
    return completed_ == started_;
  }
  void progress() override { complete(); }

 private:
  void open() {
    fi_info* hints = fi_allocinfo();
    hints->caps = FI_MSG;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->fabric_attr->prov_name = ::strdup("shm");
    fi_info* info = nullptr;
    const int found = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info);
    fi_freeinfo(hints);
    check(found, "the provider shm");
    check(fi_fabric(info->fabric_attr, &fabric_, nullptr), "the fabric");
    check(fi_domain(fabric_, info, &domain_, nullptr), "the domain");
    fi_av_attr addresses{};
    addresses.type = FI_AV_TABLE;
    addresses.count = 2;
    check(fi_av_open(domain_, &addresses, &addresses_, nullptr), "the address vector");
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_MSG;
    queue.size = 4 * kReceives;
    check(fi_cq_open(domain_, &queue, &sent_, nullptr), "a completion queue");
    check(fi_cq_open(domain_, &queue, &received_, nullptr), "a completion queue");
    check(fi_endpoint(domain_, info, &endpoint_, nullptr), "the endpoint");
    check(fi_ep_bind(endpoint_, &addresses_->fid, 0), "binding the addresses");
    check(fi_ep_bind(endpoint_, &sent_->fid, FI_TRANSMIT), "binding a completion queue");
    check(fi_ep_bind(endpoint_, &received_->fid, FI_RECV), "binding a completion queue");
    check(fi_enable(endpoint_), "enabling the endpoint");
    fi_freeinfo(info);
  }

  /// Twice as many as the peer's messages under way.
  void post_receives() {
    for (; posted_ < 2 * places_; ++posted_) {
      std::byte* into = sink_.data() + receive_places_.take();
      check(fi_recv(endpoint_, into, kMaxBytes, nullptr, FI_ADDR_UNSPEC, into), "posting a receive");
    }
  }

  void complete() {
    std::array<fi_cq_msg_entry, 32> entries;
    const auto got = fi_cq_read(sent_, entries.data(), entries.size());
    if (got == -FI_EAGAIN) return;
    check(got, "completing");
    completed_ += static_cast<std::uint64_t>(got);
  }

  Task task_;
  std::vector<std::byte> source_;
  std::vector<std::byte> sink_;
  std::size_t places_ = kMostUnderWay;
  std::size_t stride_ = kLineBytes;
  std::size_t posted_ = 0;  // receives
  Places receive_places_{kReceives};
  std::uint64_t started_ = 0, completed_ = 0;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* sent_ = nullptr;
  fid_cq* received_ = nullptr;
  fid_ep* endpoint_ = nullptr;
};

}  // namespace

}  // namespace splitnic::bench::peers

int main(int argc, char** argv) {
  using namespace splitnic::bench::peers;
  return run(argc, argv, {"bench-peer-libfabric", {"send"}, [](Role, int channel) -> std::unique_ptr<Side> {
                            return std::make_unique<Libfabric>(channel);
                          }});
}
