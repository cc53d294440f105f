/* A machine in simulation, behind a Unix socket. The other end is opu_fuse/devices/sim_server.py, the
 * messages are those of opu_fuse/devices/sim_messages.py. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* CMSG_SPACE, struct timeval of SO_RCVTIMEO */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "opu_hardware.h"
#include "opu_posix.h"

enum { HELLO = 1, READ, WRITE, WAIT };
enum { DONE = 0, REFUSED, TAKEN, OTHER_VERSION };
enum { MESSAGES_VERSION = 1, LONGEST_WAIT_MS = 1000, SILENCE_SECONDS = 2 };

struct request {
  uint32_t command, offset, value;
};
struct reply {
  uint32_t status, value;
};
/* After the reply to HELLO, with the descriptor of the memory. */
struct memory {
  uint64_t address, size;
};

static void fail(struct opu_sim *device, const char *why) {
  if (!device->failed) say(device->what, sizeof device->what, "simulation", why);
  device->failed = 1;
}

static void fail_by(struct opu_sim *device, ssize_t moved) {
  if (!moved || errno == EPIPE || errno == ECONNRESET)
    fail(device, "its process has ended");
  else
    fail(device, errno == EAGAIN ? "its process does not answer" : strerror(errno));
}

static void send_all(struct opu_sim *device, const void *data, size_t size) {
  const uint8_t *at = (const uint8_t *)data;
  while (size && !device->failed) {
    const ssize_t moved = send(device->socket, at, size, MSG_NOSIGNAL);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) {
      fail_by(device, moved);
    } else {
      at += moved;
      size -= (size_t)moved;
    }
  }
}

/* Receive so many bytes, zeros when that fails. *descriptor becomes one that comes with them. */
static void receive_all(struct opu_sim *device, void *data, size_t size, int *descriptor) {
  uint8_t *at = (uint8_t *)data;
  size_t left = size;
  while (left && !device->failed) {
    union {
      struct cmsghdr aligned;
      char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec piece;
    struct msghdr message;
    struct cmsghdr *extra;
    ssize_t moved;
    memset(&message, 0, sizeof message);
    piece.iov_base = at;
    piece.iov_len = left;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    moved = recvmsg(device->socket, &message, MSG_CMSG_CLOEXEC);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) {
      fail_by(device, moved);
      break;
    }
    extra = CMSG_FIRSTHDR(&message);
    if (descriptor && extra && extra->cmsg_level == SOL_SOCKET && extra->cmsg_type == SCM_RIGHTS)
      memcpy(descriptor, CMSG_DATA(extra), sizeof *descriptor);
    at += moved;
    left -= (size_t)moved;
  }
  if (left) memset(data, 0, size);
}

/* The reply's value, 0 when there is none. descriptor: as of receive_all. */
static struct reply ask(struct opu_sim *device, uint32_t command, uint32_t offset, uint32_t value,
                        int *descriptor) {
  struct request request;
  struct reply reply;
  request.command = command;
  request.offset = offset;
  request.value = value;
  send_all(device, &request, sizeof request);
  receive_all(device, &reply, sizeof reply, descriptor);
  return reply;
}

static uint32_t access_register(struct opu_sim *device, uint32_t command, uint32_t offset,
                                uint32_t value) {
  const struct reply reply = ask(device, command, offset, value, 0);
  if (reply.status != DONE) fail(device, "the machine refuses the access to a register (SLVERR)");
  return reply.value;
}

static uint32_t sim_read(void *self, uint32_t offset) {
  return access_register((struct opu_sim *)self, READ, offset, 0);
}

static void sim_write(void *self, uint32_t offset, uint32_t value) {
  struct opu_sim *device = (struct opu_sim *)self;
  if (restarts_time(offset, value)) device->deadline_ms = now_ms() + device->timeout_ms;
  (void)access_register(device, WRITE, offset, value);
}

/* Memory is shared; what can be wrong is that the process has gone. */
static int sim_sync(void *self) { return ((struct opu_sim *)self)->failed; }

static int sim_wait(void *self) {
  struct opu_sim *device = (struct opu_sim *)self;
  int64_t left = device->deadline_ms - now_ms();
  if (left <= 0) return 1;
  if (left > LONGEST_WAIT_MS) left = LONGEST_WAIT_MS;
  (void)ask(device, WAIT, 0, (uint32_t)left, 0);
  return 0;
}

static enum opu_status connect_to(struct opu_sim *device, const char *path) {
  struct sockaddr_un address;
  struct timeval silence; /* for longer, the process hangs */
  memset(&address, 0, sizeof address);
  memset(&silence, 0, sizeof silence);
  silence.tv_sec = device->timeout_ms / 1000 + SILENCE_SECONDS;
  address.sun_family = AF_UNIX;
  if (strlen(path) >= sizeof address.sun_path) {
    say(device->what, sizeof device->what, path, "is too long for the path of a socket");
    return OPU_BUS;
  }
  memcpy(address.sun_path, path, strlen(path));
  device->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (device->socket >= 0 &&
      !setsockopt(device->socket, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence) &&
      !connect(device->socket, (const struct sockaddr *)&address, sizeof address))
    return OPU_OK;
  say(device->what, sizeof device->what, path,
      errno == ECONNREFUSED || errno == ENOENT ? "no simulation listens there (opu-fuse hw sim)"
                                               : strerror(errno));
  return OPU_BUS;
}

/* Map the memory, whose descriptor and size come with the first reply. */
static enum opu_status greet(struct opu_sim *device) {
  int descriptor = -1;
  struct memory memory;
  void *mapped = MAP_FAILED;
  const struct reply reply = ask(device, HELLO, 0, MESSAGES_VERSION, &descriptor);
  if (device->failed) return OPU_BUS;
  if (reply.status != DONE) {
    const int taken = reply.status == TAKEN;
    fail(device, taken ? "another client has it" : "is of another version of opu-fuse");
    return taken ? OPU_BUSY : OPU_OTHER_VERSION;
  }
  receive_all(device, &memory, sizeof memory, &descriptor);
  if (descriptor >= 0) {
    if (!device->failed && memory.size && memory.size <= SIZE_MAX)
      mapped = mmap(0, (size_t)memory.size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
  }
  if (mapped == MAP_FAILED) {
    fail(device, "its memory cannot be mapped");
    return OPU_BUS;
  }
  device->window.data = (uint8_t *)mapped;
  device->window.size = (size_t)memory.size;
  device->registers.address = memory.address;
  return OPU_OK;
}

enum opu_status opu_sim_open(struct opu_sim *device, const char *name, int timeout_ms) {
  enum opu_status status;
  if (!device || !name) return OPU_BAD_ARGUMENT;
  memset(device, 0, sizeof *device);
  device->socket = -1;
  device->timeout_ms = timeout_ms;
  if (strncmp(name, "sim:", 4) != 0 || !strchr(name, '/')) return OPU_BAD_ARGUMENT;
  device->registers.read = sim_read;
  device->registers.write = sim_write;
  device->registers.to_device = sim_sync;
  device->registers.to_processor = sim_sync;
  device->registers.wait = sim_wait;
  device->registers.self = device;
  status = connect_to(device, name + 4);
  if (status == OPU_OK) status = greet(device);
  if (status != OPU_OK) opu_sim_close(device);
  return status;
}

void opu_sim_close(struct opu_sim *device) {
  if (device->socket >= 0) close(device->socket);
  if (device->window.data) munmap(device->window.data, device->window.size);
  device->socket = -1;
  device->window.data = 0;
}
