/* See payload.h. */
#include "payload.h"

#include <string.h>

enum {
    MAGIC = 0x4c55504f, /* "OPUL" */
    ALIGNMENT = 64,
    WINDOW_ALIGNMENT = 4096,
    MOST_CLASSES = 4096,
    DIGITS = 21 /* of a number of 64 bits, with the end */
};

/* Before the file and, aligned, the images of each input in the order of the file. */
struct head {
    uint32_t magic, file_bytes, images, reserved;
};

static uint64_t aligned(uint64_t at, unsigned unit) { return (at + unit - 1) / unit * unit; }

static void print_number(const struct payload *payload, uint64_t value) {
    char text[DIGITS], *at = text + DIGITS;
    *--at = 0;
    do *--at = (char)('0' + value % 10);
    while (value /= 10);
    payload->print(at);
}

void payload_print(const struct payload *payload, const char *text, const uint64_t *numbers) {
    for (; *text; text++) {
        const char one[2] = {*text, 0};
        if (*text == '%')
            print_number(payload, *numbers++);
        else
            payload->print(one);
    }
}

static int failed(const struct payload *payload, const char *text, const char *detail) {
    payload->print("opu: error: ");
    payload->print(text);
    payload->print(" ");
    payload->print(detail);
    payload->print("\n");
    return 0;
}

int payload_is_at(const void *memory) { return ((const struct head *)memory)->magic == MAGIC; }

/* The next part, of `count` arrays: its first byte, and past its end in *at. */
static uint8_t *part(uint8_t *memory, uint64_t *at, uint64_t bytes, uint64_t count, unsigned alignment) {
    const uint64_t first = aligned(*at, alignment);
    *at = first + bytes * count;
    return memory + (size_t)first;
}

/* Inputs after the file, then window, work memory and outputs, whether memory suffices or not. Returns its end. */
static uint64_t place(struct payload *payload, uint8_t *memory, uint64_t at) {
    const struct opu_file *file = &payload->file;
    struct opu_port port;
    uint32_t n;
    for (n = 0; n < file->inputs; n++) {
        (void)opu_input(file, n, &port);
        payload->in[n].data = part(memory, &at, port.bytes, payload->images, ALIGNMENT);
        payload->in[n].bytes = port.bytes * payload->images;
    }
    payload->window.data = part(memory, &at, file->window_bytes, 1, WINDOW_ALIGNMENT);
    payload->window.size = (size_t)file->window_bytes;
    payload->work = part(memory, &at, file->work_bytes, 1, ALIGNMENT);
    for (n = 0; n < file->outputs; n++) {
        (void)opu_output(file, n, &port);
        payload->out[n].data = part(memory, &at, port.bytes, payload->images, ALIGNMENT);
        payload->out[n].bytes = port.bytes * payload->images;
    }
    return at;
}

int payload_open(struct payload *payload, void *memory, size_t bytes, void (*print)(const char *text)) {
    const struct head *const head = (const struct head *)memory;
    const struct opu_file *const file = &payload->file;
    uint8_t *const first = (uint8_t *)memory;
    uint64_t numbers[2];
    enum opu_status status;
    memset(payload, 0, sizeof *payload);
    payload->print = print;
    if (!payload_is_at(memory) || head->file_bytes > bytes - ALIGNMENT)
        return failed(payload, "no payload in main memory:", "load the file of image.py");
    payload->images = head->images;
    status = opu_open(&payload->file, first + ALIGNMENT, head->file_bytes);
    if (status != OPU_OK) return failed(payload, opu_status_text(status), file->what);
    if (*file->refused) return failed(payload, opu_status_text(OPU_UNSUPPORTED), file->refused);
    if (file->inputs > PAYLOAD_PORTS || file->outputs > PAYLOAD_PORTS)
        return failed(payload, "more than 16 inputs or outputs", "");
    numbers[0] = bytes;
    numbers[1] = place(payload, first, ALIGNMENT + (uint64_t)head->file_bytes);
    if (numbers[1] > bytes)
        payload_print(payload, "opu: error: main memory has % bytes, the program needs %\n", numbers);
    return numbers[1] <= bytes;
}

int payload_load(struct payload *payload, const struct opu_backend *backend) {
    const struct opu_file *file = &payload->file;
    uint64_t numbers[2];
    const enum opu_status status = opu_session_init(&payload->session, file, backend, &payload->window, payload->work,
                                                    (size_t)file->work_bytes);
    if (status != OPU_OK) return failed(payload, opu_status_text(status), "");
    numbers[0] = file->segments;
    numbers[1] = payload->images;
    payload->print("opu: ");
    payload->print(file->name);
    payload_print(payload, ", % segments, % images\n", numbers);
    return 1;
}

int payload_run(struct payload *payload) {
    const struct opu_session *session = &payload->session;
    const enum opu_status status = opu_run(&payload->session, payload->in, payload->out, payload->images);
    uint64_t segment;
    if (status == OPU_OK) return 1;
    segment = session->segment;
    payload_print(payload, "opu: segment %: ", &segment);
    return failed(payload, opu_status_text(status), opu_fault_text(session->fault.code));
}

static double element(const struct opu_port *port, const void *data, size_t n) {
    switch (port->dtype) {
        case OPU_FLOAT32:
            return ((const float *)data)[n];
        case OPU_INT8:
            return ((const int8_t *)data)[n];
        default:
            return ((const uint8_t *)data)[n];
    }
}

void payload_print_classes(const struct payload *payload) {
    const uint8_t *data = (const uint8_t *)payload->out[0].data;
    struct opu_port port;
    uint32_t image;
    (void)opu_output(&payload->file, 0, &port);
    if (port.dtype != OPU_FLOAT32 && port.dtype != OPU_INT8 && port.dtype != OPU_UINT8) return;
    if (port.elements < 2 || port.elements > MOST_CLASSES) return;
    for (image = 0; image < payload->images; image++, data += port.bytes) {
        uint64_t numbers[2];
        size_t best = 0, n;
        for (n = 1; n < port.elements; n++)
            if (element(&port, data, n) > element(&port, data, best)) best = n;
        numbers[0] = image;
        numbers[1] = best;
        payload_print(payload, "opu: image %: class %\n", numbers);
    }
}
