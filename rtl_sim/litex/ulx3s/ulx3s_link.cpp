// The other end of the serial line in simulation: a terminal that a host opens as a serial port. Called from ulx3s_board.sv (DPI-C).

#include <fcntl.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace {
constexpr int none = -1, closed = -2;
constexpr unsigned patience = 64;  // calls between looks when nothing came
int link_end = -1;
bool in_use = false;  // a byte has come: a host has opened it
unsigned pause_left = 0;
}  // namespace

extern "C" {

// Makes the terminal, and a link to it at that path; 0 where it cannot.
int ulx3s_link_open(const char *path) {
    link_end = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (link_end < 0 || grantpt(link_end) || unlockpt(link_end)) return 0;
    termios settings = {};
    if (tcgetattr(link_end, &settings)) return 0;
    cfmakeraw(&settings);
    return tcsetattr(link_end, TCSANOW, &settings) == 0 && symlink(ptsname(link_end), path) == 0;
}

// A byte that was sent to the board; none; or closed.
int ulx3s_link_get() {
    if (pause_left) {
        pause_left--;
        return none;
    }
    uint8_t byte = 0;
    const ssize_t received = read(link_end, &byte, 1);
    if (received == 1) {
        in_use = true;
        return byte;
    }
    pause_left = patience;
    return in_use && received < 0 && errno == EIO ? closed : none;
}

void ulx3s_link_put(int value) {
    const uint8_t byte = static_cast<uint8_t>(value);
    (void)!write(link_end, &byte, 1);
}
}
