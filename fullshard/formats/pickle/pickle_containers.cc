// SPDX-License-Identifier: Apache-2.0
// Opcodes that make lists, tuples, sets and dictionaries, and that fill them.
#include <utility>

#include "fullshard/formats/pickle/pickle_machine.h"

namespace fullshard::formats {

bool PickleMachine::do_container(Opcode code) {
  switch (code) {
    case Opcode::empty_list:
      push(make(PickleKind::list));
      return true;
    case Opcode::empty_dict:
      push(make(PickleKind::dict));
      return true;
    case Opcode::empty_set:
      push(make(PickleKind::set));
      return true;
    case Opcode::empty_tuple:
      push_tuple(0);
      return true;
    case Opcode::tuple1:
      push_tuple(1);
      return true;
    case Opcode::tuple2:
      push_tuple(2);
      return true;
    case Opcode::tuple3:
      push_tuple(3);
      return true;
    case Opcode::tuple:
      push_items(PickleKind::tuple, pop_to_mark());
      return true;
    case Opcode::list:
      push_items(PickleKind::list, pop_to_mark());
      return true;
    case Opcode::frozen_set:
      push_items(PickleKind::set, pop_to_mark());
      return true;
    case Opcode::dict: {
      const Items items = pop_to_mark();
      push(make(PickleKind::dict));
      set_items(items);
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::push_tuple(size_t count) {
  Items items(count);
  for (size_t i = count; i > 0; --i) items[i - 1] = pop();
  push_items(PickleKind::tuple, std::move(items));
}

bool PickleMachine::do_filling(Opcode code) {
  switch (code) {
    case Opcode::append:
      append({pop()});
      return true;
    case Opcode::appends:
    case Opcode::add_items:
      append(pop_to_mark());
      return true;
    case Opcode::set_items:
      set_items(pop_to_mark());
      return true;
    case Opcode::set_item: {
      const PickleValue* value = pop();
      const PickleValue* key = pop();
      set_items({key, value});
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::append(const Items& items) {
  PickleValue* target = top();
  expect(target->kind == PickleKind::list || target->kind == PickleKind::set ||
             target->kind == PickleKind::object,
         "it appends to something that is not a list");
  target->items.insert(target->items.end(), items.begin(), items.end());
}

void PickleMachine::set_items(const Items& items) {
  PickleValue* target = top();
  expect(target->kind == PickleKind::dict || target->kind == PickleKind::object,
         "it sets items of something that is not a dictionary");
  expect(items.size() % 2 == 0, "a key has no value");
  for (size_t i = 0; i < items.size(); i += 2) target->pairs.emplace_back(items[i], items[i + 1]);
}

}  // namespace fullshard::formats
