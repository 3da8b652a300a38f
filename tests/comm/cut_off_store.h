// SPDX-License-Identifier: Apache-2.0
// A store of rank 0 whose host can fall silent and be cut off.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/comm/store/rendezvous.h"

namespace fullshard::comm {

// What a connection to the store does with questions. Thread-safe.
class StoreLine {
 public:
  enum class State { answers, silent, cut };

  void become(State state) {
    const std::lock_guard lock(mutex_);
    state_ = state;
    changed_.notify_all();
  }
  // A silent one holds whoever asks.
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_ != State::silent; });
    if (state_ == State::cut) throw StoreUnreachable("cut");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::answers;
};

// The network gives up each connection at a time of its own: the first one and all others have
// lines of their own.
struct StoreLines {
  std::shared_ptr<StoreLine> first = std::make_shared<StoreLine>();
  std::shared_ptr<StoreLine> others = std::make_shared<StoreLine>();

  void become(StoreLine::State state) const {
    first->become(state);
    others->become(state);
  }
};

class CutOffStore : public Store {
 public:
  CutOffStore(std::shared_ptr<Store> beneath, StoreLines lines)
      : beneath_(std::move(beneath)), lines_(std::move(lines)) {}

  void set(const std::string& key, const std::string& value) override { reached().set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout,
                  const std::string& who) override {
    return reached().get(key, timeout, who);
  }
  std::optional<std::string> find(const std::string& key) override { return reached().find(key); }
  std::string set_first(const std::string& key, const std::string& value) override {
    return reached().set_first(key, value);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return reached().add(key, amount);
  }
  void set_when_lost(const std::string& key, const std::string& value) override {
    reached().set("when lost/" + key, value);
  }
  bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    return reached().wait(keys, timeout);
  }
  std::shared_ptr<Store> another() const override {
    return std::make_shared<CutOffStore>(beneath_, StoreLines{lines_.others, lines_.others});
  }
  std::shared_ptr<Store> under(const std::string& prefix) const override {
    return std::make_shared<CutOffStore>(beneath_->under(prefix), lines_);
  }
  int holder() const override { return 0; }
  c10d::Store& handle() const override { return beneath_->handle(); }

 private:
  Store& reached() const {
    lines_.first->pass();
    return *beneath_;
  }
  const std::shared_ptr<Store> beneath_;
  const StoreLines lines_;
};

}  // namespace fullshard::comm
