// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/store/rendezvous.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "fullshard/comm/store/server_line.h"
#include "fullshard/tensor/error_text.h"

namespace fullshard::comm {
namespace {

using Handle = c10::intrusive_ptr<c10d::Store>;

std::vector<uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string to_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string first_line(const std::exception& error) {
  const std::string text = error_text(error);
  return text.substr(0, text.find('\n'));
}

constexpr auto kLongestPause = std::chrono::milliseconds(100);

class C10dStore : public Store {
 public:
  // c10d gives no way to ask a PrefixStore for a second connection to what lies beneath in all
  // versions, so the prefix is kept here.
  C10dStore(Handle base, std::string prefix, int holder, std::shared_ptr<ServerLine> line)
      : base_(std::move(base)),
        prefix_(std::move(prefix)),
        holder_(holder),
        line_(std::move(line)),
        store_(c10::make_intrusive<c10d::PrefixStore>(prefix_, base_)) {}

  void set(const std::string& key, const std::string& value) override {
    guarded([&] { store_->set(key, to_bytes(value)); });
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout,
                  const std::string& who) override {
    check(wait({key}, timeout), "rendezvous: {} did not come within {} s (key '{}')", who,
          static_cast<double>(timeout.count()) / 1000, key);
    return guarded([&] { return to_text(store_->get(key)); });
  }

  std::optional<std::string> find(const std::string& key) override {
    return guarded([&]() -> std::optional<std::string> {
      if (!store_->check({key})) return std::nullopt;
      return to_text(store_->get(key));
    });
  }

  std::string set_first(const std::string& key, const std::string& value) override {
    return guarded([&] { return to_text(store_->compareSet(key, {}, to_bytes(value))); });
  }

  int64_t add(const std::string& key, int64_t amount) override {
    return guarded([&] { return store_->add(key, amount); });
  }

  void set_when_lost(const std::string&, const std::string&) override {}

  // Asks again and again: c10d's own wait writes warnings when the time is over, and holds the
  // connection all the while.
  bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, kLongestPause)) {
      if (guarded([&] { return store_->check(keys); })) return true;
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(pause);
    }
  }

  std::shared_ptr<Store> another() const override {
    return guarded(
        [&] { return std::make_shared<C10dStore>(base_->clone(), prefix_, holder_, line_); });
  }

  std::shared_ptr<Store> under(const std::string& prefix) const override {
    return std::make_shared<C10dStore>(base_, prefix_ + "/" + prefix, holder_, line_);
  }

  int holder() const override { return holder_; }
  c10d::Store& handle() const override { return *store_; }

 private:
  template <class Act>
  auto guarded(const Act& act) const -> decltype(act()) {
    check(!line_ || line_->is_open(),
          "rendezvous: the store does not answer; the process that serves it has ended");
    try {
      return act();
    } catch (const std::exception& error) {
      fail("rendezvous: the store does not answer ({}); the process that serves it has ended",
           first_line(error));
    }
  }

  Handle base_;
  std::string prefix_;
  int holder_;
  std::shared_ptr<ServerLine> line_;  // none where this process serves the store
  Handle store_;
};

}  // namespace

std::vector<std::optional<std::string>> Store::find_all(const std::vector<std::string>& keys) {
  std::vector<std::optional<std::string>> values;
  for (const std::string& key : keys) values.push_back(find(key));
  return values;
}

std::shared_ptr<Store> make_thread_store() {
  return std::make_shared<C10dStore>(c10::make_intrusive<c10d::HashStore>(), "fullshard", -1,
                                     nullptr);
}

std::shared_ptr<Store> connect_agent_store(const std::string& host, int port,
                                           std::chrono::milliseconds timeout) {
  auto line = std::make_shared<ServerLine>(host, port, timeout);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
    return std::make_shared<C10dStore>(std::move(store), "fullshard", -1, std::move(line));
  } catch (const std::exception& error) {
    fail("world: no store answers at {}:{} ({}); is another program using MASTER_PORT?", host, port,
         first_line(error));
  }
}

}  // namespace fullshard::comm
