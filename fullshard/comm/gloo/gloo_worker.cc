// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_worker.h"

#include <c10/core/InferenceMode.h>

#include <utility>

#include "fullshard/base/broken_pipe.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/shm/shm_domain.h"

namespace fullshard::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// How long a rank that gives up waits for the worker to let go of its buffers. Peers cut their
// connections at the next beat of their watch, so this is not reached while their hosts live; for
// those behind a cut link it would be waited for in vain, once for each group, while the launcher
// gives the ranks of its host only a few seconds to say why they end.
constexpr std::chrono::milliseconds kPatience = 2s, kPatienceBehindACut = 500ms;
// Between two looks at ranks that do not come.
constexpr auto kLook = 60s;

}  // namespace

struct GlooWorker::Job {
  Job(const Call& call_, const CallTerms& terms_, Act act_)
      : unit(call_.unit), call(call_), terms(terms_), act(std::move(act_)) {
    call.unit = unit;
  }

  const std::string unit;
  Call call;  // its group is the worker's own string
  const CallTerms terms;
  Act act;
  bool done = false;
  std::exception_ptr error;
};

class GlooWorker::Pending : public Work::Pending {
 public:
  Pending(std::shared_ptr<GlooWorker> worker, std::shared_ptr<Job> job)
      : worker_(std::move(worker)), job_(std::move(job)) {}
  void wait() override { worker_->wait_for(*job_); }

 private:
  std::shared_ptr<GlooWorker> worker_;
  std::shared_ptr<Job> job_;
};

GlooWorker::GlooWorker(GlooMembers members, std::unique_ptr<GlooLane> lane,
                       std::shared_ptr<GlooWatch> watch, const Timeouts& timeouts,
                       std::shared_ptr<ShmDomain> domain)
    : members_(std::move(members)),
      lane_(std::move(lane)),
      watch_(std::move(watch)),
      timeouts_(timeouts),
      domain_(std::move(domain)) {}

void GlooWorker::start() {
  thread_ = std::thread([self = shared_from_this()] { self->run(); });
  watch_->add_alarm(this, [this] { cut_when_idle(); });
}

void GlooWorker::stop() {
  watch_->remove_alarm(this);
  std::unique_lock lock(mutex_);
  stop_ = true;
  changed_.notify_all();
  if (changed_.wait_for(lock, patience(), [&] { return ended_; })) {
    lock.unlock();
    thread_.join();
  } else {
    thread_.detach();
  }
}

std::chrono::milliseconds GlooWorker::patience() const {
  return watch_->is_host_lost() ? kPatienceBehindACut : kPatience;
}

Work GlooWorker::issue(const Call& call, const CallTerms& terms, Act act) {
  auto job = std::make_shared<Job>(call, terms, std::move(act));
  job->call.group = members_.group;
  watch_->note_progress(progress_name(), job->call.sequence);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
    changed_.notify_all();
  }
  return Work(std::make_unique<Pending>(shared_from_this(), std::move(job)));
}

void GlooWorker::wait_for(const Job& job) {
  const auto start = Clock::now();
  auto next_look = start + kLateAfter;
  std::map<int, uint64_t> beats;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, 100ms, [&] { return job.done; })) {
    if (Clock::now() >= next_look && watch_->is_store_answering()) {
      lock.unlock();
      look_around(job.call, Clock::now() - start, beats);
      lock.lock();
      next_look = Clock::now() + kLook;
      continue;
    }
    check(!stop_, "{} was still in flight when the world ended", subject_of(job.call));
    const auto missing = watch_->missing();
    if (!missing) continue;
    changed_.wait_for(lock, patience(), [&] { return job.done; });
    throw Error(missing->message(watch_->rank(), job.call));
  }
  if (job.error) std::rethrow_exception(job.error);
}

// Names who is late. A host that vanished closes no connection: its ranks are known by silence,
// which `beats` remembers from look to look.
void GlooWorker::look_around(const Call& call, Clock::duration waited,
                             std::map<int, uint64_t>& beats) {
  try {
    if (watch_->find_silent(members_.ranks, beats)) return;  // the caller asks the watch
    const auto absent = watch_->find_absent(members_.ranks, progress_name(), call.sequence);
    if (!absent) return;
    late_.say(subject_of(call), absent->rank,
              std::chrono::duration_cast<std::chrono::milliseconds>(waited), absent->last,
              limit_of(call));
  } catch (const Error&) {
    // The store is gone, which whoever needs it will say.
  }
}

// Groups with the same name but other ranks are told apart by their first rank.
std::string GlooWorker::progress_name() const {
  return fmt::format("{} of rank {}", members_.group, members_.ranks.front());
}

std::string GlooWorker::subject_of(const Call& call) const {
  return fmt::format("rank {}: {} (group {}, sequence {})", watch_->rank(),
                     describe_call(call.operation, call.unit), members_.group, call.sequence);
}

void GlooWorker::run() {
  // What a caller made in such a mode can be written nowhere else; to other tensors this is a mode
  // without gradients.
  const c10::InferenceMode like_any_caller;
  const base::NoBrokenPipe no_broken_pipe;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) break;
    const std::shared_ptr<Job> job = jobs_.front();
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    if (domain_) domain_->enter_beyond();
    std::exception_ptr error = carry_out(*job);
    if (domain_ && !error) domain_->leave_beyond();  // else it has news from there, and will fail
    lock.lock();
    busy_ = false;
    job->act = nullptr;  // lets go of the tensors
    job->error = std::move(error);
    job->done = true;
    changed_.notify_all();
  }
  ended_ = true;
  changed_.notify_all();
}

std::exception_ptr GlooWorker::carry_out(Job& job) noexcept {
  if (!broken_.empty()) return std::make_exception_ptr(Error(broken_));
  const auto start = Clock::now();
  try {
    job.act({*lane_, job.call, job.terms, limit_of(job.call)});
    met_ = {
        progress_name(), job.call.sequence,
        fmt::format("{} (group {}, sequence {})", describe_call(job.call.operation, job.call.unit),
                    members_.group, job.call.sequence)};
    return nullptr;
  } catch (const Disagreement& error) {
    broken_ = error.what();
    return std::current_exception();
  } catch (const std::exception& error) {
    broken_ = explain(job.call, error, Clock::now() - start);
    lane_->cut();  // whoever waits for this rank need not wait longer
    return std::make_exception_ptr(Error(broken_));
  }
}

// Gloo only says that a connection broke or that time was over, and a host's own watch knows only
// its own ranks; the watch over all of them knows who is missing.
std::string GlooWorker::explain(const Call& call, const std::exception& error,
                                Clock::duration waited) {
  try {
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(waited);
    const auto missing = time + 50ms < limit_of(call)
                             ? watch_->find_gone(members_.ranks, met_)
                             : watch_->find_late(members_.ranks, progress_name(), call.sequence,
                                                 time, call.limit, met_);
    if (missing) return missing->message(watch_->rank(), call);
  } catch (const Error& store_error) {
    return fmt::format("{} failed: {}", subject_of(call), store_error.what());
  }
  const std::string text = error.what();
  if (dynamic_cast<const Error*>(&error) != nullptr) return text;
  return fmt::format(
      "{} failed although all ranks live: {}; the network between them is broken or too slow",
      subject_of(call), text.substr(0, text.find('\n')));
}

// A rank that waits itself must not close its own connections: it would not notice that its peers
// have closed theirs.
void GlooWorker::cut_when_idle() {
  const std::lock_guard lock(mutex_);
  if (!busy_ && jobs_.empty()) lane_->cut();
}

}  // namespace fullshard::comm
