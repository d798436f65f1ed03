#!/usr/bin/env python3
"""Rules that a compiler does not know, checked over the sources:

- layers: what a file may include of the others (common <- fabric <- messaging <- {host, iounit} <- tools <- bench);
- shipped: what only tests use is in no shipped library;
- libraries: each third-party library stays in the few files that need it;
- peer memory: only its accessor turns memory that a peer can write into something that C++ can dereference;
- namespaces of tests: several files of a test program are compiled at a time, so each has a namespace of its own;
- names of enumerators: BOOST_DESCRIBE_ENUM lists all of them, in order (a compiler warns of a switch alone);
- documentation: the functions that docs/architecture.md names in "A frame's way" exist, and the files and functions that
  docs/sources.md names;
- prose: paragraphs and lists of the documentation are wrapped at 100 columns. Tables, headings and code are not.

Usage: source_rules.py [ROOT]. Prints each violation as file:line and exits 1 if there is any.
"""

import pathlib
import re
import sys

LAYERS = {
    "common": {"common"},
    "fabric": {"common", "fabric"},
    "messaging": {"common", "fabric", "messaging"},
    "host": {"common", "fabric", "messaging", "host"},
    "iounit": {"common", "fabric", "messaging", "iounit"},
    "tools": {"common", "fabric", "messaging", "host", "iounit", "tools"},
    "bench": {"common", "fabric", "messaging", "host", "iounit", "tools", "bench"},
}

# Included header -> the files (by the start of their path) that may include it.
LIBRARIES = [
    (r"pcap(/|\.h)", ["iounit/", "bench/forwarder/"]),
    (r"boost/interprocess/", ["fabric/bridge/shm", "bench/peers/"]),
    (r"boost/asio(/|\.hpp)", ["common/os/", "tools/", "fabric/link/udp_socket.cpp"]),
    (r"(capnp|kj)/|.*\.capnp\.h$", ["common/os/", "messaging/wire/", "tools/cmake/"]),
    (r"isa-l(/|\.h)", ["common/crc32c.cpp"]),
    (r"libmnl/", ["common/os/"]),
    (r"CLI/", ["tools/", "bench/"]),
    (r"toml", ["common/os/", "tools/"]),
    (r"seccomp\.h", ["tools/system_call_filter.cpp"]),
    (r"cap-ng\.h", ["tools/privileges.cpp"]),
    (r"infiniband/", ["fabric/ibverbs/", "fabric/rdmacm/", "bench/peers/verbs",
                      "bench/costs/verbs_costs.cpp"]),
    (r"rdma/(rdma_|rsocket)", ["fabric/rdmacm/"]),
]

