// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/activation_offload.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/nn/module_walk.h"
#include "fullshard/nn/unit_state.h"
#include "fullshard/tensor/storage.h"

namespace fullshard {
namespace {

// Bytes [begin, end) of a storage.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool contains(const ByteRange& other) const { return begin <= other.begin && other.end <= end; }
};

// Kernels may choose their path by alignment; a stored range keeps the one it had.
constexpr int64_t kAlignment = 64;
// Parts of one tensor (query, key and value) are stored together unless they are a small part of
// it.
constexpr int64_t kMostWaste = 4;

ByteRange range_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  const auto item = static_cast<int64_t>(tensor.itemsize());
  int64_t last = tensor.storage_offset();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto whole = static_cast<int64_t>(tensor.storage().nbytes());
  const bool is_dense = tensor.is_non_overlapping_and_dense();
  if (!is_dense && whole <= kMostWaste * tensor.numel() * item) return {0, whole};
  const int64_t begin = tensor.storage_offset() * item;
  return {begin - begin % kAlignment, (last + 1) * item};
}

// A tensor over memory that is there already.
at::Tensor over_storage(const c10::Storage& storage, const at::TensorOptions& options,
                        int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::empty({0}, options).set_(storage, offset, sizes, strides);
}

bool has_plain_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_quantized() &&
         !tensor.is_conj() && !tensor.is_neg() && (tensor.is_cpu() || tensor.is_cuda());
}

}  // namespace

// What is stored now, each range of each version once. Thread-safe.
class ActivationOffload::Shelf : public std::enable_shared_from_this<Shelf> {
 public:
  // One range in the store, shared by the saved tensors inside it.
  struct Item {
    std::shared_ptr<Shelf> shelf;
    const c10::StorageImpl* source = nullptr;
    ByteRange range;
    std::unique_ptr<ActivationStore::Held> held;

    ~Item() { shelf->forget(source); }
  };

  explicit Shelf(std::shared_ptr<ActivationStore> store) : store_(std::move(store)) {}

  std::shared_ptr<const Item> put(const at::Tensor& tensor) {
    const nn::VersionStamp stamp(tensor);
    const ByteRange range = range_of(tensor);
    const c10::StorageImpl* source = tensor.storage().unsafeGetStorageImpl();
    if (auto known = find(source, stamp, range)) return known;
    auto item = std::make_shared<Item>();
    item->shelf = shared_from_this();
    item->source = source;
    item->range = range;
    item->held = store_->put(over_storage(tensor.storage(), tensor.options().dtype(at::kByte),
                                          range.begin, {range.size()}, {1}));
    const std::lock_guard lock(mutex_);
    known_[source].push_back({tensor.storage().getWeakStorageImpl(), stamp, range, item});
    return item;
  }

  at::Tensor get(const Item& item) { return store_->get(*item.held); }

 private:
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> source;  // keeps the address from being used again
    nn::VersionStamp stamp;
    ByteRange range;
    std::weak_ptr<const Item> item;
  };

  std::shared_ptr<const Item> find(const c10::StorageImpl* source, const nn::VersionStamp& stamp,
                                   const ByteRange& range) {
    const std::lock_guard lock(mutex_);
    const auto entries = known_.find(source);
    if (entries == known_.end()) return nullptr;
    for (const Known& known : entries->second) {
      if (!(known.stamp == stamp) || !known.range.contains(range)) continue;
      if (auto item = known.item.lock()) return item;
    }
    return nullptr;
  }

  void forget(const c10::StorageImpl* source) {
    const std::lock_guard lock(mutex_);
    const auto entries = known_.find(source);
    if (entries == known_.end()) return;
    std::erase_if(entries->second, [](const Known& known) { return known.item.expired(); });
    if (entries->second.empty()) known_.erase(entries);
  }

  std::shared_ptr<ActivationStore> store_;
  std::mutex mutex_;
  std::unordered_map<const c10::StorageImpl*, std::vector<Known>> known_;
};

namespace {

using Shelf = ActivationOffload::Shelf;

// Stays with the graph. Detached: it may be the output of the node that keeps it.
struct KeptTensor : nn::PackedTensor {
  explicit KeptTensor(const at::Tensor& saved) : tensor(saved.detach()) {}
  at::Tensor unpack() override { return tensor; }
  at::Tensor tensor;
};

struct StoredTensor : nn::PackedTensor {
  StoredTensor(const at::Tensor& saved, std::shared_ptr<const Shelf::Item> stored)
      : item(std::move(stored)),
        options(saved.options()),
        sizes(saved.sizes().vec()),
        strides(saved.strides().vec()),
        begin(saved.storage_offset() * static_cast<int64_t>(saved.itemsize())) {}

  at::Tensor unpack() override {
    const at::NoGradGuard no_gradients;
    const at::Tensor bytes = item->shelf->get(*item);
    const int64_t offset = bytes.storage_offset() + begin - item->range.begin;
    return over_storage(bytes.storage(), options,
                        offset / static_cast<int64_t>(options.dtype().itemsize()), sizes, strides);
  }

  std::shared_ptr<const Shelf::Item> item;
  at::TensorOptions options;
  std::vector<int64_t> sizes, strides;
  int64_t begin;  // in bytes of the storage that it had
};

int set_packer(torch::nn::Module& model, const std::shared_ptr<nn::SavedTensorPacker>& packer) {
  int count = 0;
  nn::for_each_node(nn::walk_modules(model), [&](const nn::ModuleNode& node) {
    auto* unit = dynamic_cast<nn::UnitState*>(node.module);
    if (unit == nullptr) return;
    unit->set_saved_tensors(packer);
    ++count;
  });
  return count;
}

}  // namespace

ActivationOffload::ActivationOffload(const torch::nn::Module& model,
                                     std::shared_ptr<ActivationStore> store,
                                     const OffloadOptions& options)
    : options_(options), shelf_(std::make_shared<Shelf>(std::move(store))) {
  check(options.min_bytes >= 0, "offload of activations: min_bytes is {}, expected 0 or more",
        options.min_bytes);
  const auto note = [this](const at::Tensor& tensor) {
    if (!tensor.has_storage()) return;
    const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
    of_model_.emplace(storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl());
  };
  for (const at::Tensor& parameter : model.parameters()) note(parameter);
  for (const at::Tensor& buffer : model.buffers()) note(buffer);
}

bool ActivationOffload::stays(const at::Tensor& tensor) const {
  if (!has_plain_memory(tensor)) return true;
  const at::TensorBase base = tensor.is_view() ? tensor._base() : tensor;
  if (base.is_leaf() && base.requires_grad()) return true;
  const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  if (of_model_.contains(storage.unsafeGetStorageImpl()) || tensor::is_released(tensor))
    return true;
  const int64_t bytes = range_of(tensor).size();
  return bytes == 0 || bytes < options_.min_bytes;
}

std::unique_ptr<nn::PackedTensor> ActivationOffload::pack(const at::Tensor& tensor) {
  if (stays(tensor)) return std::make_unique<KeptTensor>(tensor);
  return std::make_unique<StoredTensor>(tensor, shelf_->put(tensor));
}

int offload_activations(torch::nn::Module& model, std::shared_ptr<ActivationStore> store,
                        const OffloadOptions& options) {
  return set_packer(model, std::make_shared<ActivationOffload>(model, std::move(store), options));
}

int keep_activations(torch::nn::Module& model) { return set_packer(model, nullptr); }

}  // namespace fullshard
