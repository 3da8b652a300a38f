// SPDX-License-Identifier: Apache-2.0
// The emulation itself: what a device promises a kernel, and no more.
#include "tests/emulated_cuda/emulation/block.h"

#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <vector>

#include "fullshard/base/error.h"

namespace fullshard::emulation {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

void run_block(unsigned threads, const std::function<void()>& body) {
  run_grid({}, {threads}, 0, body);
}

TEST(EmulatedBlock, RunsEveryThreadOfEveryBlockOnce) {
  std::multiset<std::vector<unsigned>> seen;
  run_grid({3, 2}, {4, 2}, 0, [&] {
    EXPECT_EQ(gridDim.x, 3u);
    EXPECT_EQ(blockDim.y, 2u);
    seen.insert({blockIdx.x, blockIdx.y, threadIdx.x, threadIdx.y});
  });
  EXPECT_EQ(seen.size(), 48u);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 48u);
}

TEST(EmulatedBlock, OrdersThreadsAsAsked) {
  const auto order_of = [](const ThreadOrder& order) {
    order.use();
    std::vector<unsigned> seen;
    run_block(4, [&] { seen.push_back(threadIdx.x); });
    ThreadOrder::ascending().use();
    return seen;
  };
  EXPECT_THAT(order_of(ThreadOrder::ascending()), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(order_of(ThreadOrder::descending()), ElementsAre(3, 2, 1, 0));
  std::set<std::vector<unsigned>> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) orders.insert(order_of(ThreadOrder::random(seed)));
  EXPECT_GT(orders.size(), 5u);
}

TEST(EmulatedBlock, BarriersWaitForAllThreadsThatHaveNotEnded) {
  std::vector<int> early, late;
  run_block(40, [&] {
    if (threadIdx.x == 7) return;
    early.push_back(1);
    __syncthreads();
    EXPECT_EQ(early.size(), 39u);
    late.push_back(1);
    __syncthreads();
    EXPECT_EQ(late.size(), 39u);
  });
}

// A sum that forgets its barrier: the first thread reads what the others have not written yet.
TEST(EmulatedBlock, ShowsAMissingBarrierByOtherBits) {
  const auto sum_of = [](const ThreadOrder& order) {
    order.use();
    std::vector<int> parts(32);
    int sum = 0;
    run_block(32, [&] {
      parts[threadIdx.x] = 1;
      if (threadIdx.x == 0) sum = std::accumulate(parts.begin(), parts.end(), 0);
    });
    ThreadOrder::ascending().use();
    return sum;
  };
  EXPECT_EQ(sum_of(ThreadOrder::ascending()), 1);
  EXPECT_EQ(sum_of(ThreadOrder::descending()), 32);
}

TEST(EmulatedWarp, ExchangesValuesBetweenItsOwnLanes) {
  run_block(64, [] {
    const unsigned warp = threadIdx.x / 32;
    EXPECT_EQ(__shfl_xor_sync(~0u, threadIdx.x, 1), threadIdx.x ^ 1);
    const unsigned below = threadIdx.x % 32 < 30 ? threadIdx.x + 2 : threadIdx.x;
    EXPECT_EQ(__shfl_down_sync(~0u, threadIdx.x, 2), below);
    EXPECT_EQ(__reduce_max_sync(~0u, threadIdx.x), warp * 32 + 31);
    EXPECT_EQ(__reduce_max_sync(__activemask(), threadIdx.x), threadIdx.x);
  });
}

TEST(EmulatedWarp, GivesNaNForALaneThatBringsNothing) {
  run_block(32, [] {
    if (threadIdx.x >= 2) return;
    EXPECT_TRUE(isnan(from_lane(3u, 1.0f, 5)));
  });
}

TEST(EmulatedWarp, NamesThreadsThatCannotGoOn) {
  const auto half_at_barrier = [] {
    run_block(32, [] {
      if (threadIdx.x < 16) {
        __syncthreads();
      } else {
        __shfl_xor_sync(~0u, 1, 1);
      }
    });
  };
  EXPECT_THAT(half_at_barrier,
              ThrowsMessage<Error>(HasSubstr(
                  "in block 0, 16 threads wait at __syncthreads(), 16 for other lanes of their "
                  "warps, and 0 have ended: nobody can go on")));
  EXPECT_THAT([] { run_block(32, [] { __shfl_xor_sync(1u, 1, 1); }); },
              ThrowsMessage<Error>(HasSubstr("under mask 1, which leaves it out")));
}

