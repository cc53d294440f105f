/* All that libopu takes from a C library, for compilers that come without one; firmware.c defines it. */
#ifndef STRING_H
#define STRING_H
#include <stddef.h>

void *memcpy(void *to, const void *from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
int memcmp(const void *a, const void *b, size_t size);
void *memchr(const void *data, int value, size_t size);
size_t strlen(const char *text);

#endif
