#include "common/copy_crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "eventually.h"

namespace peercached {
namespace {

TEST(CopyCrew, RunsEveryTaskExactlyOnce) {
  CopyCrew crew(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, use = c % 2 ? CopyFor::get : CopyFor::set] {
      for (int round = 0; round < 50; ++round) {
        std::vector<std::atomic<int>> done(100);
        crew.run(use, done.size(), 1 << 30, [&](size_t i) { ++done[i]; });
        for (auto& times : done) ASSERT_EQ(times, 1);
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

TEST(CopyCrew, HelpersLeaveASetForAGet) {
  CopyCrew crew(1);
  std::atomic<bool> enough{false};
  std::atomic<uint64_t> copied{0};
  std::thread setter([&] {
    crew.run(CopyFor::set, 100'000, 1 << 30, [&](size_t) {
      ++copied;
      if (!enough) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  });
  EXPECT_TRUE(eventually([&] { return copied > 10; }));
  std::atomic<int> parts{0};
  crew.run(CopyFor::get, 2, 1 << 30, [&](size_t) {
    ++parts;
    EXPECT_TRUE(eventually([&] { return parts == 2; }));  // two threads copy
  });
  enough = true;
  setter.join();
}

}  // namespace
}  // namespace peercached
