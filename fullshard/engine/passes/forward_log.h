// SPDX-License-Identifier: Apache-2.0
// What the units of a model did in the forwards since the last backward: the order that the next
// backward reverses. Integers only; units are named by their index.
#pragma once

#include <cstddef>
#include <vector>

namespace fullshard::engine {

class ForwardLog {
 public:
  enum class Event { start, end, enter_recomputed, leave_recomputed };
  struct Entry {
    Event event;
    int unit;  // of start and end

    bool operator==(const Entry&) const = default;
  };

  void start(int unit) { add({Event::start, unit}); }
  void end(int unit) { add({Event::end, unit}); }
  // Around the units that a backward calls again before it reaches them.
  void enter_recomputed() { add({Event::enter_recomputed, -1}); }
  void leave_recomputed() { add({Event::leave_recomputed, -1}); }

  const std::vector<Entry>& entries() const { return entries_; }
  // A backward is over: the next one reverses what comes now. One without a forward of its own (a
  // retained graph, the second of two losses) reverses the same forwards again.
  void start_over() { is_over_ = true; }
  void clear();

 private:
  void add(Entry entry);

  std::vector<Entry> entries_;
  bool is_over_ = false;
};

}  // namespace fullshard::engine
