# SPDX-License-Identifier: Apache-2.0
# libtorch's include folder carries the headers of an fmt of its own, newer than the installed
# library that spdlog and this project link. fullshard_prefer_system_fmt() makes a folder that holds
# nothing but the installed fmt's headers and sets FULLSHARD_FMT_INCLUDE to it; standing first among
# the include folders, it keeps headers and library together.
function(fullshard_prefer_system_fmt)
  get_target_property(includes fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  find_path(FULLSHARD_FMT_HEADERS fmt/core.h PATHS ${includes} NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH)
  set(folder "${CMAKE_BINARY_DIR}/system_fmt")
  file(MAKE_DIRECTORY "${folder}")
  file(CREATE_LINK "${FULLSHARD_FMT_HEADERS}/fmt" "${folder}/fmt" SYMBOLIC)
  set(FULLSHARD_FMT_INCLUDE "${folder}" PARENT_SCOPE)
endfunction()
