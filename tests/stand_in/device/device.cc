// SPDX-License-Identifier: Apache-2.0
// What libtorch and this library ask of the driver, answered for the stand-in device.
#include <ATen/core/Generator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/gpu/device_transport.h"
#include "fullshard/memory/available_memory.h"
#include "fullshard/memory/device_dtypes.h"
#include "fullshard/memory/device_graph.h"
#include "fullshard/memory/device_name.h"
#include "fullshard/memory/host_memory.h"
#include "fullshard/tensor/device_runtime.h"
#include "tests/emulated_cuda/emulation/block.h"
#include "tests/stand_in/device/device_memory.h"
#include "tests/stand_in/device/device_streams.h"

namespace fullshard::stand_in {
namespace {

// Which memory of the host was pinned: [begin, end).
class PinnedMemory {
 public:
  static PinnedMemory& instance() {
    static auto* const pinned = new PinnedMemory;
    return *pinned;
  }
  void add(const void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    ranges_[static_cast<const char*>(data)] = bytes;
  }
  void remove(const void* data) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(static_cast<const char*>(data));
  }
  bool has(const void* data) const {
    const std::lock_guard lock(mutex_);
    const auto* place = static_cast<const char*>(data);
    auto next = ranges_.upper_bound(place);
    if (next == ranges_.begin()) return false;
    --next;
    return place < next->first + next->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const char*, size_t> ranges_;
};

struct PinnedAllocator : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    constexpr size_t kPage = 4096;
    void* const data = std::aligned_alloc(kPage, (bytes / kPage + 1) * kPage);
    PinnedMemory::instance().add(data, bytes);
    return {data, data, &give_back, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  // Copies that were given to a stream hold what they read.
  static void give_back(void* data) {
    PinnedMemory::instance().remove(data);
    std::free(data);
  }
};

struct Guard : c10::impl::DeviceGuardImplInterface {
  static c10::Device only() { return {c10::kCUDA, 0}; }
  static c10::Stream numbered(int64_t stream) {
    return c10::Stream(c10::Stream::UNSAFE, only(), static_cast<c10::StreamId>(stream));
  }
  static const Streams::Event& event_at(void* event) {
    return *static_cast<Streams::Event*>(event);
  }

  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return only(); }
  c10::Device getDevice() const override { return only(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return numbered(Streams::current()); }
  c10::Stream getDefaultStream(c10::Device) const override { return numbered(0); }
  c10::Stream getNewStream(c10::Device, int) const override {
    return numbered(Streams::instance().make());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return numbered(Streams::exchange_current(stream.id()));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new Streams::Event;
    *static_cast<Streams::Event*>(*event) = Streams::instance().record(stream.id());
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Streams::Event*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) Streams::instance().hold(stream.id(), event_at(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Streams::instance().query(event_at(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Streams::instance().wait(event_at(event));
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    for (void* event : {begin, end}) {
      const auto& asked = event_at(event);
      check(asked.graph == 0 && Streams::instance().has_passed(asked.stream, asked.position),
            "stand-in device: the time of an event that has not passed");
    }
    return 1000 * (event_at(end).seconds - event_at(begin).seconds);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Streams::instance().query(Streams::instance().record(stream.id()));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Streams::instance().finish(stream.id(), "waiting for a stream");
  }
  void synchronizeDevice(c10::DeviceIndex) const override { Streams::instance().finish_all(); }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    DeviceMemory::instance().recordStream(memory, stream);
  }
};

// A seed, and how many numbers were drawn. What libtorch's operators draw comes from the CPU's.
struct Generator : c10::GeneratorImpl {
  Generator() : GeneratorImpl(Guard::only(), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override { return seed_; }
  void set_state(const c10::TensorImpl& state) override {
    const auto* words = static_cast<const uint64_t*>(state.data());
    seed_ = words[0];
    offset_ = words[1];
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::empty({16}, at::kByte);
    auto* words = static_cast<uint64_t*>(state.mutable_data_ptr());
    words[0] = seed_;
    words[1] = offset_;
    return state.getIntrusivePtr();
  }
  GeneratorImpl* clone_impl() const override { return new Generator(*this); }
  Generator(const Generator& other)
      : GeneratorImpl(other.device(), other.key_set()),
        seed_(other.seed_),
        offset_(other.offset_) {}
  Generator& operator=(const Generator&) = delete;

 private:
  uint64_t seed_ = 0, offset_ = 0;
};

const at::Generator& device_generator() {
  static const auto* const generator = new at::Generator(at::make_generator<Generator>());
  return *generator;
}

struct Hooks : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* data) const override { return PinnedMemory::instance().has(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* const allocator = new PinnedAllocator;
    return allocator;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return device_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<Generator>();
  }
};

// Kernels of the library are work of their streams, too.
void run_kernel(CUstream_st* stream, std::function<void()> kernel) {
  Streams::instance().submit(reinterpret_cast<int64_t>(stream), [kernel = std::move(kernel)] {
    const DeviceMemory::Opened opened;
    kernel();
  });
}

// Before anything asks for a GPU: libtorch remembers what it was told first.
struct Installed {
  Installed() {
    at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs) {
      return std::unique_ptr<at::CUDAHooksInterface>(new Hooks);
    });
    c10::SetAllocator(c10::kCUDA, &DeviceMemory::instance());
    c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].store(new Guard);
    emulation::launch_by(run_kernel);
  }
};
const Installed installed;

}  // namespace
}  // namespace fullshard::stand_in

