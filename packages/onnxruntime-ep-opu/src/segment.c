/* A machine segment: the program file of an EPContext node in libopu, on the native engine. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"

enum { ALIGNMENT = 64, END_RECORD = 22 };

/* Which value of the fused node a port is: ONNX Runtime orders them as it likes, and leaves out
 * outputs that nobody reads. */
enum { ABSENT = -1 };

/* info: first, since ONNX Runtime holds a pointer to it. bytes: the program file. input_of,
 * output_of: value of the fused node by port. unread: memory for outputs that are absent. */
struct segment {
  OrtNodeComputeInfo info;
  const OrtApi *api;
  char *name;
  char *bytes;
  void *arena, *window, *work;
  struct opu_file file;
  struct opu_backend backend;
  struct opu_session session;
  struct opu_in *in;
  struct opu_out *out;
  long *input_of, *output_of;
  void *unread;
  pthread_mutex_t lock;
};

static OrtStatus *no_memory(const struct segment *s) {
  return opu_failed(s->api, s->name, "there is no memory for it", "give the process more");
}

static void *aligned(uint64_t bytes) {
  void *memory = NULL;
  if (bytes > (size_t)-1 - ALIGNMENT) return NULL;
  return posix_memalign(&memory, ALIGNMENT, bytes ? (size_t)bytes : 1u) ? NULL : memory;
}

/* The program file next to the model. */
static OrtStatus *read_file(struct segment *s, const OrtGraph *graph, size_t *size) {
  const char *model, *slash;
  char *path;
  FILE *file;
  long end = -1;
  size_t folder;
  OPU_TRY(ort_Graph_GetModelPath(s->api)(graph, &model));
  if (strchr(s->bytes, '/') || strcmp(s->bytes, "") == 0)
    return opu_failed(s->api, s->name, "ep_cache_context names no file next to the model",
                      "compile the model again");
  slash = strrchr(model, '/');
  folder = slash ? (size_t)(slash - model) + 1u : 0u;
  path = (char *)malloc(folder + strlen(s->bytes) + 1u);
  if (!path) return no_memory(s);
  memcpy(path, model, folder);
  strcpy(path + folder, s->bytes);
  file = fopen(path, "rb");
  free(s->bytes);
  s->bytes = NULL;
  if (file && fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) >= 0) {
    rewind(file);
    s->bytes = (char *)malloc((size_t)end + 1u);
    *size = s->bytes ? fread(s->bytes, 1, (size_t)end, file) : 0;
  }
  if (file) fclose(file);
  if (!s->bytes || *size != (size_t)end) {
    OrtStatus *status = opu_failed(s->api, path, "cannot be read",
                                   "keep the programs of a model next to it");
    free(path);
    return status;
  }
  free(path);
  return NULL;
}

/* Versions of ONNX Runtime differ in whether the size of a string counts a zero at its end. */
static size_t without_zero(const char *bytes, size_t size) {
  const size_t end = size < END_RECORD + 1u ? 0 : size - END_RECORD - 1u;
  return size > END_RECORD && memcmp(bytes + end, "PK\005\006", 4) == 0 ? size - 1u : size;
}

static OrtStatus *read_program(struct segment *s, const OrtGraph *graph, const OrtNode *node) {
  const char *name;
  enum opu_status status;
  size_t size;
  int64_t inside;
  OPU_TRY(ort_Node_GetName(s->api)(node, &name));
  s->name = (char *)malloc(strlen(name) + 1u);
  if (!s->name) return no_memory(s);
  strcpy(s->name, name);
  OPU_TRY(opu_string_attribute(s->api, node, "ep_cache_context", &s->bytes, &size));
  if (!s->bytes)
    return opu_failed(s->api, s->name, "has no ep_cache_context", "compile the model again");
  OPU_TRY(opu_int_attribute(s->api, node, "embed_mode", 1, &inside));
  if (inside)
    size = without_zero(s->bytes, size);
  else
    OPU_TRY(read_file(s, graph, &size));
  status = opu_open(&s->file, s->bytes, size);
  if (status != OPU_OK) {
    char what[OPU_MESSAGE / 2];
    const char *detail = status == OPU_DAMAGED && s->file.what ? s->file.what : "";
    snprintf(what, sizeof what, "%s%s%s", opu_status_text(status), *detail ? ": " : "", detail);
    return opu_failed(s->api, s->name, what, "compile the model again");
  }
  if (*s->file.refused)
    return opu_failed(s->api, s->name, s->file.refused, "compile the model again");
  return NULL;
}

static OrtStatus *check_machine(const struct segment *s, const char *spec_hash) {
  char own[40], what[128];
  if (!spec_hash) return NULL;
  snprintf(own, sizeof own, "%03lx%08lx", (unsigned long)s->file.machine.spec_hash[1],
           (unsigned long)s->file.machine.spec_hash[0]);
  if (strcmp(own, spec_hash) == 0) return NULL;
  snprintf(what, sizeof what, "was compiled for machine %s, the session asks for %.16s", own,
           spec_hash);
  return opu_failed(s->api, s->name, what, "compile the model for that machine");
}

