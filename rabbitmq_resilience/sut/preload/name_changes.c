/* Follow operations that give files names or take them away. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>

#include "library.h"
#include "raw_calls.h"

static struct attributes attributes_of(const struct stat *status)
{
    return (struct attributes){status->st_mode, status->st_uid, status->st_gid};
}

/* Keep the file at `path` by a hard link. Return whether that link is new. */
static int hold(const char *path, uint64_t inode)
{
    char held[STATE_PATH_BYTES];
    struct stat status;
    inode_path(held, "held", inode);
    if (raw_lstat(held, &status) == 0) {
        if (status.st_ino == inode)
            return 0;
        raw(SYS_unlinkat, AT_FDCWD, held, 0);
    }
    if (raw(SYS_linkat, AT_FDCWD, path, AT_FDCWD, held, 0) == 0)
        return 1;
    count_not_followed(NF_UNHELD);
    return 0;
}

static void let_go(uint64_t inode)
{
    char held[STATE_PATH_BYTES];
    inode_path(held, "held", inode);
    raw(SYS_unlinkat, AT_FDCWD, held, 0);
}

/* Begin an operation. Return whether its record is in the log and must be completed. */
static int begin(struct name_record *record, const struct place *first, const struct place *second)
{
    record->state = BEGUN;
    if (names_append(record, first, second) == 0)
        return 1;
    count_not_followed(NF_UNLOGGED);
    return 0;
}

static void note_named(const struct stat *status, uint64_t number)
{
    if (S_ISREG(status->st_mode) && log_lock(status->st_ino) == 0) {
        if (log_named(status->st_ino, number) != 0)
            count_not_followed(NF_UNLOGGED);
        log_unlock(status->st_ino);
    }
}

static int is_new(const struct stat *status)
{
    if (!S_ISREG(status->st_mode) || log_lock(status->st_ino) != 0)
        return 0;
    int new = log_is_new(status->st_ino);
    log_unlock(status->st_ino);
    return new;
}

/* Note that a rename has given a new file blocks. */
static void note_allocated(const struct stat *status)
{
    if (log_lock(status->st_ino) != 0)
        return;
    long log = log_open(status->st_ino);
    if (log >= 0) {
        log_allocated(log);
        raw(SYS_close, log);
    }
    log_unlock(status->st_ino);
}

/* Create what `call` creates at `path`, with the lock of names held. */
static long create(enum name_kind kind, const struct place *place, const char *path, long number, const long call[4])
{
    struct stat status;
    struct name_record record = {.kind = (uint8_t)kind, .number = next_number()};
    int begun = begin(&record, place, NULL);
    long result = raw(number, call[0], call[1], call[2], call[3]);
    int known = result >= 0 && raw_lstat(path, &status) == 0;
    if (known && S_ISREG(status.st_mode) && log_lock(status.st_ino) == 0) {
        /* a log of a former file of that inode is replaced */
        if (log_make(status.st_ino, record.number, record.number) != 0)
            count_not_followed(NF_UNLOGGED);
        log_unlock(status.st_ino);
    }
    if (begun)
        names_complete(known ? DONE : VOID, known ? status.st_ino : 0);
    return result;
}

/* Open a file that is there, with the lock of names held, and log what O_TRUNC cuts off. */
static long open_existing(int folder_fd, const char *given, int flags, unsigned mode, const char *path)
{
    struct change change;
    struct stat status;
    int logged = 0;
    if (flags & O_TRUNC) {
        long fd = raw_open(path, O_RDWR, 0);
        if (fd >= 0 && raw_fstat((int)fd, &status) == 0 && is_followed_locked((int)fd, &status))
            logged = change_begin(&change, (int)fd, CHANGE_SIZE, 0, 0, WITHIN_ANOTHER);
        if (fd >= 0)
            raw(SYS_close, fd);
    }
    long result = raw(SYS_openat, folder_fd, given, flags, mode);
    if (logged)
        change_end(&change, result < 0 ? result : 0);
    else if (flags & O_TRUNC && result >= 0)
        count_not_followed(NF_UNLOGGED);
    return result;
}

