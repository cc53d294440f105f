// The other end of the serial line in simulation: a Unix socket that somebody listens on. Called from ulx3s_board.sv (DPI-C).

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace {
constexpr int none = -1, closed = -2;
constexpr unsigned patience = 64;  // calls between looks when nothing came
int link_end = -1;
unsigned pause_left = 0;
}  // namespace

extern "C" {

// 1, or 0 when nobody listens at that path.
int ulx3s_link_open(const char *path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (std::strlen(path) >= sizeof address.sun_path) return 0;
    std::strcpy(address.sun_path, path);
    link_end = socket(AF_UNIX, SOCK_STREAM, 0);
    return link_end >= 0 && connect(link_end, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0;
}

// A byte that was sent to the board; none; or closed.
int ulx3s_link_get() {
    if (pause_left) {
        pause_left--;
        return none;
    }
    uint8_t byte = 0;
    const ssize_t received = recv(link_end, &byte, 1, MSG_DONTWAIT);
    if (received == 1) return byte;
    if (received == 0) return closed;
    pause_left = patience;
    return errno == EAGAIN || errno == EWOULDBLOCK ? none : closed;
}

void ulx3s_link_put(int value) {
    const uint8_t byte = static_cast<uint8_t>(value);
    (void)!send(link_end, &byte, 1, MSG_NOSIGNAL);
}
}
