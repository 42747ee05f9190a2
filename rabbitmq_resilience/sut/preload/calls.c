/* The calls of libc that are replaced, and followed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <sys/uio.h>
#include <unistd.h>

#include "library.h"
#include "raw_calls.h"

#define SAME_AS(name) __attribute__((alias(#name), visibility("default")))

/* Do `call` as a change of the file `fd`, and return its result as libc does. */
#define AS_CHANGE(fd, kind, offset, length, write_flags, call)                                                         \
    struct change change;                                                                                              \
    if (!change_begin(&change, fd, kind, offset, (uint64_t)(length), write_flags))                                     \
        return as_libc(call);                                                                                          \
    return as_libc(change_end(&change, change.error ? 0 : (call)))

static uint64_t bytes_of(const struct iovec *parts, int count)
{
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

EXPORTED ssize_t write(int fd, const void *bytes, size_t length)
{
    AS_CHANGE(fd, CHANGE_WRITE, -1, length, 0, raw(SYS_write, fd, bytes, length));
}

EXPORTED ssize_t writev(int fd, const struct iovec *parts, int count)
{
    AS_CHANGE(fd, CHANGE_WRITE, -1, bytes_of(parts, count), 0, raw(SYS_writev, fd, parts, count));
}

EXPORTED ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    AS_CHANGE(fd, CHANGE_WRITE, offset, length, 0, raw(SYS_pwrite64, fd, bytes, length, offset));
}
extern ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) SAME_AS(pwrite);

EXPORTED ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    AS_CHANGE(fd, CHANGE_WRITE, offset, bytes_of(parts, count), 0, raw(SYS_pwritev, fd, parts, count, offset, 0));
}
extern ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) SAME_AS(pwritev);

EXPORTED ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags);
extern ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags) SAME_AS(pwritev2);

EXPORTED ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    AS_CHANGE(fd, CHANGE_WRITE, offset, bytes_of(parts, count), flags,
              raw(SYS_pwritev2, fd, parts, count, offset, 0, flags));
}

EXPORTED ssize_t sendfile(int to, int from, off_t *offset, size_t length)
{
    AS_CHANGE(to, CHANGE_WRITE, -1, length, 0, raw(SYS_sendfile, to, from, offset, length));
}
extern ssize_t sendfile64(int to, int from, off_t *offset, size_t length) SAME_AS(sendfile);

EXPORTED ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t length, unsigned flags)
{
    AS_CHANGE(to, CHANGE_WRITE, to_at ? *to_at : -1, length, 0,
              raw(SYS_copy_file_range, from, from_at, to, to_at, length, flags));
}

EXPORTED int ftruncate(int fd, off_t size)
{
    if (size < 0)
        return (int)as_libc(-EINVAL);
    AS_CHANGE(fd, CHANGE_SIZE, size, 0, 0, raw(SYS_ftruncate, fd, size));
}
extern int ftruncate64(int fd, off_t size) SAME_AS(ftruncate);

EXPORTED int truncate(const char *path, off_t size)
{
    long fd = control ? raw(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC | O_NONBLOCK, 0) : -1;
    if (fd < 0)
        return (int)as_libc(raw(SYS_truncate, path, size));
    int result = ftruncate((int)fd, size);
    raw(SYS_close, fd);
    return result;
}
extern int truncate64(const char *path, off_t size) SAME_AS(truncate);

static long allocate(int fd, int mode, off_t offset, off_t length)
{
    struct change change;
    enum change_kind kind = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) ? CHANGE_ZERO : CHANGE_GROW;
    struct stat status;
    if (offset < 0 || length <= 0)
        return -EINVAL;
    if (control && (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)) && raw_fstat(fd, &status) == 0
        && is_followed(fd, &status))
        count_not_followed(NF_FALLOCATE);
    if (!change_begin(&change, fd, kind, kind == CHANGE_GROW ? offset + length : offset, (uint64_t)length, 0))
        return raw(SYS_fallocate, fd, mode, offset, length);
    return change_end(&change, change.error ? 0 : raw(SYS_fallocate, fd, mode, offset, length));
}

