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

// How long a rank that gives up waits for the worker to let go of its buffers. Peers cut their
// connections at the next beat of their watch, so this is not reached while their hosts live; for
// those behind a cut link it would be waited for in vain, once for each group, while the launcher
// gives the ranks of its host only a few seconds to say why they end.
constexpr std::chrono::milliseconds kPatience = 2s, kPatienceBehindACut = 500ms;
// How long who carries out a call that was given up may take to say whom it lacks: those who wait
// inside a host may take ten seconds more than the limit.
constexpr auto kForAWord = 15s;
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
  std::optional<std::chrono::milliseconds> over_after{};  // it was given up, having lasted so long
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
  AwakeTime time;
  std::chrono::milliseconds next_look = kLateAfter;
  std::map<int, uint64_t> beats;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, 100ms, [&] { return job.done; })) {
    const auto waited = time.passed();
    end_what_is_over();
    if (waited >= next_look && watch_->is_store_answering()) {
      lock.unlock();
      look_around(job.call, waited, beats);
      lock.lock();
      next_look = waited + kLook;
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

// With the lock. Who waits counts the time, since who carries a call out waits inside gloo; that of
// a call that no thread waits for does not matter to this rank.
void GlooWorker::end_what_is_over() {
  if (!under_way_) return;
  const auto lasted = under_way_for_.passed();
  if (under_way_->over_after) {
    if (lasted > *under_way_->over_after + kForAWord) fail_stuck(under_way_->call, lasted);
  } else if (lasted >= limit_of(under_way_->call)) {
    under_way_->over_after = lasted;
    lane_->give_up();
  }
}

// A peer has stopped in the middle of a call to which all have come.
void GlooWorker::fail_stuck(const Call& call, std::chrono::milliseconds lasted) const {
  const std::string limit(name_of(call.limit));
  fail("{} has not ended after {:.3g} s ({} timeout), although all ranks have come to it; {}",
       subject_of(call), std::chrono::duration<double>(lasted).count(), limit, remedy_of(limit));
}

// Names who is late. A host that vanished closes no connection: its ranks are known by silence,
// which `beats` remembers from look to look.
void GlooWorker::look_around(const Call& call, std::chrono::milliseconds waited,
                             std::map<int, uint64_t>& beats) {
  try {
    if (watch_->find_silent(members_.ranks, beats)) return;  // the caller asks the watch
    const auto absent = watch_->find_absent(members_.ranks, progress_name(), call.sequence);
    if (!absent) return;
    late_.say(subject_of(call), absent->rank, waited, absent->last, limit_of(call));
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
    under_way_ = job;
    under_way_for_ = AwakeTime();
    lock.unlock();
    if (domain_) domain_->enter_beyond();
    std::exception_ptr error = carry_out(*job);
    if (domain_ && !error) domain_->leave_beyond();  // else it has news from there, and will fail
    lock.lock();
    under_way_ = nullptr;
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
  try {
    job.act({*lane_, job.call, job.terms});
    met_ = {
        progress_name(), job.call.sequence,
        fmt::format("{} (group {}, sequence {})", describe_call(job.call.operation, job.call.unit),
                    members_.group, job.call.sequence)};
    return nullptr;
  } catch (const Disagreement& error) {
    broken_ = error.what();
    return std::current_exception();
  } catch (const std::exception& error) {
    broken_ = explain(job, error);
    lane_->cut();  // whoever waits for this rank need not wait longer
    return std::make_exception_ptr(Error(broken_));
  }
}

// Gloo only says that a connection broke or that its call was given up, and a host's own watch
// knows only its own ranks; the watch over all of them knows who is missing.
std::string GlooWorker::explain(const Job& job, const std::exception& error) {
  const Call& call = job.call;
  std::unique_lock lock(mutex_);
  const auto over_after = job.over_after;
  lock.unlock();
  try {
    const auto missing = over_after
                             ? watch_->find_late(members_.ranks, progress_name(), call.sequence,
                                                 *over_after, call.limit, met_)
                             : watch_->find_gone(members_.ranks, met_);
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
  if (!under_way_ && jobs_.empty()) lane_->cut();
}

}  // namespace fullshard::comm
