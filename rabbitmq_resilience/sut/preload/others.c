/* Calls that cannot be followed, which are counted by name, and those that reach others on a way round libc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "library.h"
#include "raw_calls.h"

#define SAME_AS(name) __attribute__((alias(#name), visibility("default")))

/* Newer than the oldest C library that this is built for. */
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags);
ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t length, unsigned flags);

static int writes_followed(int fd)
{
    struct stat status;
    long flags = control ? raw(SYS_fcntl, fd, F_GETFL, 0) : -1;
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && raw_fstat(fd, &status) == 0 && S_ISREG(status.st_mode)
           && is_followed(fd, &status);
}

static void count_file(enum not_followed what, int fd)
{
    if (writes_followed(fd))
        count_not_followed(what);
}

static void count_path(enum not_followed what, const char *path)
{
    struct place place;
    if (control && place_of(AT_FDCWD, path, &place))
        count_not_followed(what);
}

EXPORTED void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (control && fd >= 0 && (flags & MAP_SHARED) && (protection & PROT_WRITE))
        count_file(NF_MMAP, fd);
    return (void *)as_libc(raw(SYS_mmap, at, length, protection, flags, fd, offset));
}
extern void *mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset) SAME_AS(mmap);

EXPORTED int sync_file_range(int fd, off_t offset, off_t length, unsigned flags)
{
    count_file(NF_SYNC_FILE_RANGE, fd);
    return (int)as_libc(raw(SYS_sync_file_range, fd, offset, length, flags));
}

EXPORTED ssize_t splice(int from, off_t *from_at, int to, off_t *to_at, size_t length, unsigned flags)
{
    count_file(NF_SPLICE, to);
    return as_libc(raw(SYS_splice, from, from_at, to, to_at, length, flags));
}

EXPORTED int mknodat(int folder_fd, const char *path, mode_t mode, dev_t device)
{
    struct place place;
    if (control && place_of(folder_fd, path, &place))
        count_not_followed(NF_MKNOD);
    return (int)as_libc(raw(SYS_mknodat, folder_fd, path, mode, device));
}

EXPORTED int mknod(const char *path, mode_t mode, dev_t device)
{
    return mknodat(AT_FDCWD, path, mode, device);
}

EXPORTED int mkfifo(const char *path, mode_t mode)
{
    return mknodat(AT_FDCWD, path, (mode & 07777) | S_IFIFO, 0);
}

/* libc writes streams by calls of its own. */
#define PASSED_ON(type, name, parameters, arguments, note)                                                             \
    EXPORTED type name parameters                                                                                      \
    {                                                                                                                  \
        static type(*_Atomic real) parameters;                                                                         \
        type(*found) parameters = atomic_load(&real);                                                                  \
        if (!found) {                                                                                                  \
            found = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                                       \
            atomic_store(&real, found);                                                                                \
        }                                                                                                              \
        note;                                                                                                          \
        return found arguments;                                                                                        \
    }
#define NOTE_STREAM                                                                                                    \
    if (strpbrk(mode, "wa+"))                                                                                          \
    count_path(NF_FOPEN, path)

PASSED_ON(FILE *, fopen, (const char *path, const char *mode), (path, mode), NOTE_STREAM)
PASSED_ON(FILE *, fopen64, (const char *path, const char *mode), (path, mode), NOTE_STREAM)
PASSED_ON(FILE *, freopen, (const char *path, const char *mode, FILE *stream), (path, mode, stream),
          if (path) NOTE_STREAM)
PASSED_ON(FILE *, freopen64, (const char *path, const char *mode, FILE *stream), (path, mode, stream),
          if (path) NOTE_STREAM)
PASSED_ON(FILE *, fdopen, (int fd, const char *mode), (fd, mode), if (strpbrk(mode, "wa+")) count_file(NF_FDOPEN, fd))
PASSED_ON(int, mkstemp, (char *path), (path), count_path(NF_MKSTEMP, path))
PASSED_ON(int, mkstemp64, (char *path), (path), count_path(NF_MKSTEMP, path))
PASSED_ON(int, mkostemp, (char *path, int flags), (path, flags), count_path(NF_MKSTEMP, path))
PASSED_ON(int, mkostemp64, (char *path, int flags), (path, flags), count_path(NF_MKSTEMP, path))
PASSED_ON(char *, mkdtemp, (char *path), (path), count_path(NF_MKSTEMP, path))

