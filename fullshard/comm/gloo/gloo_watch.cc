// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_watch.h"

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/call_terms.h"

namespace fullshard::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kBeat = 250ms;
// A rank whose beat stands still for so long is dead: four beats, and below the two seconds within
// which a death is told.
constexpr auto kStale = 1100ms;
constexpr auto kGoodbye = 2s;
// So long a holder that failed keeps the store, for the others to read whom to blame: else they
// would only find that the store is gone.
constexpr auto kTelling = 3 * kBeat;
// A store that answers nothing for so long cannot be reached: 16 beats. One that has ended refuses
// at once.
constexpr auto kCutOff = 4s;
constexpr auto kRefused = 1s;

std::string beat_key(int rank) { return fmt::format("beat/{}", rank); }
std::string left_key(int rank) { return fmt::format("left/{}", rank); }
constexpr const char* kMissingKey = "missing";
constexpr const char* kLeavingKey = "leaving";  // some rank has left a mark
constexpr const char* kLostKey = "lost";        // a rank whose host the store's cannot reach
constexpr const char* kEndedWell = "ended well";

constexpr const char* kUnreachable = "cannot be reached";
constexpr const char* kSilent = "gives no sign of life";
constexpr const char* kNetworkHint = "the network to its host is cut or too slow";

std::string log_hint(int rank) { return fmt::format("see rank {}'s log", rank); }

}  // namespace

GlooWatch::GlooWatch(std::shared_ptr<Store> store, int rank, int size,
                     std::shared_ptr<Recorder> recorder)
    : store_(std::move(store)), rank_(rank), size_(size), recorder_(std::move(recorder)) {
  store_->set(beat_key(rank_), encoded_beat());
  thread_ = std::thread([this] { run(); });
}

GlooWatch::~GlooWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_wanted_.notify_all();
  thread_.join();
}

void GlooWatch::add_alarm(const void* owner, std::function<void()> alarm) {
  const std::lock_guard lock(alarms_mutex_);
  alarms_[owner] = std::move(alarm);
}

void GlooWatch::remove_alarm(const void* owner) {
  const std::lock_guard lock(alarms_mutex_);
  alarms_.erase(owner);
}

void GlooWatch::note_progress(const std::string& group, uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  progress_[group] = sequence;
}

std::optional<Missing> GlooWatch::missing() const {
  const std::lock_guard lock(mutex_);
  return missing_;
}

bool GlooWatch::is_host_lost() const {
  const std::lock_guard lock(mutex_);
  return missing_ && (missing_->how == kUnreachable || missing_->how == kSilent);
}

std::string GlooWatch::encoded_beat() {
  const std::lock_guard lock(mutex_);
  std::string text = fmt::format("{}\n{}\n", ++count_, one_line(recorder_->last_act()));
  for (const auto& [group, sequence] : progress_) {
    text += fmt::format("{} {}\n", sequence, group);
  }
  return text;
}

std::optional<GlooWatch::Beat> GlooWatch::beat_of(int rank) {
  return decode_beat(store_->find(beat_key(rank)));
}

std::vector<std::optional<GlooWatch::Beat>> GlooWatch::beats_of(std::span<const int> ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(beat_key(rank));
  std::vector<std::optional<Beat>> beats;
  for (const auto& text : store_->find_all(keys)) beats.push_back(decode_beat(text));
  return beats;
}

std::optional<GlooWatch::Beat> GlooWatch::decode_beat(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  Beat beat;
  std::string line;
  std::getline(lines, line);
  beat.count = std::stoull(line);
  std::getline(lines, beat.last_act);
  while (std::getline(lines, line)) {
    const size_t space = line.find(' ');
    beat.progress[line.substr(space + 1)] = std::stoull(line.substr(0, space));
  }
  return beat;
}

std::string GlooWatch::last_act_of(const std::optional<Beat>& beat, const LastMeeting& met) {
  const auto progress = beat ? beat->progress.find(met.group) : decltype(beat->progress.end()){};
  const bool is_fresh =
      beat && progress != beat->progress.end() && progress->second >= met.sequence;
  if (!is_fresh && !met.call.empty()) return "its last act: " + met.call;
  return beat ? "its last act: " + beat->last_act : "it has made no call yet";
}

