/* Addresses of the emulated board (board.py), for C and assembly. */
#define MAILBOX 0x02000000
#define REGISTERS 0x40000000
#define BOARD 0x50000000
#define DRAM 0x80000000

/* Registers of the board: a write before `wfi` ends what the mailbox asked for; milliseconds; an exception; a character. */
#define BOARD_DONE 0
#define BOARD_CLOCK 4
#define BOARD_BROKEN 8
#define BOARD_CONSOLE 12
