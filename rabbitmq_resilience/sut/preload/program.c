/* disk-faults: prepare a state for the preloaded library, set faults, and cut the power.
 *
 *   disk-faults prepare STATE
 *   disk-faults set STATE slow [--write-ms N] [--flush-ms N]
 *   disk-faults set STATE errors --errno EIO|ENOSPC --on write|flush|both [--one-in N] [--files GLOB]
 *   disk-faults clear STATE
 *   disk-faults show STATE
 *   disk-faults cut STATE [--model ordered|ext4|posix] [--torn SEED]
 *   disk-faults settle STATE
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cut.h"
#include "file_log.h"
#include "show.h"

/* The exit status of a cut that is refused as a process still writes; any other failure has 1. */
#define EXIT_IN_USE 3

static const char *const usage =
    "usage: disk-faults prepare|clear|show|settle STATE\n"
    "       disk-faults set STATE slow [--write-ms N] [--flush-ms N]\n"
    "       disk-faults set STATE errors --errno EIO|ENOSPC --on write|flush|both [--one-in N] [--files GLOB]\n"
    "       disk-faults cut STATE [--model ordered|ext4|posix] [--torn SEED]\n";

void fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fprintf(stderr, "disk-faults: ");
    vfprintf(stderr, format, values);
    fprintf(stderr, "\n");
    va_end(values);
    exit(1);
}

/* Return the value of `option`, or NULL. */
static const char *option(int count, char **words, const char *name)
{
    for (int at = 0; at + 1 < count; at += 2)
        if (!strcmp(words[at], name))
            return words[at + 1];
    return NULL;
}

static void check_options(int count, char **words, const char *const *known)
{
    for (int at = 0; at < count; at += 2) {
        const char *const *name = known;
        while (*name && strcmp(*name, words[at]))
            name++;
        if (!*name || at + 1 == count)
            fail(*name ? "%s needs a value" : "%s is no option of this command", words[at]);
    }
}

static double number(const char *text, const char *name, double least)
{
    char *end;
    double value = strtod(text, &end);
    if (!*text || *end || !(value >= least) || value > 1e9)
        fail("%s is %s, and must be a number of at least %g", name, text, least);
    return value;
}

static void open_state(const char *folder)
{
    char *path = realpath(folder, NULL);
    int opened = path ? state_open(path) : -errno;
    if (opened != 0)
        fail("%s is not a prepared state: %s", folder, strerror(-opened));
    free(path);
}

static void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        fail("%s cannot be made: %s", path, strerror(errno));
    chmod(path, 0777); /* the processes may be other users' */
}

static void make_file(const char *path, size_t size)
{
    char zeros[4096] = {0};
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0)
        fail("%s cannot be made: %s", path, strerror(errno));
    fchmod(file, 0666);
    for (size_t at = 0; at < size; at += sizeof zeros) /* blocks that are there cannot be missing later */
        if (write(file, zeros, sizeof zeros) != sizeof zeros)
            fail("%s cannot be written: %s", path, strerror(errno));
    close(file);
}

/* If no process lives that follows this disk, abandon the locks that killed ones have left. In a container the threads
 * of the next process may have the same numbers again, and would be taken for the owners. */
static void abandon_locks(void)
{
    char path[STATE_PATH_BYTES];
    state_path(path, "alive");
    int alive = open(path, O_RDWR);
    if (alive >= 0 && flock(alive, LOCK_EX | LOCK_NB) == 0) {
        lock_abandon(&control->names);
        for (int stripe = 0; stripe < STRIPES; stripe++)
            lock_abandon(&control->stripes[stripe]);
    }
    if (alive >= 0)
        close(alive);
}

static void prepare(const char *folder)
{
    char path[STATE_PATH_BYTES], made[STATE_PATH_BYTES];
    make_folder(folder);
    char *full = realpath(folder, NULL);
    if (!full)
        fail("%s cannot be found: %s", folder, strerror(errno));
    if (state_open(full) == 0) {
        free(full);
        abandon_locks();
        return; /* it goes on with its log */
    }
    strcpy(state_folder, full);
    free(full);
    for (const char *const *name = (const char *const[]){"files", "held", NULL}; *name; name++) {
        state_path(path, *name);
        make_folder(path);
    }
    for (const char *const *name = (const char *const[]){"names", "alive", NULL}; *name; name++) {
        state_path(path, *name);
        make_file(path, 0);
    }
    state_path(made, "control.new");
    make_file(made, CONTROL_BYTES);
    int file = open(made, O_WRONLY);
    uint32_t head[2] = {STATE_MAGIC, STATE_VERSION};
    state_path(path, "control");
    if (file < 0 || write(file, head, sizeof head) != sizeof head || close(file) != 0 || rename(made, path) != 0)
        fail("%s cannot be made: %s", path, strerror(errno));
}

static void change_settings(const struct settings *settings)
{
    atomic_fetch_add(&control->settings_version, 1);
    control->settings = *settings;
    atomic_fetch_add(&control->settings_version, 1);
}

