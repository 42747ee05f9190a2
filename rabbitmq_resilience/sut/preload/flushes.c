/* Follow which files and folders a program has flushed. */
#define _GNU_SOURCE
#include <string.h>

#include "library.h"
#include "raw_calls.h"

/* Commit the journal of ext4 for the size of a file. */
static void commit(uint64_t resized)
{
    uint64_t before = atomic_load(&control->committed);
    while (before < resized && !atomic_compare_exchange_weak(&control->committed, &before, resized))
        ;
}

void log_file_flush(uint64_t inode, const struct log_mark *mark, int data_only)
{
    struct name_record record = {.kind = FLUSH_FILE, .state = DONE, .inode = inode};
    record.number = data_only ? mark->resized : mark->number;
    commit(mark->resized);
    if (!mark->pending_names || !record.number || names_lock() != 0)
        return;
    if (names_append(&record, NULL, NULL) != 0)
        count_not_followed(NF_UNLOGGED);
    else if (!mark->in_operation && mark->named < record.number && log_lock(inode) == 0) {
        log_names_flushed(inode, mark->named);
        log_unlock(inode);
    }
    names_unlock();
}

static long flush_file(long number, int fd, uint64_t inode)
{
    struct log_mark mark;
    struct stat status;
    if (log_lock(inode) != 0)
        return raw(number, fd);
    int marked = raw_fstat(fd, &status) == 0 && log_mark_end(inode, (uint64_t)status.st_size, &mark) == 0;
    log_unlock(inode);
    long result = raw(number, fd);
    if (result < 0 || !marked || log_lock(inode) != 0)
        return result;
    log_flushed(inode, &mark);
    log_unlock(inode);
    log_file_flush(inode, &mark, number == SYS_fdatasync);
    return result;
}

static long flush_folder(long number, int fd)
{
    struct stat status, there;
    struct place place;
    struct name_record record = {.kind = FLUSH_FOLDER, .state = DONE, .number = next_number()};
    long result = raw(number, fd);
    if (result < 0 || atomic_load(&control->last_name) == 0 || names_lock() != 0)
        return result;
    memset(&place, 0, sizeof place);
    /* A folder that was removed in the meantime has no path, and nothing in it can be kept. */
    if (path_of_fd(fd, place.folder) == 0 && raw_fstat(fd, &status) == 0 && raw_lstat(place.folder, &there) == 0
        && there.st_ino == status.st_ino && names_append(&record, &place, NULL) != 0)
        count_not_followed(NF_UNLOGGED);
    names_unlock();
    return result;
}

long follow_flush(long number, int fd)
{
    struct stat status;
    char path[PATH_MAX];
    if (!control || raw_fstat(fd, &status) != 0)
        return raw(number, fd);
    int folder = S_ISDIR(status.st_mode) && path_of_fd(fd, path) == 0 && below_roots(path);
    if (!folder && !(S_ISREG(status.st_mode) && is_followed(fd, &status)))
        return raw(number, fd);
    uint64_t began_ns = clock_ns();
    long result = faults_are_set() ? -fault_of(ON_FLUSH, fd) : 0;
    int failed = result < 0;
    if (!failed)
        result = folder ? flush_folder(number, fd) : flush_file(number, fd, status.st_ino);
    count_call(ON_FLUSH, began_ns, failed, 0);
    return result;
}

/* Return the number of a moment at which no write and no name operation is under way; 0 if there is none. */
static uint64_t quiet_moment(void)
{
    if (names_lock() != 0)
        return 0;
    int locked = 0;
    while (locked < STRIPES && log_lock((uint64_t)locked) == 0)
        locked++;
    uint64_t number = locked == STRIPES ? next_number() : 0;
    while (locked > 0)
        log_unlock((uint64_t)--locked);
    names_unlock();
    return number;
}

long follow_flush_all(long number, int fd)
{
    struct stat status;
    if (!control || (number == SYS_syncfs && (raw_fstat(fd, &status) != 0 || status.st_dev != state_device)))
        return raw(number, fd);
    struct name_record record = {.kind = FLUSH_ALL, .state = DONE, .number = quiet_moment()};
    uint64_t began_ns = clock_ns();
    long result = raw(number, fd);
    if (result < 0 || !record.number || names_lock() != 0)
        return result;
    if (names_append(&record, NULL, NULL) != 0)
        count_not_followed(NF_UNLOGGED);
    else if (atomic_load(&control->all_flushed) < record.number)
        atomic_store(&control->all_flushed, record.number);
    names_unlock();
    count_call(ON_FLUSH, began_ns, 0, 0);
    return result;
}
