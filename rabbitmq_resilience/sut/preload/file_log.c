#define _GNU_SOURCE
#include "file_log.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>

#include "raw_calls.h"

#define COPY_BYTES 8192

static struct lock *stripe_of(uint64_t inode)
{
    return &control->stripes[inode % STRIPES];
}

static uint64_t size_of(long file)
{
    struct stat status;
    return raw_fstat((int)file, &status) == 0 ? (uint64_t)status.st_size : 0;
}

uint64_t log_next(long log, uint64_t size, uint64_t at, struct change_record *record)
{
    if (at + sizeof *record > size || raw(SYS_pread64, log, record, sizeof *record, at) != sizeof *record)
        return 0;
    uint64_t next = at + sizeof *record + record->saved;
    return record->magic == LOG_MAGIC && next <= size ? next : 0;
}

/* Cut off a record that a killed process did not finish; its write was not begun. */
static void repair(const char *path)
{
    long log = raw_open(path, O_RDWR, 0);
    if (log < 0)
        return;
    struct change_record record;
    uint64_t size = size_of(log), at = sizeof(struct log_head), next;
    while ((next = log_next(log, size, at, &record)))
        at = next;
    if (at < size)
        raw(SYS_ftruncate, log, at);
    raw(SYS_close, log);
}

struct folder_entry { /* of the kernel: getdents64 */
    uint64_t inode;
    int64_t next;
    unsigned short bytes;
    unsigned char type;
    char name[];
};

static void repair_stripe(uint64_t stripe)
{
    char path[STATE_PATH_BYTES];
    _Alignas(8) char listed[4096];
    state_path(path, "files");
    long folder = raw_open(path, O_RDONLY | O_DIRECTORY, 0), got;
    if (folder < 0)
        return;
    while ((got = raw(SYS_getdents64, folder, listed, sizeof listed)) > 0)
        for (long at = 0; at < got;) {
            struct folder_entry *entry = (struct folder_entry *)(listed + at);
            uint64_t inode = 0;
            for (const char *digit = entry->name; *digit >= '0' && *digit <= '9'; digit++)
                inode = inode * 10 + (uint64_t)(*digit - '0');
            if (inode && inode % STRIPES == stripe) {
                inode_path(path, "files", inode);
                repair(path);
            }
            at += entry->bytes;
        }
    raw(SYS_close, folder);
}

int log_lock(uint64_t inode)
{
    int taken = lock_take(stripe_of(inode));
    if (taken > 0)
        repair_stripe(inode % STRIPES);
    if (taken < 0)
        count_not_followed(NF_REENTERED);
    return taken < 0 ? -1 : 0;
}

void log_unlock(uint64_t inode)
{
    lock_leave(stripe_of(inode));
}

long log_open(uint64_t inode)
{
    char path[STATE_PATH_BYTES];
    inode_path(path, "files", inode);
    return raw_open(path, O_RDWR, 0);
}

/* Open a scratch file that replaces the log of `inode` by `put`. */
static long scratch(uint64_t inode, char path[STATE_PATH_BYTES])
{
    inode_path(path, "files", inode);
    memcpy(path + strlen(path), ".new", 5);
    long file = raw_open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (file >= 0)
        raw(SYS_fchmod, file, 0666); /* a later process may be another user's */
    return file;
}

static long put(uint64_t inode, long file, const char *from)
{
    char path[STATE_PATH_BYTES];
    inode_path(path, "files", inode);
    raw(SYS_close, file);
    return raw(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, path, 0);
}

int log_make(uint64_t inode, uint64_t named, uint64_t created)
{
    char path[STATE_PATH_BYTES];
    struct log_head head = {.magic = LOG_MAGIC, .named = named, .created = created};
    long file = scratch(inode, path);
    if (file < 0)
        return (int)file;
    long done = raw(SYS_write, file, &head, sizeof head);
    long moved = put(inode, file, path);
    return done == sizeof head ? (int)moved : -ENOSPC;
}

int log_named(uint64_t inode, uint64_t number)
{
    long log = log_open(inode);
    if (log == -ENOENT)
        return log_make(inode, number, 0);
    if (log < 0)
        return (int)log;
    raw(SYS_pwrite64, log, &number, sizeof number, offsetof(struct log_head, named));
    raw(SYS_close, log);
    return 0;
}

