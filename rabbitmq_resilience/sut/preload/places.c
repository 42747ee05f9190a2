#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>

#include "library.h"
#include "raw_calls.h"

long path_of_fd(int fd, char path[PATH_MAX])
{
    char link[32] = "/proc/self/fd/", digits[12], *end = link + 14;
    int count = 0;
    do
        digits[count++] = (char)('0' + fd % 10);
    while (fd /= 10);
    while (count)
        *end++ = digits[--count];
    *end = 0;
    long length = raw(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0)
        return length;
    path[length] = 0;
    return 0;
}

int split_path(const char *path, struct place *place)
{
    const char *slash = strrchr(path, '/');
    if (!slash || strlen(slash + 1) > NAME_MAX || (size_t)(slash - path) >= PATH_MAX)
        return -1;
    memcpy(place->folder, path, (size_t)(slash - path));
    place->folder[slash - path] = 0;
    strcpy(place->name, slash + 1);
    return 0;
}

int is_on_device(int fd, const struct stat *status)
{
    char path[PATH_MAX];
    if (status->st_dev == state_device)
        return 1;
    if (path_of_fd(fd, path) == 0 && below_roots(path))
        count_not_followed(NF_DEVICE);
    return 0;
}

int place_of(int folder_fd, const char *path, struct place *place)
{
    char folder[PATH_MAX];
    size_t end = path ? strlen(path) : 0, start;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/'; start--)
        ;
    if (end == 0 || end >= PATH_MAX || end - start > NAME_MAX || end == start)
        return 0;
    memcpy(place->name, path + start, end - start);
    place->name[end - start] = 0;
    if (!strcmp(place->name, ".") || !strcmp(place->name, ".."))
        return 0;
    memcpy(folder, path, start);
    folder[start] = 0;
    long fd = raw(SYS_openat, folder_fd, start ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0; /* the call itself fails, too */
    struct stat status;
    int within = path_of_fd((int)fd, place->folder) == 0 && below_roots(place->folder) && raw_fstat((int)fd, &status) == 0
                 && is_on_device((int)fd, &status);
    raw(SYS_close, fd);
    return within;
}

static int has_log(uint64_t inode)
{
    long log = log_open(inode);
    if (log >= 0)
        raw(SYS_close, log);
    return log >= 0;
}

int is_followed_locked(int fd, const struct stat *status)
{
    char path[PATH_MAX];
    struct place place;
    struct stat there;
    if (!is_on_device(fd, status))
        return 0;
    if (has_log(status->st_ino))
        return 1;
    if (path_of_fd(fd, path) != 0 || !below_roots(path) || split_path(path, &place) != 0
        || raw_lstat(path, &there) != 0 || there.st_ino != status->st_ino)
        return 0; /* it has lost its names since the log began, and cannot come back */
    struct name_record record = {
        .kind = NAME_SEEN, .state = DONE, .number = next_number(), .inode = status->st_ino};
    if (names_append(&record, &place, NULL) == 0 && log_make(status->st_ino, 0, 0) == 0)
        return 1;
    count_not_followed(NF_UNLOGGED);
    return 0;
}

int is_followed(int fd, const struct stat *status)
{
    char path[PATH_MAX];
    if (!is_on_device(fd, status))
        return 0;
    if (has_log(status->st_ino))
        return 1;
    if (path_of_fd(fd, path) != 0 || !below_roots(path) || names_lock() != 0)
        return 0;
    int followed = is_followed_locked(fd, status);
    names_unlock();
    return followed;
}