# What could reach peer memory beside its accessor -> files that may, and why.
ACCESSOR = "fabric/bridge/peer_memory.h"
RAW_ACCESS = {
    r"\breinterpret_cast\b": {
        ACCESSOR: "the accessor",
        "common/crc32c.cpp": "the prototype of ISA-L; the bytes are private copies or outgoing",
        "fabric/adapter/work.h": "segments that name their bytes as peers do, by a number; never dereferenced",
        "fabric/ibverbs/advice.cpp": "addresses of the process that the kernel is told about; never dereferenced",
        "fabric/memory/guarded_copy.cpp": "the alignment of an address",
        "fabric/memory/guarded_routines.cpp": "instruction addresses",
        "fabric/memory/local_protection.cpp": "address ranges as the kernel's map has them; never dereferenced",
        "fabric/placement/board.cpp": "an address of the process's own memory, as a number",
        "fabric/placement/local_placements.cpp": "the same",
        "fabric/placement/peer_board.cpp": "an address of another process, for a system call",
        "fabric/placement/shared_file.cpp": "addresses of the process's own memory, as numbers",
        "fabric/link/slot_receiver.h": "stores the tail line's words, where the peer window is memory",
        "fabric/link/slot_sender.h": "stores the word that releases a line, where the peer window is memory",
        "fabric/memory/remembered.h": "an address of the process's own memory, as a number",
        "fabric/memory/region.h": "an address of the process's own memory, as a number",
        "fabric/memory/region.cpp": "compares addresses of the process's own memory, and its words for atomics",
        "fabric/ibverbs/device_file/device_file.cpp": "functions that dlsym() names",
        "fabric/ibverbs/objects.h": "the structs that programs know are the beginnings of the objects",
        "fabric/ibverbs/attributes.cpp": "a struct of the C interface, of which an older program knows less",
        "fabric/ibverbs/memory.cpp": "addresses of the process's own memory as numbers",
        "fabric/ibverbs/later_verbs.cpp": "likewise",
        "fabric/rdmacm/address.cpp": "sockaddr",
        "host/tap_device.cpp": "sockaddr and ioctl arguments",
        "iounit/packet_socket.cpp": "sockaddr",
        "iounit/libpcap.cpp": "libpcap's functions, as the loader finds them",
        "iounit/pcap_lan.cpp": "libpcap's user argument",
        "iounit/savefile_lan.cpp": "libpcap's byte and dumper types",
        "bench/costs/verbs_costs.cpp": "an address of the process's own memory, as a number",
        "bench/nic/echo.cpp": "sockaddr",
        "bench/nic/laboratory.cpp": "an ioctl argument",
        "bench/nic/traffic.cpp": "sockaddr",
        "bench/forwarder/bench_forwarder.cpp": "libpcap's user argument",
        "bench/forwarder/interfaces.cpp": "sockaddr",
    },
    r"\bconst_cast\b": {
        "common/crc32c.cpp": "the prototype of ISA-L",
        "fabric/bridge/shm_listener.cpp": "iovec of an outgoing message",
        "iounit/send_batch.cpp": "iovec of an outgoing frame",
        "messaging/received_frame.h": "a frame in private memory, seen through the accessor",
        "bench/nic/process.cpp": "the arguments of exec",
    },
    r"\bmmap\s*\(": {
        "fabric/threads/fork_mark.cpp": "a private page; no peer has it",
        "fabric/ibverbs/device_memory.cpp": "device memory: pages of a file that peers may map to store into its regions",
        "fabric/ibverbs/later_verbs.cpp": "private memory for the program",
        "fabric/placement/board.cpp": "boards, which become accessors, and files of regions",
        "bench/forwarder/bench_small_split.cpp": "its own two rings; its two processes trust each other",
    },
    r"\bget_address\s*\(": {"fabric/bridge/shm_memory.h": "where the mapping becomes accessors"},
    r"\bPeerMemory::over\b": {
        ACCESSOR: "the accessor",
        "fabric/placement/board.cpp": "the own board, through the accessor",
        "fabric/placement/peer_board.cpp": "where the mapping becomes an accessor",
        "fabric/bridge/shm_memory.cpp": "the bridge that owns the mapping",
        "fabric/bridge/link.cpp": "a private copy of a cell, seen through the accessor",
        "fabric/link/slot_receiver.h": "a private copy of a slot, seen through the accessor",
        "fabric/link/udp_link.cpp": "a private copy of a cell, seen through the accessor",
        "fabric/adapter/datagrams.cpp": "a private route header, seen through the accessor",
        "fabric/adapter/requester_answers.cpp": "a private result, seen through the accessor",
        "messaging/received_frame.h": "a frame in private memory, seen through the accessor",
    },
    r"\bPeerWindow::mapped\b": {"fabric/bridge/shm_memory.cpp": "the bridge that owns the mapping"},
    r"\bfor_kernel\s*\(": {
        ACCESSOR: "the accessor",
        "host/tap_device.cpp": "writev: the kernel reads the frame once",
        "iounit/io_unit_frames.cpp": "sendmsg: the kernel reads the payload once",
    },
}
# Layers that come near peer memory. common knows none; tools and bench only start what the others do.
RAW_ACCESS_LAYERS = ("fabric", "messaging", "host", "iounit", "tools", "bench")
# What only tests include, and is shipped all the same -> for whom.
FOR_PROGRAMS = {"fabric/link/udp_socket.h": "programs that use the verbs between machines (docs/verbs.md)"}
# Programs beside which splitnic is measured: they share no memory with it, and include nothing of it.
STRANGERS = "bench/peers/"
# libibverbs.so.1: a library of its own on top of fabric, beside the C++ verbs; and librdmacm.so.1 on top of it.
VERBS_LIBRARY = "fabric/ibverbs/"
MANAGER_LIBRARY = "fabric/rdmacm/"

