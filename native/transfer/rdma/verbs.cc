#include "transfer/rdma/verbs.h"

#include <dlfcn.h>

namespace peercached::rdma {
namespace {

struct Loaded {
  Verbs verbs;
  std::string why;  // empty: loaded
};

template <typename F>
void load(void* library, const char* name, const char* version, F& function, std::string& why) {
  void* symbol = ::dlvsym(library, name, version);
  if (symbol == nullptr && why.empty()) {
    why = std::string("libibverbs has no ") + name + "@" + version + ": install a newer rdma-core";
  }
  function = reinterpret_cast<F>(symbol);
}

Loaded load_library() {
  Loaded loaded;
  void* library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.why =
        "libibverbs is not installed (Debian and Ubuntu: apt-get install libibverbs1 "
        "ibverbs-providers)";
    return loaded;
  }
#define PEERCACHED_VERB(name, version) \
  load(library, "ibv_" #name, "IBVERBS_" version, loaded.verbs.name, loaded.why);
  PEERCACHED_VERBS(PEERCACHED_VERB)
#undef PEERCACHED_VERB
  load(library, "_ibv_query_gid_table", "IBVERBS_1.11", loaded.verbs.query_gid_table, loaded.why);
  std::string optional;
  load(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12", loaded.verbs.reg_dmabuf_mr, optional);
  return loaded;
}

const Loaded& library() {
  static const Loaded loaded = load_library();
  return loaded;
}

}  // namespace

const Verbs* Verbs::find(std::string& why) {
  why = library().why;
  return why.empty() ? &library().verbs : nullptr;
}

const Verbs& Verbs::get() { return library().verbs; }

}  // namespace peercached::rdma
