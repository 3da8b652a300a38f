// SPDX-License-Identifier: Apache-2.0
// Where the first value that is not finite appeared on this rank since the last step. Outputs and
// their gradients are small beside a unit's computation and are looked at always; gradients of
// parameters only when asked, since that reads each of them once more. A GPU looks by itself and
// raises flags, which the host reads when it has a reason to.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/engine/gradients/device_flags.h"

namespace fullshard {
class Communicator;
}  // namespace fullshard

namespace fullshard::engine {

struct NonFinite {
  enum class Pass : int64_t { forward, backward };
  Pass pass = Pass::forward;
  int64_t order = 0;        // of the unit in that pass, for comparison between ranks
  std::string where;        // "unit 'blocks.3'", or "the loss" when it came into the backward
  std::string parameter{};  // whose gradient it was; empty: an activation or its gradient
};

class NonFiniteWatch {
 public:
  void watch_outputs(bool on) { watches_outputs_ = on; }
  void watch_parameter_gradients(bool on) { watches_gradients_ = on; }
  bool watches_parameter_gradients() const { return watches_gradients_ && !first_; }

  // `owner` names the unit, as in messages.
  void after_forward(const std::string& owner, const std::vector<at::Tensor>& outputs);
  void before_backward(const std::string& owner, const at::Tensor& output_gradient);
  void gradient(const std::string& owner, const std::string& parameter, const at::Tensor& values);

  // Waits for a GPU that has looked.
  std::optional<NonFinite> first() const;
  void start_over();
  // What has been seen since the last start may be looked at again by graphs: its flags are no
  // others' from here on, or until there are no such graphs any more.
  void keep_sights() { num_kept_ = num_sights_; }
  void forget_kept_sights() { num_kept_ = 0; }

 private:
  static c10::weak_intrusive_ptr<c10::TensorImpl> no_gradient();
  void see_on_device(NonFinite sight, const std::vector<at::Tensor>& tensors);
  void note_sound(const std::string& owner, const at::Tensor& output_gradient);

  bool watches_outputs_ = true;
  bool watches_gradients_ = false;
  std::optional<NonFinite> first_;
  std::string last_sound_ = "the loss";  // whose backward ran last with finite gradients
  // Its identity, never looked into; held so that no other gradient gets its address. Autograd adds
  // in place: of a residual stream it is the version that changes from unit to unit.
  c10::weak_intrusive_ptr<c10::TensorImpl> last_gradient_ = no_gradient();
  int64_t last_version_ = 0;
  int64_t num_forwards_ = 0;
  int64_t num_backwards_ = 0;
  // What a raised flag would mean. A device may look again without the host: they outlast a step.
  DeviceFlags flags_;
  std::vector<NonFinite> sights_;
  size_t num_sights_ = 0;  // in this step, behind those that are kept
  size_t num_kept_ = 0;
};

// The earliest of all ranks: forward before backward, then by order, then by rank.
struct FirstNonFinite {
  int rank = 0;
  NonFinite what;

  std::string text() const;  // "the forward of unit 'blocks.1' on rank 2"
};
// Collective.
std::optional<FirstNonFinite> first_of_all_ranks(const Communicator& ranks,
                                                 const std::optional<NonFinite>& own);

}  // namespace fullshard::engine
