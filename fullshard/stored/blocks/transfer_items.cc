// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/blocks/transfer_items.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fullshard/stored/blocks/work_items.h"

namespace fullshard::stored {
namespace {

struct Slot {
  disk::DirectBuffer buffer;
  disk::Transfer transfer = {};
  int64_t item = 0;
};

class Worker {
 public:
  Worker(const TransferPlan& plan, BufferPool& buffers, int depth)
      : plan_(plan), buffers_(buffers), slots_(static_cast<size_t>(depth)) {
    for (auto& slot : slots_) slot.buffer = buffers_.take();
    if (depth > 1) transfers_ = disk::make_transfers(depth, plan.kind);
  }

  ~Worker() {
    transfers_.reset();  // waits: the buffers are in use till then
    for (auto& slot : slots_) buffers_.give_back(std::move(slot.buffer));
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // `next` returns an item, or a number beyond the last.
  void run(const std::function<int64_t()>& next, const std::function<bool()>& is_over) {
    size_t num_begun = 0;
    for (size_t i = 0; i < slots_.size() && !is_over() && begin(i, next()); ++i) ++num_begun;
    while (num_begun > 0) {
      const auto ended = wait();
      const auto index = static_cast<size_t>(ended.id);
      plan_.finish(slots_[index].item, slots_[index].transfer, ended.result);
      if (is_over() || !begin(index, next())) --num_begun;
    }
  }

 private:
  bool begin(size_t index, int64_t item) {
    if (item >= plan_.num_items) return false;
    Slot& slot = slots_[index];
    slot.item = item;
    slot.transfer = plan_.prepare(item, slot.buffer);
    if (transfers_) transfers_->begin(static_cast<int64_t>(index), slot.transfer);
    return true;
  }

  disk::Transfers::Ended wait() {
    return transfers_ ? transfers_->wait()
                      : disk::Transfers::Ended{0, disk::move_bytes(slots_[0].transfer)};
  }

  const TransferPlan& plan_;
  BufferPool& buffers_;
  std::vector<Slot> slots_;
  std::unique_ptr<disk::Transfers> transfers_;
};

}  // namespace

bool do_transfers(const TransferPlan& plan, BufferPool& buffers, const std::atomic<bool>* stop) {
  const int64_t num_workers = std::min<int64_t>(plan.num_workers, plan.num_items);
  if (num_workers == 0) return stop == nullptr || !*stop;
  const int64_t share = (plan.num_items + num_workers - 1) / num_workers;
  const auto depth = static_cast<int>(std::min<int64_t>(plan.depth, share));
  std::atomic<int64_t> next{0};
  std::atomic<bool> has_failed{false};
  const auto is_over = [&] { return has_failed || (stop != nullptr && *stop); };
  // One item of do_items() is one worker's whole run.
  return do_items(
      num_workers, static_cast<int>(num_workers),
      [&](int, int64_t) {
        try {
          Worker(plan, buffers, depth).run([&] { return next++; }, is_over);
        } catch (...) {
          has_failed = true;
          throw;
        }
      },
      stop);
}

}  // namespace fullshard::stored
