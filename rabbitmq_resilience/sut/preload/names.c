#define _GNU_SOURCE
#include "names.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

#include "raw_calls.h"

static long names_file(void)
{
    char path[STATE_PATH_BYTES];
    state_path(path, "names");
    return raw_open(path, O_RDWR, 0);
}

int names_lock(void)
{
    int taken = lock_take(&control->names);
    if (taken < 0) {
        count_not_followed(NF_REENTERED);
        return -1;
    }
    if (taken > 0 || atomic_load(&control->names_open))
        names_recover();
    return 0;
}

void names_unlock(void)
{
    lock_leave(&control->names);
}

int place_path(char path[PATH_MAX], const struct place *place)
{
    size_t folder = strlen(place->folder), name = strlen(place->name);
    if (folder + name + 2 > PATH_MAX)
        return -1;
    memcpy(path, place->folder, folder);
    path[folder] = '/';
    memcpy(path + folder + 1, place->name, name + 1);
    return 0;
}

int names_append(struct name_record *record, const struct place *first, const struct place *second)
{
    const char *texts[4] = {"", "", "", ""};
    struct iovec parts[5] = {{record, sizeof *record}};
    if (first)
        texts[0] = first->folder, texts[1] = first->name;
    if (second)
        texts[2] = second->folder, texts[3] = second->name;
    size_t total = sizeof *record;
    for (int i = 0; i < 4; i++) {
        record->lengths[i] = (uint16_t)strlen(texts[i]);
        parts[i + 1] = (struct iovec){(void *)texts[i], record->lengths[i]};
        total += record->lengths[i];
    }
    record->bytes = (uint32_t)total;
    long file = names_file();
    if (file < 0)
        return (int)file;
    uint64_t end = atomic_load(&control->names_end);
    if (record->state == BEGUN)
        atomic_store(&control->names_open, end + 1);
    long done = raw(SYS_pwritev, file, parts, 5, end, 0);
    raw(SYS_close, file);
    if (done != (long)total) {
        atomic_store(&control->names_open, 0);
        return done < 0 ? (int)done : -ENOSPC;
    }
    atomic_store(&control->names_end, end + total);
    if (record->kind >= NAME_CREATE && record->kind <= NAME_RMDIR)
        atomic_store(&control->last_name, record->number);
    return 0;
}

void names_complete(enum record_state state, uint64_t inode)
{
    uint64_t place = atomic_load(&control->names_open) - 1, ended = next_number();
    uint8_t byte = (uint8_t)state;
    long file = names_file();
    if (file < 0) {
        count_not_followed(NF_UNLOGGED);
        return; /* the next one that takes the lock completes it */
    }
    if (inode)
        raw(SYS_pwrite64, file, &inode, sizeof inode, place + offsetof(struct name_record, inode));
    raw(SYS_pwrite64, file, &ended, sizeof ended, place + offsetof(struct name_record, ended));
    raw(SYS_pwrite64, file, &byte, 1, place + offsetof(struct name_record, state));
    raw(SYS_close, file);
    atomic_store(&control->names_open, 0);
}

static int read_place(long file, uint64_t at, const uint16_t lengths[2], char path[PATH_MAX])
{
    struct place place;
    if (lengths[0] >= PATH_MAX || lengths[1] > NAME_MAX)
        return -1;
    raw(SYS_pread64, file, place.folder, lengths[0], at);
    raw(SYS_pread64, file, place.name, lengths[1], at + lengths[0]);
    place.folder[lengths[0]] = 0;
    place.name[lengths[1]] = 0;
    return place_path(path, &place);
}

void names_recover(void)
{
    uint64_t open = atomic_load(&control->names_open);
    if (!open)
        return;
    if (open - 1 >= atomic_load(&control->names_end)) { /* killed before its record was whole: nothing was done */
        atomic_store(&control->names_open, 0);
        return;
    }
    struct name_record record;
    char first[PATH_MAX] = "", second[PATH_MAX] = "";
    long file = names_file();
    if (file < 0)
        return;
    raw(SYS_pread64, file, &record, sizeof record, open - 1);
    uint64_t at = open - 1 + sizeof record;
    read_place(file, at, record.lengths, first);
    if (record.lengths[2])
        read_place(file, at + record.lengths[0] + record.lengths[1], record.lengths + 2, second);
    raw(SYS_close, file);
    struct stat status = {0};
    long there = raw_lstat(record.kind == NAME_RENAME ? second : first, &status);
    int done;
    switch (record.kind) {
    case NAME_CREATE:
    case NAME_MKDIR:
        done = there == 0;
        break;
    case NAME_LINK:
    case NAME_RENAME:
        done = there == 0 && status.st_ino == record.inode;
        break;
    default:
        done = there == -ENOENT;
    }
    names_complete(done ? DONE : VOID, done && !record.inode ? status.st_ino : 0);
}
