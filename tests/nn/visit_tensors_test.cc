// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/visit_tensors.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace fullshard::nn {
namespace {

at::Tensor number(double value) { return at::full({1}, value); }

// Each tensor as its value; undefined ones as -1.
template <class T>
std::vector<double> values_in(T& value) {
  std::vector<double> values;
  visit_tensors(value, [&](const at::Tensor& tensor) {
    values.push_back(tensor.defined() ? tensor.item<double>() : -1);
  });
  return values;
}

using Values = std::vector<double>;

struct Inner {
  at::Tensor a;
  int width = 0;
  std::optional<at::Tensor> b;
};

struct Outer {
  std::string name;
  Inner inner;
  std::vector<at::Tensor> list;
  std::array<at::Tensor, 2> pair;
  std::map<std::string, at::Tensor> named;
  double scale = 1;
};

struct Twelve {
  at::Tensor a, b, c, d, e, f, g, h, i, j, k, l;
};

struct One {
  at::Tensor only;
};

struct WithArray {
  int sizes[4];
  at::Tensor tensor;
};

struct Derived : One {
  int other = 0;
};

class Opaque {
 public:
  explicit Opaque(at::Tensor tensor) : tensor_(std::move(tensor)) {}

 private:
  at::Tensor tensor_;
};

class Open {
 public:
  explicit Open(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  template <class F>
  void visit_tensors(F&& f) const {
    f(tensor_);
  }

 private:
  at::Tensor tensor_;
};

TEST(VisitTensors, FindsThemInContainersInOrder) {
  at::Tensor one = number(1);
  EXPECT_EQ(values_in(one), Values({1}));
  std::tuple<at::Tensor, int, std::pair<at::Tensor, std::string>> tuple{
      number(1), 7, {number(2), ""}};
  EXPECT_EQ(values_in(tuple), Values({1, 2}));
  std::vector<std::optional<at::Tensor>> optionals{number(1), std::nullopt, number(3)};
  EXPECT_EQ(values_in(optionals), Values({1, 3}));
  std::map<std::string, std::vector<at::Tensor>> map{{"b", {number(3)}},
                                                     {"a", {number(1), number(2)}}};
  EXPECT_EQ(values_in(map), Values({1, 2, 3}));
  std::unordered_map<int, at::Tensor> hashed{{4, number(4)}};
  EXPECT_EQ(values_in(hashed), Values({4}));
}

TEST(VisitTensors, TakesStructsApart) {
  Outer outer{"n", {number(1), 3, number(2)}, {number(3)}, {number(4), {}}, {{"k", number(5)}}, 2};
  EXPECT_EQ(values_in(outer), Values({1, 2, 3, 4, -1, 5}));
  Twelve twelve;
  twelve.l = number(12);
  EXPECT_EQ(values_in(twelve), Values({-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 12}));
  One one{number(1)};
  EXPECT_EQ(values_in(one), Values({1}));
}

TEST(VisitTensors, AsksAClassThatAnswers) {
  const Open open(number(8));
  EXPECT_EQ(values_in(open), Values({8}));
}

TEST(VisitTensors, PassesOverTheRest) {
  Opaque opaque(number(1));
  EXPECT_EQ(values_in(opaque), Values());
  WithArray array{{1, 2, 3, 4}, number(1)};
  EXPECT_EQ(values_in(array), Values());
  Derived derived{{number(1)}, 2};
  EXPECT_EQ(values_in(derived), Values());
  auto pointer = std::make_shared<at::Tensor>(number(1));
  EXPECT_EQ(values_in(pointer), Values());
  std::vector<bool> flags{true};
  EXPECT_EQ(values_in(flags), Values());
}

TEST(VisitTensors, WritesThroughTheReference) {
  std::tuple<Inner, std::vector<at::Tensor>> value{{number(1), 0, number(2)}, {number(3)}};
  visit_tensors(value, [](at::Tensor& tensor) { tensor = number(tensor.item<double>() * 10); });
  EXPECT_EQ(values_in(value), Values({10, 20, 30}));
}

TEST(VisitTensors, CollectsDefinedOnes) {
  const std::vector<at::Tensor> found =
      collect_tensors(number(1), 5, at::Tensor(), std::make_pair(number(2), true));
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].item<double>(), 1);
  EXPECT_EQ(found[1].item<double>(), 2);
}

}  // namespace
}  // namespace fullshard::nn
