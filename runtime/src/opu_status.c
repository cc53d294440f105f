/* Results as text. */
#include "opu.h"

static const char *const errors[] = OPU_ERROR_TEXTS;

static const char *const statuses[] = {
    "no error",
    "a null pointer, an unknown number, or a memory that is not aligned to 64 bytes",
    "the description is no machine of this version of the library",
    "the memory is smaller than opu_native_size says",
    "the words are no complete program: it begins with check and ends with end",
    "the machine faults at an instruction",
    "the file is damaged: compile the model again",
    "the file is for another version of libopu: use the one of the opu-fuse that compiled it",
    "the file has no runtime.bin: compile the model again (opu-fuse compile)",
    "the program needs Python",
    "a window, a work memory or an array is smaller than the program needs",
    "an input holds NaN, which no int8 can represent",
    "the machine is another one than the program was compiled for",
    "the registers are no machine of this version of libopu",
    "the session or the machine is busy",
    "the machine did not end in time and was stopped",
    "the device cannot be reached",
    "an operator on the host indexes outside its operand: check the inputs",
    "no frame was submitted"};

const char *opu_status_text(enum opu_status status) {
  return (unsigned)status < sizeof statuses / sizeof statuses[0] ? statuses[status]
                                                                 : "unknown status";
}

const char *opu_fault_text(uint32_t code) {
  return code < sizeof errors / sizeof errors[0] ? errors[code] : "unknown error code";
}
