# SPDX-License-Identifier: Apache-2.0
# Options of every target. They are set for the whole directory, because the precompiled header
# can only be shared by targets that are compiled with exactly the same options.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

# No -g in release: debug information of libtorch's templates doubles build time and size.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
set(FULLSHARD_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (address,undefined or thread)")

set(options
  -fPIC                 # libraries and programs share one precompiled header
  -fopenmp              # at::parallel_for is a header: without it our loops run on one thread
  -ffp-contract=off     # a fused multiply-add would make bits depend on the instruction set
  -fno-math-errno
  -Wall -Wextra -Wpedantic -Wshadow)  # errors where CMAKE_COMPILE_WARNING_AS_ERROR says so
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 guesses wrong about std::string at -O2, depending on the length of a literal.
  list(APPEND options -Wno-array-bounds -Wno-stringop-overflow -Wno-restrict)
  list(PREPEND options -fpch-preprocess)  # lets ccache see through precompiled headers
else()
  # clang minds what libstdc++ 12 calls for std::stable_sort.
  list(APPEND options -Wno-deprecated-declarations)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
    list(APPEND options -fclang-abi-compat=17)  # names of constrained templates as g++ 13 gave them to libtorch
  endif()
endif()
foreach(option IN LISTS options)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${option}>)
endforeach()
add_compile_definitions(USE_C10D_GLOO)

if(FULLSHARD_SANITIZE)
  add_compile_options(-fsanitize=${FULLSHARD_SANITIZE} -fno-omit-frame-pointer -O1 -g1
                      # guesses wrong about instrumented std::regex
                      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${FULLSHARD_SANITIZE})
  if(FULLSHARD_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The sanitizer does not follow fences, and g++ says so of every one in a header of libtorch.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()
