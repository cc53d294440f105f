/* The provider: what its files share. */
#ifndef OPU_PROVIDER_H
#define OPU_PROVIDER_H

#include "opu.h"
#include "ort_abi.h"

#define OPU_PROVIDER_NAME "OpuFuseExecutionProvider"
#define OPU_MESSAGE 1024 /* bytes of a message */
#define OPU_DEVICE_NAME 128

/* -------- constants.c: constants of programs, once in the process -------- */

/* Read only. crc: as in the directory of the program file. */
struct opu_constants {
  const uint8_t *data;
  size_t bytes;
  uint32_t crc;
};

/* The same bytes, already there or copied; a null pointer where there is no memory. Every share ends
 * in a release. */
struct opu_constants *opu_constants_share(const uint8_t *data, size_t bytes, uint32_t crc);
struct opu_constants *opu_constants_again(struct opu_constants *constants);
void opu_constants_release(struct opu_constants *constants);

/* A memory window with constants in its first bytes and zeros behind, aligned to a page; a null
 * pointer where there is no memory. window_bytes: at least those of the constants. */
uint8_t *opu_window_map(const struct opu_constants *constants, uint64_t window_bytes);
void opu_window_unmap(uint8_t *window, uint64_t window_bytes);

/* -------- program.c: the program of an EPContext node -------- */

/* name: of the node. file: the program; section and words are copies of its members. */
struct opu_context {
  char *name;
  struct opu_file file;
  struct opu_constants *constants;
  uint8_t *section, *words;
  size_t section_bytes, words_bytes;
};

struct opu_owner;

/* Read a node's program into zeros, and check it. After an error, too, call opu_context_release. */
OrtStatus *opu_context_read(const struct opu_owner *owner, const OrtGraph *graph,
                            const OrtNode *node, struct opu_context *context);
void opu_context_release(struct opu_context *context);

/* Whether a node has its constants itself; others have those of such a node. */
OrtStatus *opu_is_main(const OrtApi *api, const OrtNode *node, int *is_main);

/* -------- device.c: what runs machine segments -------- */

/* Options of a session. spec_hash: of the machine that the user asked for, "" for any. */
struct opu_options {
  char device[OPU_DEVICE_NAME], spec_hash[16];
  int timeout_ms;
};

/* A machine with the constants of a program in its memory window. All segments of a program share
 * it in a session. The machine is the session's own where it is native, else the process's. */
struct opu_device;

/* Refuse what is no name of a device. */
OrtStatus *opu_device_check(const OrtApi *api, const struct opu_options *options);

/* Open a device for the program of a context. */
OrtStatus *opu_device_open(const OrtApi *api, const struct opu_options *options,
                           const struct opu_context *context, struct opu_device **device);

/* Every open and every again end in a release. session: one that was attached, or a null pointer. */
struct opu_device *opu_device_again(struct opu_device *device);
void opu_device_release(struct opu_device *device, const struct opu_session *session);

struct opu_constants *opu_device_constants(const struct opu_device *device);

/* Whether it was opened for a program like this. */
int opu_device_suits(const struct opu_device *device, const struct opu_context *context);

/* As opu_session_attach and opu_run. Threads wait for each other. cycles: where to write those of
 * the machine, 0 for an engine without a clock; or a null pointer. */
enum opu_status opu_device_attach(struct opu_device *device, struct opu_session *session,
                                  const struct opu_file *file, void *work);
enum opu_status opu_device_run(struct opu_device *device, struct opu_session *session,
                               const struct opu_in *in, const struct opu_out *out, size_t images,
                               uint64_t *cycles);

/* As the user named it. */
const char *opu_device_name(const struct opu_device *device);

/* Why a device cannot be reached, after OPU_BUS. */
const char *opu_device_what(const struct opu_device *device);

/* -------- profiler.c: events in ONNX Runtime's profiles -------- */

/* The profiles that a session is writing. */
struct opu_profiles;
struct opu_profiles *opu_profiles_create(void); /* a null pointer where there is no memory */
void opu_profiles_release(struct opu_profiles *profiles);

/* Whether there is one. */
int opu_profiles_active(struct opu_profiles *profiles);

/* A run of a segment. cycles: 0 where nobody counted; predicted_cycles: -1 where unknown. */
struct opu_profiled {
  const char *segment, *device;
  int64_t start_ns, end_ns, predicted_cycles;
  uint64_t cycles;
};

void opu_profiles_add(struct opu_profiles *profiles, const struct opu_profiled *run);
int64_t opu_now_ns(void);

/* A profiler, for ONNX Runtime to release. */
OrtStatus *opu_profiler_create(const OrtApi *api, struct opu_profiles *profiles,
                               OrtEpProfilerImpl **result);

/* -------- segment.c -------- */

/* What a session of ONNX Runtime has: its devices, one for each program. */
struct opu_owner {
  const OrtApi *api;
  struct opu_profiles *profiles;
  struct opu_options options;
  struct opu_device **devices;
  size_t count;
};

/* A machine segment, ready to run, from the EPContext node of `graph`, which ONNX Runtime replaces by
 * `fused`. */
OrtStatus *opu_segment_create(struct opu_owner *owner, const OrtGraph *graph, const OrtNode *node,
                              const OrtNode *fused, OrtNodeComputeInfo **result);
void opu_segment_release(OrtNodeComputeInfo *info);

/* -------- attributes.c -------- */

/* Whether a node is an EPContext of this provider. */
OrtStatus *opu_is_context(const OrtApi *api, const OrtNode *node, int *is_context);

/* A string attribute of a node, with a zero after its `size` bytes; a null pointer where the node
 * does not have it. The caller frees it. */
OrtStatus *opu_string_attribute(const OrtApi *api, const OrtNode *node, const char *name,
                                char **text, size_t *size);

/* An integer attribute; `absent` where the node does not have it. */
OrtStatus *opu_int_attribute(const OrtApi *api, const OrtNode *node, const char *name,
                             int64_t absent, int64_t *value);

/* A status of one line. Of a run, only what the inputs are to blame for is no opu_failed: after that
 * the Python interface opens the model again without the provider, which cannot run it. */
OrtStatus *opu_failed(const OrtApi *api, const char *where, const char *what, const char *help);
OrtStatus *opu_bad_input(const OrtApi *api, const char *where, const char *what, const char *help);
OrtStatus *opu_no_memory(const OrtApi *api, const char *where);

/* Return from a function with the status of a call that failed. */
#define OPU_TRY(call)                 \
  do {                                \
    OrtStatus *status_ = (call);      \
    if (status_) return status_;      \
  } while (0)

#endif
