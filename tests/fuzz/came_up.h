#pragma once

/// Targets whose inputs attack a session have this function: whether the session was up during the last input, before
/// it was healed. A seed that is named up-... must get there, or the target would fuzz nothing but set-ups.
extern "C" __attribute__((weak)) bool splitnic_fuzz_came_up();
