#include "fullshard/optim/cast_kernels.h"

#include <bit>
#include <type_traits>

#include "fullshard/base/error.h"
#include "fullshard/base/vectorised.h"

namespace fullshard {
namespace {

// bf16 and fp16 by their bits: c10's conversions branch, which keeps loops from being vectorised.
enum class Brain : uint16_t {};
enum class Half : uint16_t {};

[[gnu::always_inline]] inline float widened(Brain value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// An fp16 number has its exponent 112 lower than fp32's and 13 bits less of mantissa.
constexpr uint32_t kExponentShift = 112u << 23;

[[gnu::always_inline]] inline float widened(Half value) {
  const auto bits = static_cast<uint32_t>(value);
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  // Subnormal: as the mantissa of 2^-14, from which that one is taken away again.
  constexpr uint32_t kSmallestNormal = kExponentShift + (1u << 23);
  const float small =
      std::bit_cast<float>(magnitude + kSmallestNormal) - std::bit_cast<float>(kSmallestNormal);
  const uint32_t special = magnitude >= 0x7c00u << 13 ? kExponentShift : 0;  // infinity, NaN
  const uint32_t normal = magnitude + kExponentShift + special;
  const uint32_t result = magnitude < 1u << 23 ? std::bit_cast<uint32_t>(small) : normal;
  return std::bit_cast<float>(result | (bits & 0x8000u) << 16);
}

[[gnu::always_inline]] inline float widened(float value) { return value; }
[[gnu::always_inline]] inline double widened(double value) { return value; }

[[gnu::always_inline]] inline void narrow(float value, Brain& to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to = static_cast<Brain>(is_nan ? 0x7fc0u : nearest);
}

[[gnu::always_inline]] inline void narrow(float value, Half& to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - kExponentShift) >> 13;
  // Subnormal: one half has its last bit where fp16's subnormals have theirs, so that the addition
  // rounds.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                         std::bit_cast<uint32_t>(0.5f);
  const uint32_t finite = magnitude < kExponentShift + (1u << 23) ? small : normal;
  const uint32_t bounded = magnitude >= 0x477ff000u ? 0x7c00u : finite;  // from 65520 on: infinity
  const uint32_t result = magnitude > 0x7f800000u ? 0x7e00u : bounded;
  to = static_cast<Half>(result | (bits & 0x80000000u) >> 16);
}

[[gnu::always_inline]] inline void narrow(float value, float& to) { to = value; }

template <class Real, class Stored>
FULLSHARD_VECTORISED void load_array(Real* __restrict to, const Stored* __restrict from,
                                     int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) to[i] = static_cast<Real>(widened(from[i]));
}

template <class Stored, class Real>
FULLSHARD_VECTORISED void store_array(Stored* __restrict to, const Real* __restrict from,
                                      int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    if constexpr (std::is_same_v<Stored, double>) {
      to[i] = from[i];
    } else {
      narrow(static_cast<float>(from[i]), to[i]);
    }
  }
}

FULLSHARD_VECTORISED
void store_stochastic_array(uint16_t* __restrict to, const float* __restrict from, int64_t numel,
                            RoundingKey key, uint64_t first) {
  for (int64_t i = 0; i < numel; ++i) {
    to[i] = round_stochastically(from[i], random_bits(key, first + static_cast<uint64_t>(i)));
  }
}

[[noreturn]] void refuse(c10::ScalarType dtype) {
  fail("optimizers keep values in float32, float64, bfloat16 or float16, not in {}",
       c10::toString(dtype));
}

// Calls `use` with a null pointer of the type that holds elements of `dtype`.
template <class Use>
void with_type(c10::ScalarType dtype, const Use& use) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return use(static_cast<float*>(nullptr));
    case c10::ScalarType::Double:
      return use(static_cast<double*>(nullptr));
    case c10::ScalarType::BFloat16:
      return use(static_cast<Brain*>(nullptr));
    case c10::ScalarType::Half:
      return use(static_cast<Half*>(nullptr));
    default:
      refuse(dtype);
  }
}

}  // namespace

template <class Real>
void load(Real* to, const Elements& from, int64_t numel) {
  with_type(from.dtype, [&]<class Stored>(Stored*) {
    load_array(to, static_cast<const Stored*>(from.data), numel);
  });
}

template <class Real>
void store(const Elements& to, const Real* from, int64_t numel) {
  with_type(to.dtype, [&]<class Stored>(Stored*) {
    store_array(static_cast<Stored*>(to.data), from, numel);
  });
}

void store_stochastically(void* to, const float* from, int64_t numel, const RoundingKey& key,
                          int64_t first) {
  store_stochastic_array(static_cast<uint16_t*>(to), from, numel, key,
                         static_cast<uint64_t>(first));
}

template void load<float>(float*, const Elements&, int64_t);
template void load<double>(double*, const Elements&, int64_t);
template void store<float>(const Elements&, const float*, int64_t);
template void store<double>(const Elements&, const double*, int64_t);

}  // namespace fullshard
