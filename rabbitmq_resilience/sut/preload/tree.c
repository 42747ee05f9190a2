/* Build the tree from the log of names. */
#define _GNU_SOURCE
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUCKETS (1 << 16)

struct node *nodes;
struct entry *entries;
int nodes_count, entries_count;

static int entry_heads[BUCKETS], *entry_next; /* 1 + index, 0 for none */
static int file_heads[BUCKETS], *file_next;

void *grown(void *array, int count, size_t size)
{
    if (count & (count - 1)) /* room is doubled at each power of two */
        return array;
    array = realloc(array, (count ? 2 * (size_t)count : 1) * size);
    if (!array)
        fail("there is not enough memory");
    return array;
}

static int new_node(uint64_t inode, int is_folder)
{
    nodes = grown(nodes, nodes_count, sizeof *nodes);
    file_next = grown(file_next, nodes_count, sizeof *file_next);
    nodes[nodes_count] = (struct node){.inode = inode, .is_folder = is_folder, .last_touch = NONE,
                                       .last_inside = NONE, .current = NONE, .kept = NONE};
    nodes[nodes_count].attributes.mode = 0755;
    file_next[nodes_count] = 0;
    if (!is_folder) {
        file_next[nodes_count] = file_heads[inode % BUCKETS];
        file_heads[inode % BUCKETS] = nodes_count + 1;
    }
    return nodes_count++;
}

int file_node(uint64_t inode)
{
    for (int at = file_heads[inode % BUCKETS]; at; at = file_next[at - 1])
        if (nodes[at - 1].inode == inode)
            return at - 1;
    return NONE;
}

static unsigned hash(int folder, const char *name, size_t length)
{
    uint64_t value = 14695981039346656037u ^ (uint64_t)folder;
    for (size_t i = 0; i < length; i++)
        value = (value ^ (unsigned char)name[i]) * 1099511628211u;
    return (unsigned)((value ^ value >> 32) % BUCKETS);
}

static int find_entry(int folder, const char *name, size_t length)
{
    for (int at = entry_heads[hash(folder, name, length)]; at; at = entry_next[at - 1]) {
        struct entry *entry = &entries[at - 1];
        if (entry->folder == folder && !strncmp(entry->name, name, length) && !entry->name[length])
            return at - 1;
    }
    return NONE;
}

static int new_entry(int folder, const char *name, size_t length, int base)
{
    unsigned bucket = hash(folder, name, length);
    entries = grown(entries, entries_count, sizeof *entries);
    entry_next = grown(entry_next, entries_count, sizeof *entry_next);
    entries[entries_count] = (struct entry){.folder = folder, .name = strndup(name, length), .base = base,
                                            .current = base, .kept = NONE, .last_change = NONE};
    entry_next[entries_count] = entry_heads[bucket];
    entry_heads[bucket] = entries_count + 1;
    return entries_count++;
}

/* An entry that the log did not name before leads to nothing. */
int entry_of(int folder, const char *name, size_t length)
{
    int found = find_entry(folder, name, length);
    return found != NONE ? found : new_entry(folder, name, length, NONE);
}

/* Find a folder by its path at this point of the log. What the log did not name before was there when it began. */
static int walk(const char *path, size_t length)
{
    int folder = 0;
    for (size_t at = 0; at < length;) {
        size_t end = at;
        while (end < length && path[end] != '/')
            end++;
        if (end > at) {
            int entry = find_entry(folder, path + at, end - at);
            if (entry == NONE)
                entry = new_entry(folder, path + at, end - at, new_node(0, 1));
            else if (entries[entry].current == NONE || !nodes[entries[entry].current].is_folder)
                entries[entry].current = new_node(0, 1); /* made by a program that is not followed */
            folder = entries[entry].current;
        }
        at = end + 1;
    }
    return folder;
}

struct named {
    int folder;
    const char *name;
    size_t length;
};

static struct named named_at(const char *text, const uint16_t lengths[2])
{
    return (struct named){walk(text, lengths[0]), text + lengths[0], lengths[1]};
}

