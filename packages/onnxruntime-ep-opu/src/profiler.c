/* Events of machine segments in ONNX Runtime's profiles, with their cycles. */
#define _GNU_SOURCE /* syscall */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "provider.h"

enum { NAME_BYTES = 128, MOST_EVENTS = 1000000 }; /* as many as ONNX Runtime keeps */

struct event {
  char name[NAME_BYTES], device[OPU_DEVICE_NAME];
  int64_t start_ns, end_ns, predicted;
  uint64_t cycles;
  int32_t thread;
};

/* base: first, since ONNX Runtime holds a pointer to it. offset_ns: of `started_ns`, on the clock of
 * ONNX Runtime's profile. */
struct profiler {
  OrtEpProfilerImpl base;
  const OrtApi *api;
  struct opu_profiles *profiles;
  struct profiler *next;
  int is_active;
  int64_t offset_ns, started_ns;
  struct event *events;
  size_t count, room;
};

/* users: the provider and its profilers; ONNX Runtime may release them in any order. */
struct opu_profiles {
  pthread_mutex_t lock;
  struct profiler *first;
  size_t users;
};

struct opu_profiles *opu_profiles_create(void) {
  struct opu_profiles *p = (struct opu_profiles *)calloc(1, sizeof *p);
  if (!p) return NULL;
  pthread_mutex_init(&p->lock, NULL);
  p->users = 1;
  return p;
}

void opu_profiles_release(struct opu_profiles *p) {
  size_t users;
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  users = --p->users;
  pthread_mutex_unlock(&p->lock);
  if (users) return;
  pthread_mutex_destroy(&p->lock);
  free(p);
}

int opu_profiles_active(struct opu_profiles *p) {
  const struct profiler *one;
  int active = 0;
  pthread_mutex_lock(&p->lock);
  for (one = p->first; one && !active; one = one->next) active = one->is_active;
  pthread_mutex_unlock(&p->lock);
  return active;
}

int64_t opu_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A place for an event; a null pointer where there is none. */
static struct event *next_event(struct profiler *p) {
  if (p->count == p->room) {
    const size_t room = p->room ? 2u * p->room : 64u;
    struct event *more;
    if (p->count >= MOST_EVENTS) return NULL;
    more = (struct event *)realloc(p->events, room * sizeof *more);
    if (!more) return NULL;
    p->events = more;
    p->room = room;
  }
  return &p->events[p->count++];
}

void opu_profiles_add(struct opu_profiles *p, const struct opu_profiled *run) {
  struct profiler *one;
  pthread_mutex_lock(&p->lock);
  for (one = p->first; one; one = one->next) {
    struct event *e = one->is_active ? next_event(one) : NULL;
    if (!e) continue;
    snprintf(e->name, sizeof e->name, "%s", run->segment);
    snprintf(e->device, sizeof e->device, "%s", run->device);
    e->start_ns = run->start_ns;
    e->end_ns = run->end_ns;
    e->predicted = run->predicted_cycles;
    e->cycles = run->cycles;
    e->thread = (int32_t)syscall(SYS_gettid);
  }
  pthread_mutex_unlock(&p->lock);
}

static OrtStatus *start(OrtEpProfilerImpl *self, int64_t offset_ns) {
  struct profiler *p = (struct profiler *)(void *)self;
  pthread_mutex_lock(&p->profiles->lock);
  p->offset_ns = offset_ns;
  p->started_ns = opu_now_ns();
  p->count = 0;
  p->is_active = 1;
  pthread_mutex_unlock(&p->profiles->lock);
  return NULL;
}

/* Give one event to ONNX Runtime, which copies it. */
static OrtStatus *give(const struct profiler *p, const struct event *e,
                       OrtProfilingEventsContainer *container) {
  const OrtEpApi *api = ort_GetEpApi(p->api)();
  const char *keys[3] = {"device"}, *values[3];
  const int64_t start_us = (p->offset_ns + e->start_ns - p->started_ns) / 1000;
  char measured[24], predicted[24];
  const OrtProfilingEvent *given;
  OrtProfilingEvent *event;
  OrtStatus *status;
  size_t count = 1;
  values[0] = e->device;
  if (e->cycles) {
    snprintf(measured, sizeof measured, "%llu", (unsigned long long)e->cycles);
    keys[count] = "cycles";
    values[count++] = measured;
  }
  if (e->predicted >= 0) {
    snprintf(predicted, sizeof predicted, "%lld", (long long)e->predicted);
    keys[count] = "predicted_cycles";
    values[count++] = predicted;
  }
  OPU_TRY(ort_CreateProfilingEvent(api)(ORT_PROFILING_KERNEL, (int32_t)getpid(), e->thread,
                                        e->name, start_us, (e->end_ns - e->start_ns) / 1000, keys,
                                        values, count, &event));
  given = event;
  status = ort_ProfilingEventsContainer_AddEvents(api)(container, &given, 1);
  ort_ReleaseProfilingEvent(api)(event);
  return status;
}

static OrtStatus *end(OrtEpProfilerImpl *self, OrtProfilingEventsContainer *container) {
  struct profiler *p = (struct profiler *)(void *)self;
  OrtStatus *status = NULL;
  size_t n;
  pthread_mutex_lock(&p->profiles->lock);
  p->is_active = 0;
  pthread_mutex_unlock(&p->profiles->lock);
  for (n = 0; n < p->count && !status; n++) status = give(p, &p->events[n], container);
  p->count = 0;
  return status;
}

static void release(OrtEpProfilerImpl *self) {
  struct profiler *p = (struct profiler *)(void *)self, **link;
  pthread_mutex_lock(&p->profiles->lock);
  link = &p->profiles->first;
  while (*link != p) link = &(*link)->next;
  *link = p->next;
  pthread_mutex_unlock(&p->profiles->lock);
  opu_profiles_release(p->profiles);
  free(p->events);
  free(p);
}

OrtStatus *opu_profiler_create(const OrtApi *api, struct opu_profiles *profiles,
                               OrtEpProfilerImpl **result) {
  struct profiler *p = (struct profiler *)calloc(1, sizeof *p);
  if (!p) return opu_no_memory(api, OPU_PROVIDER_NAME);
  p->api = api;
  p->profiles = profiles;
  p->base.version = ORT_API_PROFILING;
  p->base.Release = release;
  p->base.StartProfiling = start;
  p->base.EndProfiling = end;
  pthread_mutex_lock(&profiles->lock);
  profiles->users++;
  p->next = profiles->first;
  profiles->first = p;
  pthread_mutex_unlock(&profiles->lock);
  *result = &p->base;
  return NULL;
}
