/* libopu: runs programs of opu-fuse.
 *
 * It is C99 and needs the C library only; this header is valid C++, too. No function allocates
 * memory: the caller asks for a size and provides it. There is no global state, so threads may work
 * concurrently, each with its own session and engine.
 *
 * A program file (docs/program-file.md) holds machine segments and host segments. A machine segment
 * is instruction words (docs/isa.md) for the machine that the file describes. It works on a memory
 * window: the bytes that the machine sees as its DRAM, with constants, feature maps and programs
 * (docs/machine.md). A back end executes it: the native engine below, or hardware
 * (opu_hardware.h). Host segments run on the processor, in this library.
 *
 * A run, from first to last call:
 *   opu_open           check a file in memory; sizes and ports are known afterwards
 *   opu_native_init    or another back end
 *   opu_session_init   fill the caller's window and work memory for this program
 *   opu_run            inputs to outputs, any number of times
 *   opu_submit, opu_wait  in place of opu_run: two steps, for frames that overlap
 */
#ifndef OPU_H
#define OPU_H

#include <stddef.h>
#include <stdint.h>

#include "opu_machine.h"
#include "opu_regs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a call ended. */
enum opu_status {
  OPU_OK = 0,
  OPU_BAD_ARGUMENT = 1,  /* a null pointer, or memory that is not aligned */
  OPU_BAD_MACHINE = 2,   /* not the description of a machine of this library version */
  OPU_SMALL_ARENA = 3,   /* the memory is smaller than opu_native_size says */
  OPU_BAD_PROGRAM = 4,   /* an illegal word, or an incomplete program: see opu_fault */
  OPU_MACHINE_FAULT = 5, /* the machine faults at an instruction: see opu_fault */
  OPU_DAMAGED = 6,       /* the program file is damaged: `what` says where */
  OPU_OTHER_VERSION = 7, /* a file or a section for another version of this library */
  OPU_NO_SECTION = 8,    /* a file without runtime.bin */
  OPU_UNSUPPORTED = 9,   /* a program that needs Python: `what` says why */
  OPU_SMALL_MEMORY = 10, /* a window, a work memory or an array of the caller is too small */
  OPU_NAN = 11,          /* an input is NaN, which no int8 can represent */
  OPU_OTHER_SPEC = 12,   /* the back end is another machine than the program was compiled for */
  OPU_NO_MACHINE = 13,   /* no machine of this version answers at the registers */
  OPU_BUSY = 14,         /* another call or frame uses the session, or the machine runs already */
  OPU_TIMEOUT = 15,      /* the machine has not ended in time; it was stopped */
  OPU_BUS = 16,          /* the device cannot be reached: `what` says which */
  OPU_BAD_INDEX = 17,    /* an operator on the host indexes outside its operand */
  OPU_NO_FRAME = 18      /* opu_wait without a frame that was submitted */
};

/* A sentence without a full stop; a static string. */
const char *opu_status_text(enum opu_status status);

/* Why a machine faults: an error code OPU_ERR_* of the hardware as a sentence; a static string. */
const char *opu_fault_text(uint32_t code);

/* Where a program ended before its `end`. */
struct opu_fault {
  uint32_t code;        /* OPU_ERR_*; OPU_ERR_NONE: no fault */
  uint32_t engine;      /* OPU_ENGINE_* */
  uint32_t instruction; /* its number in the program */
  uint32_t word;        /* its word in the program */
};

/* Instruction words of one segment, in the processor's byte order: `check` first, `end` last. */
struct opu_program {
  const uint32_t *words;
  size_t count;
};

/* The memory window of the machine. */
struct opu_window {
  uint8_t *data;
  size_t size;
};

/* An instruction that was executed. */
struct opu_retired {
  uint64_t moved; /* bytes of DRAM that it read or wrote: whole words, each as often as it moves */
  uint8_t engine; /* OPU_ENGINE_* */
  uint8_t opcode; /* OPU_OP_* */
};

/* What a run reports. */
struct opu_report {
  struct opu_fault fault;
  struct opu_retired *retired; /* array of the caller, for the first ones; or a null pointer */
  size_t room;                 /* elements of that array */
  size_t instructions;         /* number of instructions that were executed */
};

/* The native functional engine: executes instructions in the order of the program, with the bits
 * of the machine. It has no clock. */
struct opu_native;

