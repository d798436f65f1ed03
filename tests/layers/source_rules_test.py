#!/usr/bin/env python3
"""Plants a violation of each rule in a temporary tree and expects it to be found, and nothing else."""

import pathlib
import tempfile
import unittest

import source_rules


class Planted(unittest.TestCase):
    def found(self, **files):
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = pathlib.Path(root) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return source_rules.violations(root)

    def refused(self, name, text):
        found = self.found(**{name: text})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"{name}:"), found)

    def accepted(self, name, text):
        self.assertEqual(self.found(**{name: text}), [])

    def test_each_layer_against_each_other(self):
        for layer, allowed in source_rules.LAYERS.items():
            for other in source_rules.LAYERS:
                text = f'#pragma once\n#include "{other}/something.h"\n'
                (self.accepted if other in allowed else self.refused)(f"{layer}/deep/file.h", text)

    def test_host_and_iounit_do_not_know_each_other(self):
        self.refused("host/a.cpp", '#include "iounit/b.h"\n')
        self.refused("iounit/a.cpp", '#include "host/b.h"\n')

    def test_peers_of_the_benchmark_are_strangers(self):
        self.refused("bench/peers/a.cpp", '#include "fabric/b.h"\n')
        self.refused("bench/peers/a.cpp", '#include "bench/summary.h"\n')
        self.accepted("bench/peers/a.cpp", '#include "bench/peers/harness.h"\n')
        self.accepted("bench/peers/a.cpp", "void* at = mmap(nullptr, n, 0, 0, fd, 0);\n")

    def test_the_verbs_library_stands_on_adapters_beside_the_other_verbs(self):
        self.refused("fabric/verbs/a.cpp", '#include "fabric/ibverbs/objects.h"\n')
        self.refused("tools/a.cpp", '#include "fabric/ibverbs/objects.h"\n')
        self.refused("fabric/ibverbs/a.cpp", '#include "fabric/verbs/context.h"\n')
        self.accepted("fabric/ibverbs/a.cpp", '#include "fabric/ibverbs/objects.h"\n')
        self.accepted("fabric/ibverbs/a.cpp", '#include "fabric/threads/shared_adapter.h"\n')
        self.refused("fabric/adapter/a.cpp", "#include <infiniband/verbs.h>\n")

    def test_the_connection_manager_stands_on_the_verbs_library(self):
        self.refused("fabric/ibverbs/a.cpp", '#include "fabric/rdmacm/objects.h"\n')
        self.refused("fabric/rdmacm/a.cpp", '#include "fabric/ibverbs/objects.h"\n')
        self.refused("fabric/rdmacm/a.cpp", '#include "fabric/adapter/channel_adapter.h"\n')
        self.accepted("fabric/rdmacm/a.cpp", '#include "fabric/rdmacm/objects.h"\n#include <rdma/rdma_cma.h>\n')
        self.accepted("fabric/rdmacm/a.cpp", '#include "fabric/endnode/fabric_directory.h"\n')
        self.refused("fabric/ibverbs/a.cpp", "#include <rdma/rdma_cma.h>\n")

    def test_forms_of_include(self):
        self.refused("fabric/a.cpp", "#  include <messaging/b.h>\n")
        self.refused("fabric/a.cpp", '#include "../messaging/b.h"\n')
        self.refused("fabric/a.cpp", '#include "tests/b.h"\n')
        self.accepted("fabric/a.cpp", '// #include "messaging/b.h"\n/*\n#include "host/b.h"\n*/\n')

    def test_what_only_tests_use_is_not_shipped(self):
        test = {"tests/a.cpp": '#include "fabric/a.h"\n'}
        own = {"fabric/a.h": "", "fabric/a.cpp": '#include "fabric/a.h"\n'}
        found = self.found(**own, **test)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith("fabric/a.h:1:"), found)
        self.assertEqual(self.found(**own, **test, **{"tools/b.cpp": '#include "fabric/a.h"\n'}), [])
        self.assertEqual(self.found(**own), [])

    def test_libraries_stay_in_their_files(self):
        self.refused("host/a.cpp", "#include <pcap/pcap.h>\n")
        self.refused("host/a.cpp", "#include <pcap.h>\n")
        self.accepted("iounit/a.cpp", "#include <pcap.h>\n")
        self.refused("fabric/bridge/link.cpp", "#include <boost/interprocess/mapped_region.hpp>\n")
        self.accepted("fabric/bridge/shm_memory.cpp", "#include <boost/interprocess/mapped_region.hpp>\n")
        self.refused("messaging/session.cpp", "#include <capnp/message.h>\n")
        self.refused("host/a.cpp", '#include "messaging/wire/cfgutil.capnp.h"\n')
        self.accepted("messaging/wire/cfgutil.cpp", '#include "messaging/wire/cfgutil.capnp.h"\n')
        self.refused("fabric/adapter/a.cpp", "#include <isa-l/crc.h>\n")
        self.refused("host/core.cpp", "#include <boost/asio/io_context.hpp>\n")
        self.refused("iounit/core.cpp", "#include <CLI/CLI.hpp>\n")

    def test_raw_access(self):
        for code in (
            "auto* word = reinterpret_cast<const std::uint32_t*>(place);",
            "auto* word = const_cast<std::byte*>(place);",
            "void* at = mmap(nullptr, n, 0, 0, fd, 0);",
            "void* at = region.get_address();",
            "auto memory = PeerMemory::over(base, n);",
            "auto memory = fabric::PeerMemory::over(base, n);",
            "auto window = PeerWindow::mapped(base, n);",
            "auto piece = memory.for_kernel(0, n);",
        ):
            self.refused("messaging/session.cpp", code + "\n")
            self.refused("fabric/adapter/a.h", "int before;\n" + code + "\n")
            self.accepted("fabric/adapter/a.h", "// " + code + "\n")
        self.accepted("fabric/bridge/peer_memory.h", "auto* word = reinterpret_cast<const std::uint32_t*>(place);\n")

    def test_namespaces_of_tests(self):
        own = "namespace splitnic::fabric::ring_test {\n"
        for code in (own, own + "using namespace messaging;\n"):
            self.accepted("tests/unit/fabric/ring_test.cpp", code)
        for code in ("namespace splitnic::fabric {\n", "namespace {\n", "using namespace splitnic;\n" + own):
            self.refused("tests/unit/fabric/ring_test.cpp", "#include <array>\n" + code)
        self.accepted("tests/sim/ring_test.cpp", "namespace {\n")

    def test_descriptions_of_enumerators(self):
        header = "enum class [[nodiscard]] Cause : std::uint8_t {\n  slow,  ///< a, b\n  lost = 7,\n};\n"
        describe = '#include "fabric/a.h"\nBOOST_DESCRIBE_ENUM({})\n'
        for listed in ("Cause, slow, lost", "Cause, slow,\n    lost"):
            self.assertEqual(self.found(**{"fabric/a.h": header, "fabric/a.cpp": describe.format(listed)}), [])
        for listed in ("Cause, slow", "Cause, lost, slow", "Cause, slow, lost, gone", "Other, slow, lost"):
            found = self.found(**{"fabric/a.h": header, "fabric/a.cpp": describe.format(listed)})
            self.assertEqual(len(found), 1, found)
            self.assertTrue(found[0].startswith("fabric/a.cpp:2:"), found)

    def test_functions_on_a_frames_way(self):
        sources = {
            "fabric/a.h": "class Link : public Base {\n  void poll() {}\n};\nvoid look();\n",
            "fabric/a.cpp": "// Link::gone() was here\nvoid Link::step(int) {}\n",
        }
        page = "# A\n\n`Other::one`\n\n## A frame's way\n\n{}\n\n## Next\n\n`Other::two`\n"
        for named in ("`Link::poll`, `Link::step` and `look`", "no names"):
            self.assertEqual(self.found(**sources, **{"docs/architecture.md": page.format(named)}), [])
        for named in ("`Link::gone`", "`Lin::poll`", "`Link::step` and `Link::ste`", "`nothing`"):
            found = self.found(**sources, **{"docs/architecture.md": page.format(named)})
            self.assertEqual(len(found), 1, found)
            self.assertTrue(found[0].startswith("docs/architecture.md:7:"), found)
        self.assertEqual(len(self.found(**sources, **{"docs/architecture.md": "# A\n"})), 1)

    def test_what_the_page_of_sources_names(self):
        sources = {"fabric/a.h": "class Link {\n  void poll() {}\n};\n", "tests/unit/fabric/a_test.txt": ""}
        for named in ("`fabric/a.h`, `a.h`, `fabric/`, `tests/unit`", "`Link::poll`, `Link`", "none"):
            self.assertEqual(self.found(**sources, **{"docs/sources.md": f"# A\n\n| {named} |\n"}), [])
        for named in ("`b.h`", "`.h`", "`fabric/b`", "`Link::step`", "`Lin`"):
            found = self.found(**sources, **{"docs/sources.md": f"# A\n\n| {named} |\n"})
            self.assertEqual(len(found), 1, found)
            self.assertTrue(found[0].startswith("docs/sources.md:3:"), found)

    def test_prose_is_wrapped(self):
        wide = "word " * 20 + "end"
        for name in ("README.md", "docs/a.md", "fabric/link/README.md", "tests/models/README.md"):
            self.refused(name, f"# A\n\n{wide}\n")
        self.refused("docs/a.md", f"```\ncode\n```\n- {wide}\n")
        self.accepted("docs/a.md", f"# {wide}\n\n| {wide} |\n\n```\n{wide}\n```\n{wide[:-3]}\n")


if __name__ == "__main__":
    unittest.main()
