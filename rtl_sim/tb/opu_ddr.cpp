// Timing of a DDR memory: `DdrChannel` and `Ddr` of opu_fuse/sim/ddr.py, for the memory of a simulation.
//
// Called from opu_axi_memory.sv (DPI-C). Cycles are those of the machine, clocks those of the memory.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <vector>

namespace {
using std::int64_t;

// In the order of `Ddr.numbers`.
struct Numbers {
    int64_t machine_khz, clock_khz, lead;
    int64_t column_clocks, column_bytes, row_bytes, banks, write_slots;
    int64_t rcd, rp, cl, cwl, ras, rrd, faw, wr, wtr, rtp, rfc, refi;
} t;
constexpr int NUMBERS = sizeof(Numbers) / sizeof(int64_t);

struct Bank {
    int64_t row = -1, ready = 0;
};

std::vector<Bank> banks;
int64_t activated[4];
int64_t column, refresh;
bool writing;
std::deque<int64_t> due;    // of beats of reads that have not left
std::deque<int64_t> slots;  // from which each slot of a write is free, first the next one's

int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t cycle_of(int64_t clock) { return ceiling(clock * t.machine_khz, t.clock_khz); }

int64_t open_row(int64_t at, Bank &bank, int64_t row) {
    int64_t ready = std::max(at, bank.ready);
    if (bank.row >= 0) ready += t.rp;
    const int64_t activate = std::max({ready, activated[3] + t.rrd, activated[0] + t.faw});
    std::rotate(activated, activated + 1, activated + 4);
    activated[3] = activate;
    bank.row = row;
    return activate;
}

void refresh_all() {
    int64_t start = refresh;
    for (Bank &bank : banks) {
        start = std::max(start, bank.row >= 0 ? std::max(bank.ready, refresh - t.rp) + t.rp : bank.ready);
        bank.row = -1;
    }
    for (Bank &bank : banks) bank.ready = start + t.rfc;
    refresh += t.refi;
}

int64_t columns(int64_t at, int64_t number, int64_t count, bool write) {
    int64_t begin = column + t.column_clocks;
    if (write && !writing) begin = column + t.cl + t.column_clocks + 2 - t.cwl;
    if (!write && writing) begin = column + t.cwl + t.column_clocks + t.wtr;
    begin = std::max(begin, at);
    while (refresh <= begin) refresh_all();
    Bank &bank = banks[static_cast<size_t>(number % t.banks)];
    const int64_t row = number / t.banks;
    int64_t opened = bank.ready;
    if (bank.row != row) {
        begin = std::max(begin, open_row(at, bank, row) + t.rcd);
        opened = activated[3] + t.ras;
    }
    column = begin + (count - 1) * t.column_clocks;
    writing = write;
    bank.ready = std::max(opened, column + (write ? t.cwl + t.column_clocks + t.wr : t.rtp));
    return begin;
}

// Clock in which the data of each column have moved.
std::vector<int64_t> serve(int64_t cycle, int64_t address, int64_t size, bool write) {
    const int64_t at = ceiling(cycle * t.clock_khz, t.machine_khz);
    const int64_t last = (address + size - 1) / t.column_bytes, per_row = t.row_bytes / t.column_bytes;
    std::vector<int64_t> moved;
    for (int64_t next = address / t.column_bytes; next <= last;) {
        const int64_t count = std::min(per_row - next % per_row, last + 1 - next);
        const int64_t first = columns(at, next / per_row, count, write) + (write ? t.cwl : t.cl);
        for (int64_t n = 1; n <= count; ++n) moved.push_back(first + n * t.column_clocks);
        next += count;
    }
    return moved;
}
}  // namespace

extern "C" {

// Takes the numbers, as decimal text between commas; returns 0 when it is something else.
int opu_ddr_open(const char *text) {
    auto *number = reinterpret_cast<int64_t *>(&t);
    for (int n = 0; n < NUMBERS; ++n) {
        long long value = 0;
        int length = 0;
        if (std::sscanf(text, "%lld%n", &value, &length) != 1) return 0;
        number[n] = value;
        text += length;
        if (*text != (n + 1 < NUMBERS ? ',' : '\0')) return 0;
        ++text;
    }
    return 1;
}

// All banks closed, nothing open on the bus, a refresh just done.
void opu_ddr_reset() {
    banks.assign(static_cast<size_t>(t.banks), Bank());
    std::fill(activated, activated + 4, -t.faw);
    column = -t.column_clocks;
    writing = false;
    refresh = t.refi;
    due.clear();
    slots.assign(static_cast<size_t>(t.write_slots), 0);
}

// The address of a read comes in this cycle.
void opu_ddr_read(long long cycle, long long address, int beats, int bus) {
    const auto moved = serve(cycle, address, int64_t{beats} * bus, false);
    for (int64_t beat = 1; beat <= beats; ++beat) {
        const auto n = static_cast<size_t>((address + beat * bus - 1) / t.column_bytes - address / t.column_bytes);
        due.push_back(cycle_of(moved[n]) + t.lead - 1);
    }
}

// The next beat of the reads may leave in this cycle; the caller takes it then.
int opu_ddr_due(long long cycle) { return !due.empty() && cycle >= due.front(); }

void opu_ddr_take() { due.pop_front(); }

// The next write has a slot in this cycle.
int opu_ddr_room(long long cycle) { return cycle >= slots.front(); }

// The last beat of a write comes in this cycle.
void opu_ddr_write(long long cycle, long long address, int beats, int bus) {
    slots.pop_front();
    slots.push_back(cycle_of(serve(cycle, address, int64_t{beats} * bus, true).back()));
}

}  // extern "C"
