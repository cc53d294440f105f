/* The firmware's payload on a computer: machine segments run on the native engine. */
#include <stdio.h>
#include <stdlib.h>

#include "payload.h"

enum { MEMORY_BYTES = 1 << 26, ALIGNMENT = 4096 };

static void print(const char *text) { fputs(text, stdout); }

static void *memory_of(size_t size) { return aligned_alloc(ALIGNMENT, (size + ALIGNMENT) / ALIGNMENT * ALIGNMENT); }

int main(int count, char **names) {
    static struct payload payload;
    struct opu_native *engine;
    struct opu_backend backend;
    void *memory = memory_of(MEMORY_BYTES), *arena;
    FILE *file = fopen(names[count - 1], "rb");
    size_t size = 0;
    int good = 0;
    if (file && memory) size = fread(memory, 1, MEMORY_BYTES, file);
    if (file) fclose(file);
    if (!size) {
        printf("%s cannot be read\n", names[count - 1]);
        return 1;
    }
    if (!payload_open(&payload, memory, MEMORY_BYTES, print)) return 1;
    size = opu_native_size(&payload.file.machine);
    arena = memory_of(size);
    if (arena && opu_native_init(&engine, &payload.file.machine, arena, size) == OPU_OK) {
        opu_native_backend(&backend, engine);
        good = payload_load(&payload, &backend) && payload_run(&payload);
    }
    if (good) payload_print_classes(&payload);
    return !good;
}
