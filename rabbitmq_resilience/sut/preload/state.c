#define _GNU_SOURCE
#include "state.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "raw_calls.h"

#define WAITED_FOR 0x80000000u
#define LOOK_AGAIN_NS 20000000
#define NO_THREAD 0x7fffffffu /* more than the kernel gives: PID_MAX_LIMIT is 4194304 */

struct control *control;
char state_folder[PATH_MAX];
uint64_t state_device;
const char *const not_followed_names[NF_COUNT] = {
#define AS_TEXT(name, text) text,
    NOT_FOLLOWED(AS_TEXT)
#undef AS_TEXT
};

long raw_lstat(const char *path, struct stat *status)
{
    return raw(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

long raw_fstat(int fd, struct stat *status)
{
    return raw(SYS_fstat, fd, status);
}

long raw_open(const char *path, int flags, unsigned mode)
{
    return raw(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
}

void state_path(char path[STATE_PATH_BYTES], const char *name)
{
    size_t length = strlen(state_folder);
    memcpy(path, state_folder, length);
    path[length] = '/';
    memcpy(path + length + 1, name, strlen(name) + 1);
}

void inode_path(char path[STATE_PATH_BYTES], const char *folder, uint64_t inode)
{
    char digits[24], *digit = digits + sizeof digits;
    *--digit = 0;
    do
        *--digit = (char)('0' + inode % 10);
    while (inode /= 10);
    *--digit = '/';
    state_path(path, folder);
    memcpy(path + strlen(path), digit, strlen(digit) + 1);
}

int state_open(const char *folder)
{
    char path[STATE_PATH_BYTES];
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    if (folder[0] != '/' || length >= PATH_MAX - 64)
        return -EINVAL;
    memcpy(state_folder, folder, length);
    state_folder[length] = 0;
    state_path(path, "control");
    long fd = raw_open(path, O_RDWR, 0);
    if (fd < 0)
        return (int)fd;
    struct stat status;
    long mapped = raw_fstat((int)fd, &status);
    if (mapped == 0 && status.st_size < CONTROL_BYTES)
        mapped = -EINVAL;
    if (mapped == 0)
        mapped = raw(SYS_mmap, 0, CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    raw(SYS_close, fd);
    if (mapped < 0 && mapped > -4096)
        return (int)mapped;
    struct control *page = (struct control *)mapped;
    if (page->magic != STATE_MAGIC || page->version != STATE_VERSION) {
        raw(SYS_munmap, page, CONTROL_BYTES);
        return -EINVAL;
    }
    state_device = status.st_dev;
    control = page;
    return 0;
}

uint64_t next_number(void)
{
    return atomic_fetch_add(&control->number, 1) + 1;
}

void count_not_followed(enum not_followed what)
{
    atomic_fetch_add(&control->not_followed[what], 1);
}

/* A killed process keeps its id until its parent has waited for it, so the state in /proc counts, too. */
static int is_dead(uint32_t thread)
{
    if (raw(SYS_kill, thread, 0) == -ESRCH)
        return 1;
    char path[32] = "/proc/", text[512], *end = path + 6;
    char digits[12];
    int count = 0;
    do
        digits[count++] = (char)('0' + thread % 10);
    while (thread /= 10);
    while (count)
        *end++ = digits[--count];
    memcpy(end, "/stat", 6);
    long fd = raw_open(path, O_RDONLY, 0);
    if (fd < 0)
        return fd == -ENOENT;
    long got = raw(SYS_read, fd, text, sizeof text - 1);
    raw(SYS_close, fd);
    if (got <= 0)
        return got == -ESRCH;
    text[got] = 0;
    const char *name_end = strrchr(text, ')');
    return name_end && (name_end[2] == 'Z' || name_end[2] == 'X');
}

int lock_take(struct lock *lock)
{
    uint32_t me = (uint32_t)raw(SYS_gettid), seen = 0;
    if (atomic_compare_exchange_strong(&lock->word, &seen, me))
        return 0;
    for (;;) {
        if ((seen & ~WAITED_FOR) == me)
            return -1;
        if (seen == 0) {
            if (atomic_compare_exchange_strong(&lock->word, &seen, me | WAITED_FOR))
                return 0;
            continue;
        }
        if (!(seen & WAITED_FOR) && !atomic_compare_exchange_strong(&lock->word, &seen, seen | WAITED_FOR))
            continue;
        seen |= WAITED_FOR;
        struct timespec wait = {0, LOOK_AGAIN_NS};
        long woken = raw(SYS_futex, &lock->word, FUTEX_WAIT, seen, &wait, 0, 0);
        if (woken == -ETIMEDOUT && is_dead(seen & ~WAITED_FOR)
            && atomic_compare_exchange_strong(&lock->word, &seen, me | WAITED_FOR))
            return 1;
        seen = atomic_load(&lock->word);
    }
}

void lock_leave(struct lock *lock)
{
    if (atomic_exchange(&lock->word, 0) & WAITED_FOR)
        raw(SYS_futex, &lock->word, FUTEX_WAKE, 1, 0, 0, 0);
}

void lock_abandon(struct lock *lock)
{
    if (atomic_load(&lock->word))
        atomic_store(&lock->word, NO_THREAD);
}
