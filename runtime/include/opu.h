/* libopu: runs programs of opu-fuse.
 *
 * C99, the C library and nothing else; the same text is valid C++. No function allocates: the
 * caller gives the memory, after it has asked how much. No function has state of its own, so
 * threads may work at the same time, each with an engine of its own.
 *
 * A program is the instruction words of one machine segment (docs/isa.md) together with the
 * description of the machine that it was compiled for. It works on a memory window: the bytes that
 * the machine sees as its DRAM, with constants, feature maps and programs (docs/machine.md). */
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
  OPU_BAD_ARGUMENT = 1,  /* a null pointer, or a memory that is not aligned */
  OPU_BAD_MACHINE = 2,   /* a description that is no machine of this version of the library */
  OPU_SMALL_ARENA = 3,   /* the memory is smaller than opu_native_size says */
  OPU_BAD_PROGRAM = 4,   /* words that are no complete program: see opu_fault */
  OPU_MACHINE_FAULT = 5  /* the machine faults at an instruction: see opu_fault */
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

/* Instruction words of one segment, as numbers of the processor: `check` first, `end` last. */
struct opu_program {
  const uint32_t *words;
  size_t count;
};

/* The memory window of the machine. */
struct opu_window {
  uint8_t *data;
  size_t size;
};

/* An instruction that was executed. moved: bytes of DRAM that a load read or a store wrote, whole
 * words, every word as often as it moves. */
struct opu_retired {
  uint64_t moved;
  uint8_t engine; /* OPU_ENGINE_* */
  uint8_t opcode; /* OPU_OP_* */
};

/* What a run reports. retired, room: an array of the caller for the first `room` instructions, or
 * a null pointer and 0. instructions: how many were executed. */
struct opu_report {
  struct opu_fault fault;
  struct opu_retired *retired;
  size_t room;
  size_t instructions;
};

/* The native functional engine: executes instructions in the order of the program, with the bits
 * of the machine. It has no clock. */
struct opu_native;

/* Bytes that an engine for this machine takes; 0 for a description that is no machine. */
size_t opu_native_size(const struct opu_machine_config *machine);

/* Make an engine in the caller's memory, which must be aligned to 64 bytes and stay where it is.
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

#ifdef __cplusplus
}
#endif

#endif