EXPORTED int fallocate(int fd, int mode, off_t offset, off_t length)
{
    return (int)as_libc(allocate(fd, mode, offset, length));
}
extern int fallocate64(int fd, int mode, off_t offset, off_t length) SAME_AS(fallocate);

EXPORTED int posix_fallocate(int fd, off_t offset, off_t length)
{
    return (int)-allocate(fd, 0, offset, length);
}
extern int posix_fallocate64(int fd, off_t offset, off_t length) SAME_AS(posix_fallocate);

EXPORTED int openat(int folder_fd, const char *path, int flags, ...)
{
    unsigned mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, unsigned);
        va_end(rest);
    }
    return (int)as_libc(follow_open(folder_fd, path, flags, mode));
}
extern int openat64(int folder_fd, const char *path, int flags, ...) SAME_AS(openat);

EXPORTED int open(const char *path, int flags, ...)
{
    unsigned mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, unsigned);
        va_end(rest);
    }
    return (int)as_libc(follow_open(AT_FDCWD, path, flags, mode));
}
extern int open64(const char *path, int flags, ...) SAME_AS(open);

/* What calls without a mode become with _FORTIFY_SOURCE. */
EXPORTED int __open_2(const char *path, int flags)
{
    return (int)as_libc(follow_open(AT_FDCWD, path, flags, 0));
}
extern int __open64_2(const char *path, int flags) SAME_AS(__open_2);

EXPORTED int __openat_2(int folder_fd, const char *path, int flags)
{
    return (int)as_libc(follow_open(folder_fd, path, flags, 0));
}
extern int __openat64_2(int folder_fd, const char *path, int flags) SAME_AS(__openat_2);

EXPORTED int creat(const char *path, mode_t mode)
{
    return (int)as_libc(follow_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode));
}
extern int creat64(const char *path, mode_t mode) SAME_AS(creat);

EXPORTED int rename(const char *from, const char *to)
{
    return (int)as_libc(follow_rename(AT_FDCWD, from, AT_FDCWD, to, 0));
}

EXPORTED int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return (int)as_libc(follow_rename(from_fd, from, to_fd, to, 0));
}

EXPORTED int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    return (int)as_libc(follow_rename(from_fd, from, to_fd, to, flags));
}

EXPORTED int link(const char *from, const char *to)
{
    return (int)as_libc(follow_link(AT_FDCWD, from, AT_FDCWD, to, 0));
}

EXPORTED int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    return (int)as_libc(follow_link(from_fd, from, to_fd, to, flags));
}

EXPORTED int symlink(const char *target, const char *path)
{
    return (int)as_libc(follow_symlink(target, AT_FDCWD, path));
}

EXPORTED int symlinkat(const char *target, int folder_fd, const char *path)
{
    return (int)as_libc(follow_symlink(target, folder_fd, path));
}

EXPORTED int unlink(const char *path)
{
    return (int)as_libc(follow_unlink(AT_FDCWD, path, 0));
}

EXPORTED int unlinkat(int folder_fd, const char *path, int flags)
{
    return (int)as_libc(follow_unlink(folder_fd, path, flags));
}

EXPORTED int rmdir(const char *path)
{
    return (int)as_libc(follow_unlink(AT_FDCWD, path, AT_REMOVEDIR));
}

EXPORTED int remove(const char *path)
{
    long result = follow_unlink(AT_FDCWD, path, 0);
    return (int)as_libc(result == -EISDIR ? follow_unlink(AT_FDCWD, path, AT_REMOVEDIR) : result);
}

EXPORTED int mkdir(const char *path, mode_t mode)
{
    return (int)as_libc(follow_mkdir(AT_FDCWD, path, mode));
}

EXPORTED int mkdirat(int folder_fd, const char *path, mode_t mode)
{
    return (int)as_libc(follow_mkdir(folder_fd, path, mode));
}

EXPORTED int fsync(int fd)
{
    return (int)as_libc(follow_flush(SYS_fsync, fd));
}

EXPORTED int fdatasync(int fd)
{
    return (int)as_libc(follow_flush(SYS_fdatasync, fd));
}

EXPORTED void sync(void)
{
    follow_flush_all(SYS_sync, -1);
}

EXPORTED int syncfs(int fd)
{
    return (int)as_libc(follow_flush_all(SYS_syncfs, fd));
}
