// SPDX-License-Identifier: Apache-2.0
// The facade: a torch::nn::Module whose parameters, gradients and optimizer states are sharded over
// the ranks of a mesh. The module itself is used as before; what belongs to the shards is here.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "fullshard/comm/world/mesh.h"
#include "fullshard/engine/gather_scope.h"
#include "fullshard/engine/gradients/non_finite_watch.h"
#include "fullshard/engine/plan/counters.h"
#include "fullshard/engine/plan/options.h"
#include "fullshard/engine/sleep.h"
#include "fullshard/memory/ledger.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard::engine {
class Engine;
class EngineAccess;
class EngineAccess;
class NormRiders;
class ParamGroup;
struct StreamedUpdates;
}  // namespace fullshard::engine

namespace fullshard {

// The part of one parameter that this rank owns, as optimizers and checkpoints see it.
struct PieceView {
  std::string name;            // of the parameter; tied ones under their first name
  std::vector<int64_t> shape;  // of the whole parameter
  int64_t begin = 0;           // elements [begin, end) of it, row-major
  int64_t end = 0;
  int group = 0;  // index of its group, and its place in that group's shard
  int64_t offset = 0;
  at::Tensor master = {};    // 1-D, writable inside update(); outside it may be a copy
  at::Tensor gradient = {};  // 1-D; undefined when there is none
  // 1-D, of the compute dtype: where the new master values are to be seen after an update.
  // Undefined when the master itself is seen, or when they are cast as they are gathered.
  at::Tensor shown = {};
  // 1-D, int16: with Masters::as_kept, the lower halves of masters whose nearest bf16 values are
  // `shown` (base/float_halves); `master` is undefined then.
  at::Tensor lower = {};

  int64_t numel() const { return end - begin; }
  PieceView part(int64_t first, int64_t numel) const;  // elements [first, first + numel) of it
};

// How pieces show masters that are kept in halves.
enum class Masters { whole, as_kept };

// While it lives, backward adds gradients locally and reduces nothing.
class NoSync {
 public:
  explicit NoSync(std::shared_ptr<engine::Engine> engine);
  ~NoSync();
  NoSync(NoSync&&) = default;
  NoSync& operator=(NoSync&&) = delete;

 private:
  std::shared_ptr<engine::Engine> engine_;
};

// A value handle; copies are the same model. Not thread-safe.
class ShardedModel {
 public:
  ShardedModel(std::shared_ptr<torch::nn::Module> module, const World& world,
               const ShardOptions& options);

  // Collective. The global norm of the gradients, 2 or infinity; the next step scales them so that
  // it does not exceed max_norm. The same bits for every strategy of one world size, with and
  // without `riders` (engine/gradients/norm_riders.h), which all ranks give or none.
  enum class Norm { two, infinity };
  double clip_grad_norm(double max_norm, Norm norm = Norm::two,
                        engine::NormRiders* riders = nullptr);
  double grad_norm(Norm norm = Norm::two, engine::NormRiders* riders = nullptr) const;
  void zero_grad();

  // The loss was multiplied by this before backward: norms are given, and steps made, as if it had
  // not been.
  void set_loss_scale(double scale);
  double loss_scale() const;
  // Collective. Where the first infinity or NaN of this step appeared: on any rank, in forward or
  // backward. Gradients of parameters are looked at only after watch_parameter_gradients(true).
  std::optional<engine::FirstNonFinite> first_non_finite() const;
  std::string first_non_finite_parameter() const;  // by the reduced gradients; empty: all finite
  void watch_parameter_gradients(bool on);
  // Collective, in the place of an optimizer's step: drops the gradients and changes no parameter.
  void skip_step();

  // Off: backward sends nothing and leaves every rank its own gradient, for optimizers that do the
  // exchange themselves. Only for NO_SHARD and stage 0.
  void set_gradient_reduction(bool on);

  // Accumulation: gradients of backwards inside the scope are added locally and reduced with the
  // first backward after it. Without it every backward reduces into the shard, which takes less
  // memory.
  [[nodiscard]] NoSync no_sync() { return NoSync(engine_); }

  // Collective. Full parameters in the scope of the result; see GatherScope.
  [[nodiscard]] GatherScope gather_full(const GatherOptions& options = {});

