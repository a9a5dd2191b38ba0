// Runs a fuzz target without libFuzzer, for `make test`: its corpus, and inputs that are made from
// it with a fixed seed. `make test-fuzz` searches further, and knows which inputs reach new code.
//
//   TARGET INPUTS [CORPUS FOLDER]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

constexpr size_t kInputBytesMax = 8192;
constexpr uint8_t kBounds[] = {0, 1, 2, 0x7f, 0x80, 0xfe, 0xff};

std::vector<Input> corpus_of(const char* folder) {
  std::vector<Input> all{Input{}, Input(128)};
  if (folder == nullptr) return all;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(file.path(), std::ios::binary);
    all.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return all;
}

void change(Input& input, const std::vector<Input>& corpus, std::mt19937& random) {
  const size_t at = input.empty() ? 0 : random() % input.size();
  const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random() % 6) {
    case 0:
      if (!input.empty()) input[at] = kBounds[random() % std::size(kBounds)];
      break;
    case 1:
      if (!input.empty()) input[at] = static_cast<uint8_t>(random());
      break;
    case 2:
      if (!input.empty()) input[at] ^= static_cast<uint8_t>(1u << random() % 8);
      break;
    case 3:
      input.resize(at);
      break;
    case 4:
      input.insert(place, random() % 64, static_cast<uint8_t>(random()));
      break;
    default: {
      const Input& other = corpus[random() % corpus.size()];
      input.insert(place, other.begin(), other.end());
    }
  }
  if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  const std::vector<Input> corpus = corpus_of(count > 2 ? arguments[2] : nullptr);
  for (const Input& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  std::mt19937 random(1);
  for (long left = std::atol(arguments[1]); left > 0; --left) {
    Input input = corpus[random() % corpus.size()];
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      change(input, corpus, random);
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%s inputs from %zu files\n", arguments[1], corpus.size());
}