# Programs of tests whose files are compiled together.
TEST_PROGRAMS = ("unit", "hostile", "hostile_sessions", "ibverbs", "rdmacm")

PROSE_COLUMNS = 100

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def without_comments(text):
    """The text with comments and string literals blanked, line breaks kept."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
    return token.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def sources(root):
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix in (".h", ".cpp", ".hpp", ".cc", ".inc"):
                yield layer, path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def include_violations(layer, name, text):
    # Comments may hold include lines; a string never starts one.
    code = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)
    for number, line in enumerate(code.split("\n"), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match.group(1)
        top = header.split("/")[0]
        if ".." in header.split("/"):
            yield f"{name}:{number}: include paths start at the root: {header}"
        elif name.startswith(STRANGERS) and top in LAYERS and not header.startswith(STRANGERS):
            yield f"{name}:{number}: a peer must share no code with splitnic: {header}"
        elif top == "tests" or (top in LAYERS and top not in LAYERS[layer]):
            yield f"{name}:{number}: {layer} must not know {top}: {header}"
        elif header.startswith(VERBS_LIBRARY) and not name.startswith(VERBS_LIBRARY):
            yield f"{name}:{number}: programs use the verbs library through the C interface: {header}"
        elif header.startswith(MANAGER_LIBRARY) and not name.startswith(MANAGER_LIBRARY):
            yield f"{name}:{number}: programs use the connection manager through the C interface: {header}"
        elif name.startswith(MANAGER_LIBRARY) and header.startswith("fabric/") and not header.startswith(
                (MANAGER_LIBRARY, "fabric/endnode/fabric_directory.h", "fabric/threads/per_process.h")):
            yield f"{name}:{number}: the connection manager is built on the verbs library: {header}"
        elif name.startswith(VERBS_LIBRARY) and header.startswith(("fabric/verbs/", "fabric/connect/")):
            yield f"{name}:{number}: the verbs library is built on adapters: {header}"
        for pattern, allowed in LIBRARIES:
            if re.match(pattern, header) and not name.startswith(tuple(allowed)):
                yield f"{name}:{number}: {header} belongs only in {', '.join(allowed)}"


def shipped_violations(root, texts):
    """Headers that only tests include: no library, no program, and no example of the documentation."""
    def included(text):
        return set(re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, flags=re.M))

    def included_below(folder):
        files = [path for path in (root / folder).rglob("*") if path.suffix in (".h", ".cpp")]
        return set().union(*(included(path.read_text(encoding="utf-8")) for path in files))

    used = included_below("docs")
    for name, text in texts.items():
        used |= included(text) - {re.sub(r"\.cpp$", ".h", name)}
    for name in sorted((included_below("tests") & set(texts)) - used - set(FOR_PROGRAMS)):
        yield f"{name}:1: only tests use it: it belongs to tests/"


def raw_access_violations(layer, name, text):
    if layer not in RAW_ACCESS_LAYERS or name.startswith(STRANGERS):
        return
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        for pattern, allowed in RAW_ACCESS.items():
            if re.search(pattern, line) and name not in allowed:
                yield f"{name}:{number}: raw access to what may be peer memory: {line.strip()}"


def enumerators(text):
    """Of each enum class in the text: its enumerators, in order."""
    found = {}
    for match in re.finditer(r"\benum\s+class\s+(?:\[\[\w+\]\]\s*)?(\w+)[^{;]*\{([^}]*)\}", without_comments(text)):
        found[match.group(1)] = [entry.split("=")[0].strip() for entry in match.group(2).split(",") if entry.strip()]
    return found


def description_violations(name, texts):
    """texts: every source by its path."""
    code = without_comments(texts[name])
    for match in re.finditer(r"\bBOOST_DESCRIBE_ENUM\(([^)]*)\)", code):
        enum, *described = [entry.strip() for entry in match.group(1).split(",")]
        # The includes of the text itself: without_comments() has blanked their paths.
        near = [texts[name]] + [texts[header] for header in re.findall(r'#include "([^"]+)"', texts[name])
                                if header in texts]
        declared = next((names[enum] for names in map(enumerators, near) if enum in names), None)
        number = code[:match.start()].count("\n") + 1
        if declared is None:
            yield f"{name}:{number}: {enum} is described, but declared in no header that is included here"
        elif described != declared:
            yield f"{name}:{number}: {enum} is described as {described}, and declared as {declared}"


def has_member(texts, owner, member):
    """Whether a source defines owner::member, or a header with the class has a member function of that name."""
    for name, text in texts.items():
        if re.search(rf"\b{owner}::(State::)?{member}\b", text):
            return True
        if name.endswith(".h") and re.search(rf"\b(class|struct) {owner}\b[^;]*{{", text):
            if re.search(rf"\b{member}\(", text):
                return True
    return False


def document_violations(root, texts):
    path = root / "docs/architecture.md"
    if not path.exists():
        return
    before, heading, rest = path.read_text(encoding="utf-8").partition("## A frame's way\n")
    if not heading:
        yield "docs/architecture.md:1: no section \"A frame's way\""
    section = re.split(r"^## ", rest, flags=re.M)[0]
    codes = {name: without_comments(text) for name, text in texts.items()}
    for match in re.finditer(r"`([^`]+)`", section):
        owner, _, member = match.group(1).rpartition("::")
        known = has_member(codes, owner, member) if owner else any(
            re.search(rf"\b{re.escape(member)}\b", text) for text in texts.values())
        if not known:
            number = (before + heading + section[:match.start()]).count("\n") + 1
            yield f"docs/architecture.md:{number}: {match.group(1)} is in no source"


def sources_page_violations(root, texts):
    page = root / "docs/sources.md"
    if not page.exists():
        return
    files = ["/" + path.relative_to(root).as_posix() for folder in (*LAYERS, "tests", "docs")
             for path in (root / folder).rglob("*")]
    codes = {name: without_comments(text) for name, text in texts.items()}
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        for name in re.findall(r"`([^`]+)`", line):
            owner, _, member = name.rpartition("::")
            is_file = "/" in name or re.search(r"\.(cpp|h|py|capnp|md)$", name)
            if owner:
                known = has_member(codes, owner, member)
            elif is_file:
                known = any(path.endswith("/" + name.rstrip("/")) for path in files)
            else:
                known = any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts.values())
            if not known:
                yield f"docs/sources.md:{number}: {name} is nowhere"


def namespace_violations(root):
    for program in TEST_PROGRAMS:
        for path in sorted((root / "tests" / program).rglob("*_test.cpp")):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(root).as_posix()
            if not re.search(rf"^namespace splitnic(::\w+)*::{path.stem} {{$", text, re.M):
                yield f"{name}:1: its tests are in no namespace ...::{path.stem}"
            code = without_comments(text)
            for match in re.finditer(r"^using namespace\b.*", code[:code.find("\nnamespace ") + 1], re.M):
                yield f"{name}:{code[:match.start()].count(chr(10)) + 1}: reaches into other files: {match.group()}"


def prose_violations(root):
    pages = [*root.glob("*.md"), *(root / "docs").glob("*.md")]
    for folder in (*LAYERS, "tests"):
        pages += (root / folder).rglob("*.md")
    for page in sorted(pages):
        code = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if line.lstrip().startswith("```"):
                code = not code
            elif len(line) > PROSE_COLUMNS and not code and not line.lstrip().startswith(("|", "#", "<")):
                yield f"{page.relative_to(root).as_posix()}:{number}: {len(line)} columns, of {PROSE_COLUMNS}"


def violations(root):
    found = []
    all_sources = list(sources(pathlib.Path(root)))
    texts = {name: text for _, name, text in all_sources}
    for layer, name, text in all_sources:
        found.extend(include_violations(layer, name, text))
        found.extend(raw_access_violations(layer, name, text))
        found.extend(description_violations(name, texts))
    found.extend(shipped_violations(pathlib.Path(root), texts))
    found.extend(document_violations(pathlib.Path(root), texts))
    found.extend(sources_page_violations(pathlib.Path(root), texts))
    found.extend(namespace_violations(pathlib.Path(root)))
    found.extend(prose_violations(pathlib.Path(root)))
    return found


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    count = sum(1 for _ in sources(root))
    if count == 0:
        print(f"{root}: no sources found")
        return 1
    found = violations(root)
    for line in found:
        print(line)
    print(f"{count} files, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
