// The two functions of LZ4's interface that Verilator's FST writer calls, so that wave files need no library on the machine.
//
// LZ4 block format: sequences of a token (high half: number of literals, low half: match length - 4; 15 means that bytes
// follow, added up until one is below 255), the literals, a 16-bit offset back, and so on; the last sequence has
// literals only, at least the last five bytes. Greedy matching by a table of the last position of every hash.
#ifndef OPU_FST_LZ4_H
#define OPU_FST_LZ4_H

#include <cstdint>
#include <cstring>
#include <vector>

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

namespace opu_lz4 {

inline uint32_t read32(const uint8_t *at) {
    uint32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

inline uint8_t *put_length(uint8_t *out, int rest) {
    for (; rest >= 255; rest -= 255) *out++ = 255;
    *out++ = static_cast<uint8_t>(rest);
    return out;
}

// One sequence; match 0: the last one, literals only.
inline uint8_t *put_sequence(uint8_t *out, const uint8_t *literals, int count, int offset, int match) {
    const int more = match ? match - 4 : 0;
    *out++ = static_cast<uint8_t>((count < 15 ? count : 15) << 4 | (more < 15 ? more : 15));
    if (count >= 15) out = put_length(out, count - 15);
    std::memcpy(out, literals, static_cast<size_t>(count));
    out += count;
    if (match) {
        *out++ = static_cast<uint8_t>(offset & 255);
        *out++ = static_cast<uint8_t>(offset >> 8);
        if (more >= 15) out = put_length(out, more - 15);
    }
    return out;
}

}  // namespace opu_lz4

// The output must hold LZ4_compressBound(size) bytes; returns the bytes written.
inline int LZ4_compress_default(const char *source, char *target, int size, int /*capacity*/) {
    constexpr int kHashBits = 14, kLastMatch = 12, kLastLiterals = 5, kFarthest = 65535;
    const auto *data = reinterpret_cast<const uint8_t *>(source);
    auto *out = reinterpret_cast<uint8_t *>(target);
    std::vector<int> positions(1u << kHashBits, -1);
    int begin = 0;  // of the literals not yet written
    for (int at = 0; at + kLastMatch < size;) {
        const uint32_t four = opu_lz4::read32(data + at);
        int &last_position = positions[(four * 2654435761u) >> (32 - kHashBits)];
        const int before = last_position;
        last_position = at;
        if (before < 0 || at - before > kFarthest || opu_lz4::read32(data + before) != four) {
            ++at;
            continue;
        }
        int length = 4;
        while (at + length < size - kLastLiterals && data[before + length] == data[at + length]) ++length;
        out = opu_lz4::put_sequence(out, data + begin, at - begin, at - before, length);
        at += length;
        begin = at;
    }
    out = opu_lz4::put_sequence(out, data + begin, size - begin, 0, 0);
    return static_cast<int>(out - reinterpret_cast<uint8_t *>(target));
}

#endif
