# SPDX-License-Identifier: Apache-2.0
# The CUDA side of a build with FULLSHARD_CUDA: the language, NCCL, and what every source sees.
#   fullshard_cuda    what libraries with CUDA sources link
# The wheel of libtorch carries its own NCCL beside it (site-packages/nvidia/nccl).
option(FULLSHARD_CUDA "Build for NVIDIA GPUs; needs a libtorch with CUDA" OFF)
if(NOT FULLSHARD_CUDA)
  return()
endif()
if(NOT TARGET torch_cuda)
  message(FATAL_ERROR "libtorch: FULLSHARD_CUDA is on, but ${FULLSHARD_TORCH_DIR} has no CUDA; name "
                      "one that has it with TORCH_DIR=... or PYTHON=...")
endif()

# What libtorch's configuration chose for itself (Libtorch.cmake).
unset(CMAKE_CUDA_ARCHITECTURES)
string(REGEX REPLACE "-gencode +[^ ]+" "" CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS}")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
# As on the CPU, a fused multiply-add would make bits depend on the device.
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-fmad=false> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC,-Wall>)

find_package(CUDAToolkit REQUIRED)
cmake_path(SET torch_root NORMALIZE "${FULLSHARD_TORCH_DIR}/../../..")
find_path(NCCL_INCLUDE_DIR nccl.h HINTS "${torch_root}/../nvidia/nccl/include" REQUIRED)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS "${torch_root}/../nvidia/nccl/lib" REQUIRED)

add_library(fullshard_cuda INTERFACE)
target_include_directories(fullshard_cuda SYSTEM INTERFACE "${NCCL_INCLUDE_DIR}")
target_link_libraries(fullshard_cuda INTERFACE torch_cuda CUDA::cublas CUDA::cublasLt CUDA::cudart
                                               "${NCCL_LIBRARY}")
install(TARGETS fullshard_cuda EXPORT FullshardTargets)
