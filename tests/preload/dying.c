/* Preloaded into the control program: kill it at the call number DIE_AT of those that change a disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static void may_die(void)
{
    static long calls;
    const char *at = getenv("DIE_AT");
    if (at && ++calls == atol(at))
        kill(getpid(), SIGKILL);
}

#define DYING(type, name, parameters, arguments)                   \
    type name parameters                                           \
    {                                                              \
        may_die();                                                 \
        return ((type(*) parameters)dlsym(RTLD_NEXT, #name))arguments; \
    }

DYING(int, rename, (const char *from, const char *to), (from, to))
DYING(int, unlink, (const char *path), (path))
DYING(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
DYING(int, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
DYING(int, mkdir, (const char *path, mode_t mode), (path, mode))
DYING(int, ftruncate, (int fd, off_t size), (fd, size))
DYING(int, truncate, (const char *path, off_t size), (path, size))
DYING(ssize_t, pwrite, (int fd, const void *bytes, size_t length, off_t at), (fd, bytes, length, at))
