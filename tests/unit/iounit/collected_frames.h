#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "iounit/lan_engine.h"

namespace splitnic::iounit {

using Frame = std::vector<std::byte>;

/// Keeps a copy of every frame it is handed.
struct CollectedFrames final : LanSink {
  void on_lan_frame(std::span<const std::byte> frame) override { frames.emplace_back(frame.begin(), frame.end()); }
  void on_lan_frame(std::span<const std::byte> frame, const frame::FrameOffload& offload) override {
    on_lan_frame(frame);
    offloads.push_back(offload);
  }
  std::vector<Frame> frames;
  std::vector<frame::FrameOffload> offloads;  ///< of each frame, from an engine that knows them
};

/// LanEngine::receive() at a time when the engine has no reason to rest.
inline std::size_t take(LanEngine& lan, LanSink& sink, std::size_t budget) {
  static Time now{};
  now += std::chrono::seconds(1);
  lan.begin_round(now);
  return lan.receive(sink, budget);
}

/// A frame of `bytes` with distinguishable content: broadcast, from 02:00:00:00:00:01, experimental EtherType 0x88b5.
inline Frame frame_of(std::size_t bytes, unsigned mark) {
  Frame frame(bytes);
  for (std::size_t at = 0; at < bytes; ++at) frame[at] = static_cast<std::byte>(mark + at);
  constexpr unsigned kHeader[14] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5};
  for (std::size_t at = 0; at < 14 && at < bytes; ++at) frame[at] = static_cast<std::byte>(kHeader[at]);
  return frame;
}

}  // namespace splitnic::iounit
