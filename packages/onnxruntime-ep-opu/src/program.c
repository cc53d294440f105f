/* Programs of EPContext nodes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opu_file.h"
#include "provider.h"

enum { END_RECORD = 22 };

/* A program file as it is read. mapped: it is a file next to the model. */
struct bytes {
  char *data;
  size_t size;
  int mapped;
};

static void release_bytes(struct bytes *b) {
  if (b->mapped)
    munmap(b->data, b->size);
  else
    free(b->data);
}

/* Path of the program next to the model; the caller frees it. */
static OrtStatus *path_of(const OrtApi *api, const char *where, const OrtGraph *graph,
                          const char *name, char **path) {
  const char *model, *slash;
  size_t folder;
  OPU_TRY(ort_Graph_GetModelPath(api)(graph, &model));
  if (strchr(name, '/') || !*name)
    return opu_failed(api, where, "ep_cache_context names no file next to the model",
                      "compile the model again");
  slash = strrchr(model, '/');
  folder = slash ? (size_t)(slash - model) + 1u : 0u;
  *path = (char *)malloc(folder + strlen(name) + 1u);
  if (!*path) return opu_no_memory(api, where);
  memcpy(*path, model, folder);
  strcpy(*path + folder, name);
  return NULL;
}

static int map_file(const char *path, struct bytes *b) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat facts;
  void *memory = MAP_FAILED;
  if (file >= 0 && fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0)
    memory = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) return 0;
  b->data = (char *)memory;
  b->size = (size_t)facts.st_size;
  b->mapped = 1;
  return 1;
}

/* The file whose name is in `b`, in its place. */
static OrtStatus *read_file(const OrtApi *api, const char *where, const OrtGraph *graph,
                            struct bytes *b) {
  char *path;
  OrtStatus *status = NULL;
  OPU_TRY(path_of(api, where, graph, b->data, &path));
  free(b->data);
  b->data = NULL;
  if (!map_file(path, b))
    status = opu_failed(api, path, "cannot be read", "keep the programs of a model next to it");
  free(path);
  return status;
}

/* Versions of ONNX Runtime differ in whether the size of a string counts a zero at its end. */
static size_t without_zero(const char *bytes, size_t size) {
  const size_t end = size < END_RECORD + 1u ? 0 : size - END_RECORD - 1u;
  return size > END_RECORD && memcmp(bytes + end, "PK\005\006", 4) == 0 ? size - 1u : size;
}

static OrtStatus *read_bytes(const OrtApi *api, const char *where, const OrtGraph *graph,
                             const OrtNode *node, struct bytes *b) {
  int64_t inside;
  OPU_TRY(opu_string_attribute(api, node, "ep_cache_context", &b->data, &b->size));
  if (!b->data) return opu_failed(api, where, "has no ep_cache_context", "compile the model again");
  OPU_TRY(opu_int_attribute(api, node, "embed_mode", 1, &inside));
  if (!inside) return read_file(api, where, graph, b);
  b->size = without_zero(b->data, b->size);
  return NULL;
}

OrtStatus *opu_is_main(const OrtApi *api, const OrtNode *node, int *is_main) {
  int64_t value;
  OPU_TRY(opu_int_attribute(api, node, "main_context", 1, &value));
  *is_main = value != 0;
  return NULL;
}

static OrtStatus *find_constants(const OrtApi *api, const OrtNode *node,
                                 const struct opu_owner *owner, struct opu_context *c) {
  int64_t crc;
  size_t n;
  OPU_TRY(opu_int_attribute(api, node, "constants_crc32", -1, &crc));
  for (n = 0; n < owner->count && !c->constants; n++) {
    struct opu_constants *others = opu_device_constants(owner->devices[n]);
    if ((int64_t)others->crc == crc) c->constants = opu_constants_again(others);
  }
  if (c->constants) return NULL;
  return opu_failed(api, c->name, "the context with its constants is not in this model",
                    "compile the model again");
}

static uint8_t *copy_of(const uint8_t *data, size_t bytes) {
  uint8_t *copy = (uint8_t *)malloc(bytes + 1u);
  if (copy) memcpy(copy, data, bytes);
  return copy;
}

/* Take what a run needs, so that the file itself can go. */
static OrtStatus *take_members(const OrtApi *api, const OrtNode *node,
                               const struct opu_owner *owner, const struct bytes *b,
                               struct opu_context *c) {
  struct opu_members found;
  const char *wrong = opu_find_members((const uint8_t *)b->data, b->size, &found);
  char what[OPU_MESSAGE / 2];
  int is_main;
  OPU_TRY(opu_is_main(api, node, &is_main));
  if (!wrong && (!found.section || !found.words || (is_main && !found.constants)))
    wrong = "a member is missing";
  if (wrong) {
    snprintf(what, sizeof what, "the file is damaged (%s)", wrong);
    return opu_failed(api, c->name, what, "compile the model again");
  }
  c->section = copy_of(found.section, c->section_bytes = found.section_bytes);
  c->words = copy_of(found.words, c->words_bytes = found.words_bytes);
  if (!c->section || !c->words) return opu_no_memory(api, c->name);
  if (!is_main) return find_constants(api, node, owner, c);
  c->constants =
      opu_constants_share(found.constants, found.constant_bytes, found.constants_crc);
  return c->constants ? NULL : opu_no_memory(api, c->name);
}

/* Check the members. */
static OrtStatus *open_members(const OrtApi *api, struct opu_context *c) {
  const enum opu_status status =
      opu_open_members(&c->file, c->section, c->section_bytes, c->constants->data,
                       c->constants->bytes, c->words, c->words_bytes);
  char what[OPU_MESSAGE / 2];
  if (status == OPU_OK && !*c->file.refused) return NULL;
  if (status == OPU_DAMAGED)
    snprintf(what, sizeof what, "the file is damaged (%s)", c->file.what);
  else
    snprintf(what, sizeof what, "%s", status == OPU_OK ? c->file.refused : opu_status_text(status));
  return opu_failed(api, c->name, what, "compile the model again");
}

OrtStatus *opu_context_read(const struct opu_owner *owner, const OrtGraph *graph,
                            const OrtNode *node, struct opu_context *c) {
  const OrtApi *api = owner->api;
  struct bytes b = {NULL, 0, 0};
  OrtStatus *status;
  const char *name;
  OPU_TRY(ort_Node_GetName(api)(node, &name));
  c->name = (char *)copy_of((const uint8_t *)name, strlen(name) + 1u);
  if (!c->name) return opu_no_memory(api, name);
  status = read_bytes(api, c->name, graph, node, &b);
  if (!status) status = take_members(api, node, owner, &b, c);
  release_bytes(&b);
  return status ? status : open_members(api, c);
}

void opu_context_release(struct opu_context *c) {
  opu_constants_release(c->constants);
  free(c->section);
  free(c->words);
  free(c->name);
}
