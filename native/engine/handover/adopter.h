// Takes pages from another node, which gives them up or keeps them (replicas): reads them into our
// own memory, verifies them, copies them into the pool and publishes them. The pool sees a page
// only after its bytes are verified. A node that gives a page up drops its copy only after ours is
// published (docs/page-placement.md).
//
// Thread safe.
#pragma once

#include <atomic>

#include "common/clock.h"
#include "common/types.h"
#include "engine/control/serving.h"
#include "engine/handover/handover.h"
#include "engine/handover/part_queue.h"
#include "engine/measures/counters.h"
#include "engine/peers/transports.h"
#include "engine/records/nodes.h"
#include "engine/records/publisher.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/janitor.h"
#include "engine/storage/namespaces.h"
#include "engine/storage/page_seal.h"
#include "pool/pool.h"
#include "removals/running.h"
#include "transfer/verify.h"

namespace peercached {

class Adopter {
 public:
  struct Parts {
    const Serving& serving;  // while it takes no pages, nothing is adopted
    Pool& pool;
    DiskPages& disk;
    NamespaceTable& namespaces;
    PartQueue& hot;  // read often from other nodes
    Running& running;
    const NodeTable& nodes;
    Transports& transports;
    VerifyingSink& verifier;
    Publisher& publisher;
    Janitor& janitor;
    OperationCounters& counters;
  };

  explicit Adopter(const Parts& parts) : parts_(parts) {}
  Adopted adopt(HolderIndex holder, const Handover& offered, Deadline deadline);
  // Copies pages of that holder because somebody wants them here. The holder keeps its own.
  // `part.learnt_at` must be set.
  Adopted fetch(HolderIndex holder, Handover part, Deadline deadline);
  // Running::changes() now: see Handover::learnt_at.
  uint64_t removal_changes() const { return parts_.running.changes(); }
  // The room for replicas in the pool.
  void set_replicas_max(uint64_t bytes) { replicas_max_.store(bytes); }
  // Makes replicas of pages that workers here often read from other nodes.
  void replicate(Deadline deadline);
  // Makes replicas of pages that have just landed in a worker's region. `part.rows` are the records
  // of `landed`, in its order. Their new records are on their way when it returns.
  void commit_landed(HolderIndex holder, Handover part, std::span<const ReadOp> landed,
                     WriteGate& gate, Deadline deadline);
  // Takes pages that the object store gave: `landed` has the payload at `dest` and the checksum in
  // `header`. `part.valid_until` must be set, and `part.rows` are their digests and lengths. Their
  // new records are on their way when it returns. `seal`: the pages are sealed with it, and
  // `offset` is their place in the object; null: they are not.
  Adopted land(const Handover& part, std::span<const ReadOp> landed, Deadline deadline,
               PageSeal* seal = nullptr);

 private:
  struct Intake;
  struct Admitted;
  class Coming;
  Adopted take(HolderIndex holder, const Handover& offered, Deadline deadline);
  // Returns the pages that may be taken. `adopted` gets those that are here already, and the
  // reasons against others.
  Admitted admit(const Handover& offered, Adopted& adopted) const;
  void refuse(const Handover& offered, const char* why, Adopted& adopted) const;

  const Parts parts_;
  std::atomic<uint64_t> replicas_max_{0};
  mutable std::atomic<uint64_t> replicas_coming_{0};  // bytes of replicas that are being made
};

}  // namespace peercached