/* The lock that shows that the process lives must stay. */
EXPORTED int close(int fd)
{
    return (int)as_libc(fd >= 0 && fd == alive_fd ? -EBADF : raw(SYS_close, fd));
}

static void leave(int fd)
{
    if (fd < 0 || fd != alive_fd)
        return;
    long other = raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
    if (other >= 0)
        alive_fd = (int)other;
}

EXPORTED int dup2(int fd, int as)
{
    leave(as);
    if (fd == as)
        return (int)as_libc(raw(SYS_fcntl, fd, F_GETFD, 0) < 0 ? -EBADF : as);
    return (int)as_libc(raw(SYS_dup3, fd, as, 0));
}

EXPORTED int dup3(int fd, int as, int flags)
{
    leave(as);
    return (int)as_libc(raw(SYS_dup3, fd, as, flags));
}

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

EXPORTED int close_range(unsigned first, unsigned last, int flags)
{
    unsigned kept = (unsigned)alive_fd;
    if (alive_fd < 0 || kept < first || kept > last || first > last)
        return (int)as_libc(raw(SYS_close_range, first, last, flags));
    long result = kept > first ? raw(SYS_close_range, first, kept - 1, flags) : 0;
    if (result == 0 && kept < last)
        result = raw(SYS_close_range, kept + 1, last, flags);
    return (int)as_libc(result);
}

EXPORTED void closefrom(int first)
{
    if (close_range((unsigned)(first < 0 ? 0 : first), ~0u, 0) == 0)
        return;
    for (int fd = first < 0 ? 0 : first; fd < 65536; fd++)
        close(fd);
}

/* Programs that call the kernel by number reach what libc's names reach. */
EXPORTED long syscall(long number, ...)
{
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (!control)
        return as_libc(raw_call(number, a[0], a[1], a[2], a[3], a[4], a[5]));
    switch (number) {
    case SYS_write:
        return write((int)a[0], (void *)a[1], (size_t)a[2]);
    case SYS_writev:
        return writev((int)a[0], (void *)a[1], (int)a[2]);
    case SYS_pwrite64:
        return pwrite((int)a[0], (void *)a[1], (size_t)a[2], a[3]);
    case SYS_pwritev:
        return pwritev((int)a[0], (void *)a[1], (int)a[2], a[3]);
    case SYS_pwritev2:
        return pwritev2((int)a[0], (void *)a[1], (int)a[2], a[3], (int)a[5]);
    case SYS_copy_file_range:
        return copy_file_range((int)a[0], (void *)a[1], (int)a[2], (void *)a[3], (size_t)a[4], (unsigned)a[5]);
    case SYS_ftruncate:
        return ftruncate((int)a[0], a[1]);
    case SYS_fallocate:
        return fallocate((int)a[0], (int)a[1], a[2], a[3]);
    case SYS_fsync:
        return fsync((int)a[0]);
    case SYS_fdatasync:
        return fdatasync((int)a[0]);
    case SYS_openat:
        return as_libc(follow_open((int)a[0], (char *)a[1], (int)a[2], (unsigned)a[3]));
    case SYS_renameat2:
        return as_libc(follow_rename((int)a[0], (char *)a[1], (int)a[2], (char *)a[3], (unsigned)a[4]));
    case SYS_unlinkat:
        return as_libc(follow_unlink((int)a[0], (char *)a[1], (int)a[2]));
    case SYS_close_range:
        return close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
    case SYS_io_uring_setup:
        count_not_followed(NF_IO_URING);
        break;
    case SYS_io_submit:
        count_not_followed(NF_IO_SUBMIT);
        break;
    default:
        break;
    }
    return as_libc(raw_call(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}