static void set_slow(int count, char **words)
{
    check_options(count, words, (const char *const[]){"--write-ms", "--flush-ms", NULL});
    const char *write_ms = option(count, words, "--write-ms"), *flush_ms = option(count, words, "--flush-ms");
    struct settings settings = control->settings;
    if (!write_ms && !flush_ms)
        fail("slow needs --write-ms or --flush-ms");
    settings.write_ns = write_ms ? (uint64_t)(number(write_ms, "--write-ms", 0) * 1e6) : 0;
    settings.flush_ns = flush_ms ? (uint64_t)(number(flush_ms, "--flush-ms", 0) * 1e6) : 0;
    change_settings(&settings);
}

static void set_errors(int count, char **words)
{
    check_options(count, words, (const char *const[]){"--errno", "--on", "--one-in", "--files", NULL});
    const char *error = option(count, words, "--errno"), *on = option(count, words, "--on");
    const char *one_in = option(count, words, "--one-in"), *files = option(count, words, "--files");
    struct settings settings = control->settings;
    settings.error = !error ? 0 : !strcmp(error, "EIO") ? EIO : !strcmp(error, "ENOSPC") ? ENOSPC : 0;
    settings.on = !on                      ? 0
                  : !strcmp(on, "write") ? ON_WRITE
                  : !strcmp(on, "flush") ? ON_FLUSH
                  : !strcmp(on, "both")  ? ON_WRITE | ON_FLUSH
                                         : 0;
    if (!settings.error)
        fail("errors needs --errno EIO or --errno ENOSPC");
    if (!settings.on)
        fail("errors needs --on write, --on flush or --on both");
    settings.one_in = one_in ? (uint64_t)number(one_in, "--one-in", 1) : 1;
    if (files && strlen(files) >= GLOB_BYTES)
        fail("--files is longer than %d bytes", GLOB_BYTES - 1);
    memset(settings.files, 0, sizeof settings.files);
    strcpy(settings.files, files ? files : "");
    atomic_store(&control->writes.matched, 0);
    atomic_store(&control->flushes.matched, 0);
    change_settings(&settings);
}

static void cut(int count, char **words)
{
    char path[STATE_PATH_BYTES], pids[256];
    check_options(count, words, (const char *const[]){"--model", "--torn", NULL});
    const char *named = option(count, words, "--model"), *torn = option(count, words, "--torn");
    char *end = NULL;
    uint64_t seed = torn ? strtoull(torn, &end, 10) : 0;
    enum model model = ORDERED;
    while (named && model < MODELS && strcmp(named, model_names[model]))
        model++;
    if (model == MODELS)
        fail("--model is %s, and must be ordered, ext4 or posix", named);
    if (torn && (!*torn || *torn == '-' || *end))
        fail("--torn is %s, and must be a whole number", torn);
    state_path(path, "alive");
    int alive = open(path, O_RDWR);
    if (alive < 0 || flock(alive, LOCK_EX | LOCK_NB) != 0) {
        list_pids(pids, sizeof pids);
        fprintf(stderr, "disk-faults: a process that writes to this disk is alive%s%s; kill it before the cut\n",
                *pids ? ": " : "", pids);
        exit(EXIT_IN_USE);
    }
    if (!is_cut_begun()) {
        atomic_store(&control->names.word, 0); /* no owner of a lock is alive */
        for (int stripe = 0; stripe < STRIPES; stripe++)
            atomic_store(&control->stripes[stripe].word, 0);
        names_recover();
        plan_cut(model, torn != NULL, seed);
    }
    do_cut();
}

static void settle(void)
{
    if (is_cut_begun())
        fail("a cut of this state has begun; run it again to its end");
    names_lock();
    for (uint64_t stripe = 0; stripe < STRIPES; stripe++)
        log_lock(stripe);
    clear_logs();
    for (uint64_t stripe = 0; stripe < STRIPES; stripe++)
        log_unlock(stripe);
    names_unlock();
}

int main(int count, char **words)
{
    const char *command = count > 1 ? words[1] : "";
    if (!strcmp(command, "--help")) {
        fputs(usage, stdout);
        return 0;
    }
    const int known = !strcmp(command, "prepare") || !strcmp(command, "clear") || !strcmp(command, "show")
                      || !strcmp(command, "settle"),
              with_options = !strcmp(command, "cut"), sets = !strcmp(command, "set");
    if (count < 3 + sets || (known && count != 3) || !(known || with_options || sets)) {
        fputs(usage, stderr);
        return 1;
    }
    umask(0);
    if (!strcmp(command, "prepare")) {
        prepare(words[2]);
        return 0;
    }
    open_state(words[2]);
    if (!strcmp(command, "clear"))
        change_settings(&(struct settings){0});
    else if (!strcmp(command, "show"))
        show();
    else if (!strcmp(command, "settle"))
        settle();
    else if (with_options)
        cut(count - 3, words + 3);
    else if (!strcmp(words[3], "slow"))
        set_slow(count - 4, words + 4);
    else if (!strcmp(words[3], "errors"))
        set_errors(count - 4, words + 4);
    else
        fail("%s cannot be set: slow or errors can", words[3]);
    return 0;
}
