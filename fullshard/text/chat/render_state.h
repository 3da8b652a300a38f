// SPDX-License-Identifier: Apache-2.0
// What one rendering of a template has used and defined so far. Templates come with models and are
// trusted with nothing: each rendering ends after a bounded amount of work and memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "fullshard/text/chat/value.h"

namespace fullshard::text::chat {

struct TemplateNode;

class RenderState {
 public:
  static constexpr int64_t kMostSteps = 2'000'000;  // a conversation takes thousands
  static constexpr int kMostCalls = 50;             // of macros, inside each other

  // One step, and what copying its result costs: an Error beyond the limit.
  void count(int64_t line, const Value& result);
  void count(int64_t line) { spend(line, 1); }
  void count_loop(int64_t line) { spend(line, kStepsOfLoop); }  // each time through it

  void define_macro(const std::string& name, const TemplateNode& macro) { macros_[name] = &macro; }
  const TemplateNode* macro(const std::string& name) const;

  bool is_in_macro() const { return num_calls_ > 0; }

  // Around the call of a macro.
  class Call {
   public:
    Call(RenderState& state, int64_t line);
    ~Call() { --state_.num_calls_; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    RenderState& state_;
  };

 private:
  static constexpr int64_t kStepsOfLoop = 8;  // its variables are made anew

  void spend(int64_t line, int64_t steps);

  int64_t steps_ = 0;
  int num_calls_ = 0;
  std::map<std::string, const TemplateNode*> macros_;
};

}  // namespace fullshard::text::chat
