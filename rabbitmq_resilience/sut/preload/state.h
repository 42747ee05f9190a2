/* The state folder that the library and the control program share.
 *
 *   control        settings, counters, locks and the number of the last operation, mapped by each process
 *   names          the log of name operations and flushes, in order (names.h)
 *   files/INODE    the undo log of each file that was written or got a name (file_log.h)
 *   held/INODE     a hard link to each file that lost a name
 *   alive          locked (shared) by each process that has the library loaded
 *   plan, stage    a cut that has begun (cut.c)
 */
#ifndef STATE_H
#define STATE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>

#define STATE_MAGIC 0x646b6631u
#define STATE_VERSION 5u
#define CONTROL_BYTES 16384
#define STRIPES 64
#define GLOB_BYTES 256
#define STATE_PATH_BYTES (PATH_MAX + 64)

/* Calls that change files in a way that the log does not hold. A run with one of them cannot be judged. */
#define NOT_FOLLOWED(X)                                                                                            \
    X(MMAP, "mmap")                                                                                                \
    X(SYNC_FILE_RANGE, "sync_file_range")                                                                          \
    X(FOPEN, "fopen")                                                                                              \
    X(FDOPEN, "fdopen")                                                                                            \
    X(MKSTEMP, "mkstemp")                                                                                          \
    X(DPRINTF, "dprintf")                                                                                          \
    X(STREAM, "a standard stream (stdout or stderr)")                                                              \
    X(AIO, "aio_write, aio_fsync or lio_listio")                                                                   \
    X(OPENED, "openat2 or open_by_handle_at")                                                                      \
    X(RWF, "pwritev2 RWF_DSYNC or RWF_SYNC")                                                                       \
    X(PART, "a write with O_SYNC or O_DSYNC to a file with others that are not flushed")                             \
    X(SPAWN, "posix_spawn with a file to open")                                                                    \
    X(CHROOT, "chroot")                                                                                            \
    X(DEVICE, "files on another file system than the log")                                                         \
    X(MKNOD, "mknod")                                                                                              \
    X(SPLICE, "splice")                                                                                            \
    X(IO_URING, "io_uring_setup")                                                                                  \
    X(IO_SUBMIT, "io_submit")                                                                                      \
    X(TMPFILE, "open O_TMPFILE")                                                                                   \
    X(DANGLING, "open O_CREAT through a dangling symbolic link")                                                   \
    X(EXCHANGE, "renameat2 RENAME_EXCHANGE or RENAME_WHITEOUT")                                                    \
    X(ACROSS, "rename or link across the roots")                                                                   \
    X(FALLOCATE, "fallocate that collapses or inserts a range")                                                    \
    X(UNHELD, "a removed file that could not be held")                                                             \
    X(UNLOGGED, "a change that could not be logged")                                                               \
    X(REENTERED, "a call from a signal handler during another one")                                                \
    X(UNFINISHED_CUT, "a process started before a cut was finished")

enum not_followed {
#define AS_ENUM(name, text) NF_##name,
    NOT_FOLLOWED(AS_ENUM)
#undef AS_ENUM
        NF_COUNT
};

enum { ON_WRITE = 1, ON_FLUSH = 2 };

struct lock {
    _Atomic uint32_t word; /* the owner's thread id, 0 if free; the highest bit: somebody waits */
    char pad[60];
};

struct settings {
    uint64_t write_ns, flush_ns, one_in;
    uint32_t error, on;
    char files[GLOB_BYTES];
};

struct kind_counters {
    _Atomic uint64_t calls, ns, errors, matched;
};

struct control {
    uint32_t magic, version;
    _Atomic uint64_t number;      /* of the last operation: writes, names and flushes share it */
    _Atomic uint64_t names_end;   /* the size of the log of names without an unfinished append */
    _Atomic uint64_t names_open;  /* 1 + the place of the record whose operation has begun, 0 if none */
    _Atomic uint64_t last_name;   /* the number of the last name operation, 0 if the log has none */
    _Atomic uint64_t all_flushed; /* all data with a lower number is flushed: sync() */
    _Atomic uint64_t committed;   /* for the size of a file, operations that ended before this number (ext4) */
    _Atomic uint64_t bytes;
    struct kind_counters writes, flushes;
    _Atomic uint64_t not_followed[NF_COUNT];
    _Atomic uint32_t settings_version; /* odd during a change */
    struct settings settings;
    struct lock names;
    struct lock stripes[STRIPES];
};

_Static_assert(sizeof(struct control) <= CONTROL_BYTES, "the control page holds all");

extern struct control *control;            /* NULL: the library does nothing */
extern char state_folder[PATH_MAX];        /* absolute, without a slash at its end */
extern uint64_t state_device;              /* inodes are numbers of this file system */
extern const char *const not_followed_names[NF_COUNT];

/* Map the control page of the prepared state `folder`. Return 0, or a negative error number. */
int state_open(const char *folder);
/* Write the path of `folder`/`name` into `path`. */
void state_path(char path[STATE_PATH_BYTES], const char *name);
/* The same for the file of an inode in the folder `files` or `held`. */
void inode_path(char path[STATE_PATH_BYTES], const char *folder, uint64_t inode);
/* Return the number of the next operation. */
uint64_t next_number(void);
void count_not_followed(enum not_followed what);
/* Take a lock. Return 1 if its owner has died, 0 if not, -1 if this thread has it (then it is not taken). */
int lock_take(struct lock *lock);
void lock_leave(struct lock *lock);
/* Let the next that takes the lock find that its owner has died. No owner may be alive. */
void lock_abandon(struct lock *lock);
/* stat without following a symbolic link; return 0 or a negative error number. */
long raw_lstat(const char *path, struct stat *status);
long raw_fstat(int fd, struct stat *status);
long raw_open(const char *path, int flags, unsigned mode);

#endif
