/* Loading a program into a window, and running its segments in order. */
#include <string.h>

#include "opu_bytes.h"
#include "opu_file.h"
#include "opu_native.h"

enum { ALIGNMENT = 64 };

static int aligned(const void *memory) { return (uintptr_t)memory % ALIGNMENT == 0; }

/* Check what the caller gives, and note it. */
static enum opu_status take_memory(struct opu_session *session, const struct opu_file *file,
                                   const struct opu_backend *backend,
                                   const struct opu_window *window, void *work,
                                   size_t work_size) {
  if (!session || !file || !backend || !backend->run || !window) return OPU_BAD_ARGUMENT;
  memset(session, 0, sizeof *session);
  if (!file->section || !aligned(window->data) || !aligned(work)) return OPU_BAD_ARGUMENT;
  if (*file->refused) return OPU_UNSUPPORTED;
  if (window->size < file->window_bytes || work_size < file->work_bytes) return OPU_SMALL_MEMORY;
  if ((file->work_bytes && !work) || (file->window_bytes && !window->data))
    return OPU_BAD_ARGUMENT;
  session->file = file;
  session->backend = *backend;
  session->window = *window;
  session->window.size = (size_t)file->window_bytes;
  session->work = (uint8_t *)work;
  if (file->work_bytes) memset(work, 0, (size_t)file->work_bytes);
  return OPU_OK;
}

static enum opu_status attach(struct opu_session *s) {
  return s->backend.attach ? s->backend.attach(s->backend.self, s->file, &s->window) : OPU_OK;
}

enum opu_status opu_session_attach(struct opu_session *session, const struct opu_file *file,
                                   const struct opu_backend *backend,
                                   const struct opu_window *window, void *work,
                                   size_t work_size) {
  const enum opu_status status = take_memory(session, file, backend, window, work, work_size);
  return status == OPU_OK ? attach(session) : status;
}

enum opu_status opu_session_init(struct opu_session *session, const struct opu_file *file,
                                 const struct opu_backend *backend,
                                 const struct opu_window *window, void *work, size_t work_size) {
  const enum opu_status status = take_memory(session, file, backend, window, work, work_size);
  if (status != OPU_OK) return status;
  if (file->window_bytes) { /* not of a program that is on the host alone */
    memset(window->data, 0, (size_t)file->window_bytes);
    memcpy(window->data, file->constants, (size_t)file->constant_bytes);
    memcpy(window->data + file->program_offset, file->words, (size_t)file->word_count * 4);
  }
  return attach(session);
}

/* Whether every array of the caller has all images. inputs, outputs: a null pointer for none of
 * them. */
static enum opu_status check_arrays(struct opu_session *s, const struct opu_in *inputs,
                                    const struct opu_out *outputs, size_t images) {
  const struct opu_file *file = s->file;
  uint32_t n;
  for (n = 0; n < file->inputs + file->outputs; n++) {
    const struct opu_port_record port = opu_port_of(file, n);
    const int input = n < file->inputs;
    const uint32_t number = input ? n : n - file->inputs;
    const size_t one = port.elements * opu_dtype_bytes(port.dtype);
    if (input ? !inputs : !outputs) continue;
    s->port = number;
    if (!(input ? inputs[number].data : outputs[number].data)) return OPU_BAD_ARGUMENT;
    if ((input ? inputs[number].bytes : outputs[number].bytes) / one < images)
      return OPU_SMALL_MEMORY;
  }
  return OPU_OK;
}

static enum opu_status pack_images(struct opu_session *s, const struct opu_in *inputs, size_t first,
                                   uint32_t images) {
  uint32_t n, image;
  for (n = 0; n < s->file->inputs; n++) {
    const struct opu_port_record port = opu_port_of(s->file, n);
    const size_t one = port.elements * opu_dtype_bytes(port.dtype);
    const uint8_t *data = (const uint8_t *)inputs[n].data + first * one;
    s->port = n;
    for (image = 0; image < images; image++, data += one) {
      const enum opu_status status = opu_pack(s, &port, image, data);
      if (status != OPU_OK) return status;
    }
    for (; image < s->file->batch; image++) opu_pack_nothing(s, &port, image);
  }
  return OPU_OK;
}

static enum opu_status run_host(const struct opu_session *s, uint32_t segment, uint32_t images) {
  uint32_t image;
  enum opu_status status = OPU_OK;
  for (image = 0; image < images && status == OPU_OK; image++)
    status = opu_host_run(s, segment, image);
  return status;
}

/* Run the segments from `first` on. */
static enum opu_status run_segments(struct opu_session *s, uint32_t first, uint32_t images) {
  const struct opu_file *file = s->file;
  uint32_t n;
  for (n = first; n < file->segments; n++) {
    const struct opu_segment segment = opu_segment_of(file, n);
    enum opu_status status;
    s->segment = n;
    status = segment.host ? run_host(s, n, images)
                          : s->backend.run(s->backend.self, &s->window, segment.offset,
                                           segment.words, &s->fault);
    if (status != OPU_OK) return status;
  }
  return OPU_OK;
}

static void unpack_images(struct opu_session *s, const struct opu_out *outputs, size_t first,
                          uint32_t images) {
  uint32_t n, image;
  for (n = 0; n < s->file->outputs; n++) {
    const struct opu_port_record port = opu_port_of(s->file, s->file->inputs + n);
    const size_t one = port.elements * opu_dtype_bytes(port.dtype);
    uint8_t *data = (uint8_t *)outputs[n].data + first * one;
    for (image = 0; image < images; image++, data += one) opu_unpack(s, &port, image, data);
  }
}

