/* A machine segment: the values of a node, and the program that computes them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"

enum { ALIGNMENT = 64 };

/* Which value of the fused node a port is: ONNX Runtime orders them as it likes, and leaves out
 * outputs that nobody reads. */
enum { ABSENT = -1 };

/* info: first, since ONNX Runtime holds a pointer to it. input_of, output_of: value of the fused node
 * by port. unread: memory for outputs that are absent. lock: of in, out and unread. */
struct segment {
  OrtNodeComputeInfo info;
  const OrtApi *api;
  struct opu_context context;
  struct opu_device *device;
  struct opu_profiles *profiles;
  int64_t predicted_cycles;
  void *work;
  struct opu_session session;
  struct opu_in *in;
  struct opu_out *out;
  long *input_of, *output_of;
  void *unread;
  pthread_mutex_t lock;
};

static OrtStatus *no_memory(const struct segment *s) {
  return opu_no_memory(s->api, s->context.name);
}

static OrtStatus *check_machine(const struct segment *s, const char *spec_hash) {
  const uint32_t *hash = s->context.file.machine.spec_hash;
  char own[40], what[128];
  if (!*spec_hash) return NULL;
  snprintf(own, sizeof own, "%03lx%08lx", (unsigned long)hash[1], (unsigned long)hash[0]);
  if (strcmp(own, spec_hash) == 0) return NULL;
  snprintf(what, sizeof what, "was compiled for machine %s, the session asks for %.16s", own,
           spec_hash);
  return opu_failed(s->api, s->context.name, what, "compile the model for that machine");
}

/* The session's device for this program, opened for its first segment. */
static OrtStatus *find_device(struct opu_owner *owner, struct segment *s) {
  struct opu_device **more;
  size_t n;
  for (n = 0; n < owner->count && !s->device; n++)
    if (opu_device_suits(owner->devices[n], &s->context))
      s->device = opu_device_again(owner->devices[n]);
  if (s->device) return NULL;
  more = (struct opu_device **)realloc((void *)owner->devices, (n + 1u) * sizeof *more);
  if (!more) return no_memory(s);
  owner->devices = more;
  OPU_TRY(opu_device_open(s->api, &owner->options, &s->context, &s->device));
  owner->devices[owner->count++] = opu_device_again(s->device);
  return NULL;
}

static OrtStatus *attach(struct segment *s) {
  const struct opu_file *file = &s->context.file;
  enum opu_status status;
  s->in = (struct opu_in *)calloc((size_t)file->inputs + 1u, sizeof *s->in);
  s->out = (struct opu_out *)calloc((size_t)file->outputs + 1u, sizeof *s->out);
  if (!s->in || !s->out || file->work_bytes > (size_t)-1) return no_memory(s);
  if (file->work_bytes && posix_memalign(&s->work, ALIGNMENT, (size_t)file->work_bytes)) {
    s->work = NULL;
    return no_memory(s);
  }
  status = opu_device_attach(s->device, &s->session, file, s->work);
  if (status == OPU_OK) return NULL;
  return opu_failed(s->api, s->context.name, opu_status_text(status),
                    status == OPU_SMALL_MEMORY ? "give the device more memory"
                                               : "compile the model for this device");
}

typedef OrtStatus *(*value_count)(const OrtNode *node, size_t *count);
typedef OrtStatus *(*value_list)(const OrtNode *node, const OrtValueInfo **values, size_t count);

/* The values of a node; the caller frees them. */
static OrtStatus *values_of(const struct segment *s, const OrtNode *node, value_count how_many,
                            value_list list, const OrtValueInfo ***values, size_t *count) {
  OPU_TRY(how_many(node, count));
  *values = (const OrtValueInfo **)malloc((*count + 1u) * sizeof **values);
  if (!*values) return no_memory(s);
  return list(node, *values, *count);
}

/* For each value of `own`, where it is in `fused`. */
static OrtStatus *match(const struct segment *s, const OrtValueInfo *const *own, size_t own_count,
                        const OrtValueInfo *const *fused, size_t fused_count, long *result) {
  size_t n, k;
  for (n = 0; n < own_count; n++) {
    const char *name, *other;
    OPU_TRY(ort_GetValueInfoName(s->api)(own[n], &name));
    result[n] = ABSENT;
    for (k = 0; k < fused_count; k++) {
      OPU_TRY(ort_GetValueInfoName(s->api)(fused[k], &other));
      if (strcmp(name, other) == 0) result[n] = (long)k;
    }
  }
  return NULL;
}

