#include "fullshard/formats/pickle_reader.h"

#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fullshard/formats/input_error.h"
#include "fullshard/formats/pickle_opcodes.h"

namespace fullshard {

// Python's unpickler without its powers: a stack, marks in it, and a memo.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& where, const PickleLimits& limits)
      : bytes_(bytes), where_(where), limits_(limits) {
    expect(static_cast<int64_t>(bytes.size()) <= limits.max_bytes, "it is too long");
    none_ = make(PickleKind::none);
    true_ = make(PickleKind::boolean);
    true_->integer = 1;
    false_ = make(PickleKind::boolean);
  }

  Pickle run() {
    for (;;) {
      begin_ = position_;
      const Opcode code = static_cast<Opcode>(unsigned_number(1));
      if (code == Opcode::stop) break;
      const bool is_known = do_scalar(code) || do_text(code) || do_container(code) ||
                            do_filling(code) || do_stack(code) || do_memo(code) || do_object(code);
      expect(is_known, "its opcode is not one that torch.save writes");
    }
    pickle_.root_ = pop();
    return std::move(pickle_);
  }

 private:
  using Items = std::vector<const PickleValue*>;

  void expect(bool condition, std::string_view problem) const {
    check_input(condition, "{}: pickle byte {}: {}", where_, begin_, problem);
  }

  // Input.
  std::string_view take(uint64_t count) {
    expect(count <= bytes_.size() - position_, "it ends too early");
    const std::string_view taken = bytes_.substr(position_, count);
    position_ += count;
    return taken;
  }
  uint64_t unsigned_number(size_t num_bytes) {
    uint64_t number = 0;
    std::memcpy(&number, take(num_bytes).data(), num_bytes);
    return number;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', position_);
    expect(end != std::string_view::npos, "a line has no end");
    const std::string_view taken = take(end - position_);
    ++position_;
    return taken;
  }

