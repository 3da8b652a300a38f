# SPDX-License-Identifier: Apache-2.0
# liburing, for transfers that the kernel keeps under way by itself. Without it, disk/no_uring.cc
# stands in for disk/uring_transfers.cc and threads do the same.
find_path(FULLSHARD_URING_INCLUDE liburing.h)
find_library(FULLSHARD_URING_LIBRARY uring)
mark_as_advanced(FULLSHARD_URING_INCLUDE FULLSHARD_URING_LIBRARY)

if(FULLSHARD_URING_INCLUDE AND FULLSHARD_URING_LIBRARY)
  set(unused no_uring.cc)
  target_include_directories(fullshard_disk SYSTEM PRIVATE "${FULLSHARD_URING_INCLUDE}")
  target_link_libraries(fullshard_disk PUBLIC "${FULLSHARD_URING_LIBRARY}")
else()
  set(unused uring_transfers.cc)
endif()
set_source_files_properties("${PROJECT_SOURCE_DIR}/fullshard/disk/${unused}"
                            PROPERTIES HEADER_FILE_ONLY ON)
