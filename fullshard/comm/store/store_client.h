// SPDX-License-Identifier: Apache-2.0
// A connection to the store where ranks meet. Thread-safe; calls come one after another, so a
// waiting one makes the others wait, at most half a second at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/comm/store/store_protocol.h"

namespace fullshard::comm {

struct StorePlace {
  std::string host;
  int port = 0;
  std::string token;
  std::chrono::milliseconds timeout;  // to get there
  int restart = 0;                    // that the ranks who meet there belong to
};

class StoreClient {
 public:
  // Waits until somebody listens there, shows the token and asks for the server's proof; comes
  // again when it is dropped before that, as a server does that has too many at its door, and when
  // the store is that of another restart, whose ranks have not ended yet or are ahead. An Error
  // says what is wrong: nobody answers, another program does, the token is another one.
  explicit StoreClient(const StorePlace& place);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // Each fails when the process that serves the store has ended, and with StoreUnreachable when its
  // host has acknowledged nothing for `kHostSilence`.
  void set(const std::string& key, const std::string& value);
  std::optional<std::string> find(const std::string& key);
  std::vector<std::optional<std::string>> find_all(const std::vector<std::string>& keys);
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);
  int64_t add(const std::string& key, int64_t amount);
  bool has(const std::vector<std::string>& keys);
  // Whether all keys were there before the time was over.
  bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  // As Store's.
  void set_when_lost(const std::string& key, const std::string& value);
  bool remove(const std::string& key);
  int64_t count();

  // The same store over a connection of its own; fails at once when the store is gone, and after a
  // few seconds when it does not answer.
  std::shared_ptr<StoreClient> another();

 private:
  void join();
  // False when the other side dropped the connection, or belongs to another restart.
  bool introduce();
  void check_greeting(const std::string& magic) const;
  [[noreturn]] void fail_as_no_store() const;
  [[noreturn]] void fail_as_dropped() const;
  std::string ask(const StoreWriter& request);
  [[noreturn]] void fail_as_gone(int error);
  bool ask_for_keys(StoreRequest kind, const std::vector<std::string>& keys,
                    std::chrono::milliseconds timeout);
  bool send_all(std::string_view bytes) const;
  std::optional<std::string> receive_all(size_t bytes) const;

  StorePlace place_;
  int socket_ = -1;
  bool was_greeted_ = false;
  std::optional<int> other_restart_;  // of the server at the last attempt, where it was another
  std::atomic<bool> is_unreachable_ = false;  // the socket tells it once only
  std::mutex mutex_;
};

}  // namespace fullshard::comm
