/*
 * System calls that fail: preloaded into a program, this stands between it and the C library.
 *
 * Only files below one directory are meant. A fault is drawn for each call from a seed and the number of the
 * call; with several threads the order of the calls is the scheduler's. What is drawn:
 *
 *   reads                        EIO, EINTR, fewer blocks than asked for
 *   writes                       EIO, ENOSPC, EINTR, fewer blocks; some sectors arrive, or all, and then EIO
 *   fsync, fdatasync             EIO, EINTR; done, and then EIO
 *   ftruncate, fallocate         EIO, ENOSPC, EINTR
 *   open                         EIO, EMFILE; ENOSPC if it makes the file
 *   rename, link, unlink         EIO, ENOSPC (not unlink); done, and then EIO
 *   locks (fcntl), not unlocks   EINTR, ENOLCK
 *
 * A full disk stays full for some calls. From the environment, when the program starts:
 *
 *   FAULTS_UNDER     the directory, as an absolute path without symbolic links
 *   FAULTS_SEED      a number
 *   FAULTS_ONE_IN    so many calls per fault; none if it is 0 or missing
 *   FAULTS_COUNTS    a file of at least 4096 bytes, in which faults are counted by kind: 64-bit numbers
 *                    in the order of `enum kind`
 *
 * The program may look for `faults_one_in` (unsigned, changes the rate) and `faults_only` (a set of bits of
 * `enum kind`; 0 stands for all).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { READ, WRITE, SHORT, TORN, FULL, SYNC, LENGTH, ROOM, OPEN, RENAME, LINK, UNLINK, LOCK, INTERRUPTED, KINDS };

enum { BLOCK = 4096, SECTOR = 512 };

volatile unsigned faults_one_in;
volatile unsigned faults_only;

static char under[4096];
static uint64_t seed;
static uint64_t calls;
static uint64_t no_counts[KINDS];
static uint64_t *counts = no_counts;
static int full_for;

static uint64_t mixed(uint64_t number)
{
    number += 0x9E3779B97F4A7C15;
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9;
    number = (number ^ number >> 27) * 0x94D049BB133111EB;
    return number ^ number >> 31;
}

__attribute__((constructor)) static void start(void)
{
    const char *directory = getenv("FAULTS_UNDER"), *number = getenv("FAULTS_SEED");
    const char *rate = getenv("FAULTS_ONE_IN"), *page = getenv("FAULTS_COUNTS");
    if (!directory)
        return;
    snprintf(under, sizeof under, "%s", directory);
    seed = mixed(number ? strtoull(number, NULL, 10) : 0);
    faults_one_in = rate ? strtoul(rate, NULL, 10) : 0;
    int file = page ? open(page, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED)
            counts = mapped;
        close(file);
    }
}

static int is_below(const char *path)
{
    size_t length = strlen(under);
    return length && !strncmp(path, under, length) && (path[length] == '/' || !path[length]);
}

static int is_file_meant(int file)
{
    char link[64], path[4096];
    if (!faults_one_in)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return is_below(path);
}

static int is_path_meant(int directory, const char *path)
{
    if (!faults_one_in)
        return 0;
    if (path[0] == '/' || directory == AT_FDCWD)
        return is_below(path);
    return is_file_meant(directory);
}

/* A random number if this call is to fail, otherwise 0. */
static uint64_t drawn(void)
{
    unsigned one_in = faults_one_in;
    uint64_t random = mixed(seed ^ __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED));
    if (!one_in || random % one_in)
        return 0;
    return mixed(random) | 1ull << 63;
}

static int is_drawn(enum kind kind)
{
    if (faults_only && !(faults_only >> kind & 1))
        return 0;
    __atomic_add_fetch(&counts[kind], 1, __ATOMIC_RELAXED);
    return 1;
}

static int fails(enum kind kind, int error)
{
    if (!is_drawn(kind))
        return 0;
    errno = error;
    return 1;
}

