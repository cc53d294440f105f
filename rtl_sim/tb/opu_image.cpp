// The DRAM image of a simulation: a file mapped into memory, shared with the process that prepares and reads it.
//
// Called from opu_axi_memory.sv (DPI-C). Addresses are byte offsets in the file; data are little-endian, first byte lowest.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "svdpi.h"

namespace {
uint8_t *image = nullptr;
uint64_t image_bytes = 0;

bool inside(uint64_t address, uint64_t bytes) {
    return address <= image_bytes && bytes <= image_bytes - address;
}
}  // namespace

extern "C" {

// Maps the file; returns its size, or 0 when it cannot be mapped.
long long opu_image_open(const char *path) {
    const int file = open(path, O_RDWR);
    struct stat status = {};
    if (file < 0 || fstat(file, &status) != 0 || status.st_size == 0) {
        if (file >= 0) close(file);
        return 0;
    }
    void *mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return 0;
    image = static_cast<uint8_t *>(mapped);
    image_bytes = static_cast<uint64_t>(status.st_size);
    return static_cast<long long>(image_bytes);
}

// Reads one beat; returns 0 when it is outside of the image.
int opu_image_read(long long address, int bytes, svBitVecVal *data) {
    const auto at = static_cast<uint64_t>(address);
    const auto count = static_cast<uint64_t>(bytes);
    if (!inside(at, count)) {
        std::memset(data, 0, count);
        return 0;
    }
    std::memcpy(data, image + at, count);
    return 1;
}

// Writes the bytes of a beat that have their strobe; returns 0 when the beat is outside of the image.
int opu_image_write(long long address, int bytes, const svBitVecVal *data, const svBitVecVal *strobes) {
    const auto at = static_cast<uint64_t>(address);
    const auto count = static_cast<uint64_t>(bytes);
    if (!inside(at, count)) return 0;
    const auto *source = reinterpret_cast<const uint8_t *>(data);
    for (uint64_t n = 0; n < count; ++n) {
        if (strobes[n / 32] >> n % 32 & 1) image[at + n] = source[n];
    }
    return 1;
}

}  // extern "C"