/* Bytes that an engine for this machine takes; 0 for a description that is no machine. */
size_t opu_native_size(const struct opu_machine_config *machine);

/* Create an engine in the caller's memory, which must be aligned to 64 bytes and not move.
 * The description is copied. All on-chip memories hold the byte 0xA5. */
enum opu_status opu_native_init(struct opu_native **engine,
                                const struct opu_machine_config *machine, void *arena,
                                size_t arena_size);

/* Execute a program. Registers are 0 at its start; on-chip memories keep what the program before
 * left in them. report: may be a null pointer.
 *
 * Nothing outside the arena and the window is read or written, whatever the words are. After
 * OPU_BAD_PROGRAM nothing has been executed, after OPU_MACHINE_FAULT the instructions before the
 * one that faults. */
enum opu_status opu_native_run(struct opu_native *engine, const struct opu_program *program,
                               const struct opu_window *window, struct opu_report *report);

/* An on-chip memory (OPU_SPACE_*), to look at or to fill; a null pointer where the machine has
 * none. size: its bytes, words one after the other (docs/machine.md), partial sums as int32. Weights
 * that are filled in after a run need a call after that run: the engine keeps a copy of some. */
void *opu_native_memory(struct opu_native *engine, uint32_t space, size_t *size);

/* -------- Program files -------- */

#define OPU_RANK 8u

/* Element types, by ONNX's numbers (TensorProto.DataType). */
enum opu_dtype {
  OPU_FLOAT32 = 1,
  OPU_UINT8 = 2,
  OPU_INT8 = 3,
  OPU_UINT16 = 4,
  OPU_INT16 = 5,
  OPU_INT32 = 6,
  OPU_INT64 = 7,
  OPU_BOOL = 9,
  OPU_FLOAT16 = 10,
  OPU_FLOAT64 = 11,
  OPU_UINT32 = 12,
  OPU_UINT64 = 13
};

/* Bytes of an element; 0 for another number. */
size_t opu_dtype_bytes(uint32_t dtype);

/* An opened file. It refers to the caller's bytes of the file, which must not move. Fields after
 * `what` are the library's own. */
struct opu_file {
  const char *name;            /* of the model */
  const char *refused;         /* why libopu cannot run it; empty if it can */
  struct opu_machine_config machine;
  uint64_t window_bytes;       /* memory window that the program needs */
  uint64_t work_bytes;         /* work memory that host segments need; 0: none */
  uint32_t batch;              /* images that run together */
  uint32_t inputs, outputs;    /* ports */
  const char *what;            /* what is wrong after OPU_DAMAGED; a static string */
  const uint8_t *section, *constants, *words; /* members of the file */
  uint64_t program_offset, constant_bytes;
  uint64_t image_bytes; /* of the work memory, for one image */
  uint32_t section_bytes, word_count, segments, maps;
  uint32_t segment_at, map_at, port_at, host_at, host_bytes; /* offsets in the section */
};

/* An input or an output of the model, for one image. */
struct opu_port {
  const char *name;
  uint32_t dtype; /* enum opu_dtype */
  uint32_t rank;
  uint32_t shape[OPU_RANK];
  size_t elements;
  size_t bytes; /* of an array of one image */
};

/* Check a whole file in memory: structure and CRC of the archive, sizes, offsets, host segments.
 * Nothing outside `bytes` is read. A file that needs Python opens: see `refused`. */
enum opu_status opu_open(struct opu_file *file, const void *bytes, size_t size);

/* Check the three members that a run needs, for a target that has no whole file: runtime.bin
 * (section), dram.bin (constants), program.bin (words). As opu_open otherwise. */
enum opu_status opu_open_members(struct opu_file *file, const void *section, size_t section_bytes,
                                 const void *constants, size_t constant_bytes, const void *words,
                                 size_t words_bytes);

/* Describe a port; OPU_BAD_ARGUMENT if there is no port of that number. */
enum opu_status opu_input(const struct opu_file *file, uint32_t number, struct opu_port *port);
enum opu_status opu_output(const struct opu_file *file, uint32_t number, struct opu_port *port);

/* A machine segment that was submitted. state: the back end's own, 0 before. fault: filled after
 * OPU_MACHINE_FAULT. */
struct opu_job {
  const struct opu_window *window;
  uint64_t offset; /* of the words in the window */
  uint32_t words;
  uint32_t state;
  struct opu_fault fault;
};

