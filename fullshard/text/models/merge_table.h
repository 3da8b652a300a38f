// SPDX-License-Identifier: Apache-2.0
// The rules of byte pair encoding: which neighbours become one symbol, and in which order.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fullshard/text/models/model.h"
#include "fullshard/text/unicode/flat_table.h"

namespace fullshard::text {

class MergeTable {
 public:
  struct Merge {
    uint32_t rank = 0;  // the lowest is applied first; among equals, the leftmost
    int32_t id = 0;     // of the merged symbol
  };

  // `left` and `right` are ids of symbols, `left_text` and `right_text` their texts.
  void insert(int32_t left, std::string_view left_text, int32_t right, std::string_view right_text,
              Merge merge);

  // Merges until no rule applies; `workspace.ids` holds the symbols, before and after.
  void apply(Workspace& workspace) const;

  // Whether some rule joins a symbol that does not end with U+2581 to one that begins with it.
  bool crosses_spaces() const { return crosses_spaces_; }

 private:
  const Merge* find(int32_t left, int32_t right) const {
    return merges_.find(uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right));
  }
  void apply_to_few(std::vector<int32_t>& ids) const;
  void apply_to_many(Workspace& workspace) const;
  void push_candidate(Workspace& workspace, int32_t left, int32_t right) const;

  FlatTable<Merge> merges_;
  bool crosses_spaces_ = false;
};

}  // namespace fullshard::text
