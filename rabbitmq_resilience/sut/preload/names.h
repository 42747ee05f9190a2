/* The log of names: each operation that gives a file a name or takes one away, and each flush, in order.
 *
 * A record is written before its operation, and completed after it. If a process is killed between the two, the next
 * one that takes the lock, or the cut, looks whether the operation was done. */
#ifndef NAMES_H
#define NAMES_H

#include "state.h"

enum name_kind {
    NAME_SEEN = 1, /* no operation: the file has this name when its log begins */
    NAME_CREATE,   /* a new file, or a symbolic link, at places[0] */
    NAME_MKDIR,
    NAME_LINK,   /* a new name at places[0] of the file at places[1] */
    NAME_RENAME, /* from places[0] to places[1] */
    NAME_UNLINK,
    NAME_RMDIR,
    FLUSH_FOLDER, /* the folder places[0].folder; the record's number is that of the call's beginning */
    FLUSH_FILE,   /* the file `inode` */
    FLUSH_ALL,
};

enum record_state { BEGUN, DONE, VOID };

/* A name in a folder. `folder` is absolute, without symbolic links, as it was at the time of the operation. */
struct place {
    char folder[PATH_MAX];
    char name[NAME_MAX + 1];
};

struct attributes {
    uint32_t mode, uid, gid;
};

/* keeps_data: a new file replaces another one (file_log.h, log_is_new). */
struct name_record {
    uint32_t bytes; /* of the record with its texts */
    uint8_t kind, state, keeps_data, unused;
    uint64_t number; /* of the moment before the operation */
    uint64_t ended;  /* and after it; only what began later can have flushed it */
    uint64_t inode, replaced; /* replaced: the file that had the new name of a rename, 0 if none */
    struct attributes is, replaced_is;
    uint16_t lengths[4]; /* of the texts behind the record: folder and name of places[0] and of places[1] */
};

/* Take the lock of names, and complete what a killed process left. Return 0, or -1 if this thread has it. */
int names_lock(void);
void names_unlock(void);
/* Write the path of a place. Return 0, or -1 if it is too long. */
int place_path(char path[PATH_MAX], const struct place *place);
/* Append a record with up to two places; it is completed unless its state is BEGUN. Return 0 or a negative error. */
int names_append(struct name_record *record, const struct place *first, const struct place *second);
/* Complete the record that has begun. `inode` is that of a new file; 0 leaves it. */
void names_complete(enum record_state state, uint64_t inode);
/* Find out whether the record that a killed process has begun was done, and complete it. The lock must be held. */
void names_recover(void);

#endif
