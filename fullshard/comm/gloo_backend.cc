#include "fullshard/comm/gloo_backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/broken_pipe.h"
#include "fullshard/comm/call_terms.h"
#include "fullshard/comm/gloo_link_peers.h"
#include "fullshard/comm/gloo_reduce.h"
#include "fullshard/comm/late_notice.h"

namespace fullshard {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// How long a rank that gives up waits for the worker to let go of its buffers. Peers cut their
// connections at the next beat of their watch, so this is not reached while their hosts live.
constexpr auto kEndPatience = 2s;
// Between two looks at ranks that do not come.
constexpr auto kLook = 60s;

// One collective. `act` moves the data once all ranks have agreed; it owns its tensors.
struct GlooJob {
  GlooJob(const Call& call_, const CallTerms& terms_, std::function<void(GlooGroup&)> act_)
      : unit(call_.unit), call(call_), terms(terms_), act(std::move(act_)) {
    call.unit = unit;
  }

  const std::string unit;
  Call call;  // its group is the backend's own string
  const CallTerms terms;
  std::function<void(GlooGroup&)> act;
  bool done = false;
  std::exception_ptr error;
};

}  // namespace

// Lives as long as its thread, which may outlive the backend when a host has vanished.
class GlooBackend::Worker : public std::enable_shared_from_this<Worker> {
 public:
  Worker(GlooMembers members, std::unique_ptr<GlooGroup> group, std::shared_ptr<GlooWatch> watch,
         const Timeouts& timeouts)
      : members_(std::move(members)),
        group_(std::move(group)),
        watch_(std::move(watch)),
        timeouts_(timeouts) {}

  const GlooMembers& members() const { return members_; }
  const std::shared_ptr<GlooWatch>& watch() const { return watch_; }
  const Timeouts& timeouts() const { return timeouts_; }
  std::chrono::milliseconds limit_of(const Call& call) const {
    return length_of(call.limit, timeouts_);
  }

  void start() {
    thread_ = std::thread([self = shared_from_this()] { self->run(); });
    watch_->add_alarm(this, [this] { cut_when_idle(); });
  }

  void stop() {
    watch_->remove_alarm(this);
    std::unique_lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    if (changed_.wait_for(lock, kEndPatience, [&] { return ended_; })) {
      lock.unlock();
      thread_.join();
    } else {
      thread_.detach();
    }
  }

  std::shared_ptr<GlooJob> add(std::shared_ptr<GlooJob> job) {
    job->call.group = members_.group;
    watch_->note_progress(progress_name(), job->call.sequence);
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
    changed_.notify_all();
    return job;
  }

  void wait_for(const GlooJob& job) {
    const auto start = Clock::now();
    auto next_look = start + kLateAfter;
    std::map<int, uint64_t> beats;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, 100ms, [&] { return job.done; })) {
      if (Clock::now() >= next_look) {
        lock.unlock();
        look_around(job.call, Clock::now() - start, beats);
        lock.lock();
        next_look = Clock::now() + kLook;
        continue;
      }
      check(!stop_, "rank {}: {} (group {}, sequence {}) was still in flight when the world ended",
            watch_->rank(), describe_call(job.call.operation, job.call.unit), job.call.group,
            job.call.sequence);
      const auto missing = watch_->missing();
      if (!missing) continue;
      changed_.wait_for(lock, kEndPatience, [&] { return job.done; });
      throw Error(missing->message(watch_->rank(), job.call));
    }
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  // Names who is late. A host that vanished closes no connection: its ranks are known by silence,
  // which `beats` remembers from look to look.
  void look_around(const Call& call, Clock::duration waited, std::map<int, uint64_t>& beats) {
    try {
      if (watch_->find_silent(members_.ranks, beats)) return;  // the caller asks the watch
      const auto absent = watch_->find_absent(members_.ranks, progress_name(), call.sequence);
      if (!absent) return;
      const auto subject =
          fmt::format("rank {}: {} (group {}, sequence {})", watch_->rank(),
                      describe_call(call.operation, call.unit), call.group, call.sequence);
      late_.say(subject, absent->rank,
                std::chrono::duration_cast<std::chrono::milliseconds>(waited), absent->last,
                limit_of(call));
    } catch (const Error&) {
      // The store is gone, which whoever needs it will say.
    }
  }

  // Groups with the same name but other ranks are told apart by their first rank.
  std::string progress_name() const {
    return fmt::format("{} of rank {}", members_.group, members_.ranks.front());
  }

  void run() {
    const c10::NoGradGuard no_grad;
    const NoBrokenPipe no_broken_pipe;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (stop_) break;
      const std::shared_ptr<GlooJob> job = jobs_.front();
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      std::exception_ptr error = carry_out(*job);
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

  std::exception_ptr carry_out(GlooJob& job) noexcept {
    const auto start = Clock::now();
    try {
      check(broken_.empty(), "{}", broken_);
      agree(job);
      if (job.act) job.act(*group_);
      return nullptr;
    } catch (const Error& error) {
      broken_ = error.what();
      return std::current_exception();
    } catch (const std::exception& error) {
      broken_ = explain(job.call, error, Clock::now() - start);
      group_->cut();  // whoever waits for this rank need not wait longer
      return std::make_exception_ptr(Error(broken_));
    }
  }

  void agree(const GlooJob& job) {
    const auto size = static_cast<size_t>(members_.size());
    const auto bytes = static_cast<int64_t>(sizeof(CallTerms));
    CallTerms own = job.terms;
    std::vector<CallTerms> all(size);
    group_->all_gather(at::from_blob(all.data(), {bytes * members_.size()}, at::kByte),
                       at::from_blob(&own, {bytes}, at::kByte), limit_of(job.call));
    if (const auto message = find_disagreement(all, members_.ranks, members_.group)) {
      throw Error(*message);
    }
    met_ = {
        progress_name(), job.call.sequence,
        fmt::format("{} (group {}, sequence {})", describe_call(job.call.operation, job.call.unit),
                    members_.group, job.call.sequence)};
  }

  // Gloo only says that a connection broke or that time was over; the watch knows who is missing.
  std::string explain(const Call& call, const std::exception& error, Clock::duration waited) {
    try {
      const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(waited);
      const auto missing = time + 50ms < limit_of(call)
                               ? watch_->find_gone(members_.ranks, met_)
                               : watch_->find_late(members_.ranks, progress_name(), call.sequence,
                                                   time, call.limit, met_);
      if (missing) return missing->message(watch_->rank(), call);
    } catch (const Error& store_error) {
      return fmt::format("rank {}: {} (group {}, sequence {}) failed: {}", watch_->rank(),
                         describe_call(call.operation, call.unit), call.group, call.sequence,
                         store_error.what());
    }
    const std::string text = error.what();
    return fmt::format(
        "rank {}: {} (group {}, sequence {}) failed although all ranks live: {}; the network "
        "between them is broken or too slow",
        watch_->rank(), describe_call(call.operation, call.unit), call.group, call.sequence,
        text.substr(0, text.find('\n')));
  }

  // A rank that waits itself must not close its own connections: it would not notice that its peers
  // have closed theirs.
  void cut_when_idle() {
    const std::lock_guard lock(mutex_);
    if (!busy_ && jobs_.empty()) group_->cut();
  }

  const GlooMembers members_;
  const std::unique_ptr<GlooGroup> group_;
  const std::shared_ptr<GlooWatch> watch_;
  const Timeouts timeouts_;
  LateNotice late_;
  LastMeeting met_;     // these two belong to the thread
  std::string broken_;  // why no call can succeed any more

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<GlooJob>> jobs_;
  bool busy_ = false;
  bool stop_ = false;
  bool ended_ = false;
};

