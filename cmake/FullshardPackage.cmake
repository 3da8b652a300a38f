# SPDX-License-Identifier: Apache-2.0
# The programs as `make package` ships them: they know no folder of the machine that built them. libtorch is looked for in
# lib/torch of the prefix, a link that the machine's owner makes, then beside the wheel in site-packages; the libraries of the
# distribution that a wheel brings along are in lib/bundled.
set(packaged "${CMAKE_BINARY_DIR}/packaged")
fullshard_program(fullshard_packaged_command "${PROJECT_SOURCE_DIR}/fullshard/cli/main.cc" NO_TORCH
                  LINK fullshard_cli)
target_compile_definitions(fullshard_packaged_command PRIVATE FULLSHARD_VERSION="${PROJECT_VERSION}")
fullshard_program(fullshard_packaged_core "${PROJECT_SOURCE_DIR}/fullshard/worker/main.cc"
                  LINK fullshard_worker)
set_target_properties(fullshard_packaged_command PROPERTIES OUTPUT_NAME fullshard)
set_target_properties(fullshard_packaged_core PROPERTIES OUTPUT_NAME fullshard-core)
set_target_properties(fullshard_packaged_command fullshard_packaged_core PROPERTIES
  EXCLUDE_FROM_ALL TRUE RUNTIME_OUTPUT_DIRECTORY "${packaged}" BUILD_WITH_INSTALL_RPATH TRUE
  INSTALL_RPATH "$ORIGIN/../lib/bundled;$ORIGIN/../lib/torch;$ORIGIN/../../torch/lib"
  INSTALL_RPATH_USE_LINK_PATH FALSE)
add_custom_target(packaged_programs DEPENDS fullshard_packaged_command fullshard_packaged_core)
file(CONFIGURE OUTPUT "${packaged}/facts" CONTENT "version=${PROJECT_VERSION}
torch=${Torch_VERSION}
")
