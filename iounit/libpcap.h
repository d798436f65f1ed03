#pragma once

#include <pcap/pcap.h>

#include <boost/describe/class.hpp>

#include "common/result.h"

namespace splitnic::iounit {

/// The functions of libpcap that the LAN engines call, by libpcap's names without "pcap_". Only two engines need them,
/// and libpcap loads eight more libraries. So it is loaded by the first engine that asks: other units and all hosts
/// start sooner, and have less code in them. Thread: any.
struct Libpcap {
  decltype(&pcap_activate) activate = nullptr;
  decltype(&pcap_close) close = nullptr;
  decltype(&pcap_create) create = nullptr;
  decltype(&pcap_datalink) datalink = nullptr;
  decltype(&pcap_datalink_val_to_name) datalink_val_to_name = nullptr;
  decltype(&pcap_dispatch) dispatch = nullptr;
  decltype(&pcap_dump) dump = nullptr;
  decltype(&pcap_dump_close) dump_close = nullptr;
  decltype(&pcap_dump_file) dump_file = nullptr;
  decltype(&pcap_dump_flush) dump_flush = nullptr;
  decltype(&pcap_dump_fopen) dump_fopen = nullptr;
  decltype(&pcap_fileno) fileno = nullptr;
  decltype(&pcap_fopen_offline_with_tstamp_precision) fopen_offline_with_tstamp_precision = nullptr;
  decltype(&pcap_get_selectable_fd) get_selectable_fd = nullptr;
  decltype(&pcap_geterr) geterr = nullptr;
  decltype(&pcap_next_ex) next_ex = nullptr;
  decltype(&pcap_open_dead_with_tstamp_precision) open_dead_with_tstamp_precision = nullptr;
  decltype(&pcap_set_buffer_size) set_buffer_size = nullptr;
  decltype(&pcap_set_immediate_mode) set_immediate_mode = nullptr;
  decltype(&pcap_set_promisc) set_promisc = nullptr;
  decltype(&pcap_set_snaplen) set_snaplen = nullptr;
  decltype(&pcap_setdirection) setdirection = nullptr;
  decltype(&pcap_setnonblock) setnonblock = nullptr;
  decltype(&pcap_stats) stats = nullptr;
  decltype(&pcap_statustostr) statustostr = nullptr;

  /// Loads the library if it is not there yet. Errors: it can't be loaded, or lacks a function.
  [[nodiscard]] static Result<void> load();
  /// After load() has succeeded.
  [[nodiscard]] static const Libpcap& get();
};
BOOST_DESCRIBE_STRUCT(Libpcap, (),
                      (activate, close, create, datalink, datalink_val_to_name, dispatch, dump, dump_close, dump_file,
                       dump_flush, dump_fopen, fileno, fopen_offline_with_tstamp_precision, get_selectable_fd, geterr,
                       next_ex, open_dead_with_tstamp_precision, set_buffer_size, set_immediate_mode, set_promisc,
                       set_snaplen, setdirection, setnonblock, stats, statustostr))

}  // namespace splitnic::iounit
