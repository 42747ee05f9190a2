/* Decide which operations on names survive a cut.
 *
 * `posix`: an entry's change is durable if its folder was flushed by a call that began after it (POSIX.1-2017, fsync:
 * only what is flushed is kept; the name of a file is data of its folder, as the manual page fsync(2) says).
 *
 * `ext4`: the journal is one sequence of transactions, and a flush commits the one that holds the last change of what
 * is flushed (fs/ext4/fsync.c; i_sync_tid, i_datasync_tid). So all operations before that change are durable. It is: of
 * a folder, the last operation on a name in it; of a file, the last operation that touched it, and the first change to
 * its size, if that is another one than at the last flush; of its data alone (fdatasync, O_DSYNC), only the latter. A
 * write that leaves the size may change nothing that is in the journal: also the time of the last change has steps. A
 * size that comes back may never have been another one there, as blocks are allocated late.
 *
 * `ordered`: a flush makes durable only what was asked for, and what that depends on, as a file system with a journal
 * of single files may do (Pillai and others, "All File Systems Are Not Created Equal", OSDI 2014). Of a folder, these
 * are the earlier operations on names in it; of a file, the earlier operations that touched it, and of its data alone,
 * those before the change of its size. To touch is to create, link, move, remove or replace. A durable operation needs
 * the earlier ones
 *   - on the same entries,
 *   - that touched the files or folders that it touches,
 *   - that touched the folders of its entries,
 *   - on names in a folder that it removes or replaces.
 *
 * In the last two, a rename that replaces a file lets the data that a new file had then be written first (ext4, option
 * auto_da_alloc), so that this data is durable with it. A file is new until it is flushed or given blocks (by such a
 * rename, by fallocate, or when it is closed after it was cut to nothing): ext4 writes only if a block is still to be
 * allocated. Under a new name, and what is written later, needs a flush of its own. That the system itself may write a
 * file back, and so allocate its blocks, is not followed. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "tree.h"

struct name_change *changes;
struct operation *operations;
int changes_count, operations_count;
const char *const model_names[MODELS] = {[ORDERED] = "ordered", [EXT4] = "ext4", [POSIX] = "posix"};

/* Operations that ended before this number are committed (ext4). */
static uint64_t committed;

static void commit(uint64_t number)
{
    if (committed < number)
        committed = number;
}

int operation_begin(const struct name_record *record)
{
    operations = grown(operations, operations_count, sizeof *operations);
    operations[operations_count] = (struct operation){.number = record->number, .ended = record->ended,
                                                      .kind = record->kind,
                                                      .keeps_data = record->keeps_data, .changes = {NONE, NONE},
                                                      .nodes = {NONE, NONE}, .previous_touch = {NONE, NONE},
                                                      .removed_inside = {NONE, NONE}};
    return operations_count++;
}

void operation_touch(int index, int slot, int node)
{
    struct operation *operation = &operations[index];
    operation->nodes[slot] = node;
    operation->previous_touch[slot] = nodes[node].last_touch;
    nodes[node].last_touch = index;
    if (nodes[node].is_folder && (operation->kind == NAME_RMDIR || slot == 1))
        operation->removed_inside[slot] = nodes[node].last_inside;
}

void operation_change(int index, int slot, int entry, int node)
{
    struct node *folder = &nodes[entries[entry].folder];
    changes = grown(changes, changes_count, sizeof *changes);
    changes[changes_count] = (struct name_change){entry, node, index, entries[entry].last_change,
                                                  folder->last_inside, folder->last_touch};
    folder->last_inside = index;
    entries[entry].last_change = changes_count;
    entries[entry].current = node;
    operations[index].changes[slot] = changes_count++;
}

/* Return the operation before `index` on a name in `folder`. */
static int previous_inside(int index, int folder)
{
    for (int slot = 0; slot < 2; slot++) {
        int change = operations[index].changes[slot];
        if (change != NONE && entries[changes[change].entry].folder == folder && changes[change].previous_inside != index)
            return changes[change].previous_inside;
    }
    return NONE;
}

static int *waiting, waiting_count;

static void want(int index)
{
    if (index == NONE || operations[index].durable)
        return;
    operations[index].durable = 1;
    waiting = grown(waiting, waiting_count, sizeof *waiting);
    waiting[waiting_count++] = index;
}

static void want_inside(int index, int folder)
{
    for (; index != NONE; index = previous_inside(index, folder))
        want(index);
}

