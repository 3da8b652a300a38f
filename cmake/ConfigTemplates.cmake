# SPDX-License-Identifier: Apache-2.0
# The files of examples/configs as texts of the program: `fullshard config template` writes them.
file(GLOB templates CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/configs/*.yaml"
                                      "${PROJECT_SOURCE_DIR}/examples/configs/*.json")
list(SORT templates)
set(rows "")
foreach(path IN LISTS templates)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  cmake_path(GET path FILENAME file)
  cmake_path(GET path STEM LAST_ONLY name)
  file(READ "${path}" text)
  string(APPEND rows "    {\"${name}\", \"${file}\", R\"CONFIG(${text})CONFIG\"},\n")
endforeach()
list(LENGTH templates count)
set(source "${CMAKE_BINARY_DIR}/config_template_texts.cc")
file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT "// Written by cmake/ConfigTemplates.cmake.
#include <array>

#include \"fullshard/config/config_templates.h\"

namespace fullshard::config {
namespace {

constexpr std::array<ConfigTemplate, @count@> kConfigTemplates = {{
@rows@}};

}  // namespace

std::span<const ConfigTemplate> config_templates() { return kConfigTemplates; }

}  // namespace fullshard::config
")
target_sources(fullshard_config PRIVATE "${source}")
