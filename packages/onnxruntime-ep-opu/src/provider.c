/* The factory and the provider: which nodes are ours, and their segments. */
#include "provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VENDOR_ID 0u /* of no PCI device */
#define HASH_ROOM 16

struct factory {
  OrtEpFactory base;
  const OrtApi *api;
};

/* spec_hash: of the machine that the user asked for, "" for any. */
struct provider {
  OrtEp base;
  const OrtApi *api;
  const OrtLogger *logger;
  char spec_hash[HASH_ROOM];
};

static const char *ep_name(const OrtEp *self) {
  (void)self;
  return OPU_PROVIDER_NAME;
}

static OrtStatus *get_capability(OrtEp *self, const OrtGraph *graph, OrtEpGraphSupportInfo *info) {
  const struct provider *p = (const struct provider *)(void *)self;
  const OrtEpApi *ep_api = ort_GetEpApi(p->api)();
  OrtStatus *status = NULL;
  const OrtNode **nodes;
  size_t count, n;
  unsigned long taken = 0;
  char message[128];
  OPU_TRY(ort_Graph_GetNumNodes(p->api)(graph, &count));
  nodes = (const OrtNode **)malloc((count + 1u) * sizeof *nodes);
  if (!nodes)
    return opu_failed(p->api, OPU_PROVIDER_NAME, "there is no memory", "give the process more");
  status = ort_Graph_GetNodes(p->api)(graph, nodes, count);
  for (n = 0; !status && n < count; n++) {
    int is_context;
    status = opu_is_context(p->api, nodes[n], &is_context);
    if (status || !is_context) continue;
    status = ort_EpGraphSupportInfo_AddNodesToFuse(ep_api)(info, &nodes[n], 1, NULL);
    taken++;
  }
  free((void *)nodes);
  if (status) return status;
  snprintf(message, sizeof message, "%s: %lu of %lu nodes are machine segments",
           OPU_PROVIDER_NAME, taken, (unsigned long)count);
  return ort_Logger_LogMessage(p->api)(p->logger, ORT_LOGGING_INFO, message, __FILE__, __LINE__,
                                       "GetCapability");
}

static void release_segments(OrtEp *self, OrtNodeComputeInfo **infos, size_t count) {
  size_t n;
  (void)self;
  for (n = 0; n < count; n++) opu_segment_release(infos[n]);
}

static OrtStatus *compile(OrtEp *self, const OrtGraph **graphs, const OrtNode **fused,
                          size_t count, OrtNodeComputeInfo **results, OrtNode **context_nodes) {
  const struct provider *p = (const struct provider *)(void *)self;
  const char *spec_hash = *p->spec_hash ? p->spec_hash : NULL;
  size_t n;
  (void)context_nodes; /* the nodes are context nodes already */
  for (n = 0; n < count; n++) {
    OrtStatus *status = opu_segment_create(p->api, graphs[n], fused[n], spec_hash, &results[n]);
    if (!status) continue;
    release_segments(self, results, n);
    while (n) results[--n] = NULL; /* released once */
    return status;
  }
  return NULL;
}

/* An option of the session, "" where the user gives none. */
static OrtStatus *option(const OrtApi *api, const OrtSessionOptions *options, const char *name,
                         char *value, size_t room) {
  char key[64] = "ep.", *end = key + 3;
  const char *c;
  int found = 0;
  for (c = OPU_PROVIDER_NAME; *c; c++) /* ONNX Runtime writes it in lower case */
    *end++ = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
  snprintf(end, sizeof key - (size_t)(end - key), ".%s", name);
  *value = '\0';
  OPU_TRY(ort_HasSessionConfigEntry(api)(options, key, &found));
  if (!found) return NULL;
  return ort_GetSessionConfigEntry(api)(options, key, value, &room);
}

static OrtStatus *read_options(struct provider *p, const OrtSessionOptions *options) {
  char device[32], what[96];
  OPU_TRY(option(p->api, options, "device", device, sizeof device));
  OPU_TRY(option(p->api, options, "spec_hash", p->spec_hash, sizeof p->spec_hash));
  if (!*device || strcmp(device, "native") == 0) return NULL;
  snprintf(what, sizeof what, "this build has no device %.31s", device);
  return opu_failed(p->api, "option device", what, "leave it out, or say native");
}

