/*
 * Another run of the kernel: preloaded into a program, this shows it the file that ANOTHER_BOOT names where it
 * looks for the identity of the kernel's run.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *shown(const char *path)
{
    const char *instead = getenv("ANOTHER_BOOT");
    return instead && !strcmp(path, "/proc/sys/kernel/random/boot_id") ? instead : path;
}

static mode_t mode_of(int flags, va_list more)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

#define OPENS(name) \
    int name(const char *path, int flags, ...) \
    { \
        static __typeof__(name) *real; \
        if (!real) \
            real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = mode_of(flags, more); \
        va_end(more); \
        return real(shown(path), flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int directory, const char *path, int flags, ...) \
    { \
        static __typeof__(name) *real; \
        if (!real) \
            real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = mode_of(flags, more); \
        va_end(more); \
        return real(directory, shown(path), flags, mode); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)
