# SPDX-License-Identifier: Apache-2.0
# emulated_kernels: every .cu file of the library as C++ that the CPU runs, for the tests in
# tests/emulated_cuda, whose README says how. Nothing of CUDA is needed.
set(emulation "${PROJECT_SOURCE_DIR}/tests/emulated_cuda/emulation")
set(translated "${CMAKE_BINARY_DIR}/emulated_cuda")
file(GLOB_RECURSE device_sources CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}"
     "${PROJECT_SOURCE_DIR}/fullshard/*.cu" "${PROJECT_SOURCE_DIR}/fullshard/*.cuh")
set(kernels "")
set(headers "")
foreach(source IN LISTS device_sources)
  set(output "${translated}/${source}")
  if(source MATCHES "\\.cu$")
    string(APPEND output ".cc")
    list(APPEND kernels "${output}")
  else()
    list(APPEND headers "${output}")
  endif()
  add_custom_command(
    OUTPUT "${output}"
    COMMAND ${FULLSHARD_PYTHON3} "${emulation}/as_host_code.py" "${PROJECT_SOURCE_DIR}/${source}" "${output}"
    DEPENDS "${PROJECT_SOURCE_DIR}/${source}" "${emulation}/as_host_code.py" COMMENT "")
endforeach()

# Objects, so that a program has them before it looks into libraries, which stand in for kernels.
add_library(emulated_kernels OBJECT ${kernels} ${headers} "${emulation}/block.cc")
target_include_directories(emulated_kernels BEFORE PUBLIC "${emulation}/include" PRIVATE "${translated}")
target_include_directories(emulated_kernels SYSTEM PRIVATE
                           $<TARGET_PROPERTY:torch,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(emulated_kernels PUBLIC fullshard_base)
# Kernels look at memory through other types, as nvcc lets them, and hold #pragma unroll; g++ does
# not see that what one branch leaves unset another does not read.
target_compile_options(emulated_kernels PRIVATE $<$<CONFIG:Release>:-O1> -fno-strict-aliasing
  -Wno-unknown-pragmas $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "-include;cuda_runtime.h")