static OrtStatus *order_of(const struct segment *s, const OrtNode *node, const OrtNode *fused,
                           value_count how_many, value_list list, uint32_t ports, long **result) {
  const OrtValueInfo **own = NULL, **others = NULL;
  size_t own_count = 0, count = 0;
  OrtStatus *status = values_of(s, node, how_many, list, &own, &own_count);
  if (!status) status = values_of(s, fused, how_many, list, &others, &count);
  if (!status && own_count != ports)
    status = opu_failed(s->api, s->context.name, "has another number of values than its program",
                        "compile the model again");
  *result = (long *)calloc((size_t)ports + 1u, sizeof **result);
  if (!status && !*result) status = no_memory(s);
  if (!status) status = match(s, own, own_count, others, count, *result);
  free((void *)own);
  free((void *)others);
  return status;
}

static OrtStatus *order(struct segment *s, const OrtNode *node, const OrtNode *fused) {
  size_t most = 1;
  uint32_t n;
  OPU_TRY(order_of(s, node, fused, ort_Node_GetNumInputs(s->api), ort_Node_GetInputs(s->api),
                   s->context.file.inputs, &s->input_of));
  OPU_TRY(order_of(s, node, fused, ort_Node_GetNumOutputs(s->api), ort_Node_GetOutputs(s->api),
                   s->context.file.outputs, &s->output_of));
  for (n = 0; n < s->context.file.inputs; n++)
    if (s->input_of[n] == ABSENT)
      return opu_failed(s->api, s->context.name, "ONNX Runtime left out an input", "report this");
  for (n = 0; n < s->context.file.outputs; n++) {
    struct opu_port port;
    opu_output(&s->context.file, n, &port);
    if (s->output_of[n] == ABSENT && port.bytes * s->context.file.batch > most)
      most = port.bytes * s->context.file.batch;
  }
  s->unread = malloc(most);
  return s->unread ? NULL : no_memory(s);
}

/* Type and elements of a tensor against a port; images: how many images there are. */
static OrtStatus *images_of(const struct segment *s, const OrtValue *value,
                            const struct opu_port *port, size_t *images) {
  OrtTensorTypeAndShapeInfo *info;
  OrtStatus *status;
  size_t elements = 0;
  int type = 0;
  char what[OPU_MESSAGE / 2];
  OPU_TRY(ort_GetTensorTypeAndShape(s->api)(value, &info));
  status = ort_GetTensorElementType(s->api)(info, &type);
  if (!status) status = ort_GetTensorShapeElementCount(s->api)(info, &elements);
  ort_ReleaseTensorTypeAndShapeInfo(s->api)(info);
  if (status) return status;
  if ((uint32_t)type == port->dtype && elements && elements % port->elements == 0 &&
      (!*images || *images == elements / port->elements)) {
    *images = elements / port->elements;
    return NULL;
  }
  snprintf(what, sizeof what, "input %.80s has %lu elements of type %d, expected %lu of type %lu",
           port->name, (unsigned long)elements, type, (unsigned long)port->elements,
           (unsigned long)port->dtype);
  return opu_bad_input(s->api, s->context.name, what, "give arrays of the model's types and shapes");
}

static OrtStatus *get_inputs(struct segment *s, const OrtKernelContext *context, size_t *images) {
  uint32_t n;
  for (n = 0; n < s->context.file.inputs; n++) {
    const OrtValue *value;
    struct opu_port port;
    void *data;
    OPU_TRY(ort_KernelContext_GetInput(s->api)(context, (size_t)s->input_of[n], &value));
    opu_input(&s->context.file, n, &port);
    OPU_TRY(images_of(s, value, &port, images));
    /* Only read: the interface has no other entry in all versions. */
    OPU_TRY(ort_GetTensorMutableData(s->api)((OrtValue *)(uintptr_t)value, &data));
    s->in[n].data = data;
    s->in[n].bytes = *images * port.bytes;
  }
  return NULL;
}

static OrtStatus *get_outputs(struct segment *s, OrtKernelContext *context, size_t images) {
  uint32_t n, axis;
  for (n = 0; n < s->context.file.outputs; n++) {
    int64_t shape[OPU_RANK];
    struct opu_port port;
    OrtValue *value;
    opu_output(&s->context.file, n, &port);
    s->out[n].data = s->unread;
    s->out[n].bytes = images * port.bytes;
    if (s->output_of[n] == ABSENT) continue;
    for (axis = 0; axis < port.rank; axis++) shape[axis] = port.shape[axis];
    if (port.rank) shape[0] *= (int64_t)images;
    OPU_TRY(ort_KernelContext_GetOutput(s->api)(context, (size_t)s->output_of[n], shape,
                                                port.rank, &value));
    OPU_TRY(ort_GetTensorMutableData(s->api)(value, &s->out[n].data));
  }
  return NULL;
}