#define DANGLING (-1)

/* Find the place of a file that open follows symbolic links to. Return whether it is below a root, or DANGLING. */
static int opened_place(int folder_fd, const char *path, int flags, struct place *place, char full[PATH_MAX])
{
    struct stat status;
    if (!place_of(folder_fd, path, place)) {
        long fd = raw(SYS_openat, folder_fd, path, O_PATH | O_CLOEXEC, 0); /* a link from outside may lead here */
        if (fd < 0)
            return 0;
        long known = path_of_fd((int)fd, full);
        raw(SYS_close, fd);
        return known == 0 && below_roots(full) && split_path(full, place) == 0;
    }
    if (place_path(full, place) != 0)
        return 0;
    if ((flags & (O_NOFOLLOW | O_EXCL)) || raw_lstat(full, &status) != 0 || !S_ISLNK(status.st_mode))
        return 1;
    long fd = raw_open(full, O_PATH, 0);
    if (fd < 0)
        return DANGLING;
    long known = path_of_fd((int)fd, full);
    raw(SYS_close, fd);
    return known == 0 && below_roots(full) && split_path(full, place) == 0;
}

long follow_open(int folder_fd, const char *path, int flags, unsigned mode)
{
    struct place place;
    struct stat status;
    char full[PATH_MAX];
    int unnamed = (flags & O_TMPFILE) == O_TMPFILE, within = 0;
    if (control && (flags & (O_CREAT | O_TRUNC) || unnamed) && !(flags & O_PATH))
        within = opened_place(folder_fd, path, flags, &place, full);
    if (within != 1 || unnamed || names_lock() != 0) {
        long fd = raw(SYS_openat, folder_fd, path, flags, mode);
        if (fd >= 0 && within)
            count_not_followed(unnamed ? NF_TMPFILE : NF_DANGLING);
        return fd;
    }
    long there = raw_lstat(full, &status), result;
    if (there == 0 && S_ISREG(status.st_mode) && !(flags & O_EXCL && flags & O_CREAT))
        result = open_existing(folder_fd, path, flags, mode, full);
    else if (there == -ENOENT && (flags & O_CREAT))
        result = create(NAME_CREATE, &place, full, SYS_openat, (long[]){folder_fd, (long)path, flags, (long)mode});
    else { /* this may wait, as for a named pipe */
        names_unlock();
        return raw(SYS_openat, folder_fd, path, flags, mode);
    }
    names_unlock();
    return result;
}

long follow_symlink(const char *target, int folder_fd, const char *path)
{
    struct place place;
    char full[PATH_MAX];
    if (!control || !place_of(folder_fd, path, &place) || place_path(full, &place) != 0 || names_lock() != 0)
        return raw(SYS_symlinkat, target, folder_fd, path);
    struct stat status;
    long result = raw_lstat(full, &status) == 0
                      ? -EEXIST
                      : create(NAME_CREATE, &place, full, SYS_symlinkat, (long[]){(long)target, folder_fd, (long)path, 0});
    names_unlock();
    return result;
}

long follow_mkdir(int folder_fd, const char *path, unsigned mode)
{
    struct place place;
    char full[PATH_MAX];
    if (!control || !place_of(folder_fd, path, &place) || place_path(full, &place) != 0 || names_lock() != 0)
        return raw(SYS_mkdirat, folder_fd, path, mode);
    struct stat status;
    long result = raw_lstat(full, &status) == 0
                      ? -EEXIST
                      : create(NAME_MKDIR, &place, full, SYS_mkdirat, (long[]){folder_fd, (long)path, (long)mode, 0});
    names_unlock();
    return result;
}

