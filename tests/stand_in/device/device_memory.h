// SPDX-License-Identifier: Apache-2.0
// The memory of the stand-in device. It exists twice: at the addresses that tensors have, where any
// access ends the process, and once more for what the device itself does. What is freed becomes NaN
// when its stream has come past, as if somebody else had it then.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace fullshard::stand_in {

// Thread-safe. There is one, made at the first use and never destroyed.
class DeviceMemory : public c10::DeviceAllocator {
 public:
  static DeviceMemory& instance();

  // The same bytes where the device may touch them.
  void* for_device(const void* address) const {
    return static_cast<std::byte*>(inside_) + (static_cast<const std::byte*>(address) - outside_);
  }
  bool owns(const void* address) const {
    const auto* place = static_cast<const std::byte*>(address);
    return place >= outside_ && place < outside_ + kBytes;
  }

  // While one lives kernels may use the addresses of tensors themselves.
  class Opened {
   public:
    Opened() { instance().protect(+1); }
    ~Opened() { instance().protect(-1); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
  };

  // Between these, what is allocated belongs to a graph and stays as it is until release_graph().
  void begin_graph(int64_t graph);
  void end_graph();
  void release_graph(int64_t graph);

  int64_t available_bytes() const;
  // From here on the device is so large, and graphs find so much of it; 0: as large as addresses
  // go.
  void set_room(int64_t bytes, int64_t bytes_of_graphs = 0);

  c10::DataPtr allocate(size_t bytes) override;
  void copy_data(void* to, const void* from, size_t bytes) const override;
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override;
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override;

 private:
  static constexpr size_t kBytes = size_t{16} << 30, kAlignment = 512;
  struct Use {
    int64_t stream, position;
  };
  struct Block {
    size_t bytes = 0;
    int64_t stream = 0;  // that it was allocated on
    int64_t graph = 0;   // 0: of none
    bool is_free = false;
    std::vector<int64_t> streams = {};  // others that use it, as was told
    std::vector<Use> uses = {};         // of those, when it was freed
  };

  DeviceMemory();
  static void give_back(void* address);
  void free_block(std::byte* address);
  // Takes back what no stream uses any more.
  void collect();
  void protect(int change);
  void take_room(int64_t bytes);
  // The first place between blocks that is large enough: what is opened for a kernel stays small.
  std::byte* place_for(size_t bytes) const;
  size_t end_of_blocks() const;

  std::byte *outside_ = nullptr, *inside_ = nullptr;
  int num_opened_ = 0;
  size_t opened_bytes_ = 0;
  int64_t graph_ = 0;
  int64_t held_ = 0, peak_ = 0, num_calls_ = 0;
  int64_t room_ = kBytes, room_of_graphs_ = kBytes, held_by_graph_ = 0;
  std::map<std::byte*, Block> blocks_;
  std::vector<std::byte*> leaving_;  // free, and streams that were told of may still use them
};

}  // namespace fullshard::stand_in
