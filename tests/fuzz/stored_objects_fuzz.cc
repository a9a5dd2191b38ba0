// Fuzzes what a node does with objects of the store: its index takes entries that anybody may have
// written, and pages are taken out of ranges that anybody may have cut.
//
// The input is a script. Each step is a byte that chooses it, and the bytes that it needs. A plain
// model knows which pages the index must have.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "engine/storage/object_index.h"
#include "engine/storage/page_seal.h"

using namespace peercached;

namespace {

constexpr size_t kPagesMax = 16;  // of an object
constexpr uint64_t kNames = 8, kDigests = 32;

void require(bool holds) {
  if (!holds) std::abort();
}

class Script {
 public:
  Script(const uint8_t* data, size_t size) : left_(std::as_bytes(std::span(data, size))) {}

  bool ended() const { return left_.empty(); }
  std::span<const std::byte> take(size_t bytes) {
    const auto taken = left_.first(std::min(bytes, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  uint8_t byte() {
    const auto taken = take(1);
    return taken.empty() ? 0 : static_cast<uint8_t>(taken[0]);
  }
  // Any offset and length, of few digests, so that objects name the same pages.
  ObjectEntry entry() {
    ObjectEntry entry;
    const auto taken = take(sizeof entry);
    std::memcpy(&entry, taken.data(), taken.size());
    entry.digest = {entry.digest.hi % kDigests, 0};
    return entry;
  }

 private:
  std::span<const std::byte> left_;
};

struct Known {
  StoredObject object;
  ObjectEntry entry;
};
using Model = std::map<Digest, Known>;

void add(Script& script, ObjectIndex& index, Model& model) {
  const StoredObject object{.name = {script.byte() % kNames, 1u},
                            .namespace_id = {script.byte() % 2u, 2u},
                            .epoch = script.byte() % 4u,
                            .generation = script.byte() % 4u};
  std::vector<ObjectEntry> entries(script.byte() % kPagesMax);
  for (ObjectEntry& entry : entries) entry = script.entry();
  const bool is_there = std::ranges::any_of(
      model, [&](const auto& page) { return page.second.object.name == object.name; });
  require(index.add(object, entries));
  if (is_there) return;
  for (const ObjectEntry& entry : entries) model[entry.digest] = {object, entry};
}

void drop_below(Script& script, ObjectIndex& index, Model& model) {
  const Digest namespace_id{script.byte() % 2u, 2u};
  const uint64_t epoch = script.byte() % 5u;
  const Born generation = script.byte() % 5u;
  index.drop_below(namespace_id, epoch, generation);
  std::erase_if(model, [&](const auto& page) {
    const StoredObject& object = page.second.object;
    return object.namespace_id == namespace_id &&
           std::pair(object.epoch, object.generation) < std::pair(epoch, generation);
  });
}

void look(const ObjectIndex& index, const Model& model, uint64_t bytes) {
  uint64_t all_bytes = 0;
  for (const auto& [digest, known] : model) {
    const auto place = index.find(digest);
    require(place && std::memcmp(&place->entry, &known.entry, sizeof(ObjectEntry)) == 0);
    require(index.object(place->object).name == known.object.name);
    for (const ObjectEntry& entry : index.behind(digest, bytes)) {
      const auto behind = model.find(entry.digest);
      require(behind != model.end() && behind->second.object.name == known.object.name);
      require(uint64_t{entry.offset} + entry.length <= known.entry.offset + bytes);
    }
    all_bytes += known.entry.length;
  }
  require(index.stats().pages == model.size() && index.stats().bytes == all_bytes);
}

// A range in memory of just its size, so that the address sanitizer sees each byte beyond it.
void take_out(Script& script) {
  const ObjectEntry entry = script.entry();
  const bool sealed = script.byte() % 2 != 0;
  const uint64_t base = entry.offset - std::min<uint64_t>(entry.offset, script.byte() % 16);
  const auto range = script.take(script.byte());
  const size_t size = range.size();
  const auto copy = std::make_unique<std::byte[]>(size);
  std::copy(range.begin(), range.end(), copy.get());
  const auto page = stored_page(entry, sealed, base, {copy.get(), size});
  if (page.empty()) return;
  require(page.size() == entry.length + (sealed ? PageSeal::kBytes : 0));
  if (!sealed) return;
  std::vector<std::byte> key(PageSeal::kKeyBytes), opened(entry.length);
  require(!PageSeal(key).open(entry, page.data(), opened.data()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Script script(data, size);
  ObjectIndex index;
  Model model;
  while (!script.ended()) {
    switch (script.byte() % 8) {
      case 0:
      case 1:
      case 2:
        add(script, index, model);
        break;
      case 3: {
        const Digest digest{script.byte() % kDigests, 0};
        index.drop(std::span(&digest, 1));
        model.erase(digest);
        break;
      }
      case 4: {
        const Digest name{script.byte() % kNames, 1};
        index.drop_objects(std::span(&name, 1));
        std::erase_if(model, [&](const auto& page) { return page.second.object.name == name; });
        break;
      }
      case 5:
        drop_below(script, index, model);
        break;
      case 6:
        take_out(script);
        break;
      default:
        look(index, model, uint64_t{script.byte()} << script.byte() % 40);
    }
  }
  look(index, model, 1 << 20);
  return 0;
}
