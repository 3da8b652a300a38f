// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>

#include <string>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/gpu/ipc_memory.h"

namespace fullshard::comm {
namespace {

using AddressRange = CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr);
constexpr unsigned kDriverVersion = 12000;  // whose cuMemGetAddressRange is meant

// The driver's function without linking the driver, which a machine that only builds lacks.
AddressRange find_address_range() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult state{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, kDriverVersion,
                                              cudaEnableDefault, &state),
             "looking for cuMemGetAddressRange");
  check(state == cudaDriverEntryPointSuccess, "CUDA IPC: the driver has no cuMemGetAddressRange");
  return reinterpret_cast<AddressRange>(function);
}

}  // namespace

void check_cuda(cudaError_t result, const char* what) {
  check(result == cudaSuccess, "CUDA IPC: {} failed: {}", what, cudaGetErrorString(result));
}

IpcPlace ipc_place_of(const at::Tensor& tensor) {
  static const AddressRange address_range = find_address_range();
  const auto address = reinterpret_cast<CUdeviceptr>(tensor.const_data_ptr());
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  check(address_range(&begin, &bytes, address) == CUDA_SUCCESS,
        "CUDA IPC: a tensor of {} bytes does not lie in device memory", tensor.nbytes());
  IpcPlace place{.allocation = {}, .offset = static_cast<int64_t>(address - begin)};
  check_cuda(cudaIpcGetMemHandle(&place.allocation, reinterpret_cast<void*>(begin)),
             "sharing memory (it must come from cudaMalloc: unset expandable_segments in "
             "PYTORCH_CUDA_ALLOC_CONF)");
  return place;
}

IpcMemory::~IpcMemory() {
  for (const auto& [handle, begin] : opened_) cudaIpcCloseMemHandle(begin);
}

void* IpcMemory::open(const IpcPlace& place) {
  const Key key(reinterpret_cast<const char*>(&place.allocation), sizeof(place.allocation));
  auto found = opened_.find(key);
  if (found == opened_.end()) {
    void* begin = nullptr;
    check_cuda(cudaIpcOpenMemHandle(&begin, place.allocation, cudaIpcMemLazyEnablePeerAccess),
               "opening a peer's memory");
    found = opened_.emplace(key, begin).first;
  }
  return static_cast<char*>(found->second) + place.offset;
}

IpcEvents::~IpcEvents() {
  for (const cudaEvent_t event : events_) {
    if (event) cudaEventDestroy(event);
  }
}

IpcEvents IpcEvents::make() {
  IpcEvents result;
  for (cudaEvent_t& event : result.events_) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess),
               "making an event");
  }
  return result;
}

IpcEvents IpcEvents::open(const Handles& handles) {
  IpcEvents result;
  for (size_t i = 0; i < kCount; ++i) {
    check_cuda(cudaIpcOpenEventHandle(&result.events_[i], handles[i]), "opening a peer's event");
  }
  return result;
}

IpcEvents::Handles IpcEvents::handles() const {
  Handles result{};
  for (size_t i = 0; i < kCount; ++i) {
    check_cuda(cudaIpcGetEventHandle(&result[i], events_[i]), "sharing an event");
  }
  return result;
}

}  // namespace fullshard::comm
