/* Take away the writes to one file that were not flushed. */
#ifndef UNDO_H
#define UNDO_H

#include <stdint.h>

/* Which records of a file's log are taken away: those from the number `since` on, but the first `kept` of them are
 * kept, and of the next one, if it is a write, its first `kept_bytes`. */
struct undo {
    uint64_t inode, since, kept, kept_bytes;
};

/* Choose what a torn cut keeps: a point and a sector, from `seed`. Only `kept` and `kept_bytes` are written. */
void undo_tear(struct undo *undo, uint64_t seed);
/* Return the bytes that were written by the records that are taken away, and set `any` if there are such records. */
uint64_t undo_bytes(const struct undo *undo, int *any);
/* Take them away in the file held/INODE. Doing it again changes nothing. */
void undo_apply(const struct undo *undo);

#endif
