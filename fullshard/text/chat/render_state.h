// SPDX-License-Identifier: Apache-2.0
// What one rendering of a template has used and defined so far. Templates come with models and are
// not trusted: each rendering ends after a bounded amount of work and memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace fullshard::text::chat {

class Value;
struct TemplateNode;

class RenderState {
 public:
  static constexpr int64_t kMostSteps = 2'000'000;            // a conversation takes thousands
  static constexpr int kMostCalls = 50;                       // of macros, inside each other
  static constexpr size_t kMostTextBytes = size_t{16} << 20;  // of one text
  static constexpr size_t kMostItems = size_t{1} << 20;       // of one list

  // Counts one step and the cost of copying its result; throws Error beyond the limit.
  void count(int64_t line, const Value& result);
  void count(int64_t line) { spend(line, 1); }
  void count_loop(int64_t line) { spend(line, kStepsOfLoop); }  // each pass
  void count_bytes(int64_t line, size_t bytes);                 // written or compared
  void count_items(int64_t line, size_t items);                 // searched
  // Searching one text in another: at worst each place of one is compared with the whole other.
  void count_search(int64_t line, size_t text_bytes, size_t sought_bytes);

  static void check_text(int64_t line, size_t bytes);  // limits the size of one text
  static void check_list(int64_t line, size_t items);  // limits the size of one list

  void define_macro(const std::string& name, const TemplateNode& macro) { macros_[name] = &macro; }
  const TemplateNode* macro(const std::string& name) const;

  bool is_in_macro() const { return num_calls_ > 0; }

  // Lives during the call of a macro.
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
  static constexpr int64_t kStepsOfLoop = 8;  // a pass creates its variables again

  void spend(int64_t line, int64_t steps);

  int64_t steps_ = 0;
  int num_calls_ = 0;
  std::map<std::string, const TemplateNode*> macros_;
};

}  // namespace fullshard::text::chat
