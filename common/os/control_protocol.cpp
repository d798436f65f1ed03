#include "common/os/control_protocol.h"

#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <cctype>
#include <cstring>
#include <string>
#include <type_traits>

#include "common/os/control.capnp.h"
#include "common/os/printable.h"

namespace splitnic::os {
namespace {

static_assert(sizeof(ControlMessage::value_type) == sizeof(capnp::word));
/// Reading so many words costs nothing worth a limit.
constexpr std::uint64_t kFewWords = 1 << 17;

ControlMessage flatten(capnp::MessageBuilder& builder) {
  const auto words = capnp::messageToFlatArray(builder);
  ControlMessage message(words.size());
  std::memcpy(message.data(), words.begin(), words.asBytes().size());
  return message;
}

template <class Read>
auto read_message(const ControlMessage& message, Read read) -> decltype(read(std::declval<capnp::MessageReader&>())) {
  // A reader may traverse a message only a few times, because overlapping pointers can make it look larger.
  const capnp::ReaderOptions options{.traversalLimitInWords = 4 * std::max<std::uint64_t>(message.size(), kFewWords),
                                     .nestingLimit = 8};
  // Cap'n Proto throws exceptions for malformed messages; this function catches them all.
  try {
    const kj::ArrayPtr<const capnp::word> words(reinterpret_cast<const capnp::word*>(message.data()), message.size());
    capnp::FlatArrayMessageReader reader(words, options);
    return read(reader);
  } catch (const kj::Exception& error) {
    return fail("malformed message: {}", error.getDescription().cStr());
  }
}

std::string text_of(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

/// The schema's name of a member: the schema's name of tx_frames is txFrames.
std::string schema_name(std::string_view member) {
  std::string name;
  for (std::size_t at = 0; at < member.size(); ++at) {
    const bool word = member[at] == '_' && at + 1 < member.size();
    name += word ? static_cast<char>(std::toupper(static_cast<unsigned char>(member[++at]))) : member[at];
  }
  return name;
}

/// Calls visit(name in the schema, member) for each member of a described struct.
template <class Struct, class Visit>
void for_each_member(Struct& value, Visit visit) {
  using Members = boost::describe::describe_members<std::remove_const_t<Struct>, boost::describe::mod_public>;
  boost::mp11::mp_for_each<Members>([&](auto member) { visit(schema_name(member.name), value.*member.pointer); });
}

/// Nearly all of a status, and the daemon's frames wait for it: without a look-up of each field by its name.
void encode(capnp::DynamicStruct::Builder builder, const NamedCount& value) {
  using Members = boost::describe::describe_members<NamedCount, boost::describe::mod_public>;
  static_assert(boost::mp11::mp_size<Members>::value == 2);
  auto count = builder.as<control::NamedCount>();
  count.setName(capnp::Text::Reader(value.name.c_str(), value.name.size()));
  count.setCount(value.count);
}

template <class Struct>
void encode(capnp::DynamicStruct::Builder builder, const Struct& value) {
  for_each_member(value, [&]<class Member>(const std::string& name, const Member& member) {
    if constexpr (std::is_same_v<Member, std::string>) {
      builder.set(name, capnp::Text::Reader(member.c_str(), member.size()));
    } else if constexpr (std::is_arithmetic_v<Member>) {
      builder.set(name, member);
    } else {
      auto list = builder.init(name, static_cast<unsigned>(member.size())).template as<capnp::DynamicList>();
      for (unsigned at = 0; at < list.size(); ++at) encode(list[at].template as<capnp::DynamicStruct>(), member[at]);
    }
  });
}

/// words: of the message. Each entry of an honest list takes at least one, but a list can also claim any number of
/// entries without a size, and would become much larger memory here.
template <class Struct>
void decode(capnp::DynamicStruct::Reader reader, std::size_t words, Struct& value) {
  for_each_member(value, [&]<class Member>(const std::string& name, Member& member) {
    const auto field = reader.get(name);
    if constexpr (std::is_same_v<Member, std::string>) {
      member = text_of(field.template as<capnp::Text>());
    } else if constexpr (std::is_arithmetic_v<Member>) {
      member = field.template as<Member>();
    } else {
      const auto list = field.template as<capnp::DynamicList>();
      // NOLINTNEXTLINE(bugprone-suspicious-semicolon): the end of what the macro becomes
      KJ_REQUIRE(list.size() <= words, "a list has more entries than the message has room for");
      for (const auto entry : list) decode(entry.template as<capnp::DynamicStruct>(), words, member.emplace_back());
    }
  });
}

}  // namespace

namespace {

control::Request::What schema_request(ControlRequest request) {
  switch (request) {
    case ControlRequest::status:
      break;
    case ControlRequest::clear:
      return control::Request::What::CLEAR;
    case ControlRequest::show_policy:
      return control::Request::What::SHOW_POLICY;
    case ControlRequest::reload_policy:
      return control::Request::What::RELOAD_POLICY;
  }
  return control::Request::What::STATUS;
}

}  // namespace

ControlMessage encode_request(ControlRequest request) {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<control::Request>().setWhat(schema_request(request));
  return flatten(builder);
}

Result<ControlRequest> decode_request(const ControlMessage& message) {
  return read_message(message, [](capnp::MessageReader& reader) -> Result<ControlRequest> {
    const auto what = reader.getRoot<control::Request>().getWhat();
    switch (what) {
      case control::Request::What::STATUS:
        return ControlRequest::status;
      case control::Request::What::CLEAR:
        return ControlRequest::clear;
      case control::Request::What::SHOW_POLICY:
        return ControlRequest::show_policy;
      case control::Request::What::RELOAD_POLICY:
        return ControlRequest::reload_policy;
    }
    return fail("unknown request {}", static_cast<unsigned>(what));
  });
}

ControlMessage encode_reply(const ControlAnswer& answer) {
  capnp::MallocMessageBuilder builder;
  auto reply = builder.initRoot<control::Reply>();
  if (const auto* text = std::get_if<std::string>(&answer)) {
    reply.setText(capnp::Text::Reader(text->c_str(), text->size()));
  } else {
    encode(reply.initStatus(), std::get<DaemonStatus>(answer));
  }
  return flatten(builder);
}

ControlMessage encode_error_reply(const std::string& error) {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<control::Reply>().setError(error);
  return flatten(builder);
}

Result<ControlAnswer> decode_reply(const ControlMessage& message) {
  return read_message(message, [&message](capnp::MessageReader& reader) -> Result<ControlAnswer> {
    const auto root = reader.getRoot<control::Reply>();
    switch (root.which()) {
      case control::Reply::ERROR:
        return fail("{}", printable(text_of(root.getError())));
      case control::Reply::STATUS: {
        DaemonStatus status;
        decode(root.getStatus(), message.size(), status);
        return ControlAnswer(std::move(status));
      }
      case control::Reply::TEXT:
        return ControlAnswer(text_of(root.getText()));
    }
    return fail("unknown reply {}", static_cast<unsigned>(root.which()));
  });
}

}  // namespace splitnic::os
