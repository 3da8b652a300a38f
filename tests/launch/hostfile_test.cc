// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/hostfile.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"

namespace fullshard::launch {
namespace {

constexpr const char* kFour = "a slots=4\nb slots=4\nc slots=2\n";

// "a:0,1 b:0"
std::string text_of(const std::vector<Host>& hosts) {
  std::vector<std::string> words;
  for (const Host& host : hosts) {
    words.push_back(fmt::format("{}:{}", host.name, fmt::join(host.slots, ",")));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2);
    return error.what();
  }
  return "no error";
}

std::string filtered(const std::string& include, const std::string& exclude = "") {
  return text_of(filter_hosts(parse_hostfile(kFour, "f"), include, exclude));
}

std::string filter_error(const std::string& include, const std::string& exclude = "") {
  return error_of([&] { filtered(include, exclude); });
}

TEST(Hostfile, ReadsHostsAndSlots) {
  EXPECT_EQ(text_of(parse_hostfile("# hosts\n\n  a slots=2\nme@b\tslots=1 # old\nc slots=1 "
                                   "max_slots=8\r\n",
                                   "f")),
            "a:0,1 me@b:0 c:0");
}

TEST(Hostfile, NamesEveryBadLine) {
  EXPECT_EQ(error_of([] {
              parse_hostfile(
                  "a\nb slots=two\n#\nc slots=0\nd slots=1\nd slots=2\ne slots=1 x\n-oX "
                  "slots=1\nf slot=1\n",
                  "hosts");
            }),
            "hosts:1: 'a', expected 'HOST slots=N'\n"
            "error: hosts:2: host b has slots=two, expected 1 to 4096\n"
            "error: hosts:4: host c has slots=0, expected 1 to 4096\n"
            "error: hosts:6: host d is listed twice; list it once, with all its slots\n"
            "error: hosts:7: 'x' after the slots, expected the end of the line\n"
            "error: hosts:8: '-oX' is not a host name\n"
            "error: hosts:9: 'f slot=1', expected 'HOST slots=N'");
  EXPECT_EQ(error_of([] { parse_hostfile("# nobody\n", "hosts"); }),
            "hosts:1: no host; expected lines 'HOST slots=N'");
  EXPECT_EQ(error_of([] { read_hostfile("/no/such/file"); }),
            "hostfile /no/such/file: cannot be read: No such file or directory");
}

TEST(HostFilter, TakesHostsAndSlotsIn) {
  EXPECT_EQ(filtered(""), "a:0,1,2,3 b:0,1,2,3 c:0,1");
  EXPECT_EQ(filtered("b"), "b:0,1,2,3");
  EXPECT_EQ(filtered("c@a:2,0"), "a:0,2 c:0,1");
  EXPECT_EQ(filtered("a:0@a:3@a:0"), "a:0,3");
}

TEST(HostFilter, TakesHostsAndSlotsOut) {
  EXPECT_EQ(filtered("", "b"), "a:0,1,2,3 c:0,1");
  EXPECT_EQ(filtered("", "a:1,3@b:0"), "a:0,2 b:1,2,3 c:0,1");
  EXPECT_EQ(filtered("", "a:0,1,2,3"), "b:0,1,2,3 c:0,1");
}

TEST(HostFilter, RefusesWhatIsNotThere) {
  EXPECT_EQ(filter_error("a", "b"),
            "launch: --include and --exclude are both given; use one of them");
  EXPECT_EQ(filter_error("worker"),
            "launch: --include: no host 'worker' in the hostfile; it has a, b, c");
  EXPECT_EQ(filter_error("", "c:2"), "launch: --exclude: host c has no slot '2', only 0, 1");
  EXPECT_EQ(filter_error("c:x"), "launch: --include: host c has no slot 'x', only 0, 1");
  EXPECT_EQ(filter_error("", "a@b@c"), "launch: --exclude leaves no host");
}

}  // namespace
}  // namespace fullshard::launch
