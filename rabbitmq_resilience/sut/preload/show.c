#define _GNU_SOURCE
#include "show.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cut.h"
#include "json.h"

/* Return whether a process has mapped the control page. */
static int uses_state(const char *pid, uint64_t inode)
{
    char path[64], line[PATH_MAX + 128];
    int uses = 0;
    snprintf(path, sizeof path, "/proc/%.16s/maps", pid);
    FILE *maps = fopen(path, "r");
    while (maps && !uses && fgets(line, sizeof line, maps)) {
        unsigned long long mapped = 0;
        sscanf(line, "%*s %*s %*s %*s %llu", &mapped);
        uses = mapped == inode && strstr(line, "/control");
    }
    if (maps)
        fclose(maps);
    return uses;
}

void list_pids(char *text, size_t size)
{
    char path[STATE_PATH_BYTES];
    struct stat status;
    size_t used = 0;
    text[0] = 0;
    state_path(path, "control");
    DIR *processes = opendir("/proc");
    if (!processes || stat(path, &status) != 0)
        return;
    char self[24];
    snprintf(self, sizeof self, "%d", (int)getpid());
    for (struct dirent *process; (process = readdir(processes));) {
        const char *name = process->d_name;
        if (*name < '0' || *name > '9' || !strcmp(name, self) || !uses_state(name, status.st_ino))
            continue;
        if (used + strlen(name) + 3 < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
    }
    closedir(processes);
}

static uint64_t bytes_in(const char *name)
{
    char path[STATE_PATH_BYTES], file_path[STATE_PATH_BYTES + NAME_MAX + 1];
    struct stat status;
    uint64_t bytes = 0;
    state_path(path, name);
    DIR *folder = opendir(path);
    for (struct dirent *file; folder && (file = readdir(folder));) {
        snprintf(file_path, sizeof file_path, "%s/%s", path, file->d_name);
        if (lstat(file_path, &status) == 0 && S_ISREG(status.st_mode))
            bytes += (uint64_t)status.st_blocks * 512;
    }
    if (folder)
        closedir(folder);
    return bytes;
}

static void show_kind(const char *name, struct kind_counters *counters)
{
    printf(", \"%s\": {\"calls\": %llu, \"ns\": %llu, \"errors\": %llu}", name,
           (unsigned long long)atomic_load(&counters->calls), (unsigned long long)atomic_load(&counters->ns),
           (unsigned long long)atomic_load(&counters->errors));
}

void show(void)
{
    static char pids[65536];
    const struct settings *set = &control->settings;
    list_pids(pids, sizeof pids);
    printf("{\"slow\": {\"write_ms\": %g, \"flush_ms\": %g}, \"errors\": ", (double)set->write_ns / 1e6,
           (double)set->flush_ns / 1e6);
    if (set->error) {
        printf("{\"errno\": \"%s\", \"on\": \"%s\", \"one_in\": %llu, \"files\": ", set->error == EIO ? "EIO" : "ENOSPC",
               set->on == ON_WRITE ? "write" : set->on == ON_FLUSH ? "flush" : "both",
               (unsigned long long)set->one_in);
        json_text(stdout, set->files);
        printf("}");
    } else
        printf("null");
    show_kind("writes", &control->writes);
    show_kind("flushes", &control->flushes);
    printf(", \"bytes\": %llu, \"not_followed\": {", (unsigned long long)atomic_load(&control->bytes));
    for (int at = 0, shown = 0; at < NF_COUNT; at++)
        if (control->not_followed[at])
            printf("%s\"%s\": %llu", shown++ ? ", " : "", not_followed_names[at],
                   (unsigned long long)atomic_load(&control->not_followed[at]));
    printf("}, \"pids\": [%s], \"names_bytes\": %llu, \"log_bytes\": %llu, \"held_bytes\": %llu, \"cut_begun\": %s}\n",
           pids, (unsigned long long)atomic_load(&control->names_end), (unsigned long long)bytes_in("files"),
           (unsigned long long)bytes_in("held"), is_cut_begun() ? "true" : "false");
}