namespace fullshard::tensor {

bool has_device_kernels() { return true; }
CUstream_st* native_stream(const c10::Stream& stream) {
  return reinterpret_cast<CUstream_st*>(stream.id());
}
std::string launch_problem() { return {}; }
RandomPlace draw_random(c10::Device, int64_t numbers) {
  auto& streams = stand_in::Streams::instance();
  const auto draw = [numbers] {
    const auto& generator = stand_in::device_generator();
    const uint64_t offset = generator.get_offset();
    generator.unsafeGetGeneratorImpl()->set_offset(offset + static_cast<uint64_t>(numbers));
    return std::pair(generator.current_seed(), offset);
  };
  if (!streams.is_capturing()) {
    const auto [seed, offset] = draw();
    return {.seed = seed, .offset = offset};
  }
  // The graph finds its place when it runs.
  const auto place = at::empty({2}, at::TensorOptions(at::kLong).device(at::kCUDA));
  auto* const words =
      static_cast<int64_t*>(stand_in::DeviceMemory::instance().for_device(place.data_ptr()));
  streams.submit(stand_in::Streams::current(), [place, words, draw] {
    const auto [seed, offset] = draw();
    words[0] = static_cast<int64_t>(seed);
    words[1] = static_cast<int64_t>(offset);
  });
  const auto* at = place.const_data_ptr<int64_t>();
  return {.seed_at = at, .offset_at = at + 1};
}

}  // namespace fullshard::tensor

namespace fullshard::memory {

int64_t available_on_accelerator(c10::Device) {
  return stand_in::DeviceMemory::instance().available_bytes();
}

std::string why_no_bfloat16(at::Device) { return {}; }
std::string why_no_fp8(at::Device) { return {}; }

std::string device_name(c10::Device device) { return device.is_cpu() ? "CPU" : "stand-in GPU"; }

PinMemory pin_memory_for(at::Device device) {
  if (!device.is_cuda()) return {};
  return {[](void* data, int64_t bytes) -> std::string {
            stand_in::PinnedMemory::instance().add(data, static_cast<size_t>(bytes));
            return {};
          },
          [](void* data) { stand_in::PinnedMemory::instance().remove(data); }};
}

struct DeviceGraph::Captured {
  explicit Captured(int64_t graph) : number(graph) {}
  ~Captured() { stand_in::DeviceMemory::instance().release_graph(number); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  int64_t number;
  std::vector<stand_in::Work> work;
};

DeviceGraph::DeviceGraph(at::Device device) : device_(device) {}
DeviceGraph::~DeviceGraph() = default;

void DeviceGraph::capture(const std::function<void()>& issue, const DeviceGraph*) {
  static int64_t last_graph = 0;
  auto& streams = stand_in::Streams::instance();
  auto& memory = stand_in::DeviceMemory::instance();
  streams.finish(stand_in::Streams::current(), "capturing a second graph");
  auto captured = std::make_unique<Captured>(++last_graph);
  static const int64_t stream = streams.make();  // one for all graphs, as on a GPU
  const int64_t before = stand_in::Streams::exchange_current(stream);
  streams.begin_capture(stream, captured->number);
  memory.begin_graph(captured->number);
  const auto end = [&] {
    memory.end_graph();
    captured->work = streams.end_capture();
    stand_in::Streams::exchange_current(before);
  };
  try {
    issue();
  } catch (...) {
    end();
    throw;
  }
  end();
  captured_ = std::move(captured);
}

void DeviceGraph::replay() {
  check(is_captured(), "a graph of device work: it was not captured");
  for (const auto& work : captured_->work) {
    stand_in::Streams::instance().submit(stand_in::Streams::current(), work);
  }
}

}  // namespace fullshard::memory

namespace fullshard::comm {

std::string device_identity(at::Device device) { return device.is_cpu() ? "" : "stand-in"; }

}  // namespace fullshard::comm
