// SPDX-License-Identifier: Apache-2.0
// Loops that the compiler turns into vector code, with the instruction set chosen when the program
// starts. A function marked FULLSHARD_VECTORISED is compiled once per set; all versions give the
// same bits, since contraction and reassociation are off everywhere.
#pragma once

// The choice is made by an ifunc resolver, which runs before a sanitizer's runtime is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FULLSHARD_VECTORISED \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FULLSHARD_VECTORISED
#endif

// For functions that are written once per instruction set, since how they cut their work depends on
// the number of registers. Who calls one has asked the processor; anything else is undefined.
#if defined(__x86_64__) && defined(__GNUC__)
#define FULLSHARD_HAS_X86_SETS 1
// Either compiler takes half of a register's width without being told.
#if defined(__clang__)
#define FULLSHARD_VECTORISED_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2"), min_vector_width(512)))
#else
#define FULLSHARD_VECTORISED_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,prefer-vector-width=512")))
#endif
#define FULLSHARD_VECTORISED_AVX2 __attribute__((target("avx2")))
#else
#define FULLSHARD_HAS_X86_SETS 0
#endif
