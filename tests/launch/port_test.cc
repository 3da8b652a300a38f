// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/port.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "fullshard/base/tcp_socket.h"

namespace fullshard::launch {
namespace {

// Between the choice of a port and a rank that listens there, no other program gets it.
TEST(HeldPort, IsGivenToNobodyElseAndListenedOnByARank) {
  const HeldPort held = HeldPort::free_one();
  std::vector<HeldPort> others;
  std::set<int> numbers;
  for (int i = 0; i < 500; ++i) {
    others.push_back(HeldPort::free_one());
    numbers.insert(others.back().number());
  }
  EXPECT_EQ(numbers.size(), 500u);
  EXPECT_EQ(numbers.count(held.number()), 0u);
  for (const bool is_loopback : {true, false}) {
    const int listener = base::listen_tcp(held.number(), is_loopback);
    EXPECT_GE(listener, 0);
    EXPECT_FALSE(is_port_free(held.number()));
    ::close(listener);
  }
  EXPECT_TRUE(is_port_free(held.number()));
}

// Two launchers that start at the same moment: neither has a rank that listens yet.
TEST(HeldPort, OfTheUserIsGivenToOneLauncherOnly) {
  const int number = HeldPort::free_one().number();
  {
    const auto first = HeldPort::hold(number);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->number(), number);
    EXPECT_TRUE(is_port_free(number));  // for its ranks
    EXPECT_FALSE(HeldPort::hold(number).has_value());
  }
  EXPECT_TRUE(HeldPort::hold(number).has_value());
}

}  // namespace
}  // namespace fullshard::launch
