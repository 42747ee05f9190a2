/* Decide the steps of a cut. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cut.h"
#include "json.h"
#include "undo.h"

#define PATHS_MAX 200

struct step {
    int entry, depth;
    char path[PATH_MAX];
};

static struct step *steps;
static int steps_count;

static int deeper_first(const void *a, const void *b)
{
    const struct step *first = a, *second = b;
    return first->depth != second->depth ? second->depth - first->depth : first->entry - second->entry;
}

static int shallower_first(const void *a, const void *b)
{
    const struct step *first = a, *second = b;
    return first->depth != second->depth ? first->depth - second->depth : first->entry - second->entry;
}

static void gather(int after)
{
    steps_count = 0;
    for (int at = 0; at < entries_count; at++) {
        const struct entry *entry = &entries[at];
        if (entry->current == entry->kept || (after ? entry->kept : entry->current) == NONE)
            continue;
        steps = grown(steps, steps_count, sizeof *steps);
        struct step *step = &steps[steps_count];
        step->entry = at;
        step->depth = entry_path(at, after, step->path);
        if (step->depth)
            steps_count++;
    }
    qsort(steps, (size_t)steps_count, sizeof *steps, after ? shallower_first : deeper_first);
}

static void step_end(FILE *plan)
{
    putc(0, plan);
}

static void write_steps(FILE *plan)
{
    gather(0);
    for (int at = 0; at < steps_count; at++) {
        int node = entries[steps[at].entry].current;
        fprintf(plan, nodes[node].is_folder ? "take%c%d%c%s" : "unlink%c%d%c%s", 0, node, 0, steps[at].path);
        step_end(plan);
    }
    fprintf(plan, "stage");
    step_end(plan);
    gather(1);
    for (int at = 0; at < steps_count; at++) {
        int index = entries[steps[at].entry].kept;
        const struct node *node = &nodes[index];
        const struct attributes *is = &node->attributes;
        if (!node->is_folder)
            fprintf(plan, "link%c%llu%c%s", 0, (unsigned long long)node->inode, 0, steps[at].path);
        else if (node->current != NONE)
            fprintf(plan, "put%c%d%c%s", 0, index, 0, steps[at].path);
        else
            fprintf(plan, "mkdir%c%s%c%u%c%u%c%u", 0, steps[at].path, 0, is->mode & 07777, 0, is->uid, 0, is->gid);
        step_end(plan);
    }
}

static int *missing, missing_count;

/* Hold a file by a hard link, as long as its name is known. Return whether it is held. A file without a name that the
 * log knows is not missed. */
static int hold_node(int index)
{
    char held[STATE_PATH_BYTES], path[PATH_MAX];
    struct stat status;
    const struct node *node = &nodes[index];
    inode_path(held, "held", node->inode);
    if (lstat(held, &status) == 0 && status.st_ino == node->inode)
        return 1;
    unlink(held);
    if (node->current != NONE && entry_path(node->current, 0, path) && lstat(path, &status) == 0
        && status.st_ino == node->inode && linkat(AT_FDCWD, path, AT_FDCWD, held, 0) == 0)
        return 1;
    if (node->kept == NONE)
        return 0;
    missing = grown(missing, missing_count, sizeof *missing);
    missing[missing_count++] = index;
    return 0;
}

/* Hash a path below the state's folder without that, so that a run in another folder is torn in the same way. */
static uint64_t hash(const char *text)
{
    size_t common = (size_t)(strrchr(state_folder, '/') - state_folder) + 1;
    if (!strncmp(text, state_folder, common))
        text += common;
    uint64_t value = 14695981039346656037u;
    for (; *text; text++)
        value = (value ^ (unsigned char)*text) * 1099511628211u;
    return value;
}

