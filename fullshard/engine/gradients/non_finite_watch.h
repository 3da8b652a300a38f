// SPDX-License-Identifier: Apache-2.0
// Where the first value that is not finite appeared on this rank since the last step. Outputs and
// their gradients are small beside a unit's computation and are looked at always; gradients of
// parameters only when asked, since that reads each of them once more.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

  const std::optional<NonFinite>& first() const { return first_; }
  void start_over();

 private:
  bool watches_outputs_ = true;
  bool watches_gradients_ = false;
  std::optional<NonFinite> first_;
  std::string last_sound_ = "the loss";  // whose backward ran last with finite gradients
  const void* last_gradient_ = nullptr;  // its identity; never looked into
  int64_t num_forwards_ = 0;
  int64_t num_backwards_ = 0;
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
