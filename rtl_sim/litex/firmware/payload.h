/* A program file and images in the memory of a board, as rtl_sim/litex/image.py writes them: placed, run, and classes
 * printed. Needs libopu alone, so it is the same source on every processor; what a board has of its own is in its main.c. */
#ifndef PAYLOAD_H
#define PAYLOAD_H

#include "opu.h"

enum { PAYLOAD_PORTS = 16 };

struct payload {
    struct opu_file file;
    struct opu_session session;
    struct opu_in in[PAYLOAD_PORTS];
    struct opu_out out[PAYLOAD_PORTS];
    struct opu_window window; /* for the machine: known after payload_open */
    uint8_t *work;
    uint32_t images;
    void (*print)(const char *text);
};

/* Whether the image of a payload begins there. */
int payload_is_at(const void *memory);

/* Place a payload: its image is at the beginning of `memory` (aligned to 4096), window, work memory and outputs come after it.
 * 0 after an error, which is printed. */
int payload_open(struct payload *payload, void *memory, size_t bytes, void (*print)(const char *text));

/* Load the program for a back end; run all images. 0 after an error, which is printed. */
int payload_load(struct payload *payload, const struct opu_backend *backend);
int payload_run(struct payload *payload);

/* The position of the largest element of each image's first output, where that can be scores. */
void payload_print_classes(const struct payload *payload);

/* Print a text with numbers in the places of "%": the C libraries of small targets have no 64 bits. */
void payload_print(const struct payload *payload, const char *text, const uint64_t *numbers);

#endif