/* Write the step for one file's data. Return the bytes that it takes away. */
static uint64_t undo_file(FILE *plan, int index, int torn, uint64_t seed)
{
    char path[PATH_MAX] = "";
    struct node *node = &nodes[index];
    struct undo undo = {.inode = node->inode, .since = atomic_load(&control->all_flushed)};
    if (node->flushed > undo.since)
        undo.since = node->flushed;
    int any;
    if (torn && node->kept != NONE && entry_path(node->kept, 1, path))
        undo_tear(&undo, seed ^ hash(path));
    uint64_t bytes = undo_bytes(&undo, &any);
    if (!any)
        return 0;
    if (hold_node(index)) { /* also one that loses all names: it may have others that the log never named */
        fprintf(plan, "undo%c%llu%c%llu%c%llu%c%llu", 0, (unsigned long long)node->inode, 0,
                (unsigned long long)undo.since, 0, (unsigned long long)undo.kept, 0,
                (unsigned long long)undo.kept_bytes);
        step_end(plan);
    }
    int entry = node->kept != NONE ? node->kept : node->current;
    if (entry != NONE) {
        entries[entry].lost_bytes += bytes;
        entries[entry].lost = 1;
    }
    return bytes;
}

static uint64_t undo_files(FILE *plan, int torn, uint64_t seed)
{
    char path[STATE_PATH_BYTES], *end;
    uint64_t bytes = 0;
    state_path(path, "files");
    DIR *folder = opendir(path);
    if (!folder)
        fail("%s cannot be read: %s", path, strerror(errno));
    for (struct dirent *file; (file = readdir(folder));) {
        uint64_t inode = strtoull(file->d_name, &end, 10);
        int node = *end ? NONE : file_node(inode);
        if (node != NONE)
            bytes += undo_file(plan, node, torn, seed);
    }
    closedir(folder);
    return bytes;
}

static void report(FILE *out, enum model model, int torn, uint64_t seed, uint64_t bytes)
{
    char path[PATH_MAX];
    uint64_t names = 0;
    int files = 0;
    for (int at = 0; at < entries_count; at++) {
        names += entries[at].lost_names;
        files += entries[at].lost_names || entries[at].lost;
    }
    fprintf(out, "{\"model\": \"%s\", \"torn\": ", model_names[model]);
    torn ? fprintf(out, "%llu", (unsigned long long)seed) : fprintf(out, "null");
    fprintf(out, ", \"files\": %d, \"bytes\": %llu, \"names\": %llu, \"not_found\": [", files,
            (unsigned long long)bytes, (unsigned long long)names);
    for (int at = 0; at < missing_count; at++) {
        int entry = nodes[missing[at]].kept;
        entry_path(entry, 1, path);
        fputs(at ? ", " : "", out);
        json_text(out, path);
    }
    fprintf(out, "], \"paths\": [");
    for (int at = 0, shown = 0; at < entries_count && shown < PATHS_MAX; at++) {
        const struct entry *entry = &entries[at];
        if (!(entry->lost_names || entry->lost) || !(entry_path(at, 0, path) || entry_path(at, 1, path)))
            continue;
        fputs(shown++ ? ", {\"path\": " : "{\"path\": ", out);
        json_text(out, path);
        fprintf(out, ", \"bytes\": %llu, \"names\": %llu}", (unsigned long long)entry->lost_bytes,
                (unsigned long long)entry->lost_names);
    }
    fprintf(out, "]}");
}

void plan_cut(enum model model, int torn, uint64_t seed)
{
    char path[STATE_PATH_BYTES], made[STATE_PATH_BYTES];
    state_path(path, "stage"); /* of a cut that was interrupted after its end */
    unlink(path);
    state_path(made, "plan.new");
    FILE *plan = fopen(made, "w");
    if (!plan)
        fail("%s cannot be written: %s", made, strerror(errno));
    tree_read();
    tree_keep(model);
    uint64_t bytes = undo_files(plan, torn, seed);
    for (int at = 0; at < entries_count; at++) {
        int node = entries[at].kept;
        if (entries[at].current != node && node != NONE && !nodes[node].is_folder && entry_path(at, 1, path)
            && !hold_node(node))
            entries[at].kept = NONE;
    }
    write_steps(plan);
    fprintf(plan, "report%c", 0);
    report(plan, model, torn, seed, bytes);
    step_end(plan);
    state_path(path, "plan");
    if (fclose(plan) != 0 || rename(made, path) != 0)
        fail("%s cannot be written: %s", path, strerror(errno));
}
