/* The names below the roots, as the log of names says that they were, are, and will be after a cut.
 *
 * Files and folders are nodes; a name in a folder is an entry. An entry knows which node it led to when the log began
 * (its base), each change since, and which of the changes are durable. */
#ifndef TREE_H
#define TREE_H

#include <stddef.h>

#include "names.h"

enum model { ORDERED, EXT4, POSIX, MODELS };
extern const char *const model_names[MODELS];

#define NONE (-1)

struct node {
    uint64_t inode; /* 0 for a folder */
    int is_folder;
    struct attributes attributes; /* of a folder when it was removed */
    int last_touch;               /* the last operation that created, moved, linked or removed it */
    int last_inside;              /* of a folder: the last operation on a name in it */
    uint64_t synced;              /* of a folder: its names with a lower number were flushed */
    uint64_t flushed;             /* of a file: data with a lower number is durable by a rename that replaced another one */
    int current, kept;            /* an entry that leads to it now, and after the cut */
    int looked_at;
};

struct entry {
    int folder;
    char *name;
    int base, current, kept; /* nodes */
    int last_change;
    uint64_t lost_bytes, lost_names;
    int lost; /* something was taken from it, or its size goes back */
};

struct name_change {
    int entry, node, operation, previous; /* previous: the change before on the same entry */
    int previous_inside;                  /* the operation before in the same folder */
    int folder_touch;                     /* the last operation before on the folder itself */
};

struct operation {
    uint64_t number, ended; /* of the moments before and after it */
    uint8_t kind;
    int durable, keeps_data;
    int changes[2], nodes[2], previous_touch[2];
    int removed_inside[2]; /* of each folder that it removed: the last operation on a name in it */
};

extern struct node *nodes;
extern struct entry *entries;
extern struct name_change *changes;
extern struct operation *operations;
extern int nodes_count, entries_count, changes_count, operations_count;

/* Read the log of names of the open state. */
void tree_read(void);
/* Return the file node of an inode, or NONE. */
int file_node(uint64_t inode);
/* Decide for each entry what it leads to after a cut, and for each node where it is then. */
void tree_keep(enum model model);
/* Write the path of an entry, now or after the cut. Return its depth, or 0 if there is no such path. */
int entry_path(int entry, int after, char path[PATH_MAX]);

/* The parts of the model: note an operation, and make durable what a flush makes durable. */
int entry_of(int folder, const char *name, size_t length);
int operation_begin(const struct name_record *record);
void operation_touch(int operation, int slot, int node);
void operation_change(int operation, int slot, int entry, int node);
void flush_folder(int folder, uint64_t number);
void flush_file(int file, uint64_t number);
void flush_all(uint64_t number);

/* Exit with one sentence. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Return the array with room for one more, or exit. */
void *grown(void *array, int count, size_t size);

#endif
