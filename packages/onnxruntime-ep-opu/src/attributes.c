/* Attributes of nodes, and statuses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"

static OrtStatus *status_of(const OrtApi *api, int code, const char *where, const char *what,
                            const char *help) {
  char message[OPU_MESSAGE];
  snprintf(message, sizeof message, "%s: %s; %s", where, what, help);
  return ort_CreateStatus(api)(code, message);
}

OrtStatus *opu_failed(const OrtApi *api, const char *where, const char *what, const char *help) {
  return status_of(api, ORT_EP_FAIL, where, what, help);
}

OrtStatus *opu_bad_input(const OrtApi *api, const char *where, const char *what,
                         const char *help) {
  return status_of(api, ORT_INVALID_ARGUMENT, where, what, help);
}

OrtStatus *opu_no_memory(const OrtApi *api, const char *where) {
  return opu_failed(api, where, "there is no memory for it", "give the process more");
}

/* A missing attribute is an error in some versions of ONNX Runtime, a null pointer in others. */
static const OrtOpAttr *attribute_of(const OrtApi *api, const OrtNode *node, const char *name) {
  const OrtOpAttr *attribute = NULL;
  OrtStatus *status = ort_Node_GetAttributeByName(api)(node, name, &attribute);
  if (!status) return attribute;
  ort_ReleaseStatus(api)(status);
  return NULL;
}

OrtStatus *opu_string_attribute(const OrtApi *api, const OrtNode *node, const char *name,
                                char **text, size_t *size) {
  const OrtOpAttr *attribute = attribute_of(api, node, name);
  OrtStatus *status;
  size_t needed = 0;
  *text = NULL;
  *size = 0;
  if (!attribute) return NULL;
  /* The first call fails, and says how many bytes there are. */
  status = ort_ReadOpAttr(api)(attribute, ORT_ATTRIBUTE_STRING, NULL, 0, &needed);
  if (status) ort_ReleaseStatus(api)(status);
  *text = (char *)calloc(needed + 1u, 1u);
  if (!*text) return opu_no_memory(api, name);
  status = ort_ReadOpAttr(api)(attribute, ORT_ATTRIBUTE_STRING, *text, needed, &needed);
  if (status) {
    free(*text);
    *text = NULL;
    return status;
  }
  *size = needed;
  return NULL;
}

OrtStatus *opu_int_attribute(const OrtApi *api, const OrtNode *node, const char *name,
                             int64_t absent, int64_t *value) {
  const OrtOpAttr *attribute = attribute_of(api, node, name);
  size_t needed;
  *value = absent;
  if (!attribute) return NULL;
  return ort_ReadOpAttr(api)(attribute, ORT_ATTRIBUTE_INT, value, sizeof *value, &needed);
}

OrtStatus *opu_is_context(const OrtApi *api, const OrtNode *node, int *is_context) {
  const char *op, *domain;
  char *source;
  size_t size;
  *is_context = 0;
  OPU_TRY(ort_Node_GetOperatorType(api)(node, &op));
  OPU_TRY(ort_Node_GetDomain(api)(node, &domain));
  if (strcmp(op, "EPContext") != 0 || strcmp(domain, "com.microsoft") != 0) return NULL;
  OPU_TRY(opu_string_attribute(api, node, "source", &source, &size));
  *is_context = source && strcmp(source, OPU_PROVIDER_NAME) == 0;
  free(source);
  return NULL;
}
