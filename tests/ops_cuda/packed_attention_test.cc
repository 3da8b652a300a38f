// SPDX-License-Identifier: Apache-2.0
// Attention that stays inside packed documents, all of them in one launch.

#include <cmath>

#include "fullshard/memory/device_memory.h"
#include "fullshard/ops/attention/self_attention.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

class DevicePackedAttention : public OnDevice {};

struct PackedCase {
  int64_t heads = 4, kv_heads = 4, width = 64;
  bool is_causal = true;
};

const std::vector<std::vector<int64_t>> kPacked = {{100, 1, 27}, {64, 64}};
constexpr int64_t kPackedColumns = 128;

SharedPackedDocuments on_gpu(const std::vector<std::vector<int64_t>>& lengths) {
  return make_packed_documents(lengths, at::kCUDA);
}

Operator packed_attention_of(const PackedCase& wanted, SharedPackedDocuments documents,
                             const RotaryTable& table) {
  return [=, documents = std::move(documents)](const Inputs& in) {
    const AttentionOptions options{.causal = wanted.is_causal, .documents = documents};
    return self_attention({.packed = in[0] * 1.0}, {wanted.heads, wanted.kv_heads}, &table,
                          options);
  };
}

at::Tensor packed_rows_of(const PackedCase& wanted) {
  return device_randn({2, kPackedColumns, (wanted.heads + 2 * wanted.kv_heads) * wanted.width});
}

TEST_F(DevicePackedAttention, EqualsTheDocumentsOneByOneInFp64) {
  for (const PackedCase& wanted : {PackedCase{}, PackedCase{8, 2, 64}, PackedCase{6, 1, 128},
                                   PackedCase{2, 2, 40}, PackedCase{4, 4, 64, false}}) {
    const auto table = make_rotary_table(device_randn({wanted.width / 2}).abs(), kPackedColumns);
    SCOPED_TRACE(::testing::Message()
                 << wanted.heads << "/" << wanted.kv_heads << " heads of " << wanted.width);
    expect_same_as_wide(packed_attention_of(wanted, on_gpu(kPacked), table),
                        {packed_rows_of(wanted)}, at::kBFloat16, 3e-2, false);
  }
}

TEST_F(DevicePackedAttention, SeesNothingAcrossBorders) {
  const PackedCase wanted{8, 2, 64};
  const auto table = make_rotary_table(device_randn({32}).abs(), kPackedColumns);
  const auto attend = packed_attention_of(wanted, on_gpu(kPacked), table);
  const auto rows = packed_rows_of(wanted).to(at::kBFloat16);
  const auto before = attend({rows});
  const auto others = rows.clone();
  others[0].narrow(0, 0, 100).fill_(1);
  const auto after = attend({others});
  EXPECT_FALSE(at::equal(after[0].narrow(0, 0, 100), before[0].narrow(0, 0, 100)));
  EXPECT_TRUE(at::equal(after[0].narrow(0, 100, 28), before[0].narrow(0, 100, 28)));
  EXPECT_TRUE(at::equal(after[1], before[1]));
}

TEST_F(DevicePackedAttention, OfRowsThatAreOneDocumentIsPlain) {
  const PackedCase wanted;
  const auto table = make_rotary_table(device_randn({32}).abs(), kPackedColumns);
  const auto rows = packed_rows_of(wanted).to(at::kBFloat16);
  const auto of_rows = packed_attention_of(wanted, on_gpu({{128}, {128}}), table);
  const auto plain = packed_attention_of(wanted, nullptr, table);
  EXPECT_TRUE(at::equal(of_rows({rows}), plain({rows})));
}

TEST_F(DevicePackedAttention, RefusesDocumentsOfOtherRows) {
  const PackedCase wanted;
  const auto table = make_rotary_table(device_randn({32}).abs(), kPackedColumns);
  const auto attend = packed_attention_of(wanted, on_gpu({{100, 28}}), table);
  EXPECT_ANY_THROW(attend({packed_rows_of(wanted).to(at::kBFloat16)}));
}

// As without documents: composed attention would keep turned copies of queries and keys too.
TEST_F(DevicePackedAttention, HoldsItsInputItsResultAndOneNumberPerRow) {
  const AttentionOptions options{.causal = true, .documents = on_gpu({{300, 700, 24}, {1000, 24}})};
  const auto leaf = device_randn({2, 1024, 12 * 64}, at::kBFloat16).requires_grad_();
  const auto run = [&] { return self_attention({.packed = leaf}, {4, 4}, nullptr, options); };
  const auto held = [] { return memory::device_memory({at::kCUDA, 0}).allocated_bytes; };
  run().sum().backward();
  const int64_t before = held();
  const auto made = run();
  const int64_t extra = held() - before - 2 * 1024 * 4 * 64 * 2 - 2 * 1024 * 4 * 4;
  EXPECT_GE(extra, 0);
  // Seeds, and a kernel's own rounding of the rows' numbers.
  EXPECT_LE(extra, 64 * 1024);
}

// Queries, keys and values of their own, as an encoder without padding has them.
Inputs apart() {
  return {device_randn({2, kPackedColumns, 4, 64}), device_randn({2, kPackedColumns, 4, 64}),
          device_randn({2, kPackedColumns, 4, 64})};
}

TEST_F(DevicePackedAttention, OfSeparateRowsEqualsTheDocumentsOneByOneInFp64) {
  for (const bool is_causal : {false, true}) {
    const AttentionOptions options{.causal = is_causal, .documents = on_gpu(kPacked)};
    expect_same_as_wide([&](const Inputs& in) { return attention(in[0], in[1], in[2], options); },
                        apart(), at::kBFloat16, 3e-2, false);
  }
}

// What is dropped is the same in both passes: the results are a linear function of the values,
// whose gradient this is.
TEST_F(DevicePackedAttention, OfSeparateRowsDropsTheSameInBothPasses) {
  const auto in = leaves(apart(), at::kBFloat16);
  AttentionOptions options{.documents = on_gpu(kPacked)};
  const auto plain = attention(in[0], in[1], in[2], options).detach();
  options.dropout = 0.5;
  const auto made = attention(in[0], in[1], in[2], options);
  EXPECT_FALSE(at::equal(made.detach(), plain));
  const auto factors = device_randn(made.sizes(), at::kBFloat16);
  made.backward(factors);
  const auto dot = [](const at::Tensor& a, const at::Tensor& b) {
    return (a.detach().to(at::kDouble) * b.detach().to(at::kDouble)).sum().item<double>();
  };
  const double forward = dot(made, factors), backward = dot(in[2], in[2].grad());
  const double size = std::sqrt(dot(made, made) * dot(factors, factors));
  EXPECT_NEAR(forward, backward, 2e-3 * size);
}

}  // namespace
}  // namespace fullshard::ops
