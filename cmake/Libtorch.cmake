# SPDX-License-Identifier: Apache-2.0
# Finds libtorch. In this order:
#   TORCH_DIR  a libtorch folder, or its share/cmake or share/cmake/Torch (cache or environment)
#   PYTHON     a Python interpreter that has torch (environment); it is only asked for the folder
#   .venv      what scripts/setup.sh installed into this checkout
# Leaves FULLSHARD_TORCH_DIR, the folder of TorchConfig.cmake, for the installed package.
set(TORCH_DIR "" CACHE PATH "An existing libtorch")
if(NOT "$ENV{TORCH_DIR}" STREQUAL "")
  set(TORCH_DIR "$ENV{TORCH_DIR}" CACHE PATH "An existing libtorch" FORCE)
endif()

function(_fullshard_torch_folder out)
  if(TORCH_DIR)
    set(roots "${TORCH_DIR}")
    set(told "TORCH_DIR=${TORCH_DIR}")
  elseif(NOT "$ENV{PYTHON}" STREQUAL "")
    execute_process(
      COMMAND "$ENV{PYTHON}" -c
              "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE roots OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(told "PYTHON=$ENV{PYTHON}")
  else()
    file(GLOB roots "${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
    set(told ".venv")
  endif()
  foreach(root IN LISTS roots)
    foreach(tail "" /Torch /cmake/Torch /share/cmake/Torch /torch/share/cmake/Torch)
      if(EXISTS "${root}${tail}/TorchConfig.cmake")
        set(${out} "${root}${tail}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
  message(FATAL_ERROR "libtorch: no TorchConfig.cmake found by ${told}; run scripts/setup.sh, or "
                      "name an existing libtorch with TORCH_DIR=... or PYTHON=...")
endfunction()

if(TORCH_DIR OR NOT "$ENV{PYTHON}" STREQUAL "" OR NOT EXISTS "${FULLSHARD_TORCH_DIR}/TorchConfig.cmake")
  _fullshard_torch_folder(folder)
  set(FULLSHARD_TORCH_DIR "${folder}" CACHE INTERNAL "Folder of the TorchConfig.cmake in use")
endif()
set(Torch_DIR "${FULLSHARD_TORCH_DIR}" CACHE PATH "" FORCE)
# The GPUs that kernels are for. The configuration of a libtorch with CUDA hides this list and asks a GPU, which may not be
# there, unless it has one of its own; Cuda.cmake drops what it makes of that.
set(architectures 80-real 90a-real 90-virtual)
if(DEFINED ENV{CUDAARCHS})
  set(architectures "$ENV{CUDAARCHS}")
endif()
set(CMAKE_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "The GPUs that kernels are compiled for")
set(TORCH_CUDA_ARCH_LIST 9.0)
# The wheel's configuration warns that kineto, a profiler we do not use, is not shipped with it.
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
find_package(Torch REQUIRED)
unset(CMAKE_MESSAGE_LOG_LEVEL)
message(STATUS "libtorch ${Torch_VERSION}: ${FULLSHARD_TORCH_DIR}")

# libtorch is built as a release, where RecordFunction lacks a member that its header has without NDEBUG: who reads one is
# compiled as a release too.
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set_source_files_properties("${PROJECT_SOURCE_DIR}/fullshard/train/run/operator_flops.cc" PROPERTIES
    COMPILE_DEFINITIONS NDEBUG SKIP_PRECOMPILE_HEADERS ON)
endif()
