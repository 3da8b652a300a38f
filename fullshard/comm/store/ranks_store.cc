// SPDX-License-Identifier: Apache-2.0
// The store that rank 0 serves, as Store and as what gloo asks for.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/store/rendezvous.h"
#include "fullshard/comm/store/store_client.h"
#include "fullshard/comm/store/store_server.h"

namespace fullshard::comm {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

Bytes bytes_of_value(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of_value(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

// c10d's interface over a connection.
class StoreForGloo : public c10d::Store {
 public:
  explicit StoreForGloo(std::shared_ptr<StoreClient> client) : client_(std::move(client)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<StoreForGloo>(client_->another());
  }
  void set(const std::string& key, const Bytes& value) override {
    client_->set(key, text_of_value(value));
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return bytes_of_value(
        client_->compare_set(key, text_of_value(expected), text_of_value(desired)));
  }
  Bytes get(const std::string& key) override {
    wait({key}, timeout_);
    return bytes_of_value(client_->find(key).value_or(""));
  }
  int64_t add(const std::string& key, int64_t value) override { return client_->add(key, value); }
  bool deleteKey(const std::string& key) override { return client_->remove(key); }
  bool check(const std::vector<std::string>& keys) override { return client_->has(keys); }
  int64_t getNumKeys() override { return client_->count(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    fullshard::check(client_->wait(keys, timeout), "rendezvous: key '{}' did not come within {} s",
                     keys.front(), static_cast<double>(timeout.count()) / 1000);
  }

 private:
  std::shared_ptr<StoreClient> client_;
};

class RanksStore : public Store {
 public:
  RanksStore(std::shared_ptr<StoreServer> server, std::shared_ptr<StoreClient> client,
             std::string prefix)
      : server_(std::move(server)),
        client_(std::move(client)),
        prefix_(std::move(prefix)),
        handle_(c10::make_intrusive<c10d::PrefixStore>(
            prefix_, c10::make_intrusive<StoreForGloo>(client_))) {}

  void set(const std::string& key, const std::string& value) override {
    client_->set(full(key), value);
  }
  std::string get(const std::string& key, milliseconds timeout, const std::string& who) override {
    check(wait({key}, timeout), "rendezvous: {} did not come within {} s (key '{}')", who,
          static_cast<double>(timeout.count()) / 1000, key);
    return find(key).value_or("");
  }
  std::optional<std::string> find(const std::string& key) override {
    return client_->find(full(key));
  }
  std::vector<std::optional<std::string>> find_all(const std::vector<std::string>& keys) override {
    return client_->find_all(full(keys));
  }
  std::string set_first(const std::string& key, const std::string& value) override {
    return client_->compare_set(full(key), "", value);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return client_->add(full(key), amount);
  }
  void set_when_lost(const std::string& key, const std::string& value) override {
    client_->set_when_lost(full(key), value);
  }
  bool wait(const std::vector<std::string>& keys, milliseconds timeout) override {
    return client_->wait(full(keys), timeout);
  }
  std::shared_ptr<Store> another() const override {
    return std::make_shared<RanksStore>(server_, client_->another(), prefix_);
  }
  std::shared_ptr<Store> under(const std::string& prefix) const override {
    return std::make_shared<RanksStore>(server_, client_, prefix_ + "/" + prefix);
  }
  int holder() const override { return 0; }
  c10d::Store& handle() const override { return *handle_; }

 private:
  std::string full(const std::string& key) const { return prefix_ + "/" + key; }
  std::vector<std::string> full(std::vector<std::string> keys) const {
    for (std::string& key : keys) key = full(key);
    return keys;
  }

  std::shared_ptr<StoreServer> server_;  // none on ranks that do not serve it
  std::shared_ptr<StoreClient> client_;
  std::string prefix_;
  c10::intrusive_ptr<c10d::Store> handle_;
};

}  // namespace

std::shared_ptr<Store> connect_store(const StoreAddress& address, milliseconds timeout) {
  std::shared_ptr<StoreServer> server;
  if (address.serve) {
    server = StoreServer::open(address.port, address.loopback, address.token, address.ranks,
                               address.restart);
  }
  const bool is_here = address.serve || address.loopback;
  auto client = std::make_shared<StoreClient>(StorePlace{is_here ? "127.0.0.1" : address.host,
                                                         server ? server->port() : address.port,
                                                         address.token, timeout, address.restart});
  return std::make_shared<RanksStore>(std::move(server), std::move(client), "fullshard");
}

}  // namespace fullshard::comm
