/* Calls that cannot be followed, which are counted by name, and those that keep the lock of the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "library.h"
#include "raw_calls.h"

#define SAME_AS(name) __attribute__((alias(#name), visibility("default")))

static int writes_followed(int fd)
{
    struct stat status;
    long flags = control ? raw(SYS_fcntl, fd, F_GETFL, 0) : -1;
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && raw_fstat(fd, &status) == 0 && S_ISREG(status.st_mode)
           && is_followed(fd, &status);
}

void count_file(enum not_followed what, int fd)
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
    if (control && fd >= 0 && (flags & MAP_SHARED)) /* mprotect may let it be written later */
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
PASSED_ON(int, mkstemps, (char *path, int ending), (path, ending), count_path(NF_MKSTEMP, path))
PASSED_ON(int, mkstemps64, (char *path, int ending), (path, ending), count_path(NF_MKSTEMP, path))
PASSED_ON(int, mkostemps, (char *path, int ending, int flags), (path, ending, flags), count_path(NF_MKSTEMP, path))
PASSED_ON(int, mkostemps64, (char *path, int ending, int flags), (path, ending, flags), count_path(NF_MKSTEMP, path))
PASSED_ON(char *, mkdtemp, (char *path), (path), count_path(NF_MKSTEMP, path))

/* The child opens it before it has this library. */
PASSED_ON(int, posix_spawn_file_actions_addopen,
          (posix_spawn_file_actions_t * actions, int fd, const char *path, int flags, mode_t mode),
          (actions, fd, path, flags, mode),
          if ((flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC))) count_path(NF_SPAWN, path))

PASSED_ON(int, vdprintf, (int fd, const char *format, va_list rest), (fd, format, rest), count_file(NF_DPRINTF, fd))

#define AS_DPRINTF                                                                                                     \
    va_list rest;                                                                                                      \
    va_start(rest, format);                                                                                            \
    int result = vdprintf(fd, format, rest);                                                                           \
    va_end(rest);                                                                                                      \
    return result

EXPORTED int dprintf(int fd, const char *format, ...)
{
    AS_DPRINTF;
}

/* What both become with _FORTIFY_SOURCE. */
EXPORTED int __dprintf_chk(int fd, int level __attribute__((unused)), const char *format, ...)
{
    AS_DPRINTF;
}

EXPORTED int __vdprintf_chk(int fd, int level __attribute__((unused)), const char *format, va_list rest)
{
    return vdprintf(fd, format, rest);
}

#ifdef __GLIBC__
#define PUT_TO 0x0800 /* _IO_CURRENTLY_PUTTING of glibc: something was written to the stream */

/* Whether stdout and stderr led to a followed file at some time. */
static int led_to_file[2];

static void note_stream(int fd)
{
    if ((fd == 1 || fd == 2) && writes_followed(fd))
        led_to_file[fd - 1] = 1;
}

__attribute__((constructor(102))) static void note_streams(void)
{
    note_stream(1);
    note_stream(2);
}

static int was_used(const FILE *stream)
{
    return stream->_flags & PUT_TO || stream->_fileno < 0; /* programs that use it may close it at their end */
}

__attribute__((destructor)) static void count_streams(void)
{
    if (control && ((led_to_file[0] && was_used(stdout)) || (led_to_file[1] && was_used(stderr))))
        count_not_followed(NF_STREAM);
}
#else
#define note_stream(fd) ((void)(fd))
#endif

/* Threads of libc do this by calls of their own. A request begins with its descriptor. */
static void count_requests(void *const *requests, int count)
{
    for (int i = 0; i < count; i++)
        if (requests[i])
            count_file(NF_AIO, *(int *)requests[i]);
}
PASSED_ON(int, aio_write, (void *request), (request), count_requests(&request, 1))
PASSED_ON(int, aio_write64, (void *request), (request), count_requests(&request, 1))
PASSED_ON(int, aio_fsync, (int kind, void *request), (kind, request), count_requests(&request, 1))
PASSED_ON(int, aio_fsync64, (int kind, void *request), (kind, request), count_requests(&request, 1))
PASSED_ON(int, lio_listio, (int mode, void *const *requests, int count, void *event), (mode, requests, count, event),
          count_requests(requests, count))
PASSED_ON(int, lio_listio64, (int mode, void *const *requests, int count, void *event), (mode, requests, count, event),
          count_requests(requests, count))

/* Paths lead elsewhere afterwards than the roots say. */
PASSED_ON(int, chroot, (const char *path), (path), if (control) count_not_followed(NF_CHROOT))

EXPORTED int open_by_handle_at(int mount, struct file_handle *handle, int flags)
{
    long fd = raw(SYS_open_by_handle_at, mount, handle, flags);
    if (fd >= 0)
        count_file(NF_OPENED, (int)fd);
    return (int)as_libc(fd);
}

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
    int result = (int)as_libc(raw(SYS_dup3, fd, as, 0));
    note_stream(result);
    return result;
}

EXPORTED int dup3(int fd, int as, int flags)
{
    leave(as);
    int result = (int)as_libc(raw(SYS_dup3, fd, as, flags));
    note_stream(result);
    return result;
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
