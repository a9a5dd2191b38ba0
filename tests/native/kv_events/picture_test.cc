// The picture of events: what is told is what there is, in any order of rows, names and ends.
#include "kv_events/picture.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace peercached::kv_events {
namespace {

constexpr HolderIndex kOther = 1, kThird = 2;
constexpr auto kPatienceOfTest = std::chrono::seconds(1);
constexpr size_t kAllBytes = 1 << 30;

Digest digest_at(uint64_t number) { return {number * 0x9e3779b97f4a7c15, number}; }
const NamespaceOf kNs{digest_at(1000), 1, "model"};

RecordRow row(uint64_t number, Generation generation, uint8_t flags = kRecordResident) {
  RecordRow made;
  made.digest = digest_at(number);
  made.generation = generation;
  made.length = 64;
  made.flags = flags;
  return made;
}

std::string name_at(uint64_t number) { return "name" + std::to_string(1000 + number); }

class PictureTest : public testing::Test {
 protected:
  void name(uint64_t number, uint64_t epoch = 1) {
    const std::string text = name_at(number);
    const auto kind = static_cast<uint8_t>(text.size());
    NamespaceOf ns = kNs;
    ns.epoch = epoch;
    const Digest digest = digest_at(number);
    picture.named(ns, {&digest, 1}, {{&kind, 1}, std::as_bytes(std::span(text)), 16});
  }
  void change(HolderIndex holder, const RecordRow& one) { picture.changed(holder, {&one, 1}); }

  // The events of one drain: "+CPU b name1001", "-CPU b name1001", "clear b".
  std::multiset<std::string> drain(std::vector<LiveNode> live = {
                                       {kSelfHolder, "a"}, {kOther, "b"}, {kThird, "c"}}) {
    std::multiset<std::string> told;
    for (const Batch& batch : picture.drain(live, now, 1.0, kAllBytes, kPatienceOfTest).batches)
      read(batch, told);
    return told;
  }
  std::multiset<std::string> snapshot() {
    std::multiset<std::string> told;
    for (const Batch& batch : picture.snapshot(1.0)) read(batch, told);
    return told;
  }

  TimePoint now = Clock::now();
  std::vector<std::pair<Digest, NamespaceOf>> here;
  Picture picture{[this](std::span<const Digest> digests, std::span<NamespaceOf> out) {
    for (size_t i = 0; i < digests.size(); ++i)
      for (const auto& [digest, ns] : here)
        if (digest == digests[i]) out[i] = ns;
  }};

