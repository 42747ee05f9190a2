#define _GNU_SOURCE
#include "undo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_log.h"
#include "tree.h"

#define SECTOR 512

struct found {
    struct change_record record;
    uint64_t saved_at;
};

/* Read the records that are not flushed. */
static struct found *read_records(const struct undo *undo, int *count, int *log_file)
{
    struct found *found = NULL;
    struct stat status;
    long log = log_open(undo->inode);
    *count = 0;
    if (log_file)
        *log_file = (int)log;
    if (log < 0)
        return NULL;
    fstat((int)log, &status);
    struct found one;
    uint64_t at = sizeof(struct log_head), next;
    while ((next = log_next(log, (uint64_t)status.st_size, at, &one.record))) {
        if (one.record.number >= undo->since) {
            one.saved_at = at + sizeof one.record;
            found = grown(found, *count, sizeof *found);
            found[(*count)++] = one;
        }
        at = next;
    }
    if (!log_file)
        close((int)log);
    return found;
}

static uint64_t mixed(uint64_t *state) /* splitmix64 */
{
    uint64_t value = *state += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

void undo_tear(struct undo *undo, uint64_t seed)
{
    int count;
    struct found *found = read_records(undo, &count, NULL);
    undo->kept = mixed(&seed) % ((uint64_t)count + 1);
    undo->kept_bytes = 0;
    if (undo->kept < (uint64_t)count && found[undo->kept].record.kind == CHANGE_WRITE) {
        const struct change_record *torn = &found[undo->kept].record;
        uint64_t first = torn->offset / SECTOR, end = (torn->offset + torn->length + SECTOR - 1) / SECTOR;
        uint64_t sectors = torn->length ? mixed(&seed) % (end - first) : 0;
        if (sectors)
            undo->kept_bytes = (first + sectors) * SECTOR - torn->offset;
    }
    free(found);
}

uint64_t undo_bytes(const struct undo *undo, int *any)
{
    int count;
    uint64_t bytes = 0;
    struct found *found = read_records(undo, &count, NULL);
    *any = (uint64_t)count > undo->kept;
    for (uint64_t at = undo->kept; at < (uint64_t)count; at++)
        bytes += found[at].record.length;
    free(found);
    return bytes - undo->kept_bytes;
}

static void restore(int file, int log, uint64_t from, uint64_t offset, uint64_t length)
{
    char bytes[65536];
    while (length) {
        ssize_t got = pread(log, bytes, length < sizeof bytes ? length : sizeof bytes, (off_t)from);
        if (got <= 0 || pwrite(file, bytes, (size_t)got, (off_t)offset) != got)
            fail("old bytes cannot be written back: %s", strerror(errno));
        from += (uint64_t)got, offset += (uint64_t)got, length -= (uint64_t)got;
    }
}

void undo_apply(const struct undo *undo)
{
    char path[STATE_PATH_BYTES];
    struct stat status;
    int count, log;
    struct found *found = read_records(undo, &count, &log);
    if (log < 0)
        return;
    inode_path(path, "held", undo->inode);
    int file = open(path, O_RDWR | O_NOFOLLOW);
    if (file < 0 && errno == EACCES && stat(path, &status) == 0 && chmod(path, status.st_mode | 0600) == 0) {
        file = open(path, O_RDWR | O_NOFOLLOW); /* the owner made it read-only after writing it */
        chmod(path, status.st_mode);
    }
    if (file < 0)
        fail("%s cannot be written: %s", path, strerror(errno));
    for (int at = count - 1; at >= 0 && (uint64_t)at >= undo->kept; at--) {
        const struct change_record *record = &found[at].record;
        uint64_t skipped = (uint64_t)at == undo->kept ? undo->kept_bytes : 0, size = record->old_size;
        fstat(file, &status);
        if (skipped < record->saved)
            restore(file, log, found[at].saved_at + skipped, record->offset + skipped, record->saved - skipped);
        if (skipped && size < record->offset + skipped) /* what is kept of the write may be behind the old end */
            size = record->offset + skipped < (uint64_t)status.st_size ? record->offset + skipped
                                                                      : (uint64_t)status.st_size;
        if (size < record->old_size)
            size = record->old_size;
        if (ftruncate(file, (off_t)size) != 0)
            fail("%s cannot be cut: %s", path, strerror(errno));
    }
    close(file);
    close(log);
    free(found);
}
