// SPDX-License-Identifier: Apache-2.0
// A scope in which parameters are whole on every rank, to be read or, when asked for, written.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace fullshard::engine {
class Engine;
class UnitRuntime;
}  // namespace fullshard::engine

namespace fullshard {

struct GatherOptions {
  // Take the values that rank 0 leaves in the parameters over into the shards when the scope ends.
  bool write_back = false;
  // Paths of the units to gather ("blocks.0", "" for the root); empty: all.
  std::vector<std::string> units = {};
};

// All ranks open and close the same scopes in the same order. Closing waits until all have come,
// however long one of them works inside; a rank that is gone ends the wait. close() may throw; the
// destructor closes too. When an error is under way, or close() throws before any value was taken,
// what was written is dropped on every rank that sees it: the model is as it was before the scope.
// For that, a scope that writes holds a second copy of parameters that are whole at rest.
class GatherScope {
 public:
  GatherScope(std::shared_ptr<engine::Engine> engine, const GatherOptions& options);
  ~GatherScope();
  GatherScope(GatherScope&&) noexcept;
  GatherScope& operator=(GatherScope&&) = delete;

  void close();

 private:
  void gather();
  void meet() const;
  void take_written() const;
  void check_untouched() const;
  void release() noexcept;

  std::shared_ptr<engine::Engine> engine_;  // null once closed
  bool write_back_;
  std::vector<engine::UnitRuntime*> units_;
  int uncaught_;
};

}  // namespace fullshard