/* Whether a disk that was full just now still is, or becomes so. */
static int is_full(uint64_t random, unsigned one_in)
{
    if (__atomic_load_n(&full_for, __ATOMIC_RELAXED) > 0) {
        __atomic_sub_fetch(&full_for, 1, __ATOMIC_RELAXED);
        return fails(FULL, ENOSPC);
    }
    if (!random || random % one_in || !fails(FULL, ENOSPC))
        return 0;
    __atomic_store_n(&full_for, (int)(random / one_in % 6), __ATOMIC_RELAXED);
    return 1;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* Reads: of what is asked for, -1 if the call fails, or so many bytes at most. */
static ssize_t read_at_most(int file, size_t size)
{
    uint64_t random = is_file_meant(file) ? drawn() : 0;
    if (!random)
        return size;
    switch (random % 3) {
    case 0:
        return fails(READ, EIO) ? -1 : (ssize_t)size;
    case 1:
        return fails(INTERRUPTED, EINTR) ? -1 : (ssize_t)size;
    default:
        if (size <= BLOCK || !is_drawn(SHORT))
            return size;
        return BLOCK * (1 + random / 3 % ((size - 1) / BLOCK));
    }
}

#define READS(name, offset_type) \
    ssize_t name(int file, void *bytes, size_t size, offset_type offset) \
    { \
        REAL(name); \
        ssize_t most = read_at_most(file, size); \
        return most < 0 ? -1 : real(file, bytes, most, offset); \
    }
READS(pread, off_t)
READS(pread64, off64_t)

/* Some of its sectors, or all, arrive; the caller is told that none has. */
static ssize_t tear(int file, const char *bytes, size_t size, off64_t offset, uint64_t random)
{
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real)
        real = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    size_t sectors = size / SECTOR;
    /* From any sector to any other. */
    size_t from = random % 2 ? 0 : mixed(random) % (sectors + 1);
    size_t to = random / 2 % 2 ? sectors : mixed(random + 1) % (sectors + 1);
    for (size_t at = from; at < to;) {
        ssize_t done = real(file, bytes + at * SECTOR, (to - at) * SECTOR, offset + at * SECTOR);
        if (done <= 0)
            break;
        at += done / SECTOR;
    }
    errno = EIO;
    return -1;
}

/* As `read_at_most`. */
static ssize_t write_at_most(int file, const char *bytes, size_t size, off64_t offset)
{
    if (!is_file_meant(file))
        return size;
    uint64_t random = drawn();
    if (is_full(random, 5))
        return -1;
    if (!random)
        return size;
    switch (random / 5 % 4) {
    case 0:
        return fails(WRITE, EIO) ? -1 : (ssize_t)size;
    case 1:
        return fails(INTERRUPTED, EINTR) ? -1 : (ssize_t)size;
    case 2:
        if (size <= BLOCK || !is_drawn(SHORT))
            return size;
        return BLOCK * (1 + random / 20 % ((size - 1) / BLOCK));
    default:
        if (size % SECTOR || !is_drawn(TORN))
            return size;
        return tear(file, bytes, size, offset, random / 20);
    }
}

#define WRITES(name, offset_type) \
    ssize_t name(int file, const void *bytes, size_t size, offset_type offset) \
    { \
        REAL(name); \
        ssize_t most = write_at_most(file, bytes, size, offset); \
        return most < 0 ? -1 : real(file, bytes, most, offset); \
    }
WRITES(pwrite, off_t)
WRITES(pwrite64, off64_t)

#define WRITES_SLICES(name, offset_type) \
    ssize_t name(int file, const struct iovec *slices, int count, offset_type offset, int flags) \
    { \
        REAL(name); \
        if (count != 1) \
            return real(file, slices, count, offset, flags); \
        ssize_t most = write_at_most(file, slices->iov_base, slices->iov_len, offset); \
        struct iovec slice = {slices->iov_base, most}; \
        return most < 0 ? -1 : real(file, &slice, 1, offset, flags); \
    }
WRITES_SLICES(pwritev2, off_t)
WRITES_SLICES(pwritev64v2, off64_t)

#define SYNCS(name) \
    int name(int file) \
    { \
        REAL(name); \
        uint64_t random = is_file_meant(file) ? drawn() : 0; \
        if (random && random % 4 == 0 && fails(INTERRUPTED, EINTR)) \
            return -1; \
        if (random && is_drawn(SYNC)) { \
            if (random % 4 == 1) \
                real(file); \
            errno = EIO; \
            return -1; \
        } \
        return real(file); \
    }
SYNCS(fsync)
SYNCS(fdatasync)

