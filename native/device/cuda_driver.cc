#include "device/cuda_driver.h"

#include <dlfcn.h>

#include <stdexcept>

namespace peercached::device {
namespace {

CudaDriver load_driver() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(
        "libcuda.so.1 cannot be loaded: install NVIDIA's driver on this host, or give the "
        "container "
        "its libraries (NVIDIA Container Toolkit)");
  }
  CudaDriver cuda{};
  const auto take = [library](auto& function, const char* name) {
    void* found = ::dlsym(library, name);
    if (found == nullptr)
      throw std::runtime_error(std::string("NVIDIA's driver has no ") + name +
                               ": update it to version 525 or later");
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  take(cuda.init, "cuInit");
  take(cuda.error_string, "cuGetErrorString");
  take(cuda.count, "cuDeviceGetCount");
  take(cuda.get, "cuDeviceGet");
  take(cuda.uuid, "cuDeviceGetUuid_v2");
  take(cuda.device_name, "cuDeviceGetName");
  take(cuda.retain, "cuDevicePrimaryCtxRetain");
  take(cuda.release, "cuDevicePrimaryCtxRelease_v2");
  take(cuda.use, "cuCtxSetCurrent");
  take(cuda.ipc_open, "cuIpcOpenMemHandle_v2");
  take(cuda.ipc_close, "cuIpcCloseMemHandle");
  take(cuda.range, "cuMemGetAddressRange_v2");
  take(cuda.import_handle, "cuMemImportFromShareableHandle");
  take(cuda.release_handle, "cuMemRelease");
  take(cuda.reserve, "cuMemAddressReserve");
  take(cuda.free_addresses, "cuMemAddressFree");
  take(cuda.map, "cuMemMap");
  take(cuda.unmap, "cuMemUnmap");
  take(cuda.set_access, "cuMemSetAccess");
  take(cuda.host_register, "cuMemHostRegister_v2");
  take(cuda.host_unregister, "cuMemHostUnregister");
  take(cuda.stream_create, "cuStreamCreate");
  take(cuda.stream_destroy, "cuStreamDestroy_v2");
  take(cuda.stream_wait, "cuStreamSynchronize");
  take(cuda.copy_2d, "cuMemcpy2DAsync_v2");
  take(cuda.copy_to_device, "cuMemcpyHtoDAsync_v2");
  take(cuda.copy_to_host, "cuMemcpyDtoHAsync_v2");
  take(cuda.event_create, "cuEventCreate");
  take(cuda.event_destroy, "cuEventDestroy_v2");
  take(cuda.event_record, "cuEventRecord");
  take(cuda.event_query, "cuEventQuery");
  return cuda;
}

}  // namespace

const CudaDriver& CudaDriver::load() {
  static const CudaDriver cuda = load_driver();
  return cuda;
}

std::string CudaDriver::text_of(CUresult result) const {
  const char* text = nullptr;
  if (error_string(result, &text) == kCudaSuccess && text != nullptr) return text;
  return "error " + std::to_string(result);
}

}  // namespace peercached::device
