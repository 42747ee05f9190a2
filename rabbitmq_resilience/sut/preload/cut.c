/* Do the steps of a cut. */
#define _GNU_SOURCE
#include "cut.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "undo.h"

int is_cut_begun(void)
{
    char path[STATE_PATH_BYTES];
    state_path(path, "plan");
    return access(path, F_OK) == 0;
}

static int stage(void)
{
    char path[STATE_PATH_BYTES], text[2] = "0";
    state_path(path, "stage");
    int file = open(path, O_RDONLY);
    if (file >= 0) {
        if (read(file, text, 1) != 1)
            text[0] = '0';
        close(file);
    }
    return text[0] - '0';
}

static void set_stage(int stage)
{
    char path[STATE_PATH_BYTES], made[STATE_PATH_BYTES], text = (char)('0' + stage);
    state_path(path, "stage");
    state_path(made, "stage.new");
    int file = open(made, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || write(file, &text, 1) != 1 || close(file) != 0 || rename(made, path) != 0)
        fail("%s cannot be written: %s", path, strerror(errno));
}

static void held_folder(char path[STATE_PATH_BYTES], const char *node)
{
    char name[64];
    snprintf(name, sizeof name, "held/folder-%s", node);
    state_path(path, name);
}

static uint64_t inode_at(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 ? status.st_ino : 0;
}

static void refuse(const char *step, const char *path)
{
    fail("the cut stopped at %s of %s: %s; run it again after mending that", step, path, strerror(errno));
}

/* Do one step; `words` are its name and arguments. */
static void do_step(char *const words[6])
{
    char held[STATE_PATH_BYTES];
    const char *step = words[0];
    if (!strcmp(step, "undo")) {
        struct undo undo = {strtoull(words[1], NULL, 10), strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10),
                            strtoull(words[4], NULL, 10)};
        undo_apply(&undo);
    } else if (!strcmp(step, "unlink")) {
        if (unlink(words[2]) != 0 && errno != ENOENT && errno != ENOTDIR)
            refuse(step, words[2]);
    } else if (!strcmp(step, "take")) {
        held_folder(held, words[1]);
        if (rename(words[2], held) != 0 && errno != ENOENT)
            refuse(step, words[2]);
    } else if (!strcmp(step, "link")) {
        inode_path(held, "held", strtoull(words[1], NULL, 10));
        if (linkat(AT_FDCWD, held, AT_FDCWD, words[2], 0) != 0
            && !(errno == EEXIST && inode_at(held) == inode_at(words[2])))
            refuse(step, words[2]);
    } else if (!strcmp(step, "put")) {
        held_folder(held, words[1]);
        if (inode_at(held) && rename(held, words[2]) != 0)
            refuse(step, words[2]);
    } else if (!strcmp(step, "mkdir")) {
        if (mkdir(words[1], 0700) != 0 && errno != EEXIST)
            refuse(step, words[1]);
        if (chown(words[1], (uid_t)strtoul(words[3], NULL, 10), (gid_t)strtoul(words[4], NULL, 10)) != 0 && geteuid() == 0)
            refuse(step, words[1]);
        chmod(words[1], (mode_t)strtoul(words[2], NULL, 10));
    }
}

static int words_of(const char *step)
{
    const struct {
        const char *step;
        int words;
    } known[] = {{"undo", 5}, {"unlink", 3}, {"take", 3}, {"link", 3}, {"put", 3}, {"mkdir", 5}, {"stage", 1}, {"report", 2}};
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (!strcmp(step, known[at].step))
            return known[at].words;
    fail("the plan of the cut is damaged");
}

static void remove_all(int parent, const char *name)
{
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    DIR *listed = folder < 0 ? NULL : fdopendir(folder);
    if (!listed)
        fail("%s in the state cannot be read: %s", name, strerror(errno));
    for (struct dirent *file; (file = readdir(listed));) {
        if (!strcmp(file->d_name, ".") || !strcmp(file->d_name, ".."))
            continue;
        if (unlinkat(folder, file->d_name, 0) != 0) {
            if (errno != EISDIR && errno != EPERM)
                fail("%s in the state cannot be removed: %s", file->d_name, strerror(errno));
            remove_all(folder, file->d_name);
            unlinkat(folder, file->d_name, AT_REMOVEDIR);
        }
    }
    closedir(listed);
}

void clear_logs(void)
{
    char path[STATE_PATH_BYTES];
    atomic_store(&control->names_open, 0);
    atomic_store(&control->names_end, 0);
    atomic_store(&control->last_name, 0);
    state_path(path, "names");
    if (truncate(path, 0) != 0)
        fail("%s cannot be emptied: %s", path, strerror(errno));
    state_path(path, "files");
    remove_all(AT_FDCWD, path);
    state_path(path, "held");
    remove_all(AT_FDCWD, path);
}

void do_cut(void)
{
    char path[STATE_PATH_BYTES], *report = NULL;
    struct stat status;
    state_path(path, "plan");
    int file = open(path, O_RDONLY), reached = stage();
    if (file < 0 || fstat(file, &status) != 0)
        fail("%s cannot be read: %s", path, strerror(errno));
    size_t size = (size_t)status.st_size;
    char *plan = malloc(size + 1);
    if (!plan || read(file, plan, size) != (ssize_t)size)
        fail("%s cannot be read", path);
    plan[size] = 0;
    close(file);
    int part = 0;
    for (size_t at = 0; at < size;) {
        char *words[6] = {plan + at};
        int count = words_of(words[0]);
        for (int word = 0; word < count; word++) {
            words[word] = plan + at;
            at += strlen(plan + at) + 1;
        }
        if (!strcmp(words[0], "stage")) {
            part = 1;
            if (reached < 1)
                set_stage(reached = 1);
        } else if (!strcmp(words[0], "report"))
            report = words[1];
        else if (part >= reached)
            do_step(words);
    }
    if (reached < 2)
        set_stage(2);
    clear_logs();
    unlink(path);
    state_path(path, "stage");
    unlink(path);
    puts(report);
    free(plan);
}
