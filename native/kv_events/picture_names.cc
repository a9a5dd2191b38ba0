// Names of pages that other nodes have: who is asked, the answers, and our answers to them.

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "common/foreign_text.h"
#include "kv_events/picture.h"

namespace peercached::kv_events {
namespace {

constexpr size_t kNamespaceTextMax = 1024;
constexpr uint16_t kNotNamed = 0xffff;  // of a page in an answer: it is not known

template <typename T>
void append_plain(std::vector<std::byte>& out, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Reads an answer, which a peer may have made up.
class AnswerReader {
 public:
  explicit AnswerReader(std::span<const std::byte> left) : left_(left) {}
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> take(size_t bytes) {
    if (left_.size() < bytes) throw std::invalid_argument("the answer with names ends too early");
    const auto taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }
  bool empty() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

}  // namespace

void Picture::ask_others(std::span<const Digest> digests) {
  for (const Digest& digest : digests) {
    Shard& shard = shard_of(digest);
    std::lock_guard lock(shard.mutex);
    const auto at = shard.pages.find(digest);
    if (at == shard.pages.end()) continue;
    at->second.asking = false;
    if (at->second.holdings.empty())
      drop_if_void(shard, at);
    else
      mark(shard, digest, at->second);
  }
}

void Picture::ask_for(const Digest& digest, Page& page) {
  bool is_ours = false;
  for (const Holding& holding : page.holdings) {
    if (holding.slot >= slot_at_.size() || !slot_at_[holding.slot]->tellable) continue;
    Slot& slot = *slot_at_[holding.slot];
    is_ours |= slot.holder == kSelfHolder;
    if (slot.holder == kSelfHolder || holding.nameless) continue;
    slot.to_ask.push_back(digest);
    page.asking = true;
    return;
  }
  if (page.named) return;  // by its digest, until somebody gives a name
  page.asking = true;
  own_unnamed_.push_back(digest);  // finds nothing if it is not ours
  if (!is_ours) counts_.unnamed.fetch_add(1, std::memory_order_relaxed);
}

void Picture::identify_own() {
  const std::vector<Digest> digests = std::exchange(own_unnamed_, {});
  if (digests.empty()) return;
  std::vector<NamespaceOf> found(digests.size());
  identify_(digests, found);
  for (size_t i = 0; i < digests.size(); ++i) learn(digests[i], found[i], {}, 0, kSelfHolder);
}

void Picture::learn(const Digest& digest, const NamespaceOf& ns, const PageName& name,
                    uint16_t block_tokens, HolderIndex holder) {
  const NamespaceNumber number = number_of(ns);
  const SlotNumber slot =
      holder < kNodesMax ? slot_by_holder_[holder].load(std::memory_order_acquire) : SlotNumber{0};
  Shard& shard = shard_of(digest);
  std::lock_guard lock(shard.mutex);
  const auto at = shard.pages.find(digest);
  if (at == shard.pages.end()) return;
  Page& page = at->second;
  page.asking = false;
  if (!page.named) {
    if (number != 0) {
      page.ns = number;
      page.epoch = ns.epoch;
    }
    if (name.kind != kNoName || holder == kSelfHolder) {
      page.name = name;
      page.block_tokens = block_tokens;
      page.named = true;
      if (name.kind == kNoName) counts_.by_digest.fetch_add(1, std::memory_order_relaxed);
    }
  } else if (page.name.kind == kNoName && name.kind != kNoName) {
    shard.later_names[digest] = {name, block_tokens, number, ns.epoch};
  }
  if (name.kind == kNoName)
    for (Holding& holding : page.holdings) holding.nameless |= holding.slot == slot;
  if (page.holdings.empty())
    drop_if_void(shard, at);
  else
    mark(shard, digest, page);
}

std::vector<NameQuestion> Picture::questions() {
  std::vector<NameQuestion> questions;
  std::scoped_lock lock(tell_mutex_, slots_mutex_);
  for (size_t i = 1; i < slot_at_.size(); ++i) {
    Slot& slot = *slot_at_[i];
    if (!slot.tellable || slot.asking || slot.to_ask.empty()) continue;
    NameQuestion& question = questions.emplace_back();
    question.holder = slot.holder;
    const size_t count = std::min(slot.to_ask.size(), kNamesPerQuestion);
    question.digests.assign(slot.to_ask.end() - static_cast<ptrdiff_t>(count), slot.to_ask.end());
    slot.to_ask.resize(slot.to_ask.size() - count);
    slot.asking = true;
    counts_.names_asked.fetch_add(count, std::memory_order_relaxed);
  }
  return questions;
}

void Picture::stop_asking(HolderIndex holder) {
  std::scoped_lock lock(tell_mutex_, slots_mutex_);
  for (Slot* slot : slot_at_)
    if (slot != nullptr && slot->holder == holder) slot->asking = false;
}

void Picture::answered(HolderIndex holder, std::span<const Digest> asked,
                       std::span<const std::byte> answer) {
  struct Learnt {
    uint16_t ns = kNotNamed;
    uint16_t block_tokens = 0;
    PageName name{};
  };
  std::vector<NamespaceOf> namespaces;
  std::vector<Learnt> learnt;
  AnswerReader reader(answer);
  const auto count = reader.take<uint32_t>();
  if (count > asked.size())
    throw std::invalid_argument("the answer has more namespaces than names");
  for (uint32_t i = 0; i < count; ++i) {
    NamespaceOf& ns = namespaces.emplace_back();
    ns.id = reader.take<Digest>();
    ns.epoch = reader.take<uint64_t>();
    const auto size = reader.take<uint32_t>();
    if (size > kNamespaceTextMax) throw std::invalid_argument("a namespace's name is too long");
    const auto text = reader.take(size);
    ns.text.assign(reinterpret_cast<const char*>(text.data()), text.size());
    if (!is_presentable(ns.text)) throw std::invalid_argument("a namespace's name is no text");
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    Learnt& one = learnt.emplace_back();
    one.ns = reader.take<uint16_t>();
    const auto kind = reader.take<uint8_t>();
    one.block_tokens = reader.take<uint16_t>();
    if (one.ns != kNotNamed && one.ns >= count)
      throw std::invalid_argument("a name is of a namespace that the answer does not have");
    if (name_bytes(kind) == kNotAKind)
      throw std::invalid_argument("a name of kind " + std::to_string(kind) + ": there is none");
    one.name = PageName::of(kind, reader.take(name_bytes(kind)).data());
  }
  if (!reader.empty()) throw std::invalid_argument("the answer with names has more bytes");
  for (size_t i = 0; i < asked.size(); ++i) {
    const Learnt& one = learnt[i];
    learn(asked[i], one.ns == kNotNamed ? NamespaceOf{} : namespaces[one.ns], one.name,
          one.block_tokens, holder);
  }
  stop_asking(holder);
}

void Picture::unanswered(HolderIndex holder, std::span<const Digest> asked) {
  ask_others(asked);
  stop_asking(holder);
}

std::vector<std::byte> Picture::names_of(std::span<const Digest> digests) const {
  struct Found {
    bool known = false;
    NamespaceNumber ns = 0;
    uint64_t epoch = 0;
    uint16_t block_tokens = 0;
    PageName name{};
  };
  std::vector<Found> found(digests.size());
  std::vector<Digest> unnamed;
  std::vector<size_t> places;
  for (size_t i = 0; i < digests.size(); ++i) {
    const Shard& shard = shard_of(digests[i]);
    std::lock_guard lock(shard.mutex);
    const auto at = shard.pages.find(digests[i]);
    if (at != shard.pages.end() && at->second.named && at->second.ns != 0) {
      const Page& page = at->second;
      found[i] = {true, page.ns, page.epoch, page.block_tokens, page.name};
      const auto later = shard.later_names.find(digests[i]);
      if (later != shard.later_names.end() && later->second.ns != 0) {
        const LaterName& one = later->second;
        found[i] = {true, one.ns, one.epoch, one.block_tokens, one.name};
      }
    } else {
      unnamed.push_back(digests[i]);
      places.push_back(i);
    }
  }
  std::vector<NamespaceOf> identified(unnamed.size());
  if (!unnamed.empty()) identify_(unnamed, identified);

  std::vector<NamespaceOf> namespaces;
  std::map<std::pair<Digest, uint64_t>, uint16_t> numbers;
  const auto number_in_answer = [&](NamespaceOf ns) {
    const auto [at, is_new] =
        numbers.try_emplace({ns.id, ns.epoch}, static_cast<uint16_t>(namespaces.size()));
    if (is_new) namespaces.push_back(std::move(ns));
    return at->second;
  };
  std::vector<std::byte> names;
  size_t next_unnamed = 0;
  for (size_t i = 0; i < digests.size(); ++i) {
    uint16_t ns = kNotNamed;
    if (found[i].known) {
      const NamespaceInfo info = info_of(found[i].ns);
      ns = number_in_answer({info.id, found[i].epoch, info.text});
    } else if (next_unnamed < places.size() && places[next_unnamed] == i) {
      NamespaceOf& one = identified[next_unnamed++];
      if (!(one.id == Digest{})) ns = number_in_answer(one);
    }
    append_plain(names, ns);
    append_plain(names, found[i].name.kind);
    append_plain(names, found[i].block_tokens);
    const auto bytes = found[i].name.span();
    names.insert(names.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> answer;
  append_plain(answer, static_cast<uint32_t>(namespaces.size()));
  for (const NamespaceOf& ns : namespaces) {
    append_plain(answer, ns.id);
    append_plain(answer, ns.epoch);
    append_plain(answer, static_cast<uint32_t>(ns.text.size()));
    const auto text = std::as_bytes(std::span(ns.text));
    answer.insert(answer.end(), text.begin(), text.end());
  }
  answer.insert(answer.end(), names.begin(), names.end());
  return answer;
}

}  // namespace peercached::kv_events
