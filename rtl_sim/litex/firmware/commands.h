/* What a host may ask of the firmware between two runs, over the serial line: frames of LiteX' serial boot (sfl.h), with a
 * command more. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include <stdint.h>

/* Answer: K and the CRC-32 (as in zlib) of memory; the payload is its address and bytes. Numbers: the highest byte first. */
#define COMMAND_DIGEST 0x80

enum command { COMMAND_RUN, COMMAND_RESTART };

struct line {
    /* A byte; -1 where none comes for a quarter of a second, except for the first byte of a frame, which it waits for. */
    int (*take)(int first);
    void (*give)(uint8_t byte);
};

/* Memory that begins at an address, seen at `data`; nobody writes below `protected`. */
struct memory {
    uint8_t *data;
    uint32_t address, bytes, protected;
};

/* Answers frames until one is SFL_CMD_JUMP (run) or SFL_CMD_ABORT (restart). */
enum command command_next(const struct line *line, const struct memory *memory);

#endif