/* Why a run failed. */
static OrtStatus *failed_run(const struct segment *s, enum opu_status status) {
  const char *name = s->context.name;
  char where[OPU_MESSAGE / 2];
  struct opu_port port;
  switch (status) {
    case OPU_MACHINE_FAULT:
      snprintf(where, sizeof where, "%.80s, instruction %lu", name,
               (unsigned long)s->session.fault.instruction);
      return opu_failed(s->api, where, opu_fault_text(s->session.fault.code),
                        "compile the model again");
    case OPU_NAN:
      opu_input(&s->context.file, s->session.port, &port);
      snprintf(where, sizeof where, "%.80s, input %.80s", name, port.name);
      return opu_bad_input(s->api, where, opu_status_text(status), "check the inputs");
    case OPU_BUS:
      return opu_failed(s->api, name, opu_device_what(s->device), "look at docs/linux.md");
    case OPU_BUSY:
    case OPU_TIMEOUT:
    case OPU_NO_MACHINE:
      return opu_failed(s->api, name, opu_status_text(status), "look at docs/linux.md");
    default:
      return opu_failed(s->api, name, opu_status_text(status), "compile the model again");
  }
}

/* Run on the device; a profile gets an event of it. */
static enum opu_status execute(struct segment *s, size_t images) {
  struct opu_profiled done;
  enum opu_status status;
  if (!opu_profiles_active(s->profiles))
    return opu_device_run(s->device, &s->session, s->in, s->out, images, NULL);
  done.segment = s->context.name;
  done.device = opu_device_name(s->device);
  done.predicted_cycles = s->predicted_cycles;
  done.start_ns = opu_now_ns();
  status = opu_device_run(s->device, &s->session, s->in, s->out, images, &done.cycles);
  done.end_ns = opu_now_ns();
  if (status == OPU_OK) opu_profiles_add(s->profiles, &done);
  return status;
}

static OrtStatus *run(struct segment *s, OrtKernelContext *context) {
  size_t images = 0;
  enum opu_status status;
  OPU_TRY(get_inputs(s, context, &images));
  if (!images) images = s->context.file.batch;
  if (images > s->context.file.batch) /* `unread` has room for a batch, and the model says so */
    return opu_bad_input(s->api, s->context.name, "has more images than the model declares",
                         "give as many as it declares");
  OPU_TRY(get_outputs(s, context, images));
  status = execute(s, images);
  return status == OPU_OK ? NULL : failed_run(s, status);
}

static OrtStatus *create_state(OrtNodeComputeInfo *info, OrtNodeComputeContext *context,
                               void **state) {
  (void)context;
  *state = info;
  return NULL;
}

/* Several threads may run one session of ONNX Runtime; a segment has one set of arrays. */
static OrtStatus *compute(OrtNodeComputeInfo *info, void *state, OrtKernelContext *context) {
  struct segment *s = (struct segment *)state;
  OrtStatus *status;
  (void)info;
  pthread_mutex_lock(&s->lock);
  status = run(s, context);
  pthread_mutex_unlock(&s->lock);
  return status;
}

static void release_state(OrtNodeComputeInfo *info, void *state) {
  (void)info;
  (void)state;
}

OrtStatus *opu_segment_create(struct opu_owner *owner, const OrtGraph *graph, const OrtNode *node,
                              const OrtNode *fused, OrtNodeComputeInfo **result) {
  struct segment *s = (struct segment *)calloc(1, sizeof *s);
  OrtStatus *status;
  if (!s) return opu_no_memory(owner->api, "EPContext");
  s->api = owner->api;
  s->profiles = owner->profiles;
  s->info.version = ORT_API_VERSION;
  s->info.CreateState = create_state;
  s->info.Compute = compute;
  s->info.ReleaseState = release_state;
  pthread_mutex_init(&s->lock, NULL);
  status = opu_context_read(owner, graph, node, &s->context);
  if (!status)
    status = opu_int_attribute(s->api, node, "predicted_cycles", -1, &s->predicted_cycles);
  if (!status) status = check_machine(s, owner->options.spec_hash);
  if (!status) status = order(s, node, fused);
  if (!status) status = find_device(owner, s);
  if (!status) status = attach(s);
  if (status) {
    opu_segment_release(&s->info);
    return status;
  }
  *result = &s->info;
  return NULL;
}

void opu_segment_release(OrtNodeComputeInfo *info) {
  struct segment *s = (struct segment *)(void *)info;
  if (!s) return;
  opu_device_release(s->device, &s->session);
  opu_context_release(&s->context);
  pthread_mutex_destroy(&s->lock);
  free(s->unread);
  free(s->input_of);
  free(s->output_of);
  free(s->in);
  free(s->out);
  free(s->work);
  free(s);
}
