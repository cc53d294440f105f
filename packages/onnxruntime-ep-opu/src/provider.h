/* The provider: what its files share. */
#ifndef OPU_PROVIDER_H
#define OPU_PROVIDER_H

#include "opu.h"
#include "ort_abi.h"

#define OPU_PROVIDER_NAME "OpuFuseExecutionProvider"
#define OPU_MESSAGE 512 /* bytes of a message */

/* segment.c: a machine segment, ready to run, from the EPContext node of `graph`, which ONNX Runtime
 * replaces by `fused`. spec_hash: of the machine that the user asked for, or a null pointer. */
OrtStatus *opu_segment_create(const OrtApi *api, const OrtGraph *graph, const OrtNode *fused,
                              const char *spec_hash, OrtNodeComputeInfo **result);
void opu_segment_release(OrtNodeComputeInfo *info);

/* Whether a node is an EPContext of this provider. */
OrtStatus *opu_is_context(const OrtApi *api, const OrtNode *node, int *is_context);

/* attributes.c: a string attribute of a node, with a zero after its `size` bytes; a null pointer
 * where the node does not have it. The caller frees it. */
OrtStatus *opu_string_attribute(const OrtApi *api, const OrtNode *node, const char *name,
                                char **text, size_t *size);

/* An integer attribute; `absent` where the node does not have it. */
OrtStatus *opu_int_attribute(const OrtApi *api, const OrtNode *node, const char *name,
                             int64_t absent, int64_t *value);

/* A status of one line. Of a run, only what the inputs are to blame for is no opu_failed: after that
 * the Python interface opens the model again without the provider, which cannot run it. */
OrtStatus *opu_failed(const OrtApi *api, const char *where, const char *what, const char *help);
OrtStatus *opu_bad_input(const OrtApi *api, const char *where, const char *what, const char *help);

/* Return from a function with the status of a call that failed. */
#define OPU_TRY(call)                 \
  do {                                \
    OrtStatus *status_ = (call);      \
    if (status_) return status_;      \
  } while (0)

#endif
