// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/world/roll_call.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "fullshard/base/error.h"
#include "fullshard/base/host_name.h"

namespace fullshard::comm {
namespace {

using std::chrono::milliseconds;

std::shared_ptr<Store> connect(const Environment& environment, milliseconds timeout) {
  if (environment.agent_store) {
    return connect_agent_store(environment.master_address, environment.master_port, timeout);
  }
  return connect_store({.host = environment.master_address,
                        .port = environment.master_port,
                        .token = environment.secret,
                        .serve = environment.rank == 0,
                        .loopback = environment.is_one_host(),
                        .ranks = environment.size,
                        .restart = environment.restart},
                       timeout);
}

// How long rank 0 waits for those who came to hear why it fails: they may be slow, not gone.
constexpr auto kFarewell = std::chrono::seconds(10);
// How often it looks meanwhile whether those who came belong together.
constexpr auto kLookAtOthers = milliseconds(500);
// Why they do not, in the words of the first who found out.
constexpr const char* kMismatch = "mismatch";

[[noreturn]] void fail_as_mismatch(Store& store, const std::string& text) {
  store.set_first(kMismatch, text);
  throw Error(text);
}

std::string key_of(const std::string& what, int rank) {
  return fmt::format("{} of rank {}", what, rank);
}

std::shared_ptr<Store> store_of_world(Store& store, int64_t world) {
  return store.under(fmt::format("world {}", world));
}

// Fails where another process is this rank already, and so do those who wait in its world.
void check_is_only_one(Store& store, const Environment& environment, const std::string& worlds) {
  const std::string own = fmt::format("process {} on {}", ::getpid(), base::host_name());
  const std::string first = store.set_first(key_of("process", environment.rank), own);
  if (first == own) return;
  fail_as_mismatch(*store_of_world(store, std::max<int64_t>(1, store.add(worlds, 0))),
                   fmt::format("world: {} came as rank {}, and so did {}; give each process its "
                               "own RANK, and start all ranks again",
                               own, environment.rank, first));
}

std::string missing_text(const Environment& environment, const std::vector<int>& missing,
                         milliseconds timeout) {
  return fmt::format(
      "world: rank{} {} of {} did not come to {}:{} within {:.3g} s (init timeout); see their "
      "logs, or raise timeouts.init (--init-timeout) if they are only slow",
      missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), environment.size,
      environment.master_address, environment.master_port,
      static_cast<double>(timeout.count()) / 1000);
}

std::string missing_text(Store& store, const Environment& environment, const std::string& what,
                         milliseconds timeout) {
  std::vector<int> missing;
  for (int rank = 0; rank < environment.size; ++rank) {
    if (!store.find(key_of(what, rank))) missing.push_back(rank);
  }
  return missing_text(environment, missing, timeout);
}

// The store goes with rank 0, so it first tells those who came.
[[noreturn]] void fail_for_all(Store& store, const Environment& environment,
                               const std::string& what, const std::string& text) {
  std::vector<std::string> readers;
  for (int rank = 1; rank < environment.size; ++rank) {
    if (store.find(key_of(what, rank))) readers.push_back(fmt::format("rank {} knows", rank));
  }
  store.set(what, "!" + text);
  if (!readers.empty()) store.wait(readers, kFarewell);
  throw Error(text);
}

// Rank 0's: fails for all where one of them does not come, or does not belong to them.
void await_texts(Store& store, const Environment& environment, const std::string& what,
                 const std::vector<std::string>& keys, milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    const bool are_there = store.wait(keys, std::clamp(left, milliseconds(0), kLookAtOthers));
    if (const auto mismatch = store.find(kMismatch)) {
      fail_for_all(store, environment, what, *mismatch);
    }
    if (are_there) return;
    if (left <= kLookAtOthers) {
      fail_for_all(store, environment, what, missing_text(store, environment, what, timeout));
    }
  }
}

}  // namespace

std::shared_ptr<Store> open_store(const Environment& environment, milliseconds timeout) {
  auto store = connect(environment, timeout);
  // An agent's store may serve one start after another.
  store = store->under(fmt::format("start {}", environment.restart));
  const std::string worlds = key_of("worlds", environment.rank);
  // An agent gives ranks out itself, and its store may outlive their processes.
  if (!environment.agent_store) check_is_only_one(*store, environment, worlds);
  // A process may make several worlds, one after another: each has its own keys.
  return store_of_world(*store, store->add(worlds, 1));
}

void agree_on_size(Store& store, const Environment& environment, milliseconds timeout) {
  const std::string own = std::to_string(environment.size);
  if (environment.rank == 0) return store.set("size", own);
  if (!store.wait({"size"}, timeout + kFarewell)) {
    throw Error(missing_text(environment, {0}, timeout));
  }
  const std::string first = *store.find("size");
  if (first == own) return;
  fail_as_mismatch(store, fmt::format("world: size is {} on rank {}, but {} on rank 0; give all "
                                      "ranks the same WORLD_SIZE",
                                      own, environment.rank, first));
}

std::vector<std::string> exchange_texts(Store& store, const Environment& environment,
                                        const std::string& what, const std::string& own,
                                        milliseconds timeout) {
  store.set(key_of(what, environment.rank), own + "\n");
  if (environment.rank == 0) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < environment.size; ++rank) keys.push_back(key_of(what, rank));
    await_texts(store, environment, what, keys, timeout);
    std::string all = "=";
    for (const std::string& key : keys) all += *store.find(key);
    store.set(what, all);
  } else if (!store.wait({what}, timeout + kFarewell)) {
    throw Error(missing_text(store, environment, what, timeout));
  }
  const std::string found = *store.find(what);
  if (found.starts_with('!')) {
    store.set(fmt::format("rank {} knows", environment.rank), "");
    throw Error(found.substr(1));
  }
  std::istringstream lines(found.substr(1));
  std::vector<std::string> texts;
  for (std::string line; std::getline(lines, line);) texts.push_back(line);
  check(texts.size() == static_cast<size_t>(environment.size),
        "world: {} ranks told their {} in {} lines, expected one of each", environment.size, what,
        texts.size());
  return texts;
}

void part_in_failure(Store& store, const Environment& environment) {
  const auto knows = [](int rank) { return fmt::format("rank {} knows", rank); };
  if (environment.rank != 0) return store.set(knows(environment.rank), "");
  std::vector<std::string> readers;
  for (int rank = 1; rank < environment.size; ++rank) readers.push_back(knows(rank));
  store.wait(readers, kFarewell);
}

}  // namespace fullshard::comm
