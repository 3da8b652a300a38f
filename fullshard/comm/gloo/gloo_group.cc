// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "fullshard/base/broken_pipe.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/timeouts.h"

namespace fullshard::comm {
namespace {

using Options = c10d::ProcessGroupGloo::Options;

// c10d's flight recorder keeps a table of groups that it does not lock: two groups of one process
// that call at the same time can end it. It reads its size from the environment once, when the
// first group calls; ours is the Recorder. A size that the user has set stays.
void turn_off_flight_recorder() {
  [[maybe_unused]] static const int done = ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/0);
}

c10::intrusive_ptr<Options> options_of(const GlooDevice& device,
                                       std::chrono::milliseconds timeout) {
  turn_off_flight_recorder();
  auto options = Options::create(timeout);
  options->threads = 1;  // calls come one after another
  using Group = c10d::ProcessGroupGloo;
  options->devices.push_back(
      !device.interface.empty() ? Group::createDeviceForInterface(device.interface)
      : !device.address.empty() ? Group::createDeviceForHostname(device.address)
                                : Group::createDefaultDevice());
  return options;
}

// The connections are a protected member.
class CuttableGloo : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  void cut() {
    for (const auto& context : contexts_) context->closeConnections();
  }
};

using PostedMessages = std::vector<c10::intrusive_ptr<c10d::Work>>;

// What is waited for at the moment, and whether that is over.
class GivingUp {
 public:
  // gloo has a clock of its own, which also counts the time in which this process is stopped: its
  // limit is never reached.
  void wait_for_all(const PostedMessages& messages) {
    const Waiting waiting(*this, messages);
    for (const auto& message : messages) {
      if (!message->wait(kNoLimit)) fail("gloo: a call was given up");
    }
  }

  void give_up() {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    if (awaited_ == nullptr) return;
    for (const auto& message : *awaited_) message->abort();
  }

 private:
  class Waiting {
   public:
    Waiting(GivingUp& all, const PostedMessages& messages) : all_(all) {
      const std::lock_guard lock(all.mutex_);
      check(!all.is_over_, "gloo: a call was given up");
      all.awaited_ = &messages;
    }
    ~Waiting() {
      const std::lock_guard lock(all_.mutex_);
      all_.awaited_ = nullptr;
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    GivingUp& all_;
  };

  std::mutex mutex_;
  bool is_over_ = false;
  const PostedMessages* awaited_ = nullptr;
};

// Messages to and from several ranks at once. What is received must be posted before what is sent:
// a sender begins when it has the other's word, which would wait behind the data of its own.
class Exchange {
 public:
  Exchange(CuttableGloo& group, GivingUp& end) : group_(group), end_(end) {}

  void receive(const at::Tensor& bytes, int from) {
    if (bytes.numel() == 0) return;
    std::vector<at::Tensor> tensors = {bytes};
    posted_.push_back(group_.recv(tensors, from, kTag));
  }

  void send(const at::Tensor& bytes, int to) {
    if (bytes.numel() == 0) return;
    std::vector<at::Tensor> tensors = {bytes};
    posted_.push_back(group_.send(tensors, to, kTag));
  }

  void wait() { end_.wait_for_all(posted_); }

 private:
  static constexpr int kTag = 0;  // messages between two ranks keep their order

  CuttableGloo& group_;
  GivingUp& end_;
  PostedMessages posted_;
};

std::atomic<int64_t> calls_made = 0;

}  // namespace

int64_t GlooGroup::num_calls() { return calls_made; }

class GlooGroup::Gloo {
 public:
  explicit Gloo(c10::intrusive_ptr<CuttableGloo> made) : group(std::move(made)) {}

  int rank() const { return group->getRank(); }
  int size() const { return group->getSize(); }

  const c10::intrusive_ptr<CuttableGloo> group;
  GivingUp end;
};

GlooGroup::GlooGroup(const Store& store, int rank, int size, const GlooDevice& device,
                     std::chrono::milliseconds timeout) {
  const base::NoBrokenPipe for_gloos_threads;
  gloo_ = std::make_unique<Gloo>(c10::make_intrusive<CuttableGloo>(
      c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store.handle()), rank, size,
      options_of(device, timeout)));
}

GlooGroup::~GlooGroup() = default;

// gloo's ring of two sends its data before the word that it is ready to receive, and both wait in
// one socket's queue: the second direction would begin when the first has ended.
void GlooGroup::all_gather(at::Tensor full, at::Tensor own) {
  ++calls_made;
  if (gloo_->size() == 2) {
    const int other = 1 - gloo_->rank();
    const int64_t bytes = own.numel();
    full.narrow(0, gloo_->rank() * bytes, bytes).copy_(own);
    Exchange exchange(*gloo_->group, gloo_->end);
    exchange.receive(full.narrow(0, other * bytes, bytes), other);
    exchange.send(own, other);
    exchange.wait();
    return;
  }
  c10d::AllgatherOptions options;
  options.timeout = kNoLimit;
  gloo_->group->_allgather_base(full, own, options)->wait();
}

// gloo's own all-to-all is in that order too, with every rank. As there, each begins with other
// neighbours, so that not all send to the same one.
void GlooGroup::all_to_all(const at::Tensor& received, const std::vector<int64_t>& received_counts,
                           const at::Tensor& sent, const std::vector<int64_t>& sent_counts) {
  ++calls_made;
  const auto received_parts = received.split_with_sizes(received_counts);
  const auto sent_parts = sent.split_with_sizes(sent_counts);
  const int rank = gloo_->rank(), size = gloo_->size();
  Exchange exchange(*gloo_->group, gloo_->end);
  for (int distance = 1; distance < size; ++distance) {
    const int source = (rank - distance + size) % size;
    exchange.receive(received_parts[static_cast<size_t>(source)], source);
  }
  for (int distance = 1; distance < size; ++distance) {
    const int target = (rank + distance) % size;
    exchange.send(sent_parts[static_cast<size_t>(target)], target);
  }
  received_parts[static_cast<size_t>(rank)].copy_(sent_parts[static_cast<size_t>(rank)]);
  exchange.wait();
}

void GlooGroup::broadcast(at::Tensor tensor, int root) {
  ++calls_made;
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = kNoLimit;
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  gloo_->group->broadcast(tensors, options)->wait();
}

void GlooGroup::give_up() noexcept {
  try {
    gloo_->end.give_up();
  } catch (...) {  // ended already
  }
}

void GlooGroup::cut() noexcept {
  try {
    gloo_->group->cut();
  } catch (...) {  // closed already
  }
}

}  // namespace fullshard::comm
