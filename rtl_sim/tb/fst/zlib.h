// The two functions of zlib's interface that Verilator's FST writer calls, so that wave files need no library on the machine.
//
// A zlib stream of stored blocks: two bytes of header, blocks of at most 65535 bytes as they are, the Adler-32 sum. It never
// gets smaller; the writer then keeps the raw data where the format allows that.
#ifndef OPU_FST_ZLIB_H
#define OPU_FST_ZLIB_H

#include <cstdint>
#include <cstring>

using Bytef = unsigned char;
using uLong = unsigned long;
using uLongf = unsigned long;

constexpr int Z_OK = 0;
constexpr int Z_BUF_ERROR = -5;

inline uLong compressBound(uLong size) { return size + 5 * (size / 65535 + 1) + 6; }

inline int compress2(Bytef *target, uLongf *target_size, const Bytef *source, uLong size, int /*level*/) {
    if (*target_size < compressBound(size)) return Z_BUF_ERROR;
    Bytef *out = target;
    *out++ = 0x78;  // deflate, 32 KB window
    *out++ = 0x01;
    uLong at = 0;
    do {
        const uLong count = size - at < 65535 ? size - at : 65535;
        *out++ = at + count == size ? 1 : 0;  // last block?
        for (const uLong half : {count, ~count}) {
            *out++ = static_cast<Bytef>(half & 255);
            *out++ = static_cast<Bytef>(half >> 8 & 255);
        }
        std::memcpy(out, source + at, count);
        out += count;
        at += count;
    } while (at < size);
    uint32_t low = 1, high = 0;
    for (uLong n = 0; n < size; ++n) {
        low = (low + source[n]) % 65521;
        high = (high + low) % 65521;
    }
    for (const uint32_t byte : {high >> 8, high, low >> 8, low}) *out++ = static_cast<Bytef>(byte & 255);
    *target_size = static_cast<uLongf>(out - target);
    return Z_OK;
}

#endif
