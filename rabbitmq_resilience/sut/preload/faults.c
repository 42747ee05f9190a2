#define _GNU_SOURCE
#include <fnmatch.h>
#include <string.h>
#include <time.h>

#include "library.h"
#include "raw_calls.h"

#define SECOND_NS 1000000000u

uint64_t clock_ns(void)
{
    struct timespec now;
    raw(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

int faults_are_set(void)
{
    const volatile struct settings *set = &control->settings;
    return set->write_ns || set->flush_ns || set->error;
}

static struct settings read_settings(void)
{
    struct settings settings;
    uint32_t before, after;
    do {
        before = atomic_load(&control->settings_version);
        memcpy(&settings, &control->settings, sizeof settings);
        atomic_thread_fence(memory_order_acquire);
        after = atomic_load(&control->settings_version);
    } while (before != after || before % 2);
    return settings;
}

static void wait_ns(uint64_t ns)
{
    uint64_t until = clock_ns() + ns;
    struct timespec end = {(time_t)(until / SECOND_NS), (long)(until % SECOND_NS)};
    while (raw(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0) == -EINTR)
        ;
}

static int concerns(const struct settings *settings, int fd)
{
    char path[PATH_MAX];
    if (!settings->files[0])
        return 1;
    const char *below = path_of_fd(fd, path) == 0 ? below_roots(path) : NULL;
    return below && fnmatch(settings->files, below, 0) == 0;
}

int fault_of(int on, int fd)
{
    struct settings settings = read_settings();
    struct kind_counters *counters = on == ON_WRITE ? &control->writes : &control->flushes;
    uint64_t extra_ns = on == ON_WRITE ? settings.write_ns : settings.flush_ns;
    if (extra_ns)
        wait_ns(extra_ns);
    if (!settings.error || !(settings.on & (uint32_t)on) || !concerns(&settings, fd))
        return 0;
    uint64_t one_in = settings.one_in ? settings.one_in : 1;
    return (atomic_fetch_add(&counters->matched, 1) + 1) % one_in ? 0 : (int)settings.error;
}

void count_call(int on, uint64_t began_ns, int failed, uint64_t bytes)
{
    struct kind_counters *counters = on == ON_WRITE ? &control->writes : &control->flushes;
    atomic_fetch_add(&counters->calls, 1);
    atomic_fetch_add(&counters->ns, clock_ns() - began_ns);
    if (failed)
        atomic_fetch_add(&counters->errors, 1);
    if (bytes)
        atomic_fetch_add(&control->bytes, bytes);
}
