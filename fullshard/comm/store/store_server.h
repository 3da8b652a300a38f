// SPDX-License-Identifier: Apache-2.0
// The store where ranks meet, served by rank 0: keys and values for who proves to know the job's
// token and belongs to the same restart, and nothing for anybody else.
#pragma once

#include <memory>
#include <string>

namespace fullshard::comm {

class StoreServer {
 public:
  // `loopback`: only processes of this host can reach it. Several worlds of one process share one
  // server, because a port can be listened on once. Fails when the port is in use. `ranks` may join
  // at once without one of them being taken for one stranger too many; those of another restart are
  // sent away, to come again.
  static std::shared_ptr<StoreServer> open(int port, bool loopback, const std::string& token,
                                           int ranks = 1, int restart = 0);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const;

 private:
  class Impl;
  explicit StoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fullshard::comm