/* Whether a call that changes a file's length or room fails. */
static int changes_fail(enum kind kind, int file)
{
    if (!is_file_meant(file))
        return 0;
    uint64_t random = drawn();
    if (is_full(random, 2))
        return 1;
    if (!random)
        return 0;
    return random / 2 % 3 ? fails(kind, EIO) : fails(INTERRUPTED, EINTR);
}

#define CUTS(name, offset_type) \
    int name(int file, offset_type length) \
    { \
        REAL(name); \
        return changes_fail(LENGTH, file) ? -1 : real(file, length); \
    }
CUTS(ftruncate, off_t)
CUTS(ftruncate64, off64_t)

#define MAKES_ROOM(name, offset_type) \
    int name(int file, int mode, offset_type offset, offset_type length) \
    { \
        REAL(name); \
        return changes_fail(ROOM, file) ? -1 : real(file, mode, offset, length); \
    }
MAKES_ROOM(fallocate, off_t)
MAKES_ROOM(fallocate64, off64_t)

static int open_fails(int directory, const char *path, int flags)
{
    if (!is_path_meant(directory, path))
        return 0;
    uint64_t random = drawn();
    if (!random)
        return 0;
    switch (random % 3) {
    case 0:
        return fails(OPEN, EMFILE);
    case 1:
        return flags & O_CREAT ? fails(OPEN, ENOSPC) : 0;
    default:
        return fails(OPEN, EIO);
    }
}

static mode_t mode_of(int flags, va_list more)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

#define OPENS(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = mode_of(flags, more); \
        va_end(more); \
        return open_fails(AT_FDCWD, path, flags) ? -1 : real(path, flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int directory, const char *path, int flags, ...) \
    { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = mode_of(flags, more); \
        va_end(more); \
        return open_fails(directory, path, flags) ? -1 : real(directory, path, flags, mode); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

/* 0: it is done; 1: it fails; 2: it is done, and fails. */
static int names_fail(enum kind kind, int directory, const char *path)
{
    uint64_t random = is_path_meant(directory, path) ? drawn() : 0;
    if (!random || !is_drawn(kind))
        return 0;
    errno = kind != UNLINK && random % 3 == 0 ? ENOSPC : EIO;
    return random % 3 == 1 ? 2 : 1;
}

#define NAMES(kind, directory, path, call) \
    switch (names_fail(kind, directory, path)) { \
    case 0: \
        return call; \
    case 2: \
        call; \
        errno = EIO; \
    } \
    return -1

int rename(const char *from, const char *to)
{
    REAL(rename);
    NAMES(RENAME, AT_FDCWD, to, real(from, to));
}

int renameat(int from_in, const char *from, int to_in, const char *to)
{
    REAL(renameat);
    NAMES(RENAME, to_in, to, real(from_in, from, to_in, to));
}

int renameat2(int from_in, const char *from, int to_in, const char *to, unsigned flags)
{
    REAL(renameat2);
    NAMES(RENAME, to_in, to, real(from_in, from, to_in, to, flags));
}

int link(const char *from, const char *to)
{
    REAL(link);
    NAMES(LINK, AT_FDCWD, to, real(from, to));
}

int linkat(int from_in, const char *from, int to_in, const char *to, int flags)
{
    REAL(linkat);
    NAMES(LINK, to_in, to, real(from_in, from, to_in, to, flags));
}

int unlink(const char *path)
{
    REAL(unlink);
    NAMES(UNLINK, AT_FDCWD, path, real(path));
}

int unlinkat(int directory, const char *path, int flags)
{
    REAL(unlinkat);
    NAMES(UNLINK, directory, path, real(directory, path, flags));
}

/* An unlock does not fail. */
static int lock_fails(int file, int command, const struct flock *lock)
{
    if ((command != F_OFD_SETLK && command != F_SETLK) || lock->l_type == F_UNLCK)
        return 0;
    uint64_t random = is_file_meant(file) ? drawn() : 0;
    if (!random)
        return 0;
    return random % 2 ? fails(LOCK, ENOLCK) : fails(INTERRUPTED, EINTR);
}

#define CONTROLS(name) \
    int name(int file, int command, ...) \
    { \
        REAL(name); \
        va_list more; \
        va_start(more, command); \
        void *argument = va_arg(more, void *); \
        va_end(more); \
        return lock_fails(file, command, argument) ? -1 : real(file, command, argument); \
    }
CONTROLS(fcntl)
CONTROLS(fcntl64)
