/* Program files: checks, ports, segments. runtime.bin is written by bundle/runtime_member.py. */
#include "opu_file.h"

#include <string.h>

enum { AXES = 8, PORT_WORDS = 36, HEAD_WORDS = 4, FLOAT32 = 0, INT8 = 1, UINT8 = 2 };

struct port {
  uint32_t name, name_size, kind, has_table, elements, scale, zero, axes;
  uint32_t size[AXES], stride[AXES];
  uint32_t offset, channels, rows, cols, word, lanes, slot, pieces, pieces_at, lowest, table_at;
  uint32_t reserved;
};

static uint32_t u32(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t u16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }

static uint32_t crc32_of(const uint8_t *p, size_t n) {
  static const uint32_t nibble[16] = {
      0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
      0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
      0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
  uint32_t crc = 0xffffffffu;
  while (n--) {
    crc ^= *p++;
    crc = crc >> 4 ^ nibble[crc & 15u];
    crc = crc >> 4 ^ nibble[crc & 15u];
  }
  return ~crc;
}

static int spans(uint64_t first, uint64_t count, uint64_t size) {
  return first <= size && count <= size - first;
}

const char *opu_file_text(enum opu_file_status status) {
  static const char *const texts[] = {
      "no error",
      "a null pointer, or a number of a port that the program has not",
      "the file is damaged: compile the model again",
      "runtime.bin is of another version: use libopu of the opu-fuse that compiled the model",
      "the file has no runtime.bin: compile the model again (opu-fuse compile)",
      "the memory given is smaller than the program needs",
      "it is computed on the host, which libopu does not do",
      "an input holds NaN, which no int8 can represent",
      "the device stopped before the end of the program"};
  return (unsigned)status < sizeof texts / sizeof texts[0] ? texts[status] : "unknown status";
}

static enum opu_file_status damaged(struct opu_file *file, const char *where) {
  file->where = where;
  return OPU_FILE_DAMAGED;
}

static int named(const uint8_t *name, uint32_t size, const char *text) {
  return size == strlen(text) && memcmp(name, text, size) == 0;
}

/* Members that a run needs; the CRC of every member is compared. */
static enum opu_file_status members(struct opu_file *file, const uint8_t *data, size_t size) {
  const uint8_t *end = data + (size < 22 ? 0 : size - 22);
  uint32_t count, n;
  uint64_t at;
  if (size < 22 || u32(end) != 0x06054b50u) return damaged(file, "end of the ZIP");
  count = u16(end + 10);
  at = u32(end + 16);
  for (n = 0; n < count; n++) {
    const uint8_t *entry, *local, *name, *body;
    uint32_t bytes, length;
    uint64_t start;
    if (!spans(at, 46, size)) return damaged(file, "ZIP directory");
    entry = data + at;
    bytes = u32(entry + 24);
    length = u16(entry + 28);
    start = u32(entry + 42);
    if (u32(entry) != 0x02014b50u || u16(entry + 10) != 0 || u32(entry + 20) != bytes ||
        !spans(at + 46, length, size) || !spans(start, 30, size))
      return damaged(file, "ZIP directory");
    name = entry + 46;
    local = data + start;
    start += 30 + u16(local + 26) + u16(local + 28);
    if (u32(local) != 0x04034b50u || u16(local + 26) != length || !spans(start, bytes, size) ||
        memcmp(local + 30, name, length) != 0)
      return damaged(file, "ZIP member");
    body = data + start;
    if (crc32_of(body, bytes) != u32(entry + 16)) return damaged(file, "CRC of a ZIP member");
    if (named(name, length, "runtime.bin")) file->runtime = body, file->runtime_size = bytes;
    if (named(name, length, "dram.bin")) file->constants = body, file->constant_bytes = bytes;
    if (named(name, length, "program.bin")) file->words = body, file->word_count = bytes;
    at += 46 + (uint64_t)length + u16(entry + 30) + u16(entry + 32);
  }
  if (!file->constants || !file->words) return damaged(file, "dram.bin or program.bin is missing");
  return file->runtime ? OPU_FILE_OK : OPU_FILE_OLD;
}

static struct port port_of(const struct opu_file *file, uint32_t number) {
  uint32_t words[PORT_WORDS], n;
  struct port port;
  for (n = 0; n < PORT_WORDS; n++)
    words[n] = u32(file->runtime + file->port_at + 4 * (PORT_WORDS * number + n));
  memcpy(&port, words, sizeof port);
  return port;
}

static uint64_t blocks_of(const struct opu_file *file, const struct port *p) {
  uint64_t last = p->channels, n;
  if (p->slot < p->word) return 1;
  if (p->pieces) last = 0;
  for (n = 0; n < p->pieces; n++) {
    const uint8_t *piece = file->runtime + p->pieces_at + 8 * n;
    const uint64_t end = (uint64_t)u32(piece) + u32(piece + 4);
    if (end > last) last = end;
  }
  return (last + p->lanes - 1) / p->lanes;
}

static uint64_t row_bytes(const struct port *p) {
  return ((uint64_t)p->cols * p->slot + p->word - 1) / p->word * p->word;
}

/* Whether every access that packing makes is inside the window, the array and runtime.bin. */
static int good_port(const struct opu_file *file, const struct port *p, int input) {
  const uint64_t limit = 0x7fffffffu;
  uint64_t all = 1, last = 0, inside, bytes, channels = 0, lanes, n;
  if (!spans(p->name, p->name_size, file->runtime_size)) return 0;
  if (p->kind == 255) return 1;
  if (p->kind > UINT8 || p->axes < 1 || p->axes > AXES || p->has_table > 1 || !p->elements) return 0;
  for (n = 0; n < p->axes; n++) {
    if (!p->size[n] || p->size[n] > limit || (all *= p->size[n]) > limit) return 0;
    last += (uint64_t)(p->size[n] - 1) * p->stride[n];
    if (last >= p->elements) return 0;
  }
  if (p->elements != all || p->channels < 1 || p->rows < 1 || p->cols < 1) return 0;
  if (p->channels > limit || p->rows % file->batch || p->slot < 1 || p->slot > p->word) return 0;
  if (p->word > 0x10000u || p->word % p->slot || p->lanes < 1 || p->lanes > p->word) return 0;
  if (!spans(p->pieces_at, (uint64_t)p->pieces * 8, file->runtime_size)) return 0;
  lanes = p->slot < p->word ? p->slot : limit;
  for (n = 0; n < p->pieces; n++) {
    const uint8_t *piece = file->runtime + p->pieces_at + 8 * n;
    channels += u32(piece + 4);
    if ((uint64_t)u32(piece) + u32(piece + 4) > lanes) return 0;
  }
  if (p->pieces ? channels != p->channels : p->channels > lanes) return 0;
  bytes = blocks_of(file, p) * p->rows;
  if (bytes > limit || row_bytes(p) > limit || (bytes *= row_bytes(p)) > limit) return 0;
  if (!spans(p->offset, bytes, file->window_bytes)) return 0;
  inside = (uint64_t)(p->rows / file->batch) * p->cols; /* of one channel; small: see bytes */
  if (!p->has_table) return inside * p->channels == all;
  if (!input || p->kind == FLOAT32 || (p->lowest != 0 && p->lowest != 0xffffff80u)) return 0;
  if (p->lowest != (p->kind == INT8 ? 0xffffff80u : 0)) return 0;
  if (!spans(p->table_at, (uint64_t)p->channels * 260, file->runtime_size)) return 0;
  for (n = 0; n < p->channels; n++)
    if (((uint64_t)u32(file->runtime + p->table_at + 4 * n) + 1) * inside > all) return 0;
  return 1;
}

enum opu_file_status opu_file_open(struct opu_file *file, const void *bytes, size_t size) {
  const uint32_t machine_words = (uint32_t)(sizeof file->machine / 4);
  const uint8_t *at;
  uint32_t numbers[sizeof(struct opu_machine_config) / 4], n;
  enum opu_file_status status;
  uint64_t fixed;
  if (!file || !bytes) return OPU_FILE_NULL;
  memset(file, 0, sizeof *file);
  file->where = "";
  status = members(file, (const uint8_t *)bytes, size);
  if (status != OPU_FILE_OK) return status;
  at = file->runtime;
  fixed = 4 * (uint64_t)(HEAD_WORDS + 1 + machine_words + 8);
  if (file->runtime_size < 16 || u32(at) != 0x5255504fu) return damaged(file, "runtime.bin");
  if (u32(at + 4) != 1) return OPU_FILE_VERSION;
  if (file->runtime_size < fixed || u32(at + 8) != file->runtime_size ||
      u32(at + 12) != crc32_of(at + 16, file->runtime_size - 16))
    return damaged(file, "runtime.bin: size or CRC");
  if (u32(at + 16) != machine_words || u32(at + 20) != OPU_MACHINE_LAYOUT) return OPU_FILE_VERSION;
  for (n = 0; n < machine_words; n++) numbers[n] = u32(at + 20 + 4 * n);
  memcpy(&file->machine, numbers, sizeof file->machine);
  at += 20 + 4 * machine_words;
  file->window_bytes = u32(at);
  file->program_offset = u32(at + 4);
  if (u32(at + 8) != file->constant_bytes || (uint64_t)u32(at + 12) * 4 != file->word_count)
    return damaged(file, "runtime.bin: sizes of dram.bin and program.bin");
  file->word_count /= 4;
  file->batch = u32(at + 16);
  file->segments = u32(at + 20);
  file->inputs = u32(at + 24);
  file->outputs = u32(at + 28);
  file->segment_at = (uint32_t)fixed;
  if (!spans(fixed, (uint64_t)file->segments * 8, file->runtime_size) || file->batch < 1)
    return damaged(file, "runtime.bin: segments");
  file->port_at = file->segment_at + 8 * file->segments;
  if (!spans(file->port_at, ((uint64_t)file->inputs + file->outputs) * 4 * PORT_WORDS,
             file->runtime_size))
    return damaged(file, "runtime.bin: ports");
  if (file->program_offset % 4 || file->constant_bytes > file->program_offset ||
      !spans(file->program_offset, (uint64_t)file->word_count * 4, file->window_bytes))
    return damaged(file, "runtime.bin: program outside the window");
  for (n = 0; n < file->segments; n++) {
    const uint32_t offset = u32(file->runtime + file->segment_at + 8 * n);
    const uint32_t words = u32(file->runtime + file->segment_at + 8 * n + 4);
    if (words && (offset % 4 || offset < file->program_offset ||
                  !spans(offset - file->program_offset, (uint64_t)words * 4,
                         (uint64_t)file->word_count * 4)))
      return damaged(file, "runtime.bin: a segment outside the program");
  }
  for (n = 0; n < file->inputs + file->outputs; n++) {
    const struct port port = port_of(file, n);
    if (!good_port(file, &port, n < file->inputs)) return damaged(file, "runtime.bin: a port");
  }
  return OPU_FILE_OK;
}

enum opu_file_status opu_file_load(const struct opu_file *file, const struct opu_window *window) {
  if (!file || !window || !window->data) return OPU_FILE_NULL;
  if (window->size < file->window_bytes) return OPU_FILE_SMALL;
  memset(window->data, 0, file->window_bytes);
  memcpy(window->data, file->constants, file->constant_bytes);
  memcpy(window->data + file->program_offset, file->words, (size_t)file->word_count * 4);
  return OPU_FILE_OK;
}

static size_t array_bytes(const struct opu_file *file, uint32_t number) {
  const struct port p = port_of(file, number);
  if (p.kind == 255) return 0;
  return (size_t)p.elements * file->batch * (p.kind == FLOAT32 ? 4 : 1);
}

size_t opu_file_input_bytes(const struct opu_file *file, uint32_t number) {
  return file && number < file->inputs ? array_bytes(file, number) : 0;
}

size_t opu_file_output_bytes(const struct opu_file *file, uint32_t number) {
  return file && number < file->outputs ? array_bytes(file, file->inputs + number) : 0;
}

/* Element of the value -> element of the user's array. */
static size_t outside(const struct port *p, uint32_t element) {
  size_t result = 0;
  uint32_t n;
  for (n = p->axes; n--;) {
    result += (size_t)(element % p->size[n]) * p->stride[n];
    element /= p->size[n];
  }
  return result;
}

/* Halves to even, then saturated, as ONNX QuantizeLinear. value is no NaN. */
static int quantised(float value, float scale, int zero) {
  const float scaled = value / scale;
  int whole;
  float rest;
  if (scaled > 1000.0f) return 127;
  if (scaled < -1000.0f) return -128;
  whole = (int)scaled;
  rest = scaled - (float)whole;
  if (rest > 0.5f || (rest == 0.5f && whole % 2)) whole++;
  if (rest < -0.5f || (rest == -0.5f && whole % 2)) whole--;
  whole += zero;
  return whole > 127 ? 127 : whole < -128 ? -128 : whole;
}

static uint32_t lane_of(const struct opu_file *file, const struct port *p, uint32_t channel) {
  const uint8_t *piece = file->runtime + p->pieces_at;
  if (!p->pieces) return channel;
  while (channel >= u32(piece + 4)) channel -= u32(piece + 4), piece += 8;
  return u32(piece) + channel;
}

/* Move one channel of one image; 0 for a NaN. */
static int channel(const struct opu_file *file, const struct port *p, uint8_t *window,
                   uint32_t image, uint32_t c, uint8_t *array, int input) {
  const uint32_t rows = p->rows / file->batch, lane = lane_of(file, p, c);
  const uint32_t block = p->slot < p->word ? 0 : lane / p->lanes;
  const uint32_t byte = p->slot < p->word ? lane : lane % p->lanes;
  const uint8_t *channels = file->runtime + p->table_at;
  const uint32_t source = p->has_table ? u32(channels + 4 * c) : c;
  uint32_t row, col;
  float scale;
  int32_t zero;
  memcpy(&scale, &p->scale, 4);
  memcpy(&zero, &p->zero, 4);
  for (row = 0; row < rows; row++) {
    const size_t line = (size_t)block * p->rows + (size_t)image * rows + row;
    uint8_t *at = window + p->offset + line * (size_t)row_bytes(p) + byte;
    for (col = 0; col < p->cols; col++, at += p->slot) {
      const size_t element = outside(p, (source * rows + row) * p->cols + col);
      uint8_t *user = array + (element + (size_t)image * p->elements) * (p->kind ? 1 : 4);
      float value;
      if (p->has_table) {
        const uint32_t index = p->kind == INT8 ? *user ^ 128u : *user;
        *at = channels[4 * (size_t)p->channels + 256 * (size_t)c + index];
      } else if (p->kind == FLOAT32 && input) {
        memcpy(&value, user, 4);
        if (value != value) return 0;
        *at = (uint8_t)quantised(value, scale, zero);
      } else if (p->kind == FLOAT32) {
        value = (float)((*at ^ 128) - 128 - zero) * scale;
        memcpy(user, &value, 4);
      } else if (input) {
        *at = (uint8_t)(*user ^ (p->kind == UINT8 ? 128u : 0u));
      } else {
        *user = (uint8_t)(*at ^ (p->kind == UINT8 ? 128u : 0u));
      }
    }
  }
  return 1;
}

static enum opu_file_status move(const struct opu_file *file, const struct opu_window *window,
                                 uint32_t number, uint8_t *array, size_t bytes, int input) {
  const struct port p = port_of(file, number);
  uint32_t image, c;
  if (p.kind == 255) return OPU_FILE_HOST;
  if (window->size < file->window_bytes || bytes < array_bytes(file, number)) return OPU_FILE_SMALL;
  if (input && !p.pieces)
    memset(window->data + p.offset, 0, (size_t)(blocks_of(file, &p) * p.rows * row_bytes(&p)));
  for (image = 0; image < file->batch; image++)
    for (c = 0; c < p.channels; c++)
      if (!channel(file, &p, window->data, image, c, array, input)) return OPU_FILE_NAN;
  return OPU_FILE_OK;
}

enum opu_file_status opu_file_input(const struct opu_file *file, const struct opu_window *window,
                                    uint32_t number, const void *array, size_t bytes) {
  if (!file || !window || !window->data || !array || number >= file->inputs) return OPU_FILE_NULL;
  return move(file, window, number, (uint8_t *)array, bytes, 1); /* only read with input = 1 */
}

enum opu_file_status opu_file_output(const struct opu_file *file, const struct opu_window *window,
                                     uint32_t number, void *array, size_t bytes) {
  if (!file || !window || !window->data || !array || number >= file->outputs) return OPU_FILE_NULL;
  return move(file, window, file->inputs + number, (uint8_t *)array, bytes, 0);
}

enum opu_file_status opu_file_run(const struct opu_file *file, const struct opu_window *window,
                                  const struct opu_backend *backend, uint32_t *segment) {
  uint32_t n;
  if (!file || !window || !window->data || !backend || !backend->run) return OPU_FILE_NULL;
  if (window->size < file->window_bytes) return OPU_FILE_SMALL;
  for (n = 0; n < file->segments; n++) {
    const uint8_t *record = file->runtime + file->segment_at + 8 * n;
    if (segment) *segment = n;
    if (!u32(record + 4)) return OPU_FILE_HOST;
    if (backend->run(backend->self, window, u32(record), u32(record + 4))) return OPU_FILE_MACHINE;
  }
  return OPU_FILE_OK;
}

int opu_backend_native(void *self, const struct opu_window *window, uint32_t offset,
                       uint32_t words) {
  struct opu_program program;
  program.words = (const uint32_t *)(const void *)(window->data + offset);
  program.count = words;
  return (int)opu_native_run((struct opu_native *)self, &program, window, NULL);
}
