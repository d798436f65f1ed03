#pragma once

#include <cstddef>
#include <span>

namespace splitnic::frame {

/// The bytes that is_membership_report() needs: VLAN tags, IP header, router alert, message type.
inline constexpr std::size_t kMembershipReportHeadBytes = 100;

/// Whether a frame joins or leaves a multicast group: an IGMP v1, v2, v3 report or leave (RFC 1112, 2236, 3376), an MLD
/// v1, v2 report or done (RFC 2710, 3810). frame: private bytes; the first kMembershipReportHeadBytes are enough.
[[nodiscard]] bool is_membership_report(std::span<const std::byte> frame);

}  // namespace splitnic::frame
