/* Program files (docs/program-file.md): open, put into a memory window, run. Part of libopu. */
#ifndef OPU_FILE_H
#define OPU_FILE_H

#include "opu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a call on a program file ended. */
enum opu_file_status {
  OPU_FILE_OK = 0,
  OPU_FILE_NULL,     /* a null pointer or an unknown number */
  OPU_FILE_DAMAGED,  /* no whole program file: `where` says what */
  OPU_FILE_VERSION,  /* written for another version of this library */
  OPU_FILE_OLD,      /* without runtime.bin */
  OPU_FILE_SMALL,    /* the memory of the caller is too small */
  OPU_FILE_HOST,     /* a host segment, or a port that host segments read or write */
  OPU_FILE_NAN,      /* an input is NaN, which no int8 can represent */
  OPU_FILE_MACHINE   /* the device stopped */
};

/* A sentence without a full stop; a static string. */
const char *opu_file_text(enum opu_file_status status);

/* An opened file: it refers to the bytes of the caller and copies none but the machine. */
struct opu_file {
  const uint8_t *runtime, *constants, *words; /* members of the file */
  uint32_t runtime_size;
  struct opu_machine_config machine;
  uint32_t window_bytes; /* memory window that the program needs */
  uint32_t program_offset, constant_bytes, word_count;
  uint32_t batch; /* images that run together */
  uint32_t segments, inputs, outputs;
  uint32_t segment_at, port_at; /* offsets in runtime.bin */
  const char *where; /* what is wrong after OPU_FILE_DAMAGED; a static string */
};

/* What runs machine segments. run: executes `words` words at byte `offset` of the window; it also
 * cleans and invalidates caches where there are any. Returns 0, or another number that says why. */
struct opu_backend {
  int (*run)(void *self, const struct opu_window *window, uint32_t offset, uint32_t words);
  void *self;
};

/* Check a whole file in memory (ZIP structure, CRC of every member, sizes, offsets). Nothing
 * outside `bytes` is read; `bytes` stays where it is as long as `file` is used. */
enum opu_file_status opu_file_open(struct opu_file *file, const void *bytes, size_t size);

/* Fill a window of at least window_bytes: constants, program words, else zeros. */
enum opu_file_status opu_file_load(const struct opu_file *file, const struct opu_window *window);

/* Bytes of the user's array of input or output `number`, all images of the batch; 0: the port is
 * not packed by this library. */
size_t opu_file_input_bytes(const struct opu_file *file, uint32_t number);
size_t opu_file_output_bytes(const struct opu_file *file, uint32_t number);

/* Write the user's array (float32, int8 or uint8 as the model says, processor byte order, aligned
 * for its type) into the window, and read one from it. */
enum opu_file_status opu_file_input(const struct opu_file *file, const struct opu_window *window,
                                    uint32_t number, const void *array, size_t bytes);
enum opu_file_status opu_file_output(const struct opu_file *file, const struct opu_window *window,
                                     uint32_t number, void *array, size_t bytes);

/* Run all segments in order. segment: where it stopped; may be a null pointer. */
enum opu_file_status opu_file_run(const struct opu_file *file, const struct opu_window *window,
                                  const struct opu_backend *backend, uint32_t *segment);

/* The native engine as a back end: `self` is the engine. The window must be aligned to 4 bytes,
 * and the processor little-endian. */
int opu_backend_native(void *self, const struct opu_window *window, uint32_t offset,
                       uint32_t words);

#ifdef __cplusplus
}
#endif

#endif