  // Values and the stack.
  PickleValue* make(PickleKind kind) {
    expect(static_cast<int64_t>(pickle_.values_.size()) < limits_.max_values,
           "it holds too many values");
    PickleValue& value = pickle_.values_.emplace_back();
    value.kind = kind;
    return &value;
  }
  void push(PickleValue* value) {
    expect(static_cast<int64_t>(stack_.size()) < limits_.max_stack, "its stack grows too high");
    stack_.push_back(value);
  }
  void push_text(PickleKind kind, std::string_view text) {
    PickleValue* value = make(kind);
    value->text = text;
    push(value);
  }
  PickleValue* top() const {
    expect(stack_.size() > floor(), "its stack is empty");
    return stack_.back();
  }
  PickleValue* pop() {
    PickleValue* value = top();
    stack_.pop_back();
    return value;
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Items pop_to_mark() {
    expect(!marks_.empty(), "its stack has no mark");
    Items items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  // Text made of memoised text: without a bound a short pickle could ask for it without end.
  void count_copy(size_t bytes) {
    copied_ += static_cast<int64_t>(bytes);
    expect(copied_ <= limits_.max_bytes, "it asks for too many copies of a text");
  }
  void push_items(PickleKind kind, Items items) {
    PickleValue* value = make(kind);
    value->items = std::move(items);
    push(value);
  }

  bool do_scalar(Opcode code);
  bool do_text(Opcode code);
  bool do_container(Opcode code);
  bool do_filling(Opcode code);
  bool do_stack(Opcode code);
  bool do_memo(Opcode code);
  bool do_object(Opcode code);

  void push_integer(int64_t number);
  void push_long(std::string_view digits);
  void push_tuple(size_t count);
  void append(const Items& items);
  void set_items(const Items& items);
  void remember(uint64_t key);
  void recall(uint64_t key);
  void push_global(std::string_view module, std::string_view name);
  void call(PickleValue* callable, PickleValue* arguments, PickleValue* keywords);
  PickleValue* known_call(const PickleValue& callable, const PickleValue& arguments);
  PickleValue* encode_latin1(const PickleValue& text);
  void build();

  std::string_view bytes_;
  const std::string& where_;
  PickleLimits limits_;
  size_t position_ = 0;
  size_t begin_ = 0;  // of the opcode at hand
  int64_t copied_ = 0;
  Pickle pickle_;
  PickleValue* none_ = nullptr;
  PickleValue* true_ = nullptr;
  PickleValue* false_ = nullptr;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
};

bool PickleMachine::do_scalar(Opcode code) {
  switch (code) {
    case Opcode::none:
      push(none_);
      return true;
    case Opcode::new_true:
      push(true_);
      return true;
    case Opcode::new_false:
      push(false_);
      return true;
    case Opcode::int1:
      push_integer(static_cast<int64_t>(unsigned_number(1)));
      return true;
    case Opcode::int2:
      push_integer(static_cast<int64_t>(unsigned_number(2)));
      return true;
    case Opcode::int4:
      push_integer(static_cast<int32_t>(unsigned_number(4)));
      return true;
    case Opcode::long1:
      push_long(take(unsigned_number(1)));
      return true;
    case Opcode::long4:
      push_long(take(unsigned_number(4)));
      return true;
    case Opcode::real: {
      uint64_t bits = 0;
      for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
      PickleValue* value = make(PickleKind::real);
      value->real = std::bit_cast<double>(bits);
      push(value);
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::push_integer(int64_t number) {
  PickleValue* value = make(PickleKind::integer);
  value->integer = number;
  push(value);
}

// Two's complement, least byte first, any length.
void PickleMachine::push_long(std::string_view digits) {
  if (digits.size() > 8) {
    push_text(PickleKind::big_integer, digits);
    return;
  }
  const bool is_negative = !digits.empty() && (digits.back() & 0x80) != 0;
  int64_t number = is_negative ? -1 : 0;
  if (!digits.empty()) std::memcpy(&number, digits.data(), digits.size());
  push_integer(number);
}

bool PickleMachine::do_text(Opcode code) {
  const auto sized = [&](PickleKind kind, size_t length_bytes) {
    push_text(kind, take(unsigned_number(length_bytes)));
    return true;
  };
  switch (code) {
    case Opcode::text1:
      return sized(PickleKind::text, 1);
    case Opcode::text4:
      return sized(PickleKind::text, 4);
    case Opcode::text8:
      return sized(PickleKind::text, 8);
    case Opcode::bytes1:
      return sized(PickleKind::bytes, 1);
    case Opcode::bytes4:
      return sized(PickleKind::bytes, 4);
    case Opcode::bytes8:
    case Opcode::byte_array8:
      return sized(PickleKind::bytes, 8);
    // Python 2's str: torch reads it as text too.
    case Opcode::old_text1:
      return sized(PickleKind::text, 1);
    case Opcode::old_text4:
      return sized(PickleKind::text, 4);
    default:
      return false;
  }
}

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
         "it appends to something that is no list");
  target->items.insert(target->items.end(), items.begin(), items.end());
}

void PickleMachine::set_items(const Items& items) {
  PickleValue* target = top();
  expect(target->kind == PickleKind::dict || target->kind == PickleKind::object,
         "it sets items of something that is no dictionary");
  expect(items.size() % 2 == 0, "a key has no value");
  for (size_t i = 0; i < items.size(); i += 2) target->pairs.emplace_back(items[i], items[i + 1]);
}

bool PickleMachine::do_stack(Opcode code) {
  switch (code) {
    case Opcode::protocol: {
      const uint64_t version = unsigned_number(1);
      expect(version >= 2 && version <= 5, "its protocol is not one of 2 to 5");
      return true;
    }
    case Opcode::frame:
      take(8);
      return true;  // a hint for buffering; the frame follows in line
    case Opcode::mark:
      expect(static_cast<int64_t>(marks_.size()) < limits_.max_stack, "it has too many marks");
      marks_.push_back(stack_.size());
      return true;
    case Opcode::pop_mark:
      pop_to_mark();
      return true;
    case Opcode::duplicate:
      push(top());
      return true;
    case Opcode::pop:
      if (!marks_.empty() && stack_.size() == marks_.back()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return true;
    default:
      return false;
  }
}

bool PickleMachine::do_memo(Opcode code) {
  switch (code) {
    case Opcode::put1:
      remember(unsigned_number(1));
      return true;
    case Opcode::put4:
      remember(unsigned_number(4));
      return true;
    case Opcode::memoize:
      remember(memo_.size());
      return true;
    case Opcode::get1:
      recall(unsigned_number(1));
      return true;
    case Opcode::get4:
      recall(unsigned_number(4));
      return true;
    default:
      return false;
  }
}

// A map, not an array: a pickle may name any index, and memory follows what it really keeps.
void PickleMachine::remember(uint64_t key) {
  expect(static_cast<int64_t>(memo_.size()) < limits_.max_values, "it remembers too many values");
  memo_[key] = top();
}

void PickleMachine::recall(uint64_t key) {
  const auto found = memo_.find(key);
  expect(found != memo_.end(), "it recalls a value that it never kept");
  push(found->second);
}

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
             "it names a class by something that is no text");
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

Pickle read_pickle(std::string_view bytes, const std::string& where, const PickleLimits& limits) {
  return PickleMachine(bytes, where, limits).run();
}

}  // namespace fullshard
