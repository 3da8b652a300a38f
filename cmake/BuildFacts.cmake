# SPDX-License-Identifier: Apache-2.0
# What `fullshard --version --verbose` tells of this build, as definitions of one source, which is compiled by itself: the
# commit changes often. It is that of the last configuration.
set(commit "unknown")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS "${PROJECT_SOURCE_DIR}/.git")
  execute_process(COMMAND "${GIT_EXECUTABLE}" describe --always --dirty --abbrev=12
                  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE found
                  RESULT_VARIABLE problem OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(problem EQUAL 0)
    set(commit "${found}")
  endif()
endif()
if(DEFINED ENV{FULLSHARD_COMMIT})  # of a source that has no repository beside it
  set(commit "$ENV{FULLSHARD_COMMIT}")
endif()

string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
set(options "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
if(FULLSHARD_SANITIZE)
  string(APPEND options " -fsanitize=${FULLSHARD_SANITIZE}")
endif()
string(STRIP "${options}" options)
set(cuda none)
if(FULLSHARD_CUDA)
  set(cuda "${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
  string(REPLACE ";" " " cuda "${cuda}")
endif()
set(libraries "fmt ${fmt_VERSION}, spdlog ${spdlog_VERSION}, yaml-cpp ${yaml-cpp_VERSION}")
foreach(name IN ITEMS URING PCRE2)
  if(FULLSHARD_${name}_LIBRARY)
    string(TOLOWER "${name}" library)
    string(APPEND libraries ", ${library}")
  endif()
endforeach()
set_source_files_properties("${PROJECT_SOURCE_DIR}/fullshard/cli/commands/version_text.cc" PROPERTIES
  SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON
  COMPILE_DEFINITIONS "FULLSHARD_BUILD_VERSION=\"${PROJECT_VERSION}\";FULLSHARD_BUILD_COMMIT=\"${commit}\";\
FULLSHARD_BUILD_COMPILER=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} for ${CMAKE_SYSTEM_PROCESSOR}\";\
FULLSHARD_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\";FULLSHARD_BUILD_OPTIONS=\"${options}\";\
FULLSHARD_BUILD_TORCH=\"${Torch_VERSION}\";FULLSHARD_BUILD_CUDA=\"${cuda}\";\
FULLSHARD_BUILD_LIBRARIES=\"${libraries}\"")