  // Optimizers: calls `update` with batches of pieces and the factor by which their gradients are
  // still to be multiplied (clipping, loss scale), then makes the new values visible to all ranks,
  // and the buffers the same on them (ShardOptions::broadcast_buffers). Collective. With
  // `written_by_update` the update has cast the new masters into `shown` itself, which saves a pass
  // over them; with `written_in_halves` it also takes masters as they are kept. The others have
  // masters kept whole from then on.
  using Update = std::function<void(const std::vector<PieceView>& pieces, double factor)>;
  enum class Shown { written_here, written_by_update, written_in_halves };
  void update(const Update& update, Shown shown = Shown::written_here);
  // The same where some groups are updated beside the caller's stream
  // (engine/passes/streamed_update.h).
  void update(const Update& update, Shown shown, const engine::StreamedUpdates& streamed);
  // Collective. The same after masters were written outside update(), as a torch optimizer does
  // that steps over PieceParameters by itself.
  void publish();
  // The host waits for updates under way: parameters, masters and states may be read outside
  // forwards. Nothing to wait for where all states rest on the device.
  void settle();

  // For programs that share the device: everything that this rank keeps there of parameters,
  // gradients and states (all but what an optimizer of your own keeps) goes to host memory, and
  // what the allocator holds unused to the driver; wake() brings it back, to the bit. Parameters
  // keep their identity. In between forwards, steps and saves are errors. Every rank calls it.
  SleepReport sleep();
  SleepReport wake();

  double gradient_factor() const;  // that the next update will be given
  // One number of an accelerator that counts instead, until gradients are dropped or stepped with;
  // undefined: there is none. The caller's stream has it.
  const at::Tensor& gradient_factor_on_device() const;
  void set_gradient_factor_on_device(at::Tensor factor);

  // This rank's pieces in the order of the module tree; gradients filled in when reduced.
  std::vector<PieceView> pieces(Masters masters = Masters::whole) const;
  // For optimizers that hold on to PieceView::master, or cannot work with halves.
  void keep_masters_whole();
  int num_groups() const;
  int64_t shard_numel(int group) const;
  // A zeroed 1-D state of a group's shard, entered in the ledger as the optimizer's.
  at::Tensor make_state(int group, at::ScalarType dtype);
  // The other way, for states that nothing looks at any more; others are left alone.
  void free_states(const std::vector<at::Tensor>& states) noexcept;

  const Mesh& mesh() const;
  const ShardOptions& options() const;
  const Ledger& ledger() const;
  Ledger& ledger();
  Recorder& recorder() const { return mesh().world().recorder(); }
  const ShardCounters& counters() const;
  int64_t num_allocations() const;  // of engine buffers, since shard()
  bool shares_host_copy() const;

  int64_t numel() const;     // parameters, each counted once, without padding
  std::string tree() const;  // the units with their sizes
  const std::vector<std::string>& warnings() const;
  torch::nn::Module& module() const { return *module_; }

 private:
  void forget_clip();
  void check_trained_as_sharded() const;
  void finish_update();
  friend class engine::EngineAccess;  // engine_access.h
  void check_can_update() const;
  void check_all_reduced(std::string_view what) const;
  void update_on_host(const Update& update, Shown shown, const engine::StreamedUpdates& streamed);
  void update_on_device(const Update& update, Shown shown, const engine::StreamedUpdates& streamed);
  void issue_streamed(const engine::StreamedUpdates& streamed);

  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<engine::Engine> engine_;
  struct State;
  std::shared_ptr<State> state_;
};

// What shard() takes: a module holder, or a shared_ptr to a module.
class ShardableModule {
 public:
  template <class Model>
  ShardableModule(const Model& model) {  // NOLINT(google-explicit-constructor)
    if constexpr (requires { model.is_empty(), model.ptr(); }) {
      if (!model.is_empty()) module_ = model.ptr();
    } else {
      static_assert(std::is_convertible_v<const Model&, std::shared_ptr<torch::nn::Module>>,
                    "shard() takes a module's holder or a std::shared_ptr to the module: write "
                    "shard(model, …), not shard(*model, …) or shard(model.get(), …)");
      module_ = model;
    }
  }

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }  // null: empty

 private:
  std::shared_ptr<torch::nn::Module> module_;
};

// Collective. Shards `model` in place. Warnings go to the log of rank 0 and to warnings(). No
// template: a compiler shows what it cannot make ShardOptions of, and little else.
ShardedModel shard(const ShardableModule& model, const World& world,
                   const ShardOptions& options = {});

}  // namespace fullshard
