/* libdiskfaults.so: let a program's disk fail as power and hardware do.
 *
 * Preloaded into a program (LD_PRELOAD), it follows what the program writes below DISK_FAULTS_ROOTS, and which of it
 * the program has flushed. After all processes were killed, `disk-faults cut` takes away what was not flushed.
 * Without DISK_FAULTS_ROOTS and a prepared DISK_FAULTS_STATE each call is passed on unchanged.
 *
 * Nothing is remembered in the memory of a process: who a descriptor belongs to is asked of the kernel at each call.
 * So fork, exec, dup, and descriptors that were passed on need no care. */
#define _GNU_SOURCE
#include "library.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "raw_calls.h"

#define ROOTS_MAX 16
#define ALIVE_FD_MIN 1000 /* above the descriptors of programs, below the usual limit of 1024 */

int alive_fd = -1;
static char roots[ROOTS_MAX][PATH_MAX];
static int roots_count;

const char *below_roots(const char *path)
{
    for (int i = 0; i < roots_count; i++) {
        size_t length = strlen(roots[i]);
        if (!strncmp(path, roots[i], length) && (path[length] == '/' || path[length] == 0))
            return path[length] ? path + length + 1 : path + length;
    }
    return NULL;
}

static void add_root(const char *text, size_t length)
{
    if (length == 0 || length >= PATH_MAX || text[0] != '/' || roots_count == ROOTS_MAX)
        return;
    char *root = roots[roots_count];
    memcpy(root, text, length);
    root[length] = 0;
    long fd = raw_open(root, O_PATH | O_DIRECTORY, 0);
    if (fd >= 0) { /* names are compared as the kernel knows them: without symbolic links */
        char path[PATH_MAX];
        if (path_of_fd((int)fd, path) == 0)
            strcpy(root, path);
        raw(SYS_close, fd);
    }
    for (length = strlen(root); length > 1 && root[length - 1] == '/'; length--)
        root[length - 1] = 0;
    roots_count++;
}

/* Hold a lock as long as the process lives, so that nothing is taken away under it. */
static void hold_alive(void)
{
    char path[STATE_PATH_BYTES];
    state_path(path, "alive");
    long fd = raw_open(path, O_RDWR, 0);
    if (fd < 0)
        return;
    long high = raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, ALIVE_FD_MIN);
    if (high >= 0) {
        raw(SYS_close, fd);
        fd = high;
    }
    alive_fd = (int)fd;
    while (raw(SYS_flock, fd, LOCK_SH) == -EINTR)
        ; /* a cut is under way: its end is waited for */
}

__attribute__((constructor(101))) static void load(void)
{
    const char *named = getenv("DISK_FAULTS_ROOTS"), *state = getenv("DISK_FAULTS_STATE");
    if (!named || !state || !*named)
        return;
    for (const char *root = named, *end; root; root = end ? end + 1 : NULL) {
        end = strchr(root, ':');
        add_root(root, end ? (size_t)(end - root) : strlen(root));
    }
    if (!roots_count || state_open(state) != 0)
        return;
    hold_alive();
    struct stat status;
    char path[STATE_PATH_BYTES];
    state_path(path, "plan");
    if (alive_fd < 0 || raw_lstat(path, &status) == 0) {
        count_not_followed(alive_fd < 0 ? NF_UNLOGGED : NF_UNFINISHED_CUT);
        control = NULL;
    }
}
