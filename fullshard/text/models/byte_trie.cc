// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/models/byte_trie.h"

namespace fullshard::text {

void ByteTrie::insert(std::string_view text, int32_t value) {
  uint32_t node = kRoot;
  if (!text.empty()) first_bytes_[static_cast<unsigned char>(text[0])] = true;
  for (const char byte : text) {
    uint32_t next = child(node, byte);
    if (next == kNowhere) {
      next = static_cast<uint32_t>(values_.size());
      values_.push_back(kNone);
      edges_.insert(key(node, byte), next);
    }
    node = next;
  }
  values_[node] = value;
}

uint32_t ByteTrie::walk(std::string_view text, uint32_t from) const {
  uint32_t node = from;
  for (const char byte : text) {
    node = child(node, byte);
    if (node == kNowhere) break;
  }
  return node;
}

ByteTrie::Match ByteTrie::longest(std::string_view text, uint32_t from) const {
  Match best;
  uint32_t node = from;
  for (size_t i = 0; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == kNowhere) break;
    if (values_[node] != kNone) best = {values_[node], i + 1};
  }
  return best;
}

}  // namespace fullshard::text
