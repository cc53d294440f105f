/* Results as text. */
#include "opu.h"

static const char *const errors[] = OPU_ERROR_TEXTS;

const char *opu_status_text(enum opu_status status) {
  switch (status) {
    case OPU_OK:
      return "no error";
    case OPU_BAD_ARGUMENT:
      return "a null pointer, or a memory that is not aligned to 64 bytes";
    case OPU_BAD_MACHINE:
      return "the description is no machine of this version of the library";
    case OPU_SMALL_ARENA:
      return "the memory is smaller than opu_native_size says";
    case OPU_BAD_PROGRAM:
      return "the words are no complete program: it begins with check and ends with end";
    case OPU_MACHINE_FAULT:
      return "the machine faults at an instruction";
    default:
      return "unknown status";
  }
}

const char *opu_fault_text(uint32_t code) {
  return code < sizeof errors / sizeof errors[0] ? errors[code] : "unknown error code";
}