void GlooWatch::run() {
  std::shared_ptr<Store> store;
  for (std::unique_lock lock(mutex_); !stop_; stop_wanted_.wait_for(lock, kBeat)) {
    const auto asked = Clock::now();
    if (!unanswered_since_) unanswered_since_ = asked;
    lock.unlock();
    bool is_answered = true;
    try {
      // Its own connection: the other one may be blocked in a long wait.
      if (!store) store = connect();
      beat_once(*store);
    } catch (const StoreUnreachable&) {
      store = nullptr;
      is_answered = false;
      blame_unreachable_holder({});
    } catch (const std::exception&) {
      // Without its store a rank can still work; whoever needs it finds that it is gone.
      store = nullptr;
      is_answered = Clock::now() - asked < kRefused;
    }
    if (missing()) sound_alarms();
    lock.lock();
    if (is_answered) unanswered_since_.reset();
  }
}

// Without the lock of `missing_`: a rank that waits asks for that under its own lock, which the
// alarm wants.
void GlooWatch::sound_alarms() {
  const std::lock_guard lock(alarms_mutex_);
  for (const auto& [owner, alarm] : alarms_) alarm();
}

std::shared_ptr<Store> GlooWatch::connect() const {
  auto store = store_->another();
  store->set_when_lost(kLostKey, std::to_string(rank_));
  return store;
}

void GlooWatch::beat_once(Store& store) {
  store.set(beat_key(rank_), encoded_beat());
  const int holder = store.holder();
  std::vector<std::string> keys = {kMissingKey};
  if (holder >= 0) keys.push_back(beat_key(holder));
  const auto news = store.find_all(keys);
  const auto& found = news.front();
  auto holder_beat = holder >= 0 ? decode_beat(news.back()) : std::nullopt;
  if (rank_ == holder && !found) look_for_lost(store);
  const std::lock_guard lock(mutex_);
  if (found && !missing_) missing_ = Missing::decoded(*found);
  if (holder_beat) holder_beat_ = std::move(holder_beat);
}

// The others are told by the holder, which knows what the lost one did last.
void GlooWatch::look_for_lost(Store& store) {
  const auto lost = store.find(kLostKey);
  if (!lost) return;
  const int rank = std::stoi(*lost);
  settle(
      {rank, kUnreachable, last_act_of(decode_beat(store.find(beat_key(rank))), {}), kNetworkHint});
}

bool GlooWatch::is_unanswered_for(std::chrono::milliseconds time) const {
  const std::lock_guard lock(mutex_);
  return unanswered_since_ && Clock::now() - *unanswered_since_ >= time;
}

bool GlooWatch::is_cut_off() const { return is_unanswered_for(kCutOff); }

bool GlooWatch::is_store_answering() const { return !is_unanswered_for(kBeat); }

// Those who cannot ask the store would only wait for it.
std::optional<Missing> GlooWatch::holder_beyond(const LastMeeting& met) {
  if (!is_cut_off() || store_->holder() < 0) return std::nullopt;
  return blame_unreachable_holder(met);
}

// In this rank's own memory: there is no store to tell the others by.
Missing GlooWatch::blame_unreachable_holder(const LastMeeting& met) {
  Missing holder = holder_gone(met);
  holder.how = kUnreachable;
  holder.hint = kNetworkHint;
  const std::lock_guard lock(mutex_);
  if (!missing_) missing_ = holder;
  return *missing_;
}

Missing GlooWatch::settle(const Missing& found) {
  Missing settled = found;
  try {
    settled = Missing::decoded(store_->set_first(kMissingKey, found.encoded()));
  } catch (const Error&) {  // the store went with the rank that is missing
  }
  const std::lock_guard lock(mutex_);
  if (!missing_) missing_ = settled;
  return *missing_;
}

Missing GlooWatch::holder_gone(const LastMeeting& met) const {
  const int holder = store_->holder();
  const std::lock_guard lock(mutex_);
  return {holder, "died", last_act_of(holder_beat_, met), log_hint(holder)};
}

std::optional<Missing> GlooWatch::gone_by_mark(std::span<const int> ranks, const LastMeeting& met) {
  // All ranks ask this again and again, of one server: two keys, whatever the number of ranks.
  const auto news = store_->find_all({kMissingKey, kLeavingKey});
  if (news[0]) return Missing::decoded(*news[0]);
  if (!news[1]) return std::nullopt;
  std::vector<std::string> marks;
  for (const int rank : ranks) marks.push_back(left_key(rank));
  const auto left_marks = store_->find_all(marks);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int rank = ranks[i];
    const auto& left = left_marks[i];
    if (rank == rank_ || !left) continue;
    const std::string last = last_act_of(beat_of(rank), met);
    if (*left == kEndedWell) {
      return Missing{rank, "has left", last, "all ranks must make the same calls"};
    }
    return Missing{rank, "failed: " + *left, last, log_hint(rank)};
  }
  return std::nullopt;
}

