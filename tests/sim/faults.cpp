// What goes wrong before the heal, and the heal.
#include <algorithm>

#include "queue_site.h"

#include "world.h"

namespace splitnic::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

void World::plan_fault() {
  at(now_ + between(random_, microseconds(10), 2 * scenario_.fault_gap), [this] {
    if (healed_) return;
    inject_fault();
    plan_fault();
  });
}

void World::inject_fault() {
  HostSite& host = *hosts_[random_.below(hosts_.size())];
  CoreSite& core = *processes_[random_.below(processes_.size())];
  const Duration down_for = one_in(random_, 4) ? Duration(0) : between(random_, microseconds(10), milliseconds(100));
  switch (random_.below(12)) {
    case 0:
    case 1:
      return cut_bridge(host);
    case 2:
      return crash(host, down_for);
    case 3:
      return crash(*unit_, down_for);
    case 4:
      crash(host, down_for);
      return crash(*unit_, between(random_, microseconds(1), milliseconds(50)));
    case 5:
      return core.pause(now_ + between(random_, microseconds(100), milliseconds(30)));
    case 6:
      return core.pause(now_ + between(random_, milliseconds(30), milliseconds(400)));
    case 7:
      core.shut_down(now_ + milliseconds(300));
      return at(now_ + milliseconds(300) + down_for, [&core] { core.start(); });
    case 8:
      return change_lan();
    default:
      return change_settings(host);
  }
}

void World::cut_bridge(HostSite& host) {
  trace_.line(now_, host.name(), "bridge cut");
  if (!host.queues().empty() && one_in(random_, 2)) {
    return host.queues()[random_.below(host.queues().size())]->link().hang_up();
  }
  host.pair().cut();
  const Duration down_for = between(random_, microseconds(1), one_in(random_, 2) ? milliseconds(1) : milliseconds(150));
  at(now_ + down_for, [this, &host] {
    trace_.line(now_, host.name(), "bridge restored");
    host.pair().restore();
  });
}

void World::crash(CoreSite& core, Duration down_for) {
  core.kill(one_in(random_, 2));
  at(now_ + down_for, [&core] { core.start(); });
}

void World::change_settings(HostSite& host) {
  const std::size_t index = static_cast<std::size_t>(
      std::ranges::find_if(hosts_, [&](const auto& site) { return site.get() == &host; }) - hosts_.begin());
  const HostScenario& from = scenario_.hosts[index];
  host.nic().change([&](host::NicSettings& settings) {
    switch (random_.below(5)) {
      case 0:
        settings.mac = from.macs[random_.below(from.macs.size())];
        break;
      case 1:
        settings.mtu = static_cast<std::uint32_t>(between(random_, 1280, common_mtu()));
        break;
      case 2:
        settings.promiscuous = !settings.promiscuous;
        break;
      case 3:
        settings.up = !settings.up;
        break;
      default:
        settings.multicast.clear();
        for (std::size_t group = 0; group < kGroups; ++group) {
          if (one_in(random_, 2)) settings.multicast.push_back(group_mac(group));
        }
        break;
    }
  });
  trace_.line(now_, host.name(), "settings changed");
}

void World::change_lan() {
  SimLan& lan = unit_->lan();
  if (one_in(random_, 2)) return lan.set_mtu(one_in(random_, 2) ? scenario_.lan_mtu : scenario_.lan_mtu_meanwhile);
  lan.plug(!lan.carrier());
}

/// From here on everybody runs, every link is there, and settings stay as they are.
void World::heal() {
  healed_ = true;
  trace_.line(now_, "world", "heals");
  agenda_.clear();
  unit_->lan().plug(true);
  unit_->lan().set_mtu(scenario_.lan_mtu);
  for (std::size_t index = 0; index < hosts_.size(); ++index) {
    HostSite& host = *hosts_[index];
    const HostScenario& from = scenario_.hosts[index];
    host.pair().restore();
    host.nic().set_refusing(false);
    host.nic().drop_queue();
    host.nic().change([&](host::NicSettings& settings) {
      settings.up = true;
      settings.promiscuous = from.promiscuous_at_end;
      settings.mtu = common_mtu();
      settings.multicast = from.joined;
      if (from.restricted && settings.mac == from.macs.back()) settings.mac = from.macs[0];
    });
  }
  for (auto* core : cores_) core->resume();
  for (auto* core : processes_) {
    if (core->shutting_down()) core->kill(false);
    core->start();
  }
  if (scenario_.plant == Plant::absent) hosts_.front()->kill(false);
}

}  // namespace splitnic::sim
