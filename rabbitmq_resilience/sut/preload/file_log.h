/* The undo log of one file: what is needed to take its writes away again, newest last.
 *
 * An append needs only a record of 48 bytes. What is overwritten or cut off is copied behind the record. The records
 * of what has been flushed are removed, so that an emptied log is as large as its head. */
#ifndef FILE_LOG_H
#define FILE_LOG_H

#include "names.h"

#define LOG_MAGIC 0x646b666cu

struct log_head {
    uint32_t magic, unused;
    uint64_t cuts;          /* how often records were removed */
    uint64_t named;         /* the number of the last operation on a name of the file */
    uint64_t named_flushed; /* the value of `named` at the last flush of the file that is in the log of names */
    uint64_t created;       /* the operation that created the file; 0 once it was flushed or may have got blocks */
};

/* What changes: bytes; the size, with `offset` as the new one; the size if it is smaller than `offset`; bytes to zeros. */
enum change_kind { CHANGE_WRITE = 1, CHANGE_SIZE, CHANGE_GROW, CHANGE_ZERO };

struct change_record {
    uint32_t magic, kind;
    uint64_t number;
    uint64_t offset, length; /* length: of the bytes that were written, 0 if only the size changes */
    uint64_t old_size;
    uint64_t saved; /* how many old bytes, from `offset` on, stand behind the record */
};

/* A file's records at the beginning of a flush, and the number of that moment. */
struct log_mark {
    uint64_t number, cuts, end, named;
    uint64_t resized;     /* when it got its size, 0 if that is as it was at the last flush */
    uint64_t first, last; /* the writes that are not flushed lie between these places */
    int pending_names, in_operation; /* in_operation: the last operation on names may not have ended */
};

/* Take the lock of a file's log. Return 0, or -1 if this thread has a lock of that stripe. */
int log_lock(uint64_t inode);
void log_unlock(uint64_t inode);
/* Open the log, or return a negative error number: -ENOENT if the file is not followed. */
long log_open(uint64_t inode);
/* Make an empty log for a file. `named` is the number of the operation that gave it a name, or 0; `created`: of that
 * which created it, or 0. */
int log_make(uint64_t inode, uint64_t named, uint64_t created);
/* Return whether the file was created, and neither flushed nor given blocks since. The lock must be held. */
int log_is_new(uint64_t inode);
/* Note that the file was given blocks, or is when it is closed. */
void log_allocated(long log);
/* Note an operation on a name of the file; its log is made if there is none. */
int log_named(uint64_t inode, uint64_t number);
/* Append a record, and copy its old bytes from the readable file `from`. Return its place, or a negative error. */
long log_append(long log, const struct change_record *record, int from);
/* Correct the record at `place` after a short write, or remove it if nothing was written. */
void log_correct(long log, long place, long written);
/* Read where the log ends now. `size` is the file's. The lock must be held. Return 0 or a negative error number. */
int log_mark_end(uint64_t inode, uint64_t size, struct log_mark *mark);
/* Remove all records that were there at `mark`: they are flushed. The lock must be held. */
void log_flushed(uint64_t inode, const struct log_mark *mark);
/* Note that a flush of the file is in the log of names. The lock must be held. */
void log_names_flushed(uint64_t inode, uint64_t named);
/* Read the record at `at`. Return the place of the next one, or 0 if there is no whole record. */
uint64_t log_next(long log, uint64_t size, uint64_t at, struct change_record *record);

#endif
