// SPDX-License-Identifier: Apache-2.0
// Where ranks meet before they can talk: a small key-value store. Between processes rank 0 serves
// it, and only who knows the job's token can use it; where torchrun's agent serves one, that is
// used; between threads it is a hash map.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/base/error.h"

namespace c10d {
class Store;
}

namespace fullshard::comm {

// The host that serves the store has acknowledged nothing for `kHostSilence`.
class StoreUnreachable : public Error {
 public:
  using Error::Error;
};

// A network that is away for a shorter time is waited for.
inline constexpr std::chrono::seconds kHostSilence{5};

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key is there; after `timeout` an Error that names the key and `who`.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout,
                          const std::string& who) = 0;
};

// The store of a world. Thread-safe, but a waiting get() may block other calls on the same object:
// a second thread takes its own connection with another().
class Store : public Rendezvous {
 public:
  // What is there now. Fails when the store itself is gone, as all of these do: StoreUnreachable
  // when its host is.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // The same of several keys: in one question where the store has such a one.
  virtual std::vector<std::optional<std::string>> find_all(const std::vector<std::string>& keys);
  // The first one to set a key wins: gives the value that is there afterwards.
  virtual std::string set_first(const std::string& key, const std::string& value) = 0;
  // Adds to a number that starts at zero; gives the sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  // The store sets the key, unless it is set, when it loses this connection because this host has
  // acknowledged nothing for `kHostSilence`. Not where torchrun's agent serves it, nor for threads.
  virtual void set_when_lost(const std::string& key, const std::string& value) = 0;
  // Whether all keys were there before the time was over.
  virtual bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) = 0;

  // The same keys over a connection of its own.
  virtual std::shared_ptr<Store> another() const = 0;
  // The same store where every key begins with `prefix`.
  virtual std::shared_ptr<Store> under(const std::string& prefix) const = 0;
  // The rank whose process serves the store; -1 when no rank does.
  virtual int holder() const = 0;
  virtual c10d::Store& handle() const = 0;
};

// For ranks that are threads of this process.
std::shared_ptr<Store> make_thread_store();

struct StoreAddress {
  std::string host;
  int port = 0;
  std::string token = {};  // of the job; the same on all ranks
  bool serve = false;      // this rank, the holder, serves the store
  bool loopback = false;   // all ranks are on this host, and nobody else can reach the store
  int ranks = 1;           // that will come
  int restart = 0;         // that they belong to: those of another one do not meet there
};
// Waits for a store of its own restart. Fails with the address and the reason: the port is in use,
// nobody answers, the token is wrong.
std::shared_ptr<Store> connect_store(const StoreAddress& address,
                                     std::chrono::milliseconds timeout);
// torchrun's, which knows no token.
std::shared_ptr<Store> connect_agent_store(const std::string& host, int port,
                                           std::chrono::milliseconds timeout);

}  // namespace fullshard::comm
