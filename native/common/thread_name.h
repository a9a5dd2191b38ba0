// Names of threads, as `top -H` and `peercachectl process` show them.
#pragma once

#include <pthread.h>

namespace peercached {

// At most 15 characters: the kernel refuses longer names, and the thread keeps that of its process.
inline void name_thread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace peercached
