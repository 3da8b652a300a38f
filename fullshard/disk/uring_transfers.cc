// SPDX-License-Identifier: Apache-2.0
#include "fullshard/disk/uring_transfers.h"

#include <liburing.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "fullshard/base/error.h"

namespace fullshard::disk {
namespace {

class UringTransfers : public Transfers {
 public:
  explicit UringTransfers(int depth) {
    is_made_ = ::io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0) == 0;
  }

  ~UringTransfers() override {
    if (!is_made_) return;
    while (num_begun_ > 0) reap();
    ::io_uring_queue_exit(&ring_);
  }

  bool is_made() const { return is_made_; }

  // An old kernel has rings and not these calls.
  bool has_calls() {
    io_uring_probe* probe = ::io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return false;
    const bool has = ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                     ::io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    ::io_uring_free_probe(probe);
    return has;
  }

  void prepare(int64_t id, const Transfer& transfer) override {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    check(entry != nullptr, "io_uring: more transfers were begun than it was made for");
    const auto bytes = static_cast<unsigned>(transfer.bytes);
    const auto offset = static_cast<uint64_t>(transfer.offset);
    if (transfer.is_write) {
      ::io_uring_prep_write(entry, transfer.descriptor, transfer.data, bytes, offset);
    } else {
      ::io_uring_prep_read(entry, transfer.descriptor, transfer.data, bytes, offset);
    }
    ::io_uring_sqe_set_data64(entry, static_cast<uint64_t>(id));
  }

  void submit() override {
    while (::io_uring_sq_ready(&ring_) > 0) {
      const int status = ::io_uring_submit(&ring_);
      if (status == -EINTR || status == -EAGAIN) continue;
      check(status >= 0, "io_uring: cannot begin a transfer: {}", std::strerror(-status));
      num_begun_ += status;
    }
  }

  Ended wait() override {
    const Ended ended = reap();
    check(ended.id >= 0, "io_uring: cannot wait: {}",
          std::strerror(static_cast<int>(-ended.result)));
    return ended;
  }

 private:
  // Below 0: the kernel does not say any more, and nothing is counted as under way.
  Ended reap() {
    io_uring_cqe* entry = nullptr;
    int status = ::io_uring_wait_cqe(&ring_, &entry);
    while (status == -EINTR || status == -EAGAIN) status = ::io_uring_wait_cqe(&ring_, &entry);
    if (status < 0) {
      num_begun_ = 0;
      return {-1, status};
    }
    const Ended ended{static_cast<int64_t>(::io_uring_cqe_get_data64(entry)), entry->res};
    ::io_uring_cqe_seen(&ring_, entry);
    --num_begun_;
    return ended;
  }

  io_uring ring_ = {};
  bool is_made_ = false;
  int num_begun_ = 0;
};

}  // namespace

std::unique_ptr<Transfers> make_uring_transfers(int depth) {
  auto transfers = std::make_unique<UringTransfers>(depth);
  if (!transfers->is_made() || !transfers->has_calls()) return nullptr;
  return transfers;
}

}  // namespace fullshard::disk
