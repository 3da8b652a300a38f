# SPDX-License-Identifier: Apache-2.0
# fullshard_library(<folder> [NO_TORCH [ONCE] | DTYPES] [MODULES] [MAY_INCLUDE <folder>...]
#                   [ROOMS <sub-folder>...] [LINK <target>...])
#
# Makes the static library fullshard_<folder> of fullshard/<folder>/*.cc and one folder below (without main.cc), which
# may include, and so links, the folders named. A folder without sources becomes an interface
# library. The lists go to the test "layers" through the property FULLSHARD_LAYERS, as lines
# "<folder> [torch_free | dtypes]: <folder> <folder>". NO_TORCH folders neither see nor link libtorch;
# DTYPES folders see the headers that name its dtypes, and link nothing of it either. In MODULES
# folders sources need torch::nn::Module: PrecompiledHeader.cmake says what that changes. What runs ONCE,
# not for every step or byte, is compiled with -O1, in three quarters of the time; so are MODULES, in half
# of it: they call libtorch's operators and our kernels, and their own loops are in *_kernels.cc. ROOMS are sub-folders in the
# order of their layers, "." being the folder itself: each may include itself and those named before it.
define_property(GLOBAL PROPERTY FULLSHARD_LAYERS BRIEF_DOCS "folder: what it may include")
define_property(GLOBAL PROPERTY FULLSHARD_FOLDERS BRIEF_DOCS "the folders, in order")
define_property(GLOBAL PROPERTY FULLSHARD_TORCH_FREE BRIEF_DOCS "the folders without libtorch")

function(fullshard_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_TORCH;ONCE;DTYPES;MODULES" "" "MAY_INCLUDE;ROOMS;LINK")
  set(target fullshard_${folder})
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/fullshard/${folder}/*.cc"
       "${PROJECT_SOURCE_DIR}/fullshard/${folder}/*/*.cc"
       "${PROJECT_SOURCE_DIR}/fullshard/${folder}/*.cu"
       "${PROJECT_SOURCE_DIR}/fullshard/${folder}/*/*.cu")
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  fullshard_choose_device_sources(sources)

  set(libraries ${arg_LINK})
  foreach(other IN LISTS arg_MAY_INCLUDE)
    list(APPEND libraries fullshard_${other})
  endforeach()
  if(NOT arg_NO_TORCH AND NOT arg_DTYPES)
    list(APPEND libraries torch)
    if(FULLSHARD_CUDA)
      list(APPEND libraries fullshard_cuda)
    endif()
  endif()

  if(sources)
    set(scope PUBLIC)
    add_library(${target} STATIC ${sources})
    fullshard_optimise_kernels(${sources})
    set(image tensor)
    if(arg_MODULES)
      set(image module)
    elseif(arg_NO_TORCH OR arg_DTYPES)
      set(image plain)
    endif()
    if(arg_ONCE)
      string(APPEND image _once)
    endif()
    if(arg_ONCE OR arg_MODULES)
      target_compile_options(${target} PRIVATE ${FULLSHARD_LIGHT_OPTIONS})
    endif()
    fullshard_use_precompiled_header(${target} ${image})
    fullshard_compile_together(${target} ${sources})
  else()
    set(scope INTERFACE)
    add_library(${target} INTERFACE)
  endif()
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:include>)
  if(arg_DTYPES)
    target_include_directories(${target} SYSTEM ${scope}
                               $<TARGET_PROPERTY:torch,INTERFACE_INCLUDE_DIRECTORIES>)
  endif()
  target_compile_features(${target} ${scope} cxx_std_20)
  target_link_libraries(${target} ${scope} ${libraries})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder})

  list(JOIN arg_MAY_INCLUDE " " allowed)
  if(arg_ROOMS)
    list(JOIN arg_ROOMS " " rooms)
    string(APPEND allowed " | ${rooms}")
  endif()
  set_property(GLOBAL APPEND PROPERTY FULLSHARD_FOLDERS ${folder})
  if(arg_NO_TORCH)
    set_property(GLOBAL APPEND PROPERTY FULLSHARD_TORCH_FREE ${folder})
    set_property(GLOBAL APPEND PROPERTY FULLSHARD_LAYERS "${folder} torch_free: ${allowed}")
  elseif(arg_DTYPES)
    set_property(GLOBAL APPEND PROPERTY FULLSHARD_LAYERS "${folder} dtypes: ${allowed}")
  else()
    set_property(GLOBAL APPEND PROPERTY FULLSHARD_LAYERS "${folder}: ${allowed}")
  endif()
endfunction()

# What a build with CUDA has and a build without does not, and the other way round: *.cu and
# *_cuda.cc against *_no_cuda.cc. Callers need no #ifdef.
function(fullshard_choose_device_sources list)
  if(FULLSHARD_CUDA)
    list(FILTER ${list} EXCLUDE REGEX "_no_cuda\\.cc$")
    # From CMake 3.31 on they would be compiled together like C++ sources, and their names meet.
    set(kernels ${${list}})
    list(FILTER kernels INCLUDE REGEX "\\.cu$")
    set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  else()
    list(FILTER ${list} EXCLUDE REGEX "(\\.cu|[^o]_cuda\\.cc|[^n]o_cuda\\.cc)$")
    # Each by itself, so that a test which brings what stands in for CUDA links in their place.
    set(without ${${list}})
    list(FILTER without INCLUDE REGEX "_no_cuda\\.cc$")
    set_source_files_properties(${without} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  set(${list} ${${list}} PARENT_SCOPE)
endfunction()

# Files named *_kernels.cc hold loops over elements: they are worth -O3, the rest is not. Without the
# precompiled header, which was made with -O2 and would silently set them back to it.
function(fullshard_optimise_kernels)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set(kernels ${ARGN})
    list(FILTER kernels INCLUDE REGEX "_kernels\\.cc$")
    set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS -O3
                                SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

function(fullshard_private_system_include folder directory)
  get_target_property(type fullshard_${folder} TYPE)
  if(NOT type STREQUAL "INTERFACE_LIBRARY")
    target_include_directories(fullshard_${folder} SYSTEM PRIVATE "${directory}")
  endif()
endfunction()
