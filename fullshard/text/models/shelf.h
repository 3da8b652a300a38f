// SPDX-License-Identifier: Apache-2.0
// Memory that calls borrow: each takes a free value or makes a new one, and puts it back for the
// next.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>

namespace fullshard::text {

// Thread-safe without locks. Keeps at most kKept, so the memory is bounded.
template <class Value>
class Shelf {
 public:
  Shelf() = default;
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;
  ~Shelf() {
    for (auto& place : places_) delete place.load();
  }

  // Puts the value back in its destructor.
  class Lease {
   public:
    Lease(Shelf& shelf, std::unique_ptr<Value> value) : shelf_(shelf), value_(std::move(value)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { shelf_.give_back(std::move(value_)); }
    Value& operator*() const { return *value_; }
    Value* operator->() const { return value_.get(); }

   private:
    Shelf& shelf_;
    std::unique_ptr<Value> value_;
  };

  Lease borrow() {
    const size_t first = start();
    for (size_t i = 0; i < kKept; ++i) {
      if (Value* value = places_[(first + i) % kKept].exchange(nullptr)) {
        return {*this, std::unique_ptr<Value>(value)};
      }
    }
    return {*this, std::make_unique<Value>()};
  }

 private:
  static constexpr size_t kKept = 64;

  // Threads begin at different places, so that each usually finds its own again.
  static size_t start() { return std::hash<std::thread::id>()(std::this_thread::get_id()) % kKept; }

  void give_back(std::unique_ptr<Value> value) {
    const size_t first = start();
    for (size_t i = 0; i < kKept; ++i) {
      Value* expected = nullptr;
      if (places_[(first + i) % kKept].compare_exchange_strong(expected, value.get())) {
        value.release();
        return;
      }
    }
  }

  std::array<std::atomic<Value*>, kKept> places_{};
};

}  // namespace fullshard::text