static OrtStatus *load(struct segment *s) {
  const size_t arena_size = opu_native_size(&s->file.machine);
  const struct opu_file *file = &s->file;
  struct opu_native *engine;
  struct opu_window window;
  enum opu_status status;
  s->arena = aligned(arena_size);
  s->window = aligned(file->window_bytes);
  s->work = aligned(file->work_bytes);
  s->in = (struct opu_in *)calloc((size_t)file->inputs + 1u, sizeof *s->in);
  s->out = (struct opu_out *)calloc((size_t)file->outputs + 1u, sizeof *s->out);
  if (!s->arena || !s->window || !s->work || !s->in || !s->out) return no_memory(s);
  status = opu_native_init(&engine, &file->machine, s->arena, arena_size);
  if (status == OPU_OK) {
    opu_native_backend(&s->backend, engine);
    window.data = (uint8_t *)s->window;
    window.size = (size_t)file->window_bytes;
    status = opu_session_init(&s->session, file, &s->backend, &window, s->work,
                              (size_t)file->work_bytes);
  }
  if (status == OPU_OK) return NULL;
  return opu_failed(s->api, s->name, opu_status_text(status), "compile the model again");
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
    status = opu_failed(s->api, s->name, "has another number of values than its program",
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
                   s->file.inputs, &s->input_of));
  OPU_TRY(order_of(s, node, fused, ort_Node_GetNumOutputs(s->api), ort_Node_GetOutputs(s->api),
                   s->file.outputs, &s->output_of));
  for (n = 0; n < s->file.inputs; n++)
    if (s->input_of[n] == ABSENT)
      return opu_failed(s->api, s->name, "ONNX Runtime left out an input", "report this");
  for (n = 0; n < s->file.outputs; n++) {
    struct opu_port port;
    opu_output(&s->file, n, &port);
    if (s->output_of[n] == ABSENT && port.bytes * s->file.batch > most)
      most = port.bytes * s->file.batch;
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
  return opu_bad_input(s->api, s->name, what, "give arrays of the model's types and shapes");
}

static OrtStatus *get_inputs(struct segment *s, const OrtKernelContext *context, size_t *images) {
  uint32_t n;
  for (n = 0; n < s->file.inputs; n++) {
    const OrtValue *value;
    struct opu_port port;
    void *data;
    OPU_TRY(ort_KernelContext_GetInput(s->api)(context, (size_t)s->input_of[n], &value));
    opu_input(&s->file, n, &port);
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
  for (n = 0; n < s->file.outputs; n++) {
    int64_t shape[OPU_RANK];
    struct opu_port port;
    OrtValue *value;
    opu_output(&s->file, n, &port);
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

static OrtStatus *run(struct segment *s, OrtKernelContext *context) {
  size_t images = 0;
  enum opu_status status;
  struct opu_port port;
  char where[OPU_MESSAGE / 2];
  OPU_TRY(get_inputs(s, context, &images));
  if (!images) images = s->file.batch;
  if (images > s->file.batch) /* `unread` has room for a batch, and the model says so */
    return opu_bad_input(s->api, s->name, "has more images than the model declares",
                         "give as many as it declares");
  OPU_TRY(get_outputs(s, context, images));
  status = opu_run(&s->session, s->in, s->out, images);
  if (status == OPU_OK) return NULL;
  if (status == OPU_MACHINE_FAULT) {
    snprintf(where, sizeof where, "%.80s, instruction %lu", s->name,
             (unsigned long)s->session.fault.instruction);
    return opu_failed(s->api, where, opu_fault_text(s->session.fault.code),
                      "compile the model again");
  }
  if (status != OPU_NAN)
    return opu_failed(s->api, s->name, opu_status_text(status), "compile the model again");
  opu_input(&s->file, s->session.port, &port);
  snprintf(where, sizeof where, "%.80s, input %.80s", s->name, port.name);
  return opu_bad_input(s->api, where, opu_status_text(status), "check the inputs");
}

static OrtStatus *create_state(OrtNodeComputeInfo *info, OrtNodeComputeContext *context,
                               void **state) {
  (void)context;
  *state = info;
  return NULL;
}

/* Several threads may run one session of ONNX Runtime; a segment has one machine. */
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

OrtStatus *opu_segment_create(const OrtApi *api, const OrtGraph *graph, const OrtNode *fused,
                              const char *spec_hash, OrtNodeComputeInfo **result) {
  const OrtNode *node;
  struct segment *s;
  OrtStatus *status;
  size_t nodes;
  OPU_TRY(ort_Graph_GetNumNodes(api)(graph, &nodes));
  if (nodes != 1)
    return opu_failed(api, "EPContext", "ONNX Runtime fused several of them", "report this");
  OPU_TRY(ort_Graph_GetNodes(api)(graph, &node, 1));
  s = (struct segment *)calloc(1, sizeof *s);
  if (!s) return opu_failed(api, "EPContext", "there is no memory", "give the process more");
  s->api = api;
  s->info.version = ORT_API_VERSION;
  s->info.CreateState = create_state;
  s->info.Compute = compute;
  s->info.ReleaseState = release_state;
  pthread_mutex_init(&s->lock, NULL);
  status = read_program(s, graph, node);
  if (!status) status = check_machine(s, spec_hash);
  if (!status) status = order(s, node, fused);
  if (!status) status = load(s);
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
  pthread_mutex_destroy(&s->lock);
  free(s->unread);
  free(s->input_of);
  free(s->output_of);
  free(s->in);
  free(s->out);
  free(s->work);
  free(s->window);
  free(s->arena);
  free(s->bytes);
  free(s->name);
  free(s);
}