static OrtStatus *create_ep(OrtEpFactory *self, const OrtHardwareDevice *const *devices,
                            const OrtKeyValuePairs *const *metadata, size_t count,
                            const OrtSessionOptions *options, const OrtLogger *logger,
                            OrtEp **ep) {
  const struct factory *f = (const struct factory *)(void *)self;
  struct provider *p = (struct provider *)calloc(1, sizeof *p);
  OrtStatus *status;
  (void)devices;
  (void)metadata;
  (void)count;
  if (!p)
    return opu_failed(f->api, OPU_PROVIDER_NAME, "there is no memory", "give the process more");
  p->api = f->api;
  p->logger = logger;
  p->base.version = ORT_API_VERSION;
  p->base.GetName = ep_name;
  p->base.GetCapability = get_capability;
  p->base.Compile = compile;
  p->base.ReleaseNodeComputeInfos = release_segments;
  status = read_options(p, options);
  if (status) {
    free(p);
    return status;
  }
  *ep = &p->base;
  return NULL;
}

static void release_ep(OrtEpFactory *self, OrtEp *ep) {
  (void)self;
  free(ep); /* `base` is its first member */
}

static const char *name_of(const OrtEpFactory *self) {
  (void)self;
  return OPU_PROVIDER_NAME;
}

static const char *vendor(const OrtEpFactory *self) {
  (void)self;
  return "opu-fuse";
}

static uint32_t vendor_id(const OrtEpFactory *self) {
  (void)self;
  return VENDOR_ID;
}

static const char *version(const OrtEpFactory *self) {
  (void)self;
  return OPU_PROVIDER_VERSION;
}

/* The native engine runs on the processor. */
static OrtStatus *supported_devices(OrtEpFactory *self, const OrtHardwareDevice *const *devices,
                                    size_t count, OrtEpDevice **results, size_t room,
                                    size_t *result_count) {
  const struct factory *f = (const struct factory *)(void *)self;
  size_t n;
  *result_count = 0;
  for (n = 0; n < count && *result_count < room && !*result_count; n++)
    if (ort_HardwareDevice_Type(f->api)(devices[n]) == ORT_DEVICE_CPU) {
      OPU_TRY(ort_CreateEpDevice(ort_GetEpApi(f->api)())(self, devices[n], NULL, NULL,
                                                         &results[*result_count]));
      ++*result_count;
    }
  return NULL;
}

static OrtStatus *no_allocator(OrtEpFactory *self, const OrtMemoryInfo *info,
                               const OrtKeyValuePairs *options, void **allocator) {
  (void)self;
  (void)info;
  (void)options;
  *allocator = NULL; /* that of the processor */
  return NULL;
}

static void release_allocator(OrtEpFactory *self, void *allocator) {
  (void)self;
  (void)allocator;
}

static OrtStatus *no_transfer(OrtEpFactory *self, void **transfer) {
  (void)self;
  *transfer = NULL;
  return NULL;
}

static bool has_streams(const OrtEpFactory *self) {
  (void)self;
  return false;
}

OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base, const OrtLogger *logger,
                             OrtEpFactory **factories, size_t room, size_t *count) {
  const OrtApi *api = base->GetApi(ORT_API_VERSION);
  struct factory *f;
  (void)name;
  (void)logger;
  *count = 0;
  if (!api) { /* version 1 of the table has CreateStatus */
    char what[96];
    snprintf(what, sizeof what, "ONNX Runtime %.32s has no compiling providers",
             base->GetVersionString());
    return opu_failed(base->GetApi(1u), OPU_PROVIDER_NAME, what, "install 1.23 or newer");
  }
  if (!room) return opu_failed(api, OPU_PROVIDER_NAME, "no room for a factory", "report this");
  f = (struct factory *)calloc(1, sizeof *f);
  if (!f) return opu_failed(api, OPU_PROVIDER_NAME, "there is no memory", "give the process more");
  f->api = api;
  f->base.version = ORT_API_VERSION;
  f->base.GetName = name_of;
  f->base.GetVendor = vendor;
  f->base.GetSupportedDevices = supported_devices;
  f->base.CreateEp = create_ep;
  f->base.ReleaseEp = release_ep;
  f->base.GetVendorId = vendor_id;
  f->base.GetVersion = version;
  f->base.CreateAllocator = no_allocator;
  f->base.ReleaseAllocator = release_allocator;
  f->base.CreateDataTransfer = no_transfer;
  f->base.IsStreamAware = has_streams;
  factories[0] = &f->base;
  *count = 1;
  return NULL;
}

OrtStatus *ReleaseEpFactory(OrtEpFactory *factory) {
  free(factory); /* `base` is its first member */
  return NULL;
}
