# SPDX-License-Identifier: Apache-2.0
# Installs headers, libraries and the package Fullshard, so that an outside project writes
#   find_package(Fullshard REQUIRED)
#   target_link_libraries(app PRIVATE Fullshard::fullshard)
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# The command line is a program, not a library for others.
get_property(folders GLOBAL PROPERTY FULLSHARD_FOLDERS)
list(REMOVE_ITEM folders cli worker)
list(TRANSFORM folders PREPEND fullshard_ OUTPUT_VARIABLE libraries)

install(TARGETS fullshard ${libraries} EXPORT FullshardTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# fullshard-core finds libtorch in lib/torch of the prefix, a link that whoever moves the prefix may
# make, else where it was when this was built. LD_LIBRARY_PATH comes before both.
if(TARGET fullshard_core_program)
  # Said by name: CMake leaves out folders of this checkout, where scripts/setup.sh puts libtorch.
  cmake_path(SET torch_libraries NORMALIZE "${FULLSHARD_TORCH_DIR}/../../../lib")
  set_target_properties(fullshard_core_program PROPERTIES
    INSTALL_RPATH "$ORIGIN/../lib/torch;${torch_libraries}"
    INSTALL_RPATH_USE_LINK_PATH TRUE)
  target_link_options(fullshard_core_program PRIVATE LINKER:--enable-new-dtags)
endif()
# What an installation takes: no tests, no benchmarks, no examples.
add_custom_target(installed)
add_dependencies(installed ${libraries})
foreach(program IN ITEMS fullshard_command fullshard_core_program)
  if(TARGET ${program})
    add_dependencies(installed ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
file(GLOB headers "${PROJECT_SOURCE_DIR}/fullshard/*.h")  # what users include
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fullshard)
foreach(folder IN LISTS folders)
  install(DIRECTORY fullshard/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fullshard
          FILES_MATCHING PATTERN "*.h" PATTERN gloo_declarations EXCLUDE)
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Fullshard)
install(EXPORT FullshardTargets NAMESPACE Fullshard:: DESTINATION ${package_dir})
configure_package_config_file(
  cmake/FullshardConfig.cmake.in "${CMAKE_BINARY_DIR}/FullshardConfig.cmake"
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/FullshardConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/FullshardConfig.cmake"
              "${CMAKE_BINARY_DIR}/FullshardConfigVersion.cmake" cmake/SystemFmt.cmake
        DESTINATION ${package_dir})
