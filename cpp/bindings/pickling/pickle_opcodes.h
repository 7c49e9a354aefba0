#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

// The opcodes of pickle, protocol 5, that are written here.

namespace service_streamer::bindings::opcode {

// Values as in pickletools.
constexpr char kProto = '\x80';
constexpr char kVersion = 5;
constexpr char kStop = '.';
constexpr char kNone = 'N';
constexpr char kTrue = '\x88';
constexpr char kFalse = '\x89';
constexpr char kByte = 'K';          // BININT1
constexpr char kInt = 'J';           // BININT: 4 bytes, signed
constexpr char kLong = '\x8a';       // LONG1: a count, then so many bytes, two's complement
constexpr char kFloat = 'G';         // BINFLOAT: 8 bytes, big-endian
constexpr char kShortStr = '\x8c';   // SHORT_BINUNICODE: 1 byte of length
constexpr char kStr = 'X';           // BINUNICODE: 4
constexpr char kShortBytes = 'C';    // SHORT_BINBYTES: 1
constexpr char kBytes = 'B';         // BINBYTES: 4
constexpr char kLongBytes = '\x8e';  // BINBYTES8
constexpr char kByteArray = '\x96';  // BYTEARRAY8
constexpr char kMark = '(';
constexpr char kList = 'l';         // of everything since the mark
constexpr char kTuple = 't';        // the same
constexpr char kTuple3 = '\x87';    // of the last three
constexpr char kGlobal = '\x93';    // STACK_GLOBAL: by the names of a module and of what is in it
constexpr char kBuffer = '\x97';    // NEXT_BUFFER: the next one that travels beside the pickle
constexpr char kReadOnly = '\x98';  // READONLY_BUFFER: the last one, not to be written to
constexpr char kReduce = 'R';       // calls the last but one with the tuple that is last

static_assert(std::endian::native == std::endian::little, "pickle's integers are little-endian");

// Appends an opcode and its number.
template <typename Number>
void append(char opcode, Number number, std::string& pickle) {
  char bytes[1 + sizeof number];
  bytes[0] = opcode;
  std::memcpy(bytes + 1, &number, sizeof number);
  pickle.append(bytes, sizeof bytes);
}

}  // namespace service_streamer::bindings::opcode
