// SPDX-License-Identifier: Apache-2.0
// Ranks as threads straight over ShmDomain.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/comm/communicator.h"
#include "fullshard/comm/shm/shm_domain.h"

namespace fullshard::comm {

struct ShmTestRank {
  ShmDomain& domain;
  int rank;
  int size;
  Communicator world;

  Communicator split(const std::vector<std::vector<int>>& groups, const std::string& name) const {
    return Communicator(domain.make_backend(groups, name), std::make_shared<Recorder>(rank), name);
  }
};

// The errors by rank, empty where the rank ended well.
inline std::vector<std::string> errors_of_ranks(int size,
                                                const std::function<void(const ShmTestRank&)>& body,
                                                const Timeouts& timeouts = {}) {
  auto domains = ShmDomain::for_threads(size, timeouts);
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ShmDomain& domain = *domains[rank];
      try {
        std::vector<int> all(size);
        std::iota(all.begin(), all.end(), 0);
        const Communicator world(domain.make_backend({all}, "world"),
                                 std::make_shared<Recorder>(rank), "world");
        body({domain, rank, size, world});
        domain.leave("");
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        domain.leave(error.what());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

inline void run_shm_ranks(int size, const std::function<void(const ShmTestRank&)>& body) {
  for (const auto& error : errors_of_ranks(size, body)) EXPECT_EQ(error, "");
}

}  // namespace fullshard::comm
