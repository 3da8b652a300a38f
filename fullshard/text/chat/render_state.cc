// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/chat/render_state.h"

#include "fullshard/text/chat/template_tokens.h"

namespace fullshard::text::chat {
namespace {

constexpr int64_t kBytesPerStep = 256, kItemsPerStep = 8;

int64_t copied_steps(const Value& value) {
  if (value.is_string()) return static_cast<int64_t>(value.string().size()) / kBytesPerStep;
  if (value.is_list()) return static_cast<int64_t>(value.list().size()) / kItemsPerStep;
  return 0;
}

}  // namespace

void RenderState::spend(int64_t line, int64_t steps) {
  steps_ += steps;
  if (steps_ > kMostSteps) refuse_template(line, "the template does not come to an end");
}

void RenderState::count(int64_t line, const Value& result) {
  spend(line, 1 + copied_steps(result));
}

const TemplateNode* RenderState::macro(const std::string& name) const {
  const auto found = macros_.find(name);
  return found == macros_.end() ? nullptr : found->second;
}

RenderState::Call::Call(RenderState& state, int64_t line) : state_(state) {
  if (state_.num_calls_ == kMostCalls) refuse_template(line, "macros call each other too deep");
  ++state_.num_calls_;
}

}  // namespace fullshard::text::chat
