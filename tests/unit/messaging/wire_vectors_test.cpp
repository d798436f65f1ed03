#include "tests/unit/messaging/wire_samples.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace splitnic::messaging::wire::wire_vectors_test {

namespace fs = std::filesystem;

namespace {

const fs::path kFolder = fs::path(SPLITNIC_SOURCE_DIR) / "docs" / "vectors" / "messages";

std::string vector_text(const samples::Sample& sample) {
  return "# " + sample.name + "\n\n" + samples::hex_dump(sample.bytes) + "\n" + samples::describe(sample);
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("every message is documented by a vector with its bytes and fields", "[messaging][wire]") {
  const bool write = std::getenv("SPLITNIC_WRITE_VECTORS") != nullptr;
  if (write) fs::create_directories(kFolder);
  std::set<std::string> expected;
  for (const auto& sample : samples::every_message()) {
    const fs::path path = kFolder / (sample.name + ".txt");
    expected.insert(path.filename());
    if (write) std::ofstream(path, std::ios::binary) << vector_text(sample);
    INFO(path);
    CHECK(content(path) == vector_text(sample));
  }
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(kFolder)) found.insert(entry.path().filename());
  CHECK(found == expected);
}

TEST_CASE("the vectors cover every function and every CfgUtil request", "[messaging][wire]") {
  std::set<Function> functions;
  std::set<std::uint32_t> requests;
  for (const auto& sample : samples::every_message()) {
    const auto message = decode(sample.bytes, Limits{});
    INFO(sample.name);
    REQUIRE(message);
    functions.insert(function_of(*message));
    if (const auto* request = std::get_if<CfgUtilRequest>(&*message)) requests.insert(request->code);
    CHECK(samples::describe(sample).find("fault") == std::string::npos);
  }
  CHECK(functions == std::set<Function>(kFunctions.begin(), kFunctions.end()));
  CHECK(requests.size() == kLastCfgRequest);
}

}  // namespace splitnic::messaging::wire::wire_vectors_test
