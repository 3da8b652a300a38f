// SPDX-License-Identifier: Apache-2.0
// Opcodes that would call something: the call is recorded, not made.
#include <fmt/format.h>

#include "fullshard/formats/pickle/pickle_machine.h"

namespace fullshard::formats {

bool PickleMachine::do_object(Opcode code) {
  switch (code) {
    case Opcode::global: {
      const std::string_view module = line();
      push_global(module, line());
      return true;
    }
    case Opcode::stack_global: {
      const PickleValue* name = pop();
      const PickleValue* module = pop();
      expect(name->kind == PickleKind::text && module->kind == PickleKind::text,
             "it names a class by something that is not a string");
      push_global(module->text, name->text);
      return true;
    }
    case Opcode::reduce:
    case Opcode::new_object: {
      PickleValue* arguments = pop();
      call(pop(), arguments, nullptr);
      return true;
    }
    case Opcode::new_object_keywords: {
      PickleValue* keywords = pop();
      PickleValue* arguments = pop();
      call(pop(), arguments, keywords);
      return true;
    }
    case Opcode::build:
      build();
      return true;
    case Opcode::persistent: {
      PickleValue* id = pop();
      PickleValue* value = make(PickleKind::persistent);
      value->arguments = id;
      push(value);
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::push_global(std::string_view module, std::string_view name) {
  count_copy(module.size() + name.size());
  push_text(PickleKind::global, fmt::format("{}.{}", module, name));
}

void PickleMachine::call(PickleValue* callable, PickleValue* arguments, PickleValue* keywords) {
  expect(arguments->kind == PickleKind::tuple, "it calls something without a tuple of arguments");
  if (PickleValue* value = known_call(*callable, *arguments)) {
    push(value);
    return;
  }
  PickleValue* object = make(PickleKind::object);
  object->callable = callable;
  object->arguments = arguments;
  object->keywords = keywords;
  push(object);
}

// Containers by another name; null for everything else.
PickleValue* PickleMachine::known_call(const PickleValue& callable, const PickleValue& arguments) {
  if (callable.kind != PickleKind::global) return nullptr;
  const Items& given = arguments.items;
  if (callable.text == "collections.OrderedDict" && given.empty()) return make(PickleKind::dict);
  if (callable.text == "_codecs.encode" && given.size() == 2 &&
      given[0]->kind == PickleKind::text && given[1]->text == "latin1") {
    return encode_latin1(*given[0]);
  }
  if (callable.text == "torch.Size" && given.size() == 1 && given[0]->kind == PickleKind::tuple) {
    // Shared, not copied: else a few bytes could ask for copies of a long tuple again and again.
    return const_cast<PickleValue*>(given[0]);
  }
  return nullptr;
}

// How protocol 2 writes bytes: as text whose letters are the bytes.
PickleValue* PickleMachine::encode_latin1(const PickleValue& text) {
  count_copy(text.text.size());
  PickleValue* value = make(PickleKind::bytes);
  const std::string& from = text.text;
  for (size_t i = 0; i < from.size(); ++i) {
    const auto first = static_cast<unsigned char>(from[i]);
    if (first >= 0x80) {
      const bool is_pair = (first == 0xC2 || first == 0xC3) && i + 1 < from.size();
      expect(is_pair, "it holds bytes beyond 255");
      ++i;
      value->text += static_cast<char>((first & 3) << 6 | (from[i] & 0x3F));
    } else {
      value->text += static_cast<char>(first);
    }
  }
  return value;
}

void PickleMachine::build() {
  PickleValue* state = pop();
  PickleValue* target = top();
  expect(target->kind == PickleKind::object || target->kind == PickleKind::dict ||
             target->kind == PickleKind::list || target->kind == PickleKind::set,
         "it gives attributes to something that has none");
  target->state = state;
}

}  // namespace fullshard::formats
