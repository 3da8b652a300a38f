// SPDX-License-Identifier: Apache-2.0
// Streams of the stand-in device, and points in them. The default stream does its work at once;
// every other stream does it when somebody waits for it, and not before: what forgot to wait finds
// old values, every time. While a graph is captured, work is kept for it instead.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace fullshard::stand_in {

using Work = std::function<void()>;

// Thread-safe. There is one.
class Streams {
 public:
  static constexpr int64_t kDefault = 0;

  static Streams& instance();
  static int64_t current();  // of the calling thread
  static int64_t exchange_current(int64_t stream);

  int64_t make();

  // What belongs to a stream, in order. `work` owns what it uses but device memory.
  void submit(int64_t stream, Work work);
  // For work whose result decides what the host does next: all that the stream has is done first.
  // An error while a graph is captured.
  void finish(int64_t stream, const char* what);
  void finish_all();

  struct Event {
    int64_t stream = 0, position = 0;
    int64_t graph = 0;  // that was captured meanwhile
    double seconds = 0;
  };
  Event record(int64_t stream);
  void hold(int64_t stream, const Event& event);
  // One more step of that stream's work is done, so that whoever asks again and again comes on.
  bool query(const Event& event);
  void wait(const Event& event);

  int64_t end_of(int64_t stream) const;
  bool has_passed(int64_t stream, int64_t position) const;

  // Calls of the capturing thread on that stream, from here on.
  void begin_capture(int64_t stream, int64_t graph);
  std::vector<Work> end_capture();
  bool is_capturing() const;  // on the calling thread's stream

  std::recursive_mutex& mutex() { return mutex_; }

 private:
  struct Stream {
    int64_t num_given = 0, num_done = 0;
    std::deque<Work> work;
    bool is_working = false;
  };
  struct Capture {
    int64_t stream = 0, graph = 0;
    std::vector<Work> work;
  };

  void run_to(int64_t stream, int64_t position);
  void refuse_in_capture(const char* what) const;

  mutable std::recursive_mutex mutex_;
  std::map<int64_t, Stream> streams_;
  int64_t last_ = 0;
  std::unique_ptr<Capture> capture_;
};

}  // namespace fullshard::stand_in
