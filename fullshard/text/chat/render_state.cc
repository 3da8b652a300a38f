// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/chat/render_state.h"

#include "fullshard/text/chat/template_tokens.h"
#include "fullshard/text/chat/value.h"

namespace fullshard::text::chat {
namespace {

constexpr size_t kBytesPerStep = 256, kItemsPerStep = 8, kComparedBytesPerStep = 4096;

}  // namespace

void RenderState::spend(int64_t line, int64_t steps) {
  steps_ += steps;
  if (steps_ > kMostSteps) refuse_template(line, "the template does not come to an end");
}

void RenderState::count(int64_t line, const Value& result) {
  spend(line, 1);
  if (result.is_string()) count_bytes(line, result.string().size());
  if (result.is_list()) count_items(line, result.list().size());
}

void RenderState::count_bytes(int64_t line, size_t bytes) {
  spend(line, static_cast<int64_t>(bytes / kBytesPerStep));
}

void RenderState::count_items(int64_t line, size_t items) {
  spend(line, static_cast<int64_t>(items / kItemsPerStep));
}

void RenderState::count_search(int64_t line, size_t text_bytes, size_t sought_bytes) {
  // Both are at most kMostText bytes long, so the product fits.
  spend(line, static_cast<int64_t>(text_bytes * sought_bytes / kComparedBytesPerStep));
}

void RenderState::check_text(int64_t line, size_t bytes) {
  if (bytes > kMostTextBytes) refuse_template(line, "a text grows too long");
}

void RenderState::check_list(int64_t line, size_t items) {
  if (items > kMostItems) refuse_template(line, "a list grows too long");
}

const TemplateNode* RenderState::macro(const std::string& name) const {
  const auto found = macros_.find(name);
  return found == macros_.end() ? nullptr : found->second;
}

RenderState::Call::Call(RenderState& state, int64_t line) : state_(state) {
  if (state_.num_calls_ == kMostCalls) refuse_template(line, "macro calls are nested too deeply");
  ++state_.num_calls_;
}

}  // namespace fullshard::text::chat
