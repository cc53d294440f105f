/* What the processor of the board does: it takes commands over the serial line, moves bytes to and from the SDRAM, and starts programs
 * with the machine's driver. The other side is host.py.
 *
 * A command:  'O', a letter, three words, the checksum of letter and words; after W its bytes and their checksum.
 * An answer:  'o', a status, the number of bytes, the bytes, the checksum of all from the status on.
 * Words are of 32 bits, the lowest byte first. Checksum: CRC-32 as of zlib. After a wrong one everything is dropped until the line has
 * been quiet for a while; the answer says BAD_CHECKSUM then, and the command may be sent again.
 *
 *   'P', 0, 0, 0            answers PROTOCOL, the machine's spec hash (2 words), the clock in kHz, bytes of SDRAM
 *   'W', address, bytes, 0  writes to the SDRAM; address and bytes are multiples of 4, at most BLOCK bytes
 *   'Z', address, bytes, 0  writes zeros, as many as there are
 *   'R', address, bytes, 0  reads, at most BLOCK bytes
 *   'G', window, program, words   runs the program at that offset, in a memory window from address 0 on of that many bytes; answers
 *                           when it has ended: error code (0: done), engine, word of the program, cycles (2 words) */
#define OPU_BARRIER() __asm__ volatile("" ::: "memory") /* accesses of this processor are in order and uncached */
#include "opu_driver.h"

#define SERIAL (*(volatile uint32_t *)0x10000000u)
#define BOARD (*(volatile uint32_t *)0x10000004u) /* read: clock; write: LEDs */
#define SDRAM ((volatile uint32_t *)0x80000000u)
#define SDRAM_BYTES (32u << 20)
#define BLOCK 2048u
#define PROTOCOL 1u
#define QUIET 2000u /* looks at the line without a byte */

enum { OK = 0, BAD_CHECKSUM = 1, BAD_ARGUMENT = 2, UNKNOWN = 3, NO_MACHINE = 4 };

static const opu_device opu = {(volatile uint32_t *)0x40000000u};
static uint32_t checksum;

/* CRC-32, four bits at a time. */
static void add(uint32_t byte) {
    static const uint32_t steps[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    uint32_t sum = checksum ^ byte;
    sum = sum >> 4 ^ steps[sum & 15u];
    checksum = sum >> 4 ^ steps[sum & 15u];
}

static uint32_t take(void) {
    uint32_t received;
    do received = SERIAL; while (received >> 31);
    add(received);
    return received;
}

static uint32_t take_word(void) {
    uint32_t word = take();
    word |= take() << 8;
    word |= take() << 16;
    return word | take() << 24;
}

/* Is what was taken since `checksum` was ~0 followed by its checksum? */
static int is_whole(void) {
    const uint32_t wanted = ~checksum;
    return take_word() == wanted;
}

static void drop(void) {
    for (uint32_t quiet = 0; quiet < QUIET; quiet++)
        if (!(SERIAL >> 31)) quiet = 0;
}

static void give(uint32_t byte) {
    byte &= 255u;
    SERIAL = byte;
    add(byte);
}

static void give_word(uint32_t word) {
    for (unsigned n = 0; n < 4; n++, word >>= 8) give(word);
}

static void begin(uint32_t status, uint32_t bytes) {
    SERIAL = 'o';
    checksum = ~0u;
    give(status);
    give_word(bytes);
}

static void end(void) {
    give_word(~checksum);
}

static void refuse(uint32_t status) {
    begin(status, 0);
    end();
}

static int is_inside(uint32_t address, uint32_t bytes, uint32_t most) {
    return !(address & 3u) && !(bytes & 3u) && bytes <= most && address <= SDRAM_BYTES && bytes <= SDRAM_BYTES - address;
}

static void probe(void) {
    if (opu_probe(&opu, 0) == OPU_NO_DEVICE) {
        refuse(NO_MACHINE);
        return;
    }
    begin(OK, 20);
    give_word(PROTOCOL);
    give_word(OPU_READ(&opu, OPU_SPEC_HASH_LO));
    give_word(OPU_READ(&opu, OPU_SPEC_HASH_HI));
    give_word(BOARD);
    give_word(SDRAM_BYTES);
    end();
}

static void store(uint32_t address, uint32_t bytes) {
    if (!is_inside(address, bytes, BLOCK)) {
        drop();
        refuse(BAD_ARGUMENT);
        return;
    }
    checksum = ~0u;
    for (uint32_t at = address / 4u; at < (address + bytes) / 4u; at++) SDRAM[at] = take_word();
    if (is_whole()) {
        refuse(OK);
        return;
    }
    drop();
    refuse(BAD_CHECKSUM);
}

static void clear(uint32_t address, uint32_t bytes) {
    if (!is_inside(address, bytes, SDRAM_BYTES)) {
        refuse(BAD_ARGUMENT);
        return;
    }
    for (uint32_t at = address / 4u; at < (address + bytes) / 4u; at++) SDRAM[at] = 0;
    refuse(OK);
}

static void fetch(uint32_t address, uint32_t bytes) {
    if (!is_inside(address, bytes, BLOCK)) {
        refuse(BAD_ARGUMENT);
        return;
    }
    begin(OK, bytes);
    for (uint32_t at = address / 4u; at < (address + bytes) / 4u; at++) give_word(SDRAM[at]);
    end();
}

static void run(uint32_t window, uint32_t program, uint32_t words) {
    if (window > SDRAM_BYTES || opu_window(&opu, 0, window) || opu_start(&opu, program, words, 0)) {
        refuse(BAD_ARGUMENT);
        return;
    }
    BOARD = 1;
    int outcome;
    do outcome = opu_poll(&opu); while (outcome == OPU_RUNNING);
    BOARD = outcome ? 2 : 0;
    const opu_error error = opu_failure(&opu);
    const uint64_t cycles = opu_cycles(&opu);
    begin(OK, 20);
    give_word((uint32_t)outcome);
    give_word(error.engine);
    give_word(error.pc);
    give_word((uint32_t)cycles);
    give_word((uint32_t)(cycles >> 32));
    end();
}

int main(void) {
    for (;;) {
        while (take() != 'O') {}
        checksum = ~0u;
        const uint32_t letter = take(), first = take_word(), second = take_word(), third = take_word();
        if (!is_whole()) {
            drop();
            refuse(BAD_CHECKSUM);
            continue;
        }
        switch (letter) {
        case 'P': probe(); break;
        case 'W': store(first, second); break;
        case 'Z': clear(first, second); break;
        case 'R': fetch(first, second); break;
        case 'G': run(first, second, third); break;
        default: refuse(UNKNOWN); break;
        }
    }
}
