// libibverbs, loaded when first needed: one build runs with and without it.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/error_text.h"

namespace peercached::rdma {

// The library's exported functions. The others (post_send, poll_cq, ...) are inline calls through a
// context.
#define PEERCACHED_VERBS(X)      \
  X(get_device_list, "1.1")      \
  X(free_device_list, "1.1")     \
  X(get_device_name, "1.1")      \
  X(open_device, "1.1")          \
  X(close_device, "1.1")         \
  X(query_device, "1.1")         \
  X(query_port, "1.1")           \
  X(query_pkey, "1.1")           \
  X(get_async_event, "1.1")      \
  X(ack_async_event, "1.1")      \
  X(alloc_pd, "1.1")             \
  X(dealloc_pd, "1.1")           \
  X(reg_mr, "1.1")               \
  X(dereg_mr, "1.1")             \
  X(create_comp_channel, "1.0")  \
  X(destroy_comp_channel, "1.0") \
  X(create_cq, "1.1")            \
  X(destroy_cq, "1.1")           \
  X(get_cq_event, "1.1")         \
  X(ack_cq_events, "1.1")        \
  X(create_qp, "1.1")            \
  X(modify_qp, "1.1")            \
  X(destroy_qp, "1.1")           \
  X(wc_status_str, "1.1")        \
  X(event_type_str, "1.1")

struct Verbs {
#define PEERCACHED_VERB(name, version) decltype(&::ibv_##name) name = nullptr;
  PEERCACHED_VERBS(PEERCACHED_VERB)
#undef PEERCACHED_VERB
  decltype(&::_ibv_query_gid_table) query_gid_table = nullptr;
  decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr = nullptr;  // null before rdma-core 34

  // Returns the library; or null, and sets `why`.
  static const Verbs* find(std::string& why);
  // Returns the library; only valid once something was opened with it.
  static const Verbs& get();
};

// The library refused a call, with this errno.
struct VerbsError : std::runtime_error {
  VerbsError(const std::string& what, int error)
      : std::runtime_error(what + ": " + error_text(error)) {}
};

[[noreturn]] inline void refused(const std::string& what) { throw VerbsError(what, errno); }

// Owners of the library's objects, for example `Owned<ibv_qp, &Verbs::destroy_qp>`.
template <typename T, auto Destroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T* object) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { reset(); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  void reset() {
    if (object_ != nullptr) (Verbs::get().*Destroy)(std::exchange(object_, nullptr));
  }

 private:
  T* object_ = nullptr;
};

using DeviceList = Owned<ibv_device*, &Verbs::free_device_list>;
using Context = Owned<ibv_context, &Verbs::close_device>;
using ProtectionDomain = Owned<ibv_pd, &Verbs::dealloc_pd>;
using Registration = Owned<ibv_mr, &Verbs::dereg_mr>;
using CompletionEvents = Owned<ibv_comp_channel, &Verbs::destroy_comp_channel>;
using CompletionQueue = Owned<ibv_cq, &Verbs::destroy_cq>;
using QueuePair = Owned<ibv_qp, &Verbs::destroy_qp>;

}  // namespace peercached::rdma
