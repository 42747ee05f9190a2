/* The parts of the library that is preloaded; each replaces calls of libc of one kind. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include "file_log.h"

#define EXPORTED __attribute__((visibility("default")))

/* The descriptor that holds the lock on `alive`, or -1. The program must not close it. */
extern int alive_fd;

/* Return the part of an absolute `path` below its root, or NULL if it is below none. */
const char *below_roots(const char *path);
/* Find the folder and the name that `path` leads to. Return whether the folder is a root or below one. */
int place_of(int folder_fd, const char *path, struct place *place);
/* Return whether a file is on the file system of the log; count one below a root that is not. `fd` is open on it. */
int is_on_device(int fd, const struct stat *status);
/* Read the path of an open file, as the kernel knows it. Return 0 or a negative error number. */
long path_of_fd(int fd, char path[PATH_MAX]);
/* Split an absolute path. Return 0, or -1 if it is too long. */
int split_path(const char *path, struct place *place);

/* Return whether changes of the open regular file are followed. Its log is made at the first call. */
int is_followed(int fd, const struct stat *status);
/* The same, for a caller that has the lock of names. */
int is_followed_locked(int fd, const struct stat *status);

/* Return the time in nanoseconds, from a clock that no preloaded library changes. */
uint64_t clock_ns(void);
/* Return whether calls are to be slowed down or to fail. */
int faults_are_set(void);
/* Wait the extra time of a call (`on`: ON_WRITE or ON_FLUSH), and return the error number that it must fail with. */
int fault_of(int on, int fd);
/* Count a call that began at `began_ns`. */
void count_call(int on, uint64_t began_ns, int failed, uint64_t bytes);

/* Count a call that cannot be followed if `fd` is open for writing on a followed file. */
void count_file(enum not_followed what, int fd);

/* Do the work of open, rename, unlink and the like, following what they change. Results are the kernel's. */
long follow_open(int folder_fd, const char *path, int flags, unsigned mode);
long follow_rename(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
long follow_unlink(int folder_fd, const char *path, int flags);
long follow_link(int from_fd, const char *from, int to_fd, const char *to, int flags);
long follow_symlink(const char *target, int folder_fd, const char *path);
long follow_mkdir(int folder_fd, const char *path, unsigned mode);
/* Do a flush by the call `number` (SYS_fsync or SYS_fdatasync). */
long follow_flush(long number, int fd);
/* Do a flush of all files: by SYS_sync, or by SYS_syncfs of the file system of `fd`. */
long follow_flush_all(long number, int fd);
/* Log that a flush of a file, marked at its beginning, has made its names durable. One of data alone does so for the
 * operations before the change of its size. */
void log_file_flush(uint64_t inode, const struct log_mark *mark, int data_only);

/* A change of a file's content that has begun. */
struct change {
    uint64_t inode, offset, length, began_ns;
    long log, place;
    enum change_kind kind;
    int fd, error, failed_on, flushes, data_only, counted;
};

/* For `write_flags`: the change is part of another call, which is neither slowed down nor counted. */
#define WITHIN_ANOTHER 0x40000000

/* Log a change before it is done. `offset` -1 is the file's position. Return 0 if the file is not followed; otherwise
 * the call must end with `change_end`, and fail with `error` if that is not 0. */
int change_begin(struct change *change, int fd, enum change_kind kind, int64_t offset, uint64_t length, int write_flags);
/* Note the result of a change, let go of the file, and return the result. */
long change_end(struct change *change, long result);

#endif
