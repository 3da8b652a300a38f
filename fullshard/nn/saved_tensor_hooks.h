// SPDX-License-Identifier: Apache-2.0
// The one seam with the tensors that autograd saves for backward: while a scope is open, those that
// its thread saves are handed to a packer, and the graph keeps what the packer made of them.
//
// libtorch asks its default engine for such hooks, so the first packer replaces that engine by one
// that adds them and leaves the running of graphs to the old one. What is asked is the state of the
// calling thread: ranks that are threads do not see each other's scopes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace fullshard::nn {

// What the graph keeps for one saved tensor; it dies when the graph frees its saved tensors.
class PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  // The values that were packed. On the thread that runs the backward, once per backward.
  virtual at::Tensor unpack() = 0;
};

class SavedTensorPacker {
 public:
  SavedTensorPacker();  // installs the engine; an error when somebody else has replaced it
  virtual ~SavedTensorPacker() = default;
  SavedTensorPacker(const SavedTensorPacker&) = delete;
  SavedTensorPacker& operator=(const SavedTensorPacker&) = delete;

  // Called without gradients, on the thread that saves. Keep `tensor.detach()` rather than
  // `tensor`: the graph that saves it may be its own.
  virtual std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) = 0;
};

// Which version of which tensor: tells whether values could have changed in between. Views and
// detached tensors count together with their base, as autograd does it.
class VersionStamp {
 public:
  explicit VersionStamp(const at::Tensor& tensor);

  uint32_t version() const { return version_; }
  uint32_t current_version() const { return counter_.current_version(); }
  bool is_current() const { return version_ == current_version(); }
  bool operator==(const VersionStamp& other) const;

 private:
  c10::VariableVersion counter_;
  uint32_t version_;
};

// While it lives, this thread's saved tensors go to the packer, which must outlive it; nullptr
// leaves things as they are. A tensor written in place after it was packed is torch's usual error.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorPacker* packer);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

  // The scope of a unit's forward: without effect in a replay, whose saved tensors are used at
  // once.
  static SavedTensorScope of_unit(SavedTensorPacker* packer);

 private:
  SavedTensorPacker* before_;
};

// Around the replay of a recomputed call.
class ReplayScope {
 public:
  ReplayScope();
  ~ReplayScope();
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;
};

}  // namespace fullshard::nn
