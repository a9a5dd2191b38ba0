// The functions of libcuda.so.1 that cuda.cc calls, with their types as cuda.h of CUDA 12 has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace peercached::device {

using CUresult = int;
using CUdevice = int;
using CUcontext = void*;
using CUstream = void*;
using CUevent = void*;
using CUdeviceptr = unsigned long long;  // NOLINT: as in cuda.h
using CUmemHandle = unsigned long long;  // NOLINT: CUmemGenericAllocationHandle

inline constexpr CUresult kCudaSuccess = 0;
inline constexpr CUresult kCudaNotReady = 600;

struct CUuuid {
  uint8_t bytes[16];
};
struct CUipcMemHandle {
  uint8_t reserved[64];
};
struct CUmemAccess {  // CUmemAccessDesc
  int location_type, location_id, flags;
};
struct CUcopy2d {  // CUDA_MEMCPY2D
  size_t src_x, src_y;
  int src_type;
  const void* src_host;
  CUdeviceptr src_device;
  void* src_array;
  size_t src_pitch;
  size_t dst_x, dst_y;
  int dst_type;
  void* dst_host;
  CUdeviceptr dst_device;
  void* dst_array;
  size_t dst_pitch;
  size_t width_bytes, height;
};
inline constexpr int kOnHost = 1, kOnDevice = 2;   // CUmemorytype
inline constexpr unsigned kIpcLazyPeerAccess = 1;  // CUipcMem_flags
inline constexpr int kPosixDescriptor = 1;         // CUmemAllocationHandleType
inline constexpr int kLocationDevice = 1,
                     kAccessReadWrite = 3;   // CUmemLocationType, CUmemAccess_flags
inline constexpr unsigned kNonBlocking = 1;  // CUstream_flags
inline constexpr unsigned kNoTiming = 2;     // CUevent_flags
inline constexpr unsigned kPortable = 1;     // CUmemhostregister_flags

struct CudaDriver {
  CUresult (*init)(unsigned);
  CUresult (*error_string)(CUresult, const char**);
  CUresult (*count)(int*);
  CUresult (*get)(CUdevice*, int);
  CUresult (*uuid)(CUuuid*, CUdevice);
  CUresult (*device_name)(char*, int, CUdevice);
  CUresult (*retain)(CUcontext*, CUdevice);
  CUresult (*release)(CUdevice);
  CUresult (*use)(CUcontext);
  CUresult (*ipc_open)(CUdeviceptr*, CUipcMemHandle, unsigned);
  CUresult (*ipc_close)(CUdeviceptr);
  CUresult (*range)(CUdeviceptr*, size_t*, CUdeviceptr);
  CUresult (*import_handle)(CUmemHandle*, void*, int);
  CUresult (*release_handle)(CUmemHandle);
  CUresult (*reserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
  CUresult (*free_addresses)(CUdeviceptr, size_t);
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long);
  CUresult (*unmap)(CUdeviceptr, size_t);
  CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccess*, size_t);
  CUresult (*host_register)(void*, size_t, unsigned);
  CUresult (*host_unregister)(void*);
  CUresult (*stream_create)(CUstream*, unsigned);
  CUresult (*stream_destroy)(CUstream);
  CUresult (*stream_wait)(CUstream);
  CUresult (*copy_2d)(const CUcopy2d*, CUstream);
  CUresult (*copy_to_device)(CUdeviceptr, const void*, size_t, CUstream);
  CUresult (*copy_to_host)(void*, CUdeviceptr, size_t, CUstream);
  CUresult (*event_create)(CUevent*, unsigned);
  CUresult (*event_destroy)(CUevent);
  CUresult (*event_record)(CUevent, CUstream);
  CUresult (*event_query)(CUevent);

  // Loads the library once. Throws std::runtime_error with the remedy.
  static const CudaDriver& load();
  std::string text_of(CUresult result) const;
};

}  // namespace peercached::device
