/* See commands.h. Every frame is answered with one letter of sfl.h: damaged (CRC or time), refused, unknown, done. */
#include "commands.h"

#include <libbase/crc.h>
#include <sfl.h>
#include <string.h>

#include "opu_file.h"

static uint32_t word(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* SFL_ACK_SUCCESS when all of a frame came undamaged. */
static uint8_t take_frame(const struct line *line, struct sfl_frame *frame) {
    uint8_t *bytes = &frame->payload_length;
    uint32_t count = 4; /* of the head */
    for (uint32_t n = 0; n < count; n++) {
        const int byte = line->take(n == 0);
        if (byte < 0) return SFL_ACK_ERROR;
        bytes[n] = (uint8_t)byte;
        if (n == 0) count += bytes[0];
    }
    if (crc16(&frame->cmd, frame->payload_length + 1) != (frame->crc[0] << 8 | frame->crc[1])) return SFL_ACK_CRCERROR;
    return SFL_ACK_SUCCESS;
}

static int is_inside(const struct memory *memory, uint32_t address, uint32_t bytes) {
    const uint32_t at = address - memory->address;
    return address >= memory->address && at <= memory->bytes && bytes <= memory->bytes - at;
}

static uint8_t load(const struct memory *memory, const struct sfl_frame *frame) {
    const uint32_t address = word(frame->payload), at = address - memory->address;
    const uint32_t bytes = frame->payload_length - 4u;
    if (frame->payload_length < 4 || !is_inside(memory, address, bytes) || at < memory->protected) return SFL_ACK_ERROR;
    memcpy(memory->data + at, frame->payload + 4, bytes);
    return SFL_ACK_SUCCESS;
}

static void digest(const struct line *line, const struct memory *memory, const struct sfl_frame *frame) {
    const uint32_t address = word(frame->payload), bytes = word(frame->payload + 4);
    uint32_t sum;
    if (frame->payload_length != 8 || !is_inside(memory, address, bytes)) {
        line->give(SFL_ACK_ERROR);
        return;
    }
    sum = opu_crc32(memory->data + (address - memory->address), bytes);
    line->give(SFL_ACK_SUCCESS);
    for (int shift = 24; shift >= 0; shift -= 8) line->give((uint8_t)(sum >> shift));
}

enum command command_next(const struct line *line, const struct memory *memory) {
    static struct sfl_frame frame;
    for (;;) {
        const uint8_t damage = take_frame(line, &frame);
        if (damage != SFL_ACK_SUCCESS) {
            line->give(damage);
            continue;
        }
        switch (frame.cmd) {
            case SFL_CMD_LOAD:
                line->give(load(memory, &frame));
                break;
            case COMMAND_DIGEST:
                digest(line, memory, &frame);
                break;
            case SFL_CMD_JUMP:
                line->give(SFL_ACK_SUCCESS);
                return COMMAND_RUN;
            case SFL_CMD_ABORT:
                line->give(SFL_ACK_SUCCESS);
                return COMMAND_RESTART;
            default:
                line->give(SFL_ACK_UNKNOWN);
        }
    }
}