static enum opu_status run_all(struct opu_session *s, const struct opu_in *inputs,
                               const struct opu_out *outputs, size_t images) {
  size_t first;
  enum opu_status status = check_arrays(s, inputs, outputs, images);
  for (first = 0; first < images && status == OPU_OK; first += s->file->batch) {
    const size_t left = images - first;
    const uint32_t some = left < s->file->batch ? (uint32_t)left : s->file->batch;
    status = pack_images(s, inputs, first, some);
    if (status == OPU_OK) status = run_segments(s, 0, some);
    if (status == OPU_OK) unpack_images(s, outputs, first, some);
  }
  return status;
}

/* Whether the session was free, and is the caller's now. Processors without atomic instructions
 * have one core: there an interrupt handler must not use the session of the code that it stops. */
static int take(volatile int *busy) {
#if defined __GCC_ATOMIC_INT_LOCK_FREE && __GCC_ATOMIC_INT_LOCK_FREE == 2
  return !__sync_lock_test_and_set(busy, 1);
#else
  const int was_free = !*busy;
  *busy = 1;
  return was_free;
#endif
}

static void release(volatile int *busy) {
#if defined __GCC_ATOMIC_INT_LOCK_FREE && __GCC_ATOMIC_INT_LOCK_FREE == 2
  __sync_lock_release(busy);
#else
  *busy = 0;
#endif
}

enum opu_status opu_run(struct opu_session *session, const struct opu_in *inputs,
                        const struct opu_out *outputs, size_t images) {
  enum opu_status status;
  if (!session || !session->file) return OPU_BAD_ARGUMENT;
  if ((!inputs && session->file->inputs) || (!outputs && session->file->outputs))
    return OPU_BAD_ARGUMENT;
  if (!take(&session->busy)) return OPU_BUSY;
  status = session->submitted ? OPU_BUSY : run_all(session, inputs, outputs, images);
  release(&session->busy);
  return status;
}

/* Everything up to the first machine segment, and that one's start. */
static enum opu_status begin_frame(struct opu_session *s, const struct opu_in *inputs,
                                   uint32_t images) {
  uint32_t n;
  enum opu_status status = check_arrays(s, inputs, 0, images);
  if (status == OPU_OK) status = pack_images(s, inputs, 0, images);
  if (status != OPU_OK) return status;
  memset(&s->job, 0, sizeof s->job);
  for (n = 0; n < s->file->segments; n++) {
    const struct opu_segment segment = opu_segment_of(s->file, n);
    s->segment = n;
    if (!segment.host) {
      s->job.window = &s->window;
      s->job.offset = segment.offset;
      s->job.words = segment.words;
      return s->backend.submit ? s->backend.submit(s->backend.self, &s->job) : OPU_OK;
    }
    status = run_host(s, n, images);
    if (status != OPU_OK) return status;
  }
  s->segment = n;
  return OPU_OK;
}

enum opu_status opu_submit(struct opu_session *session, const struct opu_in *inputs,
                           size_t images) {
  enum opu_status status = OPU_BUSY;
  if (!session || !session->file || (!inputs && session->file->inputs)) return OPU_BAD_ARGUMENT;
  if (!images || images > session->file->batch) return OPU_BAD_ARGUMENT;
  if (!take(&session->busy)) return OPU_BUSY;
  if (!session->submitted) {
    status = begin_frame(session, inputs, (uint32_t)images);
    if (status == OPU_OK) session->submitted = images;
  }
  release(&session->busy);
  return status;
}

/* The end of the submitted segment, and all segments behind it. */
static enum opu_status end_frame(struct opu_session *s, const struct opu_out *outputs) {
  const uint32_t images = (uint32_t)s->submitted;
  enum opu_status status;
  if (!images) return OPU_NO_FRAME;
  status = check_arrays(s, 0, outputs, images);
  if (status != OPU_OK) return status;
  s->submitted = 0;
  if (s->backend.submit && s->job.window) {
    status = s->backend.wait(s->backend.self, &s->job);
    s->fault = s->job.fault;
    if (status == OPU_OK) status = run_segments(s, s->segment + 1, images);
  } else {
    status = run_segments(s, s->segment, images);
  }
  if (status == OPU_OK) unpack_images(s, outputs, 0, images);
  return status;
}

enum opu_status opu_wait(struct opu_session *session, const struct opu_out *outputs) {
  enum opu_status status;
  if (!session || !session->file || (!outputs && session->file->outputs)) return OPU_BAD_ARGUMENT;
  if (!take(&session->busy)) return OPU_BUSY;
  status = end_frame(session, outputs);
  release(&session->busy);
  return status;
}

static enum opu_status native_attach(void *self, const struct opu_file *file,
                                     const struct opu_window *window) {
  const struct opu_native *engine = (const struct opu_native *)self;
  (void)window;
  return memcmp(&engine->machine, &file->machine, sizeof file->machine) ? OPU_OTHER_SPEC : OPU_OK;
}

static enum opu_status native_run(void *self, const struct opu_window *window, uint64_t offset,
                                  uint32_t words, struct opu_fault *fault) {
  struct opu_program program;
  struct opu_report report;
  enum opu_status status;
  memset(&report, 0, sizeof report);
  program.words = (const uint32_t *)(const void *)(window->data + offset); /* aligned: offset % 4 */
  program.count = words;
  status = opu_native_run((struct opu_native *)self, &program, window, &report);
  *fault = report.fault;
  return status;
}

void opu_native_backend(struct opu_backend *backend, struct opu_native *engine) {
  if (!backend) return;
  backend->attach = native_attach;
  backend->run = engine ? native_run : 0;
  backend->self = engine;
  backend->submit = 0;
  backend->wait = 0;
}
