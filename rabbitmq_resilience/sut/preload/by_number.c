/* Calls that programs make by their number: they reach what libc's names reach. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include "library.h"
#include "raw_calls.h"

/* Newer than the oldest C library that this is built for. */
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags);
ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t length, unsigned flags);
int close_range(unsigned first, unsigned last, int flags);

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif

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
    case SYS_renameat:
        return as_libc(follow_rename((int)a[0], (char *)a[1], (int)a[2], (char *)a[3], 0));
    case SYS_linkat:
        return as_libc(follow_link((int)a[0], (char *)a[1], (int)a[2], (char *)a[3], (int)a[4]));
    case SYS_symlinkat:
        return as_libc(follow_symlink((char *)a[0], (int)a[1], (char *)a[2]));
    case SYS_mkdirat:
        return as_libc(follow_mkdir((int)a[0], (char *)a[1], (unsigned)a[2]));
    case SYS_mknodat:
        return mknodat((int)a[0], (char *)a[1], (mode_t)a[2], (dev_t)a[3]);
#ifdef SYS_open /* newer machines have only the calls above */
    case SYS_open:
        return as_libc(follow_open(AT_FDCWD, (char *)a[0], (int)a[1], (unsigned)a[2]));
    case SYS_creat:
        return as_libc(follow_open(AT_FDCWD, (char *)a[0], O_CREAT | O_WRONLY | O_TRUNC, (unsigned)a[1]));
    case SYS_rename:
        return as_libc(follow_rename(AT_FDCWD, (char *)a[0], AT_FDCWD, (char *)a[1], 0));
    case SYS_unlink:
        return as_libc(follow_unlink(AT_FDCWD, (char *)a[0], 0));
    case SYS_rmdir:
        return as_libc(follow_unlink(AT_FDCWD, (char *)a[0], AT_REMOVEDIR));
    case SYS_link:
        return as_libc(follow_link(AT_FDCWD, (char *)a[0], AT_FDCWD, (char *)a[1], 0));
    case SYS_symlink:
        return as_libc(follow_symlink((char *)a[0], AT_FDCWD, (char *)a[1]));
    case SYS_mkdir:
        return as_libc(follow_mkdir(AT_FDCWD, (char *)a[0], (unsigned)a[1]));
    case SYS_mknod:
        return mknodat(AT_FDCWD, (char *)a[0], (mode_t)a[1], (dev_t)a[2]);
    case SYS_dup2:
        return dup2((int)a[0], (int)a[1]);
#endif
    case SYS_truncate:
        return truncate((char *)a[0], a[1]);
    case SYS_sendfile:
        return sendfile((int)a[0], (int)a[1], (void *)a[2], (size_t)a[3]);
    case SYS_splice:
        return splice((int)a[0], (void *)a[1], (int)a[2], (void *)a[3], (size_t)a[4], (unsigned)a[5]);
    case SYS_mmap:
        return (long)mmap((void *)a[0], (size_t)a[1], (int)a[2], (int)a[3], (int)a[4], a[5]);
    case SYS_sync:
        return as_libc(follow_flush_all(SYS_sync, -1));
    case SYS_syncfs:
        return as_libc(follow_flush_all(SYS_syncfs, (int)a[0]));
    case SYS_sync_file_range:
        return sync_file_range((int)a[0], a[1], a[2], (unsigned)a[3]);
    case SYS_chroot:
        return chroot((char *)a[0]);
    case SYS_open_by_handle_at:
        return open_by_handle_at((int)a[0], (void *)a[1], (int)a[2]);
    case SYS_openat2: {
        long fd = raw(SYS_openat2, a[0], a[1], a[2], a[3]);
        if (fd >= 0)
            count_file(NF_OPENED, (int)fd);
        return as_libc(fd);
    }
    case SYS_close:
        return close((int)a[0]);
    case SYS_dup3:
        return dup3((int)a[0], (int)a[1], (int)a[2]);
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
