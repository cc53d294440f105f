/* The factory and the provider: which nodes are ours, and their segments. */
#include "provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VENDOR_ID 0u /* of no PCI device */
#define SECONDS 10 /* that a machine segment may take, unless the user says otherwise */

/* has_profilers: whether the ONNX Runtime that runs has profilers of providers. */
struct factory {
  OrtEpFactory base;
  const OrtApi *api;
  int has_profilers;
};

/* has_asked: whether it has seen the nodes of the model. */
struct provider {
  OrtEp base;
  int has_asked;
  const OrtLogger *logger;
  struct opu_owner owner;
};

static const char *ep_name(const OrtEp *self) {
  (void)self;
  return OPU_PROVIDER_NAME;
}

/* How many nodes are ours. A model without any is likely one that was to be compiled before. */
static OrtStatus *report(struct provider *p, const OrtGraph *graph, size_t taken, size_t count) {
  const OrtApi *api = p->owner.api;
  int level = ORT_LOGGING_INFO;
  const OrtNode *parent;
  char message[256];
  OPU_TRY(ort_Graph_GetParentNode(api)(graph, &parent));
  if (!parent) { /* the body of a loop or a condition has none */
    if (!taken && !p->has_asked) level = ORT_LOGGING_WARNING;
    p->has_asked = 1;
  }
  snprintf(message, sizeof message, "%s: %lu of %lu nodes are machine segments%s",
           OPU_PROVIDER_NAME, (unsigned long)taken, (unsigned long)count,
           level == ORT_LOGGING_INFO ? ""
                                     : ", all run on the processor: open what `opu-fuse compile "
                                       "MODEL.onnx --hw SPEC -o OUT.onnx` writes");
  return ort_Logger_LogMessage(api)(p->logger, level, message, __FILE__, __LINE__,
                                    "GetCapability");
}

static OrtStatus *get_capability(OrtEp *self, const OrtGraph *graph, OrtEpGraphSupportInfo *info) {
  struct provider *p = (struct provider *)(void *)self;
  const OrtApi *api = p->owner.api;
  const OrtEpApi *ep_api = ort_GetEpApi(api)();
  OrtStatus *status = NULL;
  const OrtNode **nodes;
  size_t count, n, taken = 0;
  OPU_TRY(ort_Graph_GetNumNodes(api)(graph, &count));
  nodes = (const OrtNode **)malloc((count + 1u) * sizeof *nodes);
  if (!nodes) return opu_no_memory(api, OPU_PROVIDER_NAME);
  status = ort_Graph_GetNodes(api)(graph, nodes, count);
  for (n = 0; !status && n < count; n++) {
    int is_context;
    status = opu_is_context(api, nodes[n], &is_context);
    if (status || !is_context) continue;
    status = ort_EpGraphSupportInfo_AddNodesToFuse(ep_api)(info, &nodes[n], 1, NULL);
    taken++;
  }
  free((void *)nodes);
  return status ? status : report(p, graph, taken, count);
}

static void release_segments(OrtEp *self, OrtNodeComputeInfo **infos, size_t count) {
  size_t n;
  (void)self;
  for (n = 0; n < count; n++) opu_segment_release(infos[n]);
}

/* Make the segments of the nodes that have their constants themselves, or of the others. */
static OrtStatus *create_segments(struct opu_owner *owner, int is_main, const OrtGraph **graphs,
                                  const OrtNode **fused, size_t count,
                                  OrtNodeComputeInfo **results) {
  size_t n, nodes;
  for (n = 0; n < count; n++) {
    const OrtNode *node;
    int own;
    OPU_TRY(ort_Graph_GetNumNodes(owner->api)(graphs[n], &nodes));
    if (nodes != 1)
      return opu_failed(owner->api, "EPContext", "ONNX Runtime fused several of them",
                        "report this");
    OPU_TRY(ort_Graph_GetNodes(owner->api)(graphs[n], &node, 1));
    OPU_TRY(opu_is_main(owner->api, node, &own));
    if (own == is_main)
      OPU_TRY(opu_segment_create(owner, graphs[n], node, fused[n], &results[n]));
  }
  return NULL;
}

static OrtStatus *compile(OrtEp *self, const OrtGraph **graphs, const OrtNode **fused,
                          size_t count, OrtNodeComputeInfo **results, OrtNode **context_nodes) {
  struct opu_owner *owner = &((struct provider *)(void *)self)->owner;
  OrtStatus *status;
  size_t n;
  (void)context_nodes; /* the nodes are context nodes already */
  for (n = 0; n < count; n++) results[n] = NULL;
  status = create_segments(owner, 1, graphs, fused, count, results);
  if (!status) status = create_segments(owner, 0, graphs, fused, count, results);
  if (!status) return NULL;
  release_segments(self, results, count);
  for (n = 0; n < count; n++) results[n] = NULL; /* released once */
  return status;
}