static int any_file(uint64_t inode)
{
    int node = file_node(inode);
    return node != NONE ? node : new_node(inode, 0);
}

/* Find the entry that leads to an existing node; if the log did not name it before, it was there when it began. */
static int existing(struct named named, uint64_t inode, const struct attributes *is, int *node_of)
{
    int entry = find_entry(named.folder, named.name, named.length);
    if (entry == NONE) {
        int node = S_ISDIR(is->mode) ? new_node(0, 1) : any_file(inode);
        entry = new_entry(named.folder, named.name, named.length, node);
    }
    int node = entries[entry].current;
    if (node == NONE) /* made by a program that is not followed */
        node = entries[entry].current = S_ISDIR(is->mode) ? new_node(0, 1) : any_file(inode);
    if (nodes[node].is_folder)
        nodes[node].attributes = *is;
    *node_of = node;
    return entry;
}

static void apply_operation(const struct name_record *record, const char *texts)
{
    struct named first = named_at(texts, record->lengths), second = {0};
    const char *rest = texts + record->lengths[0] + record->lengths[1];
    if (record->lengths[2])
        second = named_at(rest, record->lengths + 2);
    int entry = NONE, node = NONE, target = NONE, replaced = NONE, done = record->state == DONE;
    switch (record->kind) {
    case NAME_LINK:
        existing(second, record->inode, &record->is, &node);
        break;
    case NAME_RENAME:
        entry = existing(first, record->inode, &record->is, &node);
        if (record->replaced)
            existing(second, record->replaced, &record->replaced_is, &replaced);
        break;
    case NAME_UNLINK:
    case NAME_RMDIR:
        entry = existing(first, record->inode, &record->is, &node);
        break;
    default:
        if (done)
            node = new_node(record->kind == NAME_MKDIR ? 0 : record->inode, record->kind == NAME_MKDIR);
    }
    if (!done)
        return;
    int operation = operation_begin(record);
    operation_touch(operation, 0, node);
    if (replaced != NONE)
        operation_touch(operation, 1, replaced);
    if (record->kind == NAME_RENAME) {
        target = entry_of(second.folder, second.name, second.length);
        operation_change(operation, 0, entry, NONE);
        operation_change(operation, 1, target, node);
    } else if (entry != NONE)
        operation_change(operation, 0, entry, NONE);
    else
        operation_change(operation, 0, entry_of(first.folder, first.name, first.length), node);
}

static void apply(const struct name_record *record, const char *texts)
{
    struct named named;
    int file;
    switch (record->kind) {
    case NAME_SEEN:
        named = named_at(texts, record->lengths);
        if (find_entry(named.folder, named.name, named.length) == NONE)
            new_entry(named.folder, named.name, named.length, any_file(record->inode));
        break;
    case FLUSH_FOLDER:
        flush_folder(walk(texts, record->lengths[0]), record->number);
        break;
    case FLUSH_FILE:
        file = file_node(record->inode);
        if (file != NONE)
            flush_file(file, record->number);
        break;
    case FLUSH_ALL:
        flush_all(record->number);
        break;
    default:
        apply_operation(record, texts);
    }
}

void tree_read(void)
{
    char path[STATE_PATH_BYTES];
    uint64_t end = atomic_load(&control->names_end);
    char *log = malloc(end + 1);
    state_path(path, "names");
    int file = open(path, O_RDONLY);
    if (!log || file < 0)
        fail("the log of names cannot be read: %s", strerror(errno));
    for (uint64_t at = 0; at < end;) {
        ssize_t got = pread(file, log + at, end - at, (off_t)at);
        if (got <= 0)
            fail("the log of names is shorter than its state says");
        at += (uint64_t)got;
    }
    close(file);
    new_node(0, 1); /* the folder "/" */
    for (uint64_t at = 0; at < end;) {
        struct name_record record;
        memcpy(&record, log + at, sizeof record);
        if (record.bytes < sizeof record || at + record.bytes > end)
            fail("the log of names is damaged at byte %llu", (unsigned long long)at);
        apply(&record, log + at + sizeof record);
        at += record.bytes;
    }
    free(log);
}