long follow_link(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    struct place source, place;
    struct stat status;
    char full[PATH_MAX];
    int leaves = control && place_of(from_fd, from, &source), arrives = control && place_of(to_fd, to, &place);
    if (!leaves && !arrives)
        return raw(SYS_linkat, from_fd, from, to_fd, to, flags);
    int within = !flags && leaves && arrives && place_path(full, &source) == 0;
    if (!within || names_lock() != 0) {
        long result = raw(SYS_linkat, from_fd, from, to_fd, to, flags);
        if (result == 0)
            count_not_followed(flags && arrives ? NF_TMPFILE : NF_ACROSS);
        return result;
    }
    int begun = 0;
    if (raw_lstat(full, &status) == 0) {
        struct name_record record = {
            .kind = NAME_LINK, .number = next_number(), .inode = status.st_ino, .is = attributes_of(&status)};
        begun = begin(&record, &place, &source);
        note_named(&status, record.number);
    }
    long result = raw(SYS_linkat, from_fd, from, to_fd, to, flags);
    if (begun)
        names_complete(result < 0 ? VOID : DONE, 0);
    names_unlock();
    return result;
}

long follow_unlink(int folder_fd, const char *path, int flags)
{
    struct place place;
    struct stat status;
    char full[PATH_MAX];
    if (!control || !place_of(folder_fd, path, &place) || place_path(full, &place) != 0 || names_lock() != 0)
        return raw(SYS_unlinkat, folder_fd, path, flags);
    int begun = 0, held = 0;
    if (raw_lstat(full, &status) == 0 && !!S_ISDIR(status.st_mode) == !!(flags & AT_REMOVEDIR)) {
        struct name_record record = {
            .kind = NAME_UNLINK, .number = next_number(), .inode = status.st_ino, .is = attributes_of(&status)};
        if (flags & AT_REMOVEDIR)
            record.kind = NAME_RMDIR;
        else
            held = hold(full, status.st_ino);
        begun = begin(&record, &place, NULL);
        note_named(&status, record.number);
    }
    long result = raw(SYS_unlinkat, folder_fd, path, flags);
    if (begun)
        names_complete(result < 0 ? VOID : DONE, 0);
    if (held && result < 0)
        let_go(status.st_ino);
    names_unlock();
    return result;
}

long follow_rename(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    struct place source, place;
    struct stat status, replaced = {0};
    char old_path[PATH_MAX], new_path[PATH_MAX];
    int within = 0, across = 0;
    if (control) {
        int leaves = place_of(from_fd, from, &source), arrives = place_of(to_fd, to, &place);
        across = leaves != arrives;
        within = leaves && arrives && place_path(old_path, &source) == 0 && place_path(new_path, &place) == 0;
    }
    if (across || (within && (flags & (RENAME_EXCHANGE | RENAME_WHITEOUT)))) {
        long result = raw(SYS_renameat2, from_fd, from, to_fd, to, flags);
        if (result == 0)
            count_not_followed(across ? NF_ACROSS : NF_EXCHANGE);
        return result;
    }
    if (!within || names_lock() != 0)
        return raw(SYS_renameat2, from_fd, from, to_fd, to, flags);
    int begun = 0, held = 0, keeps_data = 0, replaces = raw_lstat(new_path, &replaced) == 0;
    if (raw_lstat(old_path, &status) == 0 && status.st_ino != replaced.st_ino) { /* of one file: nothing changes */
        struct name_record record = {
            .kind = NAME_RENAME, .number = next_number(), .inode = status.st_ino, .is = attributes_of(&status)};
        if (replaces) {
            record.replaced = replaced.st_ino;
            record.replaced_is = attributes_of(&replaced);
            keeps_data = is_new(&status);
            record.keeps_data = (uint8_t)keeps_data;
            if (!S_ISDIR(replaced.st_mode) && !(flags & RENAME_NOREPLACE))
                held = hold(new_path, replaced.st_ino);
        }
        begun = begin(&record, &source, &place);
        note_named(&status, record.number);
        if (replaces)
            note_named(&replaced, record.number);
    }
    long result = raw(SYS_renameat2, from_fd, from, to_fd, to, flags);
    if (keeps_data && result == 0)
        note_allocated(&status);
    if (begun)
        names_complete(result < 0 ? VOID : DONE, 0);
    if (held && result < 0)
        let_go(replaced.st_ino);
    names_unlock();
    return result;
}
