# One precompiled header for every target that uses libtorch. It holds what most sources need and
# not <torch/torch.h>, whose image is so large that loading it costs more than it saves.
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/precompiled_header.cc" CONTENT "namespace fullshard {}\n")
add_library(fullshard_pch STATIC "${CMAKE_BINARY_DIR}/precompiled_header.cc")
target_link_libraries(fullshard_pch PRIVATE torch)
target_precompile_headers(fullshard_pch PRIVATE
  <functional> <memory> <string> <vector>
  <ATen/ATen.h> <torch/nn/module.h> <torch/csrc/autograd/custom_function.h>)

function(fullshard_use_precompiled_header target)
  target_precompile_headers(${target} REUSE_FROM fullshard_pch)
endfunction()
