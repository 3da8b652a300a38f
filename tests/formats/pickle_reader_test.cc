// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/pickle/pickle_reader.h"

#include <string>

#include "tests/formats/fixture.h"
#include "tests/formats/zip_builder.h"

namespace fullshard::testing {

using namespace std::string_literals;

namespace {

std::string pickle_error_of(const std::string& bytes, const formats::PickleLimits& limits = {}) {
  return input_error("-", [&] { formats::read_pickle(bytes, "f", limits); });
}

class EveryProtocol : public ::testing::TestWithParam<int> {
 protected:
  std::string bytes_ = read_file(fixture("protocol" + std::to_string(GetParam()) + ".pkl"));
  formats::Pickle pickle_ = formats::read_pickle(bytes_, "f");
  const formats::PickleValue& at(std::string_view key) { return *pickle_.root().find(key); }
};

TEST_P(EveryProtocol, ReadsScalarsAndText) {
  EXPECT_EQ(at("none").kind, formats::PickleKind::none);
  EXPECT_EQ(at("yes").kind, formats::PickleKind::boolean);
  EXPECT_EQ(at("yes").integer, 1);
  EXPECT_EQ(at("no").integer, 0);
  std::vector<int64_t> integers;
  for (const auto* item : at("ints").items) integers.push_back(item->integer);
  EXPECT_EQ(integers, (std::vector<int64_t>{0, 255, 65535, -1, int64_t{1} << 31,
                                            -(int64_t{1} << 62), INT64_MAX, INT64_MIN}));
  EXPECT_EQ(at("big").kind, formats::PickleKind::big_integer);
  EXPECT_EQ(at("big").text, std::string(12, '\0') + "\x10");
  EXPECT_EQ(at("float").real, -1.5);
  EXPECT_EQ(at("text").text, "h\u00e9llo");
  EXPECT_EQ(at("bytes").kind, formats::PickleKind::bytes);
  EXPECT_EQ(at("bytes").text, std::string("\x00\xff\x80\x61", 4));
}

TEST_P(EveryProtocol, ReadsContainersAndWhatIsSharedInThem) {
  EXPECT_EQ(at("tuple").describe(), "a tuple of 3");
  EXPECT_EQ(at("tuple").items[1]->items[0]->integer, 2);
  EXPECT_EQ(at("tuple").items[2]->describe(), "a tuple of 0");
  EXPECT_EQ(at("shared").items[0]->text, "x");
  EXPECT_EQ(at("shared").items[1], &at("shared"));
  EXPECT_EQ(at("ordered").describe(), "a dictionary of 1");
  EXPECT_EQ(at("ordered").find("a")->integer, 1);
  EXPECT_EQ(at("size").describe(), "a tuple of 2");
  EXPECT_EQ(at("size").items[1]->integer, 3);
  EXPECT_EQ(at("long_list").items.size(), 2500);
  EXPECT_EQ(at("long_list").items[2499]->integer, 2499);
  EXPECT_EQ(at("set").describe(), GetParam() < 4
                                      ? std::string(GetParam() < 3 ? "an object of __builtin__.set"
                                                                   : "an object of builtins.set")
                                      : "a set of 1");
  EXPECT_EQ(pickle_.root().find("absent"), nullptr);
}

TEST_P(EveryProtocol, KeepsObjectsAsNotes) {
  EXPECT_EQ(at("dtype").describe(), "the name torch.float16");
  EXPECT_EQ(at("object").class_name(), "__main__.Later");
  EXPECT_EQ(at("object").describe(), "an object of __main__.Later");
  EXPECT_EQ(at("object").state->find("version")->integer, 2);
  EXPECT_EQ(at("object").state->find("items")->find("a")->items[1]->real, 2.5);
}

TEST_P(EveryProtocol, NamesTruncationAtEveryByte) {
  for (size_t size = 0; size < 1500; ++size) {
    const std::string error = pickle_error_of(bytes_.substr(0, size));
    ASSERT_TRUE(error.ends_with(": it ends too early") || error.ends_with(": a line has no end"))
        << error;
  }
}

INSTANTIATE_TEST_SUITE_P(Pickle, EveryProtocol, ::testing::Values(2, 3, 4, 5));

TEST(Pickle, NamesWhatIsWrongAndWhere) {
  EXPECT_EQ(pickle_error_of("\x80\x02N."), "no error");
  EXPECT_EQ(pickle_error_of(""), "f: pickle byte 0: it ends too early");
  EXPECT_EQ(pickle_error_of("\x80\x01N."), "f: pickle byte 0: its protocol is not one of 2 to 5");
  EXPECT_EQ(pickle_error_of("\x80\x02."), "f: pickle byte 2: its stack is empty");
  EXPECT_EQ(pickle_error_of("\x80\x02I1\n."),
            "f: pickle byte 2: its opcode is not one that torch.save writes");
  EXPECT_EQ(pickle_error_of("N(\x85."), "f: pickle byte 2: its stack is empty");
  EXPECT_EQ(pickle_error_of("Nt."), "f: pickle byte 1: its stack has no mark");
  EXPECT_EQ(pickle_error_of("NNa."),
            "f: pickle byte 2: it appends to something that is not a list");
  EXPECT_EQ(pickle_error_of("]NNs."),
            "f: pickle byte 3: it sets items of something that is not a dictionary");
  EXPECT_EQ(pickle_error_of("}(Nu."), "f: pickle byte 3: a key has no value");
  EXPECT_EQ(pickle_error_of("h\x05."),
            "f: pickle byte 0: it reads a memo entry that it never stored");
  EXPECT_EQ(pickle_error_of("NN\x93."),
            "f: pickle byte 2: it names a class by something that is not a string");
  EXPECT_EQ(pickle_error_of("NNR."),
            "f: pickle byte 2: it calls something without a tuple of arguments");
  EXPECT_EQ(pickle_error_of("NNb."),
            "f: pickle byte 2: it gives attributes to something that has none");
  EXPECT_EQ(pickle_error_of("cposix\nsystem"), "f: pickle byte 0: a line has no end");
}

TEST(Pickle, CallsNothing) {
  const formats::Pickle pickle =
      formats::read_pickle("cposix\nsystem\nX\x04\x00\x00\x00true\x85R."s, "f");
  EXPECT_EQ(pickle.root().describe(), "an object of posix.system");
  EXPECT_EQ(pickle.root().arguments->items[0]->text, "true");
}

TEST(Pickle, BoundsWhatAShortPickleMayAskFor) {
  const formats::PickleLimits limits{.max_bytes = 1000, .max_values = 100, .max_stack = 50};
  EXPECT_EQ(pickle_error_of(std::string(1001, 'N'), limits), "f: pickle byte 0: it is too long");
  EXPECT_EQ(pickle_error_of(std::string(200, 'N'), limits),
            "f: pickle byte 50: its stack grows too high");
  EXPECT_EQ(pickle_error_of(std::string(200, '('), limits),
            "f: pickle byte 50: it has too many marks");
  std::string many;
  for (int i = 0; i < 200; ++i) many += "]0";
  EXPECT_EQ(pickle_error_of(many, limits), "f: pickle byte 194: it holds too many values");
  EXPECT_EQ(pickle_error_of("N" + std::string(200, '\x94'), limits),
            "f: pickle byte 101: its memo holds too many values");
  // 90 bytes of text, named again and again at 1 byte each.
  std::string copies = "\x8c\x5a" + std::string(90, 'x') + "\x94";
  for (int i = 0; i < 10; ++i) copies += std::string("h\0h\0\x93", 5) + "0";
  EXPECT_EQ(pickle_error_of(copies, limits),
            "f: pickle byte 127: it asks for too many copies of a string");
}

TEST(Pickle, AllocatesForWhatIsThereOnly) {
  const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\x7f";
  EXPECT_EQ(pickle_error_of("\x8d" + huge), "f: pickle byte 0: it ends too early");
  EXPECT_EQ(pickle_error_of("\x8e" + huge), "f: pickle byte 0: it ends too early");
  EXPECT_EQ(pickle_error_of("\x8b\xff\xff\xff\x7f"), "f: pickle byte 0: it ends too early");
  EXPECT_EQ(pickle_error_of("X\xff\xff\xff\xff"), "f: pickle byte 0: it ends too early");
  EXPECT_EQ(pickle_error_of("Nr\xff\xff\xff\xff."), "no error");  // the largest index of the memo
  const formats::Pickle number =
      formats::read_pickle("\x8b" + little(1 << 20, 4) + std::string(1 << 20, '\x7f') + ".", "f");
  EXPECT_EQ(number.root().kind, formats::PickleKind::big_integer);
}

TEST(Pickle, NestsWithoutRecursion) {
  std::string deep = "N";
  deep += std::string(1'000'000, '\x85');
  const formats::Pickle pickle = formats::read_pickle(deep + ".", "f");
  EXPECT_EQ(pickle.root().describe(), "a tuple of 1");
}

}  // namespace
}  // namespace fullshard::testing