std::optional<Missing> GlooWatch::find_gone(std::span<const int> ranks, const LastMeeting& met) {
  return find_stale(ranks, met, "died");
}

std::optional<Missing> GlooWatch::find_stale(std::span<const int> ranks, const LastMeeting& met,
                                             const std::string& how) {
  if (const auto holder = holder_beyond(met)) return holder;
  try {
    const auto first = beats_of(ranks);
    const auto start = Clock::now();
    while (Clock::now() - start < kStale) {
      if (const auto found = gone_by_mark(ranks, met)) return settle(*found);
      std::this_thread::sleep_for(kBeat / 5);
    }
    const auto last = beats_of(ranks);
    for (size_t i = 0; i < ranks.size(); ++i) {
      const bool has_beaten = last[i] && (!first[i] || last[i]->count != first[i]->count);
      if (ranks[i] == rank_ || has_beaten) continue;
      return settle({ranks[i], how, last_act_of(last[i], met), log_hint(ranks[i])});
    }
    return std::nullopt;
  } catch (const StoreUnreachable&) {
    return blame_unreachable_holder(met);
  } catch (const Error&) {
    if (store_->holder() < 0) throw;
    return settle(holder_gone(met));
  }
}

std::optional<Missing> GlooWatch::find_late(std::span<const int> ranks, const std::string& group,
                                            uint64_t sequence, std::chrono::milliseconds waited,
                                            TimeLimit limit, const LastMeeting& met) {
  if (const auto holder = holder_beyond(met)) return holder;
  try {
    std::this_thread::sleep_for(kBeat + kBeat / 2);  // every rank's beat is fresh then
    if (const auto found = gone_by_mark(ranks, met)) return settle(*found);
    const auto absent = find_absent(ranks, group, sequence);
    // All came to it, but one may have vanished with its host since: that closes no connection.
    if (!absent) return find_stale(ranks, met, kSilent);
    return settle({absent->rank,
                   fmt::format("has not come for {:.3g} s ({} timeout)",
                               std::chrono::duration<double>(waited).count(), name_of(limit)),
                   last_act_of(beat_of(absent->rank), met), remedy_of(name_of(limit))});
  } catch (const StoreUnreachable&) {
    return blame_unreachable_holder(met);
  } catch (const Error&) {
    if (store_->holder() < 0) throw;
    return settle(holder_gone(met));
  }
}

std::optional<Missing> GlooWatch::find_silent(std::span<const int> ranks,
                                              std::map<int, uint64_t>& seen) {
  const auto beats = beats_of(ranks);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int rank = ranks[i];
    const auto& beat = beats[i];
    if (rank == rank_) continue;
    const uint64_t count = beat ? beat->count : 0;
    const auto before = seen.find(rank);
    if (before != seen.end() && before->second == count) {
      return settle({rank, kSilent, last_act_of(beat, {}), log_hint(rank)});
    }
    seen[rank] = count;
  }
  return std::nullopt;
}

std::optional<Missing> GlooWatch::find_absent(std::span<const int> ranks, const std::string& group,
                                              uint64_t sequence) {
  const auto beats = beats_of(ranks);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int rank = ranks[i];
    const auto& beat = beats[i];
    if (rank == rank_) continue;
    const auto progress = beat ? beat->progress.find(group) : decltype(beat->progress.end()){};
    if (beat && progress != beat->progress.end() && progress->second >= sequence) continue;
    return Missing{rank, "", last_act_of(beat, {}), ""};
  }
  return std::nullopt;
}

void GlooWatch::leave(const std::string& reason) noexcept {
  if (is_cut_off()) return;
  try {
    store_->set(beat_key(rank_), encoded_beat());
    store_->set(left_key(rank_), reason.empty() ? kEndedWell : reason);
    store_->set(kLeavingKey, "some");
    if (!reason.empty()) {
      settle({rank_, "failed: " + one_line(reason), "its last act: " + recorder_->last_act(),
              log_hint(rank_)});
    }
    const auto gone = missing();  // which leaves no mark any more
    std::vector<std::string> marks;
    for (int rank = 0; rank < size_; ++rank) {
      if (!gone || gone->rank != rank) marks.push_back(left_key(rank));
    }
    if (!reason.empty() && rank_ == store_->holder()) {
      store_->wait(marks, kTelling);
    } else if (reason.empty() && !missing()) {
      store_->wait(marks, kGoodbye);
    }
  } catch (...) {  // the store is gone: there is nobody to tell
  }
}

}  // namespace fullshard::comm
