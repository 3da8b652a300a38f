# SPDX-License-Identifier: Apache-2.0
# zlib and libzstd, for data that are compressed. Without one, no_gzip.cc or no_zstd.cc of data/text stands
# in and refuses such files by name.
find_path(FULLSHARD_ZLIB_INCLUDE zlib.h)
find_library(FULLSHARD_ZLIB_LIBRARY z)
find_path(FULLSHARD_ZSTD_INCLUDE zstd.h)
find_library(FULLSHARD_ZSTD_LIBRARY zstd)
mark_as_advanced(FULLSHARD_ZLIB_INCLUDE FULLSHARD_ZLIB_LIBRARY FULLSHARD_ZSTD_INCLUDE
                 FULLSHARD_ZSTD_LIBRARY)

function(_fullshard_decompressor format library)
  if(FULLSHARD_${library}_INCLUDE AND FULLSHARD_${library}_LIBRARY)
    set(unused no_${format}.cc)
    target_include_directories(fullshard_data SYSTEM PRIVATE "${FULLSHARD_${library}_INCLUDE}")
    target_link_libraries(fullshard_data PUBLIC "${FULLSHARD_${library}_LIBRARY}")
  else()
    set(unused ${format}_decompressor.cc)
  endif()
  set_source_files_properties("${PROJECT_SOURCE_DIR}/fullshard/data/text/${unused}"
                              PROPERTIES HEADER_FILE_ONLY ON)
endfunction()

_fullshard_decompressor(gzip ZLIB)
_fullshard_decompressor(zstd ZSTD)