namespace {

template <class Worker>
class GlooWork : public Work::Pending {
 public:
  GlooWork(std::shared_ptr<Worker> worker, std::shared_ptr<GlooJob> job)
      : worker_(std::move(worker)), job_(std::move(job)) {}
  void wait() override { worker_->wait_for(*job_); }

 private:
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<GlooJob> job_;
};

template <class Worker>
Work start(const std::shared_ptr<Worker>& worker, const Call& call, const CallTerms& terms,
           std::function<void(GlooGroup&)> act) {
  auto job = worker->add(std::make_shared<GlooJob>(call, terms, std::move(act)));
  return Work(std::make_unique<GlooWork<Worker>>(worker, std::move(job)));
}

}  // namespace

GlooBackend::GlooBackend(GlooMembers members, std::unique_ptr<GlooGroup> group,
                         std::shared_ptr<GlooWatch> watch, const Timeouts& timeouts)
    : worker_(std::make_shared<Worker>(std::move(members), std::move(group), std::move(watch),
                                       timeouts)) {
  worker_->start();
}

GlooBackend::~GlooBackend() { worker_->stop(); }

int GlooBackend::rank() const { return worker_->members().rank; }
int GlooBackend::size() const { return worker_->members().size(); }

Work GlooBackend::all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) {
  CallTerms terms(call);
  terms.dtype = static_cast<int32_t>(rows.scalar_type());
  const auto timeout = worker_->limit_of(call);
  return start(worker_, call, terms, [rows, shard, timeout](GlooGroup& group) {
    if (rows.numel() == 0) return;
    // A window of a larger buffer has gaps between its rows, which gloo cannot skip.
    const at::Tensor full = rows.is_contiguous() ? rows : at::empty(rows.sizes(), rows.options());
    group.all_gather(as_bytes(full.view({full.numel()})), as_bytes(shard), timeout);
    if (!rows.is_contiguous()) rows.copy_(full);
  });
}

Work GlooBackend::reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                                 const ReduceOptions& options) {
  CallTerms terms(call);
  terms.dtype = static_cast<int32_t>(rows.scalar_type());
  terms.output_dtype = static_cast<int32_t>(shard.scalar_type());
  terms.op = static_cast<int32_t>(options.op);
  terms.slices = options.slices;
  terms.accumulate = options.accumulate ? 1 : 0;
  GlooReduction reduction{rank(), worker_->members().hosts, options, worker_->limit_of(call)};
  return start(worker_, call, terms, [shard, rows, reduction](GlooGroup& group) {
    if (rows.numel() > 0) gloo_reduce_scatter(group, shard, rows, reduction);
  });
}

Work GlooBackend::broadcast(const Call& call, const at::Tensor& tensor, int root) {
  CallTerms terms(call);
  terms.dtype = static_cast<int32_t>(tensor.scalar_type());
  terms.root = root;
  const auto timeout = worker_->limit_of(call);
  return start(worker_, call, terms, [tensor, root, timeout](GlooGroup& group) {
    if (tensor.numel() > 0) group.broadcast(as_bytes(tensor), root, timeout);
  });
}

// Agreement needs every rank's terms, so it is a barrier already.
void GlooBackend::barrier(const Call& call) { start(worker_, call, CallTerms(call), {}).wait(); }

at::Tensor GlooBackend::allocate(int64_t numel, at::ScalarType dtype) {
  return at::empty({numel}, at::TensorOptions().dtype(dtype));
}

std::shared_ptr<LinkPeers> GlooBackend::make_link_peers() {
  return std::make_shared<GlooLinkPeers>(worker_->members(), worker_->watch(), worker_->timeouts());
}

}  // namespace fullshard