/* What executes machine segments.
 *
 * attach: called once by opu_session_init, with the filled window; checks that the machine is the
 * file's. May be a null pointer.
 * run: execute the words at byte `offset` of the window, and return when they have ended. It also
 * cleans and invalidates caches where there are any. fault: filled after OPU_MACHINE_FAULT.
 * submit: start a job and return at once, or OPU_BUSY where the machine has no room for it; wait:
 * return when it has ended. Both may be null pointers: opu_wait calls run then. A job must not move
 * until wait has returned. */
struct opu_backend {
  enum opu_status (*attach)(void *self, const struct opu_file *file,
                            const struct opu_window *window);
  enum opu_status (*run)(void *self, const struct opu_window *window, uint64_t offset,
                         uint32_t words, struct opu_fault *fault);
  void *self;
  enum opu_status (*submit)(void *self, struct opu_job *job);
  enum opu_status (*wait)(void *self, struct opu_job *job);
};

/* A loaded program. For one call at a time; a second one gets OPU_BUSY. segment, port, fault: where
 * the last run ended, if not with OPU_OK. The other fields are the library's own. */
struct opu_session {
  uint32_t segment;       /* of the program */
  uint32_t port;          /* number of the input that is NaN or of the array that is too small */
  struct opu_fault fault; /* after OPU_MACHINE_FAULT */
  const struct opu_file *file;
  struct opu_backend backend;
  struct opu_window window;
  uint8_t *work;
  volatile int busy;
  size_t submitted; /* images of the frame that waits for opu_wait; 0: none */
  struct opu_job job;
};

/* Load a program: the window becomes constants, program words, and zeros. file and backend's self
 * must not move. window, work: aligned to 64 bytes, of at least file->window_bytes and
 * file->work_bytes; each may be a null pointer where that is 0. */
enum opu_status opu_session_init(struct opu_session *session, const struct opu_file *file,
                                 const struct opu_backend *backend,
                                 const struct opu_window *window, void *work, size_t work_size);

/* Load a program as opu_session_init does, into a window that the caller fills. It writes once, at
 * byte 0, file->constant_bytes of file->constants, then zeros to the end; and before each run, at
 * byte file->program_offset, file->word_count words of file->words. So programs of one network,
 * with the same constants, can share a window; one of them runs at a time. */
enum opu_status opu_session_attach(struct opu_session *session, const struct opu_file *file,
                                   const struct opu_backend *backend,
                                   const struct opu_window *window, void *work,
                                   size_t work_size);

/* Arrays of the caller, one for each port, in the model's type and the processor's byte order.
 * bytes: size of the array, at least `images` times that of the port. */
struct opu_in {
  const void *data;
  size_t bytes;
};
struct opu_out {
  void *data;
  size_t bytes;
};

/* Run `images` images, which follow each other in every array; the program runs once for each
 * `file->batch` of them. After an error outputs hold what was complete. */
enum opu_status opu_run(struct opu_session *session, const struct opu_in *inputs,
                        const struct opu_out *outputs, size_t images);

/* Run one frame in two steps: at least one image, and at most `file->batch`.
 *
 * opu_submit reads the inputs and starts the machine, or queues the frame after the one that runs,
 * and returns. Host segments before the first machine segment run in it. opu_wait returns when the
 * machine has ended; later segments run in it. The session must not move in between.
 *
 * A session has one window, so one frame: a second opu_submit before opu_wait gets OPU_BUSY, and so
 * does opu_run; opu_wait without a frame gets OPU_NO_FRAME. For frames that overlap take two
 * sessions with a window each, in the same memory, on one back end (opu_hardware.h), and wait in
 * the order of submitting. A machine queues one program after the one that runs: a third session
 * gets OPU_BUSY. Sessions on one machine belong to one thread.
 *
 * After OPU_BUSY opu_submit may be called again, and so may opu_wait where it has refused its
 * arrays (OPU_BAD_ARGUMENT, OPU_SMALL_MEMORY); after any other error the frame is lost. The native
 * engine, which has no thread of its own, runs a frame in opu_wait. */
enum opu_status opu_submit(struct opu_session *session, const struct opu_in *inputs,
                           size_t images);
enum opu_status opu_wait(struct opu_session *session, const struct opu_out *outputs);

/* The native engine as a back end. The processor must be little-endian. */
void opu_native_backend(struct opu_backend *backend, struct opu_native *engine);

#ifdef __cplusplus
}
#endif

#endif