TEST(EmulatedGrid, RefusesWhatNoDeviceTakes) {
  const auto nothing = [] {};
  EXPECT_THAT([&] { run_grid({}, {1025}, 0, nothing); },
              ThrowsMessage<Error>(HasSubstr("1025 threads in a block")));
  EXPECT_THAT([&] { run_grid({0}, {32}, 0, nothing); },
              ThrowsMessage<Error>(HasSubstr("a grid of 0 x 1 x 1 blocks")));
  EXPECT_THAT(
      [&] {
        run_grid({1, 65'536}, {32}, 0, nothing);
      },
      ThrowsMessage<Error>(HasSubstr("a grid of 1 x 65536 x 1 blocks")));
  EXPECT_THAT([&] { run_grid({}, {32}, 300'000, nothing); },
              ThrowsMessage<Error>(HasSubstr("300000 bytes of shared memory")));
}

TEST(EmulatedGrid, HandsOnWhatAThreadThrows) {
  EXPECT_THAT(
      [] {
        run_block(64, [] {
          if (threadIdx.x == 40) throw Error("of thread 40");
        });
      },
      ThrowsMessage<Error>("of thread 40"));
  run_block(1, [] {});  // and runs on
}

TEST(EmulatedMemory, IsNaNAtTheBeginOfABlock) {
  run_grid({2}, {1}, 64, [] {
    auto* shared = static_cast<float*>(dynamic_shared());
    for (int i = 0; i < 16; ++i) EXPECT_TRUE(isnan(shared[i]));
    shared[3] = 1;
  });
}

TEST(EmulatedMemory, CopiesArriveWhenTheyAreWaitedFor) {
  run_block(1, [] {
    const int from = 5;
    int to = 0;
    __pipeline_memcpy_async(&to, &from, sizeof(to));
    __pipeline_commit();
    EXPECT_EQ(to, 0);
    __pipeline_wait_prior(0);
    EXPECT_EQ(to, 5);
  });
}

TEST(EmulatedInstructions, MultiplyTiles) {
  float a[16][16], b[16][8], expected[16][8] = {};
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) a[i][k] = static_cast<float>((i * 7 + k * 3) % 11 - 5);
    for (int j = 0; j < 8; ++j) b[i][j] = static_cast<float>((i * 5 + j * 2) % 13 - 6);
  }
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      for (int k = 0; k < 16; ++k) expected[i][j] += a[i][k] * b[k][j];
    }
  }
  const auto pair = [](float low, float high) {
    return uint32_t{__float2bfloat16_rn(high).bits} << 16 | __float2bfloat16_rn(low).bits;
  };
  run_block(32, [&] {
    const unsigned row = threadIdx.x / 4, k = threadIdx.x % 4 * 2, column = row;
    float c[4] = {1, 1, 1, 1};
    mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(
        c[0], c[1], c[2], c[3], pair(a[row][k], a[row][k + 1]),
        pair(a[row + 8][k], a[row + 8][k + 1]), pair(a[row][k + 8], a[row][k + 9]),
        pair(a[row + 8][k + 8], a[row + 8][k + 9]), pair(b[k][column], b[k + 1][column]),
        pair(b[k + 8][column], b[k + 9][column]));
    EXPECT_EQ(c[0], expected[row][k] + 1);
    EXPECT_EQ(c[1], expected[row][k + 1] + 1);
    EXPECT_EQ(c[2], expected[row + 8][k] + 1);
    EXPECT_EQ(c[3], expected[row + 8][k + 1] + 1);
  });
}

TEST(EmulatedInstructions, ChooseBytes) {
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x5140), 0x55114400u);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7362), 0x77336622u);
  EXPECT_EQ(__vmaxu2(0x00010005u, 0x00020003u), 0x00020005u);
}

}  // namespace
}  // namespace fullshard::emulation
