// SPDX-License-Identifier: Apache-2.0
// The opcodes of pickle protocols 2 to 5 that are read (Lib/pickletools.py describes each).
#pragma once

#include <cstdint>

namespace fullshard::formats {

enum class Opcode : uint8_t {
  protocol = 0x80,
  frame = 0x95,
  stop = '.',
  // scalars
  none = 'N',
  new_true = 0x88,
  new_false = 0x89,
  int1 = 'K',
  int2 = 'M',
  int4 = 'J',
  long1 = 0x8a,
  long4 = 0x8b,
  real = 'G',
  // text and bytes, by the bytes of their length
  text1 = 0x8c,
  text4 = 'X',
  text8 = 0x8d,
  bytes1 = 'C',
  bytes4 = 'B',
  bytes8 = 0x8e,
  byte_array8 = 0x96,
  old_text1 = 'U',
  old_text4 = 'T',
  // containers
  empty_list = ']',
  empty_dict = '}',
  empty_set = 0x8f,
  empty_tuple = ')',
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  tuple = 't',
  list = 'l',
  dict = 'd',
  frozen_set = 0x91,
  append = 'a',
  appends = 'e',
  add_items = 0x90,
  set_item = 's',
  set_items = 'u',
  // the stack and the memo
  mark = '(',
  pop = '0',
  pop_mark = '1',
  duplicate = '2',
  put1 = 'q',
  put4 = 'r',
  memoize = 0x94,
  get1 = 'h',
  get4 = 'j',
  // names and what they would be called with
  global = 'c',
  stack_global = 0x93,
  reduce = 'R',
  new_object = 0x81,
  new_object_keywords = 0x92,
  build = 'b',
  persistent = 'Q',
};

}  // namespace fullshard::formats
