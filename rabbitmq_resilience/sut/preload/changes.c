/* Log changes of files' contents before they are done. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "library.h"
#include "raw_calls.h"

#ifndef RWF_DSYNC
#define RWF_DSYNC 2
#endif
#ifndef RWF_SYNC
#define RWF_SYNC 4
#endif
#ifndef RWF_APPEND
#define RWF_APPEND 16
#endif
#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 32
#endif

/* Return a descriptor that the file's old content can be read from; it is `fd` itself where that is possible. */
static long readable(int fd, long flags)
{
    char path[32] = "/proc/self/fd/", *end = path + 14, digits[12];
    int count = 0;
    if ((flags & O_ACCMODE) == O_RDWR && !(flags & O_DIRECT))
        return fd;
    do
        digits[count++] = (char)('0' + fd % 10);
    while (fd /= 10);
    while (count)
        *end++ = digits[--count];
    *end = 0;
    return raw_open(path, O_RDONLY, 0);
}

/* Append the record of a change to the open log. */
static void record(struct change *change, int fd, long flags, struct change_record *made)
{
    long from = made->saved ? readable(fd, flags) : fd;
    change->place = from < 0 ? from : log_append(change->log, made, (int)from);
    if (from >= 0 && from != fd)
        raw(SYS_close, from);
    if (change->place < 0)
        count_not_followed(NF_UNLOGGED);
}

int change_begin(struct change *change, int fd, enum change_kind kind, int64_t offset, uint64_t length, int write_flags)
{
    struct stat status;
    if (!control || raw_fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return 0;
    long flags = raw(SYS_fcntl, fd, F_GETFL, 0);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return 0;
    if ((kind == CHANGE_WRITE && length == 0) || !is_on_device(fd, &status))
        return 0;
    *change = (struct change){
        .inode = status.st_ino, .length = length, .kind = kind, .counted = 1, .log = -1, .place = -1};
    change->fd = fd;
    change->flushes = kind == CHANGE_WRITE && (flags & O_DSYNC);
    change->data_only = (flags & O_SYNC) != O_SYNC;
    if (write_flags & WITHIN_ANOTHER)
        change->counted = 0;
    else if (faults_are_set()) {
        if (!is_followed(fd, &status))
            return 0;
        change->began_ns = clock_ns();
        change->failed_on = ON_WRITE;
        change->error = fault_of(ON_WRITE, fd);
        if (!change->error && change->flushes) {
            change->failed_on = ON_FLUSH;
            change->error = fault_of(ON_FLUSH, fd);
        }
        if (change->error)
            return 1;
    } else
        change->began_ns = clock_ns();
    if (log_lock(change->inode) != 0)
        return 0;
    while ((change->log = log_open(change->inode)) < 0) {
        log_unlock(change->inode);
        if (!is_followed(fd, &status) || log_lock(change->inode) != 0)
            return 0;
    }
    raw_fstat(fd, &status); /* other threads may have changed the size before the lock was taken */
    uint64_t size = (uint64_t)status.st_size;
    if (kind == CHANGE_WRITE && (((flags & O_APPEND) && !(write_flags & RWF_NOAPPEND)) || (write_flags & RWF_APPEND)))
        offset = status.st_size;
    else if (offset < 0)
        offset = raw(SYS_lseek, fd, 0, SEEK_CUR);
    if (write_flags & (RWF_DSYNC | RWF_SYNC)) /* they flush this range of the file only */
        count_not_followed(NF_RWF);
    struct change_record made = {
        .magic = LOG_MAGIC, .kind = kind, .number = next_number(), .offset = (uint64_t)offset, .old_size = size};
    if (kind == CHANGE_WRITE || kind == CHANGE_ZERO)
        made.length = length;
    if (kind != CHANGE_GROW && made.offset < size)
        made.saved = made.length && made.length < size - made.offset ? made.length : size - made.offset;
    change->offset = made.offset;
    record(change, fd, flags, &made);
    if (kind == CHANGE_GROW || kind == CHANGE_ZERO || (kind == CHANGE_SIZE && made.offset == 0))
        log_allocated(change->log);
    return 1;
}

long change_end(struct change *change, long result)
{
    struct log_mark mark;
    struct stat status;
    int flushed = 0;
    if (change->error) {
        count_call(change->failed_on, change->began_ns, 1, 0);
        return -change->error;
    }
    if (change->place >= 0 && (result < 0 || (change->kind == CHANGE_WRITE && (uint64_t)result != change->length)))
        log_correct(change->log, change->place, result);
    raw(SYS_close, change->log);
    if (change->flushes && result > 0 && raw_fstat(change->fd, &status) == 0
        && log_mark_end(change->inode, (uint64_t)status.st_size, &mark) == 0) {
        if (mark.first < change->offset || mark.last > change->offset + (uint64_t)result)
            count_not_followed(NF_PART);
        log_flushed(change->inode, &mark);
        flushed = 1;
    }
    log_unlock(change->inode);
    if (flushed)
        log_file_flush(change->inode, &mark, change->data_only);
    if (change->counted)
        count_call(ON_WRITE, change->began_ns, 0, result > 0 ? (uint64_t)result : 0);
    if (change->flushes)
        count_call(ON_FLUSH, clock_ns(), 0, 0);
    return result;
}
