#include "fullshard/checkpoint/patient_work.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace fullshard {
namespace {

bool told(const Communicator& ranks, bool has_ended) {
  const auto flag = at::empty({1}, at::kLong).fill_(has_ended ? 1 : 0);
  ranks.broadcast(flag, 0, "what rank 0 writes").wait();
  return flag.item<int64_t>() == 1;
}

}  // namespace

PatientWork::~PatientWork() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PatientWork::run(const Communicator& ranks, const std::function<void()>& act) {
  if (ranks.size() == 1) return act();
  if (ranks.rank() != 0) {
    while (!told(ranks, false)) {
    }
    return;
  }
  start(act);
  try {
    while (!told(ranks, has_ended(moment_))) {
    }
  } catch (...) {
    // A rank is gone; what `act` looks at is not, until it has ended.
    while (!has_ended(moment_)) {
    }
    throw;
  }
}

void PatientWork::start(const std::function<void()>& act) {
  {
    const std::lock_guard lock(mutex_);
    act_ = &act;
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

bool PatientWork::has_ended(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [this] { return act_ == nullptr; });
}

void PatientWork::work() {
  const at::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return act_ != nullptr || is_over_; });
    if (act_ == nullptr) return;
    lock.unlock();
    (*act_)();
    lock.lock();
    act_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace fullshard