/* Copy bytes from one file to another. Return 0, or a negative error number. */
static long copy(int from, uint64_t offset, long into, uint64_t at, uint64_t length)
{
    char bytes[COPY_BYTES];
    while (length) {
        long got = raw(SYS_pread64, from, bytes, length < sizeof bytes ? length : sizeof bytes, offset);
        if (got <= 0)
            return got ? got : -EIO;
        if (raw(SYS_pwrite64, into, bytes, got, at) != got)
            return -ENOSPC;
        offset += (uint64_t)got, at += (uint64_t)got, length -= (uint64_t)got;
    }
    return 0;
}

long log_append(long log, const struct change_record *record, int from)
{
    uint64_t place = size_of(log);
    long done = raw(SYS_pwrite64, log, record, sizeof *record, place);
    if (done == sizeof *record)
        done = copy(from, record->offset, log, place + sizeof *record, record->saved);
    else if (done >= 0)
        done = -ENOSPC;
    if (done < 0) {
        raw(SYS_ftruncate, log, place);
        return done;
    }
    return (long)place;
}

void log_correct(long log, long place, long written)
{
    uint64_t length = (uint64_t)written;
    if (written > 0)
        raw(SYS_pwrite64, log, &length, sizeof length, place + (long)offsetof(struct change_record, length));
    else
        raw(SYS_ftruncate, log, place);
}

int log_is_new(uint64_t inode)
{
    struct log_head head = {0};
    long log = log_open(inode);
    if (log < 0)
        return 0;
    raw(SYS_pread64, log, &head, sizeof head, 0);
    raw(SYS_close, log);
    return head.created && head.created >= atomic_load(&control->all_flushed);
}

void log_allocated(long log)
{
    uint64_t created = 0;
    raw(SYS_pwrite64, log, &created, sizeof created, offsetof(struct log_head, created));
}

int log_mark_end(uint64_t inode, uint64_t size, struct log_mark *mark)
{
    struct log_head head;
    struct change_record record;
    long log = log_open(inode);
    if (log < 0)
        return (int)log;
    raw(SYS_pread64, log, &head, sizeof head, 0);
    int in_operation = atomic_load(&control->names_open) != 0; /* looked at before the number is taken */
    *mark = (struct log_mark){.number = next_number(), .cuts = head.cuts, .end = size_of(log), .named = head.named,
                              .pending_names = head.named > head.named_flushed, .in_operation = in_operation,
                              .first = UINT64_MAX};
    uint64_t since = atomic_load(&control->all_flushed), flushed_size = size, changed = 0, next;
    for (uint64_t at = sizeof head; (next = log_next(log, mark->end, at, &record)); at = next) {
        if (record.number < since)
            continue;
        if (!changed)
            flushed_size = record.old_size;
        else if (record.old_size == size && !mark->resized)
            mark->resized = changed;
        if (record.kind == CHANGE_WRITE && record.offset < mark->first)
            mark->first = record.offset;
        if (record.kind == CHANGE_WRITE && record.offset + record.length > mark->last)
            mark->last = record.offset + record.length;
        changed = record.number;
    }
    if (flushed_size == size)
        mark->resized = 0;
    else if (!mark->resized)
        mark->resized = changed;
    raw(SYS_close, log);
    return 0;
}

void log_flushed(uint64_t inode, const struct log_mark *mark)
{
    long log = log_open(inode);
    if (log < 0)
        return;
    struct log_head head;
    raw(SYS_pread64, log, &head, sizeof head, 0);
    uint64_t size = size_of(log), kept = mark->end;
    if (head.cuts != mark->cuts) { /* another flush has removed records since: look for the first later one */
        struct change_record record;
        uint64_t next;
        kept = sizeof head;
        while ((next = log_next(log, size, kept, &record)) && record.number < mark->number)
            kept = next;
    }
    head.cuts++;
    head.created = 0;
    if (kept >= size) {
        raw(SYS_pwrite64, log, &head, sizeof head, 0);
        raw(SYS_ftruncate, log, sizeof head);
    } else if (kept > sizeof head) {
        char path[STATE_PATH_BYTES];
        long rest = scratch(inode, path);
        if (rest >= 0) {
            if (raw(SYS_write, rest, &head, sizeof head) == sizeof head
                && copy((int)log, kept, rest, sizeof head, size - kept) == 0)
                put(inode, rest, path);
            else
                raw(SYS_close, rest), count_not_followed(NF_UNLOGGED);
        } else
            count_not_followed(NF_UNLOGGED);
    }
    raw(SYS_close, log);
}

void log_names_flushed(uint64_t inode, uint64_t named)
{
    long log = log_open(inode);
    if (log < 0)
        return;
    raw(SYS_pwrite64, log, &named, sizeof named, offsetof(struct log_head, named_flushed));
    raw(SYS_close, log);
}
