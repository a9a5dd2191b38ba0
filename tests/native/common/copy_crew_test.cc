#include "common/copy_crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace peercached {
namespace {

TEST(CopyCrew, RunsEveryTaskExactlyOnce) {
  CopyCrew crew(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        std::vector<std::atomic<int>> done(100);
        crew.run(done.size(), 1 << 30, [&](size_t i) { ++done[i]; });
        for (auto& times : done) ASSERT_EQ(times, 1);
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

}  // namespace
}  // namespace peercached