static OrtStatus *create_profiler(OrtEp *self, OrtEpProfilerImpl **profiler) {
  const struct opu_owner *owner = &((const struct provider *)(void *)self)->owner;
  return opu_profiler_create(owner->api, owner->profiles, profiler);
}

#define PREFIX "ep.opufuseexecutionprovider." /* before our options, among those of the session */
static const char *const option_names[] = {"device", "spec_hash", "timeout"};

/* An option of the session, "" where the user gives none. */
static OrtStatus *option(const OrtApi *api, const OrtSessionOptions *options, const char *name,
                         char *value, size_t room) {
  char key[64];
  int found = 0;
  snprintf(key, sizeof key, PREFIX "%s", name);
  *value = '\0';
  OPU_TRY(ort_HasSessionConfigEntry(api)(options, key, &found));
  if (!found) return NULL;
  return ort_GetSessionConfigEntry(api)(options, key, value, &room);
}

static OrtStatus *check_name(const OrtApi *api, const char *key) {
  const size_t prefix = sizeof PREFIX - 1u;
  char where[96];
  size_t n;
  if (strncmp(key, PREFIX, prefix) != 0) return NULL;
  for (n = 0; n < sizeof option_names / sizeof *option_names; n++)
    if (strcmp(key + prefix, option_names[n]) == 0) return NULL;
  snprintf(where, sizeof where, "option %.80s", key + prefix);
  return opu_failed(api, where, "there is no such option", "say device, spec_hash or timeout");
}

static OrtStatus *check_names(const OrtApi *api, const OrtSessionOptions *options) {
  OrtKeyValuePairs *entries;
  const char *const *keys, *const *values;
  OrtStatus *status = NULL;
  size_t count, n;
  OPU_TRY(ort_GetSessionOptionsConfigEntries(api)(options, &entries));
  ort_GetKeyValuePairs(api)(entries, &keys, &values, &count);
  for (n = 0; n < count && !status; n++) status = check_name(api, keys[n]);
  ort_ReleaseKeyValuePairs(api)(entries);
  return status;
}

static OrtStatus *read_options(const OrtApi *api, const OrtSessionOptions *options,
                               struct opu_options *result) {
  char seconds[16], *end;
  long number;
  OPU_TRY(check_names(api, options));
  OPU_TRY(option(api, options, "device", result->device, sizeof result->device));
  OPU_TRY(option(api, options, "spec_hash", result->spec_hash, sizeof result->spec_hash));
  OPU_TRY(option(api, options, "timeout", seconds, sizeof seconds));
  number = *seconds ? strtol(seconds, &end, 10) : SECONDS;
  if ((*seconds && *end) || number < 1 || number > 1000000)
    return opu_failed(api, "option timeout", "is no whole number of seconds",
                      "say 1 to 1000000, or leave it out");
  result->timeout_ms = (int)number * 1000;
  return opu_device_check(api, result);
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
  if (!p) return opu_no_memory(f->api, OPU_PROVIDER_NAME);
  p->owner.api = f->api;
  p->logger = logger;
  p->owner.profiles = opu_profiles_create();
  if (!p->owner.profiles) {
    free(p);
    return opu_no_memory(f->api, OPU_PROVIDER_NAME);
  }
  p->base.version = f->has_profilers ? ORT_API_PROFILING : ORT_API_VERSION;
  p->base.CreateProfiler = create_profiler;
  p->base.GetName = ep_name;
  p->base.GetCapability = get_capability;
  p->base.Compile = compile;
  p->base.ReleaseNodeComputeInfos = release_segments;
  status = read_options(f->api, options, &p->owner.options);
  if (status) {
    opu_profiles_release(p->owner.profiles);
    free(p);
    return status;
  }
  *ep = &p->base;
  return NULL;
}

static void release_ep(OrtEpFactory *self, OrtEp *ep) {
  struct provider *p = (struct provider *)(void *)ep;
  size_t n;
  (void)self;
  for (n = 0; n < p->owner.count; n++) opu_device_release(p->owner.devices[n], NULL);
  free((void *)p->owner.devices);
  opu_profiles_release(p->owner.profiles);
  free(p);
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

/* Whether the ONNX Runtime that runs is of this version of its interface or a later one. Asking for a
 * table that it does not have would write to its log. */
static int is_version(const OrtApiBase *base, unsigned wanted) {
  unsigned major, minor;
  if (sscanf(base->GetVersionString(), "%u.%u", &major, &minor) != 2) return 0;
  return major > 1u || minor >= wanted;
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
  if (!f) return opu_no_memory(api, OPU_PROVIDER_NAME);
  f->api = api;
  f->has_profilers = is_version(base, ORT_API_PROFILING);
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