 private:
  // Finds what the tests give, without a decoder of msgpack.
  static void read(const Batch& batch, std::multiset<std::string>& told) {
    const std::string node = batch.topic.substr(batch.topic.find('@') + 1);
    const std::string who = node.substr(0, node.find('@'));
    std::string sign;
    for (size_t at = 0; at < batch.payload.size(); ++at) {
      const auto has = [&](std::string_view text) {
        return batch.payload.compare(at, text.size(), text) == 0;
      };
      if (has("AllBlocksCleared")) told.insert("clear " + who);
      if (has("BlockStored")) sign = "+";
      if (has("BlockRemoved")) sign = "-";
      if (!has("name1")) continue;
      const std::string medium =
          batch.payload.find("medium\xa3", at) < batch.payload.find("medium\xa7", at) ? "CPU"
                                                                                      : "STORAGE";
      told.insert(sign + medium + " " + who + " " + batch.payload.substr(at, 8));
    }
  }
};

using Told = std::multiset<std::string>;

TEST_F(PictureTest, APageIsToldOnceAndItsEndOnce) {
  name(1);
  change(kOther, row(1, 5));
  EXPECT_EQ(drain(), Told{"+CPU b name1001"});
  change(kOther, row(1, 5));
  EXPECT_EQ(drain(), Told{});
  change(kOther, row(1, 6, kRecordWithdraw));
  EXPECT_EQ(drain(), Told{"-CPU b name1001"});
  EXPECT_EQ(picture.stats().told, 0u);
}

TEST_F(PictureTest, AnOlderRowChangesNothing) {
  name(1);
  change(kOther, row(1, 9));
  change(kOther, row(1, 7, kRecordWithdraw));
  change(kOther, row(1, 8, 0));
  EXPECT_EQ(drain(), Told{"+CPU b name1001"});
}

TEST_F(PictureTest, APageThatLeavesThePoolIsOnDisk) {
  name(1);
  change(kOther, row(1, 5));
  drain();
  change(kOther, row(1, 6, 0));
  EXPECT_EQ(drain(), (Told{"-CPU b name1001", "+STORAGE b name1001"}));
}

TEST_F(PictureTest, APageThatCameAndWentIsNotTold) {
  name(1);
  change(kOther, row(1, 5));
  change(kOther, row(1, 6, kRecordWithdraw));
  EXPECT_EQ(drain(), Told{});
}

TEST_F(PictureTest, AHolderThatIsForgottenIsClearedBeforeItsNewPages) {
  name(1);
  name(2);
  change(kOther, row(1, 5));
  drain();
  picture.forget(kOther);
  change(kOther, row(2, 1));  // lower than before: another process
  EXPECT_EQ(drain(), (Told{"clear b", "+CPU b name1002"}));
  EXPECT_EQ(snapshot(), (Told{"clear ", "clear b", "+CPU b name1002"}));
}

TEST_F(PictureTest, ANodeThatIsAwayIsClearedAfterThePatienceAndToldAgain) {
  name(1);
  change(kOther, row(1, 5));
  drain();
  const std::vector<LiveNode> alone = {{kSelfHolder, "a"}};
  EXPECT_EQ(drain(alone), Told{});
  now += kPatienceOfTest;
  EXPECT_EQ(drain(alone), Told{"clear b"});
  EXPECT_EQ(drain(), Told{"+CPU b name1001"});
}

TEST_F(PictureTest, AClearedNamespaceIsRemovedAndNewPagesOfTheSameNamesStay) {
  name(1);
  change(kOther, row(1, 5));
  drain();
  // The new page of the same name comes before we hear of the clear.
  const Digest later = digest_at(77);
  const std::string text = name_at(1);
  const auto kind = static_cast<uint8_t>(text.size());
  NamespaceOf ns = kNs;
  ns.epoch = 2;
  picture.named(ns, {&later, 1}, {{&kind, 1}, std::as_bytes(std::span(text)), 16});
  change(kOther, row(77, 6));
  drain();
  picture.epoch_raised(kNs.id, 2);
  EXPECT_EQ(drain(), (Told{"-CPU b name1001", "+CPU b name1001"}));
  EXPECT_EQ(snapshot(), (Told{"clear ", "clear b", "+CPU b name1001"}));
}

TEST_F(PictureTest, APageWaitsForItsNameAndOthersAreAskedInTurn) {
  Picture knows([](auto, auto) {});
  const Digest one = digest_at(1);
  const std::string text = name_at(1);
  const auto kind = static_cast<uint8_t>(text.size());
  knows.named(kNs, {&one, 1}, {{&kind, 1}, std::as_bytes(std::span(text)), 16});

  change(kOther, row(1, 5));
  change(kThird, row(1, 5));
  EXPECT_EQ(drain(), Told{});
  auto questions = picture.questions();
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_EQ(questions[0].holder, kOther);
  EXPECT_TRUE(picture.questions().empty()) << "one at a time";
  Picture empty([](auto, auto) {});
  picture.answered(kOther, questions[0].digests, empty.names_of(questions[0].digests));
  EXPECT_EQ(drain(), Told{});
  questions = picture.questions();
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_EQ(questions[0].holder, kThird);
  picture.answered(kThird, questions[0].digests, knows.names_of(questions[0].digests));
  EXPECT_EQ(drain(), (Told{"+CPU b name1001", "+CPU c name1001"}));
}

TEST_F(PictureTest, APageThatNobodyKnowsIsToldByItsDigest) {
  change(kOther, row(1, 5));
  drain();
  const auto questions = picture.questions();
  Picture empty([](auto, auto) {});
  picture.answered(kOther, questions[0].digests, empty.names_of(questions[0].digests));
  drain();
  drain();
  EXPECT_EQ(picture.stats().told, 1u);
  EXPECT_EQ(picture.stats().by_digest, 1u);
}

TEST_F(PictureTest, AnotherHolderIsAskedIfTheFirstIsForgottenOrAwayBeforeItIsAsked) {
  for (const bool forgotten : {true, false}) {
    const uint64_t number = forgotten ? 1 : 2;
    change(kOther, row(number, 5));
    change(kThird, row(number, 5));
    const std::vector<LiveNode> rest = {{kSelfHolder, "a"}, {kThird, "c"}};
    EXPECT_EQ(drain(), Told{});  // queued for kOther
    if (forgotten) picture.forget(kOther);
    drain(rest);
    now += kPatienceOfTest;
    drain(rest);
    const auto questions = picture.questions();
    ASSERT_EQ(questions.size(), 1u);
    EXPECT_EQ(questions[0].holder, kThird);
    EXPECT_EQ(questions[0].digests, std::vector<Digest>{digest_at(number)});
    Picture empty([](auto, auto) {});
    picture.answered(kThird, questions[0].digests, empty.names_of(questions[0].digests));
  }
}

TEST_F(PictureTest, AHolderIsAskedAlthoughOneThatKnewNothingHasGone) {
  change(kOther, row(1, 5));
  change(kThird, row(1, 5));
  drain();
  Picture empty([](auto, auto) {});
  const auto questions = picture.questions();
  picture.answered(kOther, questions[0].digests, empty.names_of(questions[0].digests));
  picture.forget(kOther);
  drain();
  ASSERT_EQ(picture.questions().size(), 1u);
  EXPECT_EQ(picture.stats().by_digest, 0u);
}

TEST_F(PictureTest, ANameThatIsGivenLaterReplacesTheDigest) {
  here = {{digest_at(1), kNs}, {digest_at(2), kNs}};
  change(kSelfHolder, row(1, 5));
  change(kSelfHolder, row(2, 5));
  drain();
  EXPECT_EQ(picture.stats().stored, 2u) << "by digest";
  // A worker sets the page again.
  name(1);
  EXPECT_EQ(drain(), Told{"+CPU a name1001"});
  EXPECT_EQ(picture.stats().removed, 1u) << "the digest";
  EXPECT_EQ(picture.stats().told, 2u);
  // Another holder comes, and knows the name.
  Picture knows([](auto, auto) {});
  const Digest two = digest_at(2);
  const std::string text = name_at(2);
  const auto kind = static_cast<uint8_t>(text.size());
  knows.named(kNs, {&two, 1}, {{&kind, 1}, std::as_bytes(std::span(text)), 16});
  change(kOther, row(2, 5));
  drain();
  const auto questions = picture.questions();
  ASSERT_EQ(questions.size(), 1u);
  picture.answered(kOther, questions[0].digests, knows.names_of(questions[0].digests));
  EXPECT_EQ(drain(), (Told{"+CPU a name1002", "+CPU b name1002"}));
  EXPECT_EQ(picture.stats().removed, 3u);
  EXPECT_EQ(picture.stats().told, 3u);
  // A name that was given stays.
  const std::string other = name_at(3);
  picture.named(kNs, {&two, 1}, {{&kind, 1}, std::as_bytes(std::span(other)), 16});
  EXPECT_EQ(drain(), Told{});
}

TEST_F(PictureTest, AnAnswerOfAnotherLengthIsRefused) {
  const std::vector<Digest> asked = {digest_at(1), digest_at(2)};
  Picture empty([](auto, auto) {});
  std::vector<std::byte> answer = empty.names_of(asked);
  for (size_t size = 0; size < answer.size(); ++size)
    EXPECT_THROW(picture.answered(kOther, asked, std::span(answer).first(size)),
                 std::invalid_argument);
  answer.push_back(std::byte{0});
  EXPECT_THROW(picture.answered(kOther, asked, answer), std::invalid_argument);
  answer.pop_back();
  answer[6] = std::byte{0x77};  // a kind of names that there is not
  EXPECT_THROW(picture.answered(kOther, asked, answer), std::invalid_argument);
}

TEST_F(PictureTest, APageThatWentDuringAScanDoesNotComeBackWithIt) {
  name(1);
  change(kSelfHolder, row(1, 5));
  drain();
  picture.begin_scan();
  picture.forget(kSelfHolder);
  change(kSelfHolder, row(1, 8, kRecordWithdraw));
  drain();
  change(kSelfHolder, row(1, 5));  // the scan had read it before
  picture.end_scan();
  drain();
  EXPECT_EQ(picture.stats().told, 0u);
}

TEST_F(PictureTest, AMovedPageKeepsItsName) {
  name(1);
  change(kOther, row(1, 5));
  drain();
  change(kOther, row(1, 6, kRecordWithdraw));
  EXPECT_EQ(drain(), Told{"-CPU b name1001"});
  change(kThird, row(1, 3));
  EXPECT_EQ(drain(), Told{"+CPU c name1001"});
}

TEST_F(PictureTest, AnUntoldPageHasNoEvent) {
  const Digest one = digest_at(1);
  const uint8_t kind = kUntold;
  picture.named(kNs, {&one, 1}, {{&kind, 1}, {}, 0});
  change(kOther, row(1, 5));
  drain();
  EXPECT_EQ(picture.stats().told, 0u);
  EXPECT_EQ(picture.stats().stored, 0u);
}

}  // namespace
}  // namespace peercached::kv_events
