# SPDX-License-Identifier: Apache-2.0
# Precompiled headers, each shared by many targets. What a header of libtorch leaves to instantiate
# is done again in every source that loads its image: 0.4 s for Tensor.h, 1.5 s for ATen.h, 3 s for
# nn/module.h. So there are several, and a target takes the smallest that covers most of its sources.
#
#   plain         sources without libtorch
#   tensor        sources that use tensors
#   module        sources that use torch::nn::Module and most operators, compiled with -O1
#                 (FullshardLibrary.cmake); not <torch/torch.h>, whose image is so large that loading it
#                 costs more than it saves
#   plain_once    as plain, for folders that are compiled with -O1
#   test          tests without libtorch
#   test_tensor   tests that use tensors and their operators
#   test_module   tests that use torch::nn::Module
option(FULLSHARD_UNITY "Compile the sources of a folder several at a time" ON)
option(FULLSHARD_UNITY_TESTS "Do so with tests, too" ON)

function(_fullshard_precompiled_header name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK;OPTIONS;HEADERS")
  set(target fullshard_pch_${name})
  set(source "${CMAKE_BINARY_DIR}/precompiled_${name}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "namespace fullshard {}\n")
  add_library(${target} STATIC EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(${target} PRIVATE ${arg_LINK})
  target_compile_options(${target} PRIVATE ${arg_OPTIONS})
  target_precompile_headers(${target} PRIVATE ${arg_HEADERS})
endfunction()

set(light <algorithm> <functional> <map> <memory> <optional> <span> <string> <string_view> <vector>
          <fmt/format.h>)
set(plain ${light} <array> <charconv> <chrono> <cstdint> <cstring> <filesystem> <fstream> <mutex>
          <set> <sstream> <thread> <utility> <fmt/ranges.h>)
_fullshard_precompiled_header(plain LINK fmt::fmt Threads::Threads HEADERS ${plain})
set(tensor ${light} <ATen/core/Tensor.h>)
set(module ${tensor} <ATen/ATen.h> <torch/nn/module.h> <torch/csrc/autograd/custom_function.h>)
_fullshard_precompiled_header(tensor LINK torch fmt::fmt HEADERS ${tensor})

# An image only fits sources of the same -O.
set(FULLSHARD_LIGHT_OPTIONS $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
_fullshard_precompiled_header(plain_once LINK fmt::fmt Threads::Threads
                              OPTIONS ${FULLSHARD_LIGHT_OPTIONS} HEADERS ${plain})
_fullshard_precompiled_header(module LINK torch fmt::fmt OPTIONS ${FULLSHARD_LIGHT_OPTIONS}
                              HEADERS ${module})

# Tests spend their time in the libraries: optimising them costs half of their compilation.
set(FULLSHARD_TEST_OPTIONS $<$<CONFIG:Release>:-O0>)
if(FULLSHARD_TESTS)
  set(test <gmock/gmock.h> <gtest/gtest.h>)
  _fullshard_precompiled_header(test LINK fmt::fmt GTest::gmock OPTIONS ${FULLSHARD_TEST_OPTIONS}
                                HEADERS ${plain} ${test})
  _fullshard_precompiled_header(test_tensor LINK torch fmt::fmt GTest::gmock
                                OPTIONS ${FULLSHARD_TEST_OPTIONS}
                                HEADERS ${tensor} <ATen/ATen.h> ${test})
  _fullshard_precompiled_header(test_module LINK torch fmt::fmt GTest::gmock
                                OPTIONS ${FULLSHARD_TEST_OPTIONS} HEADERS ${module} ${test})
endif()

function(fullshard_use_precompiled_header target name)
  target_precompile_headers(${target} REUSE_FROM fullshard_pch_${name})
endfunction()

# Sources that are compiled together pay once for the headers they share and for what those leave to
# instantiate, which is most of a source's time. So a folder is one group, or several of equal size: up
# to 24 sources, for the sake of a compiler's memory; on machines with more than four cores up to 8, so
# that all of them have something to do.
# Their unnamed namespaces become one, so what lies there has names of its own; the test "layers" sees
# to that.
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
set(together_by_cores 24)
if(cores GREATER 4)
  set(together_by_cores 8)
endif()
set(FULLSHARD_TOGETHER ${together_by_cores} CACHE STRING "Sources of a folder that are compiled together, at most")
define_property(GLOBAL PROPERTY FULLSHARD_COMPILED_TOGETHER BRIEF_DOCS "targets")
function(fullshard_compile_together target)  # target source...
  set_property(GLOBAL APPEND PROPERTY FULLSHARD_COMPILED_TOGETHER ${target})
  set(sources ${ARGN})
  list(FILTER sources EXCLUDE REGEX "_kernels\\.cc$")  # which have options of their own
  list(LENGTH sources number)
  if(NOT FULLSHARD_UNITY OR number EQUAL 0)
    return()
  endif()
  math(EXPR groups "(${number} + ${FULLSHARD_TOGETHER} - 1) / ${FULLSHARD_TOGETHER}")
  math(EXPR size "(${number} + ${groups} - 1) / ${groups}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  # Which g++ says of every class with a field of an unnamed namespace, outside the file it is given.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()