/* Make an operation durable with all that it needs. */
static void make_durable(int wanted)
{
    want(wanted);
    while (waiting_count) {
        const struct operation *operation = &operations[waiting[--waiting_count]];
        for (int slot = 0; slot < 2; slot++) {
            int change = operation->changes[slot];
            want(operation->previous_touch[slot]);
            if (operation->nodes[slot] != NONE)
                want_inside(operation->removed_inside[slot], operation->nodes[slot]);
            if (change == NONE)
                continue;
            want(changes[change].folder_touch);
            if (changes[change].previous != NONE)
                want(changes[changes[change].previous].operation);
        }
    }
}

void flush_folder(int folder, uint64_t number)
{
    uint64_t before = nodes[folder].synced;
    for (int at = nodes[folder].last_inside; at != NONE && operations[at].ended >= before;
         at = previous_inside(at, folder))
        if (operations[at].ended < number) {
            make_durable(at);
            commit(operations[at].ended + 1);
        }
    if (before < number)
        nodes[folder].synced = number;
}

void flush_file(int file, uint64_t number)
{
    int at = nodes[file].last_touch;
    while (at != NONE && operations[at].ended >= number)
        at = operations[at].previous_touch[operations[at].nodes[0] == file ? 0 : 1];
    if (at == NONE)
        return;
    make_durable(at);
    commit(operations[at].ended + 1);
}

void flush_all(uint64_t number)
{
    for (int at = 0; at < operations_count; at++)
        if (operations[at].ended < number)
            make_durable(at);
    for (int node = 0; node < nodes_count; node++)
        if (nodes[node].is_folder && nodes[node].synced < number)
            nodes[node].synced = number;
    commit(number);
}

/* Decide which operations are durable as a whole, and which files keep the data that they had at one. */
static void keep_operations(enum model model)
{
    commit(atomic_load(&control->committed));
    for (int at = 0; at < operations_count; at++) {
        struct operation *operation = &operations[at];
        struct node *file = &nodes[operation->nodes[0]];
        if (model == EXT4)
            operation->durable = operation->ended < committed;
        if (operation->durable && operation->keeps_data && file->flushed < operation->number)
            file->flushed = operation->number;
    }
}

static int is_durable(const struct name_change *change, enum model model)
{
    const struct operation *operation = &operations[change->operation];
    return model == POSIX ? operation->ended < nodes[entries[change->entry].folder].synced : operation->durable;
}

/* Return whether a folder can be reached from "/" after the cut. */
static int is_kept(int folder)
{
    for (int steps = 0; folder != 0; steps++) {
        if (nodes[folder].kept == NONE || steps > nodes_count)
            return 0;
        folder = entries[nodes[folder].kept].folder;
    }
    return 1;
}

void tree_keep(enum model model)
{
    int *newest = calloc((size_t)nodes_count, sizeof *newest);
    if (!newest)
        fail("there is not enough memory");
    if (model != POSIX)
        keep_operations(model);
    for (int at = 0; at < entries_count; at++) {
        struct entry *entry = &entries[at];
        int change = entry->last_change;
        if (entry->current != NONE)
            nodes[entry->current].current = at;
        for (; change != NONE && !is_durable(&changes[change], model); change = changes[change].previous)
            entry->lost_names++;
        entry->kept = change == NONE ? entry->base : changes[change].node;
        if (entry->kept == NONE || !nodes[entry->kept].is_folder)
            continue;
        /* Of several names of one folder, which only `posix` can leave, the newest is kept. */
        struct node *folder = &nodes[entry->kept];
        int since = change == NONE ? 0 : changes[change].operation + 1;
        if (folder->kept == NONE || since > newest[entry->kept]) {
            if (folder->kept != NONE)
                entries[folder->kept].kept = NONE;
            folder->kept = at;
            newest[entry->kept] = since;
        } else
            entry->kept = NONE;
    }
    free(newest);
    for (int at = 0; at < entries_count; at++) {
        int node = entries[at].kept;
        if (node != NONE && !nodes[node].is_folder && nodes[node].kept == NONE && is_kept(entries[at].folder))
            nodes[node].kept = at;
    }
}

int entry_path(int entry, int after, char path[PATH_MAX])
{
    char *start = path + PATH_MAX - 1;
    int depth = 0;
    for (*start = 0; entry != NONE; depth++) {
        size_t length = strlen(entries[entry].name);
        if (depth > nodes_count || start - path <= (ptrdiff_t)length)
            return 0;
        start -= length;
        memcpy(start, entries[entry].name, length);
        *--start = '/';
        int folder = entries[entry].folder;
        if (folder == 0) {
            memmove(path, start, strlen(start) + 1);
            return depth + 1;
        }
        entry = after ? nodes[folder].kept : nodes[folder].current;
    }
    return 0;
}
