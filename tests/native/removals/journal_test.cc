// The journal of removals: its content after any end of the process, and the files that it refuses.

#include "removals/journal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <thread>

#include "eventually.h"
#include "no_room.h"

namespace peercached {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEntryBytes = 40;

Digest digest_for(uint64_t number) { return {number * 0x9e3779b97f4a7c15 + 1, ~number}; }

class JournalFile : public ::testing::Test {
 protected:
  JournalFile() {
    std::string name = (fs::temp_directory_path() / "peercached-journal-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    folder = name;
    config.path = folder / "removals.log";
    config.identity[0] = std::byte{1};
  }
  ~JournalFile() override {
    journal.reset();
    fs::remove_all(folder);
  }

  void open() {
    journal.reset();
    journal = std::make_unique<Journal>(config);
  }
  bool remove(uint64_t number) {
    const Removed removed{digest_for(number), 1};
    return journal->append({&removed, 1});
  }
  bool is_void(uint64_t number, Position set_at) const {
    return journal->past().is_void(digest_for(number), set_at);
  }

  fs::path folder;
  JournalConfig config;
  std::unique_ptr<Journal> journal;
};

TEST_F(JournalFile, PagesSetBeforeTheirRemovalAreVoid) {
  open();
  EXPECT_EQ(journal->last(), 0u);
  EXPECT_TRUE(remove(1));
  EXPECT_TRUE(remove(2));
  EXPECT_TRUE(remove(1));
  open();
  EXPECT_EQ(journal->last(), 3u);
  EXPECT_TRUE(is_void(1, 0));
  EXPECT_TRUE(is_void(1, 2)) << "set between its two removals";
  EXPECT_FALSE(is_void(1, 3));
  EXPECT_TRUE(is_void(2, 1));
  EXPECT_FALSE(is_void(2, 2));
  EXPECT_FALSE(is_void(3, 0));
  EXPECT_FALSE(is_void(3, 3));
  EXPECT_TRUE(is_void(3, 4)) << "of a later state of the journal";
}

TEST_F(JournalFile, OutlivesAProcessThatIsKilledAfterTheAppend) {
  const pid_t child = ::fork();
  if (child == 0) {
    Journal killed(config);
    const Removed removed{digest_for(1), 1};
    killed.append({&removed, 1});
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  open();
  EXPECT_TRUE(is_void(1, 0));
}

TEST_F(JournalFile, StatsDoNotWaitForAWriteThatHangs) {
  open();
  EXPECT_TRUE(remove(1));
  Hanging state_dir(fs::file_size(config.path));
  auto removal = std::async(std::launch::async, [&] { return remove(2); });
  ASSERT_TRUE(eventually([&] { return state_dir.hangs(); }));
  auto stats = std::async(std::launch::async, [&] { return journal->stats(); });
  EXPECT_EQ(stats.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  state_dir.release();
  EXPECT_EQ(stats.get().waiting, 1u);
  EXPECT_FALSE(removal.get()) << "it is not told before it is in the file";
}

TEST_F(JournalFile, EndsAtATornEntryAndGoesOnThere) {
  open();
  for (uint64_t number = 1; number <= 10; ++number) remove(number);
  journal.reset();
  fs::resize_file(config.path, fs::file_size(config.path) - 7);
  open();
  EXPECT_EQ(journal->last(), 9u);
  EXPECT_FALSE(is_void(10, 0));
  remove(11);
  open();
  EXPECT_EQ(journal->last(), 10u);
  EXPECT_TRUE(is_void(9, 0));
  EXPECT_TRUE(is_void(11, 0));
}

TEST_F(JournalFile, DamagedEntryHidesAllLaterEntries) {
  open();
  for (uint64_t number = 1; number <= 10; ++number) remove(number);
  const TierNote tier = journal->note();
  journal.reset();
  std::fstream file(config.path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 5 * kEntryBytes + 9);
  file.put('x');
  file.close();
  open();
  EXPECT_EQ(journal->last(), 5u);
  EXPECT_NE(journal->why_not(tier), "") << "the tier has seen removals that are not known any more";
  remove(11);
  open();
  EXPECT_EQ(journal->last(), 6u) << "hidden entries do not come back";
}

TEST_F(JournalFile, TierOfAnotherOrLaterJournalIsRefused) {
  open();
  remove(1);
  EXPECT_EQ(journal->why_not({}), "") << "a new tier";
  const TierNote tier = journal->note();
  EXPECT_EQ(journal->why_not(tier), "");
  fs::copy_file(config.path, folder / "backup");
  remove(2);
  const TierNote later = journal->note();
  journal.reset();
  fs::rename(folder / "backup", config.path);
  open();
  EXPECT_EQ(journal->why_not(tier), "");
  EXPECT_NE(journal->why_not(later), "");
  journal.reset();
  fs::remove(config.path);
  open();
  EXPECT_NE(journal->why_not(tier), "");
}

TEST_F(JournalFile, FullJournalForgetsItsOlderHalfAndVoidsOlderPages) {
  config.entries_max = 100;
  open();
  const TierNote tier = journal->note();
  for (uint64_t number = 1; number <= 101; ++number) EXPECT_TRUE(remove(number));
  EXPECT_EQ(journal->stats().floor, 50u);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(journal->last(), 101u);
    EXPECT_EQ(journal->why_not(tier), "");
    EXPECT_TRUE(is_void(7, 6)) << "nobody knows any more";
    EXPECT_TRUE(is_void(5000, 49)) << "nor of that";
    EXPECT_FALSE(is_void(5000, 50));
    EXPECT_TRUE(is_void(101, 50));
    open();
  }
  EXPECT_TRUE(fs::file_size(config.path) < 4096 + 100 * kEntryBytes);
}

TEST_F(JournalFile, UnwrittenRemovalsAreWrittenLater) {
  open();
  remove(1);
  auto full = std::make_unique<NoRoom>(4096 + kEntryBytes);
  EXPECT_FALSE(remove(2));
  EXPECT_FALSE(remove(3));
  EXPECT_EQ(journal->last(), 1u) << "pages set now are void once the removals are written";
  EXPECT_EQ(journal->stats().waiting, 2u);
  EXPECT_NE(journal->stats().problem, "");
  full.reset();
  EXPECT_TRUE(journal->write_waiting());
  EXPECT_EQ(journal->stats().waiting, 0u);
  EXPECT_EQ(journal->stats().problem, "");
  open();
  EXPECT_TRUE(is_void(2, 1));
  EXPECT_TRUE(is_void(3, 2));
}

TEST_F(JournalFile, RepeatedWaitingRemovalsAreQueuedOnce) {
  open();
  remove(1);
  std::vector<Removed> many;
  for (uint64_t number = 0; number < 20'000; ++number) many.push_back({digest_for(number), 1});
  auto full = std::make_unique<NoRoom>(4096 + kEntryBytes);
  for (int round = 0; round < 10; ++round) EXPECT_FALSE(journal->append(many));
  full.reset();
  EXPECT_TRUE(journal->write_waiting());
  EXPECT_EQ(journal->stats().floor, 0u) << "pages that nobody removed are void";
  EXPECT_TRUE(is_void(19'999, 1));
}

TEST_F(JournalFile, TooManyWaitingRemovalsRaiseTheFloor) {
  open();
  remove(1);
  auto full = std::make_unique<NoRoom>(4096 + kEntryBytes);
  std::vector<Removed> many;
  for (uint64_t number = 0; number < 70'000; ++number) many.push_back({digest_for(number), 1});
  EXPECT_FALSE(journal->append(many));
  full.reset();
  EXPECT_TRUE(remove(5));
  open();
  EXPECT_EQ(journal->last(), 3u);
  EXPECT_EQ(journal->stats().floor, 2u);
  EXPECT_TRUE(is_void(123'456, 1)) << "it may have been among them";
  EXPECT_TRUE(is_void(5, 2));
  EXPECT_FALSE(is_void(123'456, 2));
}

TEST_F(JournalFile, KnowsWhichRemovalsItHas) {
  open();
  const Digest page = digest_for(1);
  const std::vector<Removed> ours = {{page, 7}, {digest_for(2), 7}, {Digest{}, 0}};
  EXPECT_TRUE(journal->append(ours));
  const Removed again{page, 8}, other{digest_for(3), 7};
  const std::vector<Removed> told = {other, ours[0], again, other};
  for (const char* when : {"this start", "the next"}) {
    EXPECT_EQ(journal->unknown(told), (std::vector<Removed>{other, again})) << when;
    EXPECT_EQ(journal->since(0), (std::vector<Removed>{ours[0], ours[1]}))
        << "an entry of no page is no removal, " << when;
    open();
  }
  EXPECT_TRUE(journal->forget());
  EXPECT_EQ(journal->unknown(ours).size(), 3u);
}

TEST_F(JournalFile, ForeignOrDamagedFileStartsEmpty) {
  open();
  remove(1);
  const TierNote tier = journal->note();
  config.identity[0] = std::byte{2};
  open();
  EXPECT_EQ(journal->last(), 0u);
  EXPECT_NE(journal->why_not(tier), "");
  remove(1);
  const TierNote second = journal->note();
  journal.reset();
  std::ofstream(config.path, std::ios::binary) << "something else altogether";
  open();
  EXPECT_EQ(journal->last(), 0u);
  EXPECT_NE(journal->why_not(second), "");
}

TEST_F(JournalFile, IsRefusedWhenInUseOrWithoutItsFolder) {
  open();
  try {
    Journal second(config);
    FAIL() << "two daemons with one journal";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("set another node_id"), std::string::npos);
  }
  config.path = folder / "nowhere" / "removals.log";
  EXPECT_THROW(Journal second(config), std::runtime_error);
}

TEST_F(JournalFile, ReturnsRemovalsSinceAPosition) {
  open();
  for (const uint64_t number : {1, 2, 1, 3}) remove(number);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(journal->since(2), (std::vector<Removed>{{digest_for(1), 1}, {digest_for(3), 1}}));
    EXPECT_EQ(journal->since(4), std::vector<Removed>{});
    EXPECT_EQ(journal->since(0)->size(), 4u);
    open();
  }
  config.entries_max = 4;
  open();
  remove(4);
  ASSERT_GT(journal->stats().floor, 0u);
  EXPECT_EQ(journal->since(journal->stats().floor - 1), std::nullopt) << "some are forgotten";
  EXPECT_TRUE(journal->since(journal->stats().floor));
}

TEST_F(JournalFile, ForgettingEverythingVoidsPagesSetBefore) {
  open();
  remove(1);
  const TierNote before = journal->note();
  EXPECT_TRUE(journal->forget());
  EXPECT_NE(journal->why_not(before), "") << "a tier from a backup of before is another journal's";
  EXPECT_EQ(journal->why_not(journal->note()), "");
  const Position now = journal->last();
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(is_void(2, now - 1));
    EXPECT_FALSE(is_void(2, now));
    EXPECT_EQ(journal->since(0), std::nullopt);
    open();
  }
}

TEST_F(JournalFile, ManyThreadsLoseNothing) {
  config.sync = true;
  config.entries_max = 1000;
  open();
  constexpr uint64_t kThreads = 4, kEach = 500;
  std::vector<std::thread> threads;
  for (uint64_t which = 0; which < kThreads; ++which) {
    threads.emplace_back([&, which] {
      for (uint64_t number = 0; number < kEach; ++number) {
        const Position before = journal->last();
        EXPECT_TRUE(remove(which * kEach + number));
        EXPECT_GT(journal->last(), before);
        if (number % 50 == 0) {
          EXPECT_TRUE(journal->sync());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  open();
  EXPECT_EQ(journal->last(), kThreads * kEach);
  const Past past = journal->past();
  for (uint64_t number = 0; number < kThreads * kEach; ++number)
    EXPECT_TRUE(past.is_void(digest_for(number), 0)) << number;
}

TEST(JournalWithoutAFile, CountsAndKeepsNothing) {
  Journal journal{JournalConfig{}};
  const Removed removed{digest_for(1), 1};
  EXPECT_TRUE(journal.append({&removed, 1}));
  EXPECT_EQ(journal.last(), 1u);
  EXPECT_TRUE(journal.sync());
  EXPECT_EQ(journal.note().journal, 0u);
}

}  // namespace
}  // namespace peercached
