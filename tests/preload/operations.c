/* Do the operations that stand on standard input, one a line, and print the result of each: 0 or more, or -errno.
 *
 * Files are named by numbers (IDs) that a line gives them. "#" before a word calls the kernel by number. "fork" lets a child go on with the lines until "join". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define IDS 32
#define WORDS 6
#define LINE 512

static int files[IDS];

/* Read a line without reading ahead: a child and the program after exec go on behind it. */
static int read_line(char *line)
{
    size_t length = 0;
    while (length < LINE - 1 && read(0, line + length, 1) == 1) {
        if (line[length] == '\n') {
            line[length] = 0;
            return 1;
        }
        length++;
    }
    return 0;
}

static char *content(const char *seed, size_t length)
{
    char *bytes = malloc(length + 1);
    for (size_t at = 0; at < length; at++)
        bytes[at] = (char)(atoi(seed) * 31 + (int)(at * 7) + (int)(at >> 8) + 1);
    return bytes;
}

static int flags_of(const char *letters)
{
    int flags = 0;
    for (; *letters; letters++)
        switch (*letters) {
        case 'w': flags |= O_WRONLY; break;
        case '+': flags |= O_RDWR; break;
        case 'a': flags |= O_APPEND; break;
        case 'c': flags |= O_CREAT; break;
        case 't': flags |= O_TRUNC; break;
        case 'x': flags |= O_EXCL; break;
        case 's': flags |= O_SYNC; break;
        case 'd': flags |= O_DSYNC; break;
        default: break;
        }
    return flags;
}

static long flush_path(const char *path, int flags, int (*flush)(int))
{
    int file = open(path, flags);
    long result = file < 0 ? -1 : flush(file);
    if (file >= 0)
        close(file);
    return result;
}

static int is_same(int one, int other)
{
    struct stat first, second;
    errno = EINVAL;
    return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_ino == second.st_ino;
}

static long do_numbered(char **word)
{
    const char *operation = word[0] + 1;
    if (!strcmp(operation, "open"))
        return files[atoi(word[1])] = (int)syscall(SYS_openat, AT_FDCWD, word[3], flags_of(word[2]), 0644);
    if (!strcmp(operation, "truncate"))
        return syscall(SYS_truncate, word[1], atol(word[2]));
    if (!strcmp(operation, "rename"))
        return syscall(SYS_renameat2, AT_FDCWD, word[1], AT_FDCWD, word[2], 0);
    if (!strcmp(operation, "link"))
        return syscall(SYS_linkat, AT_FDCWD, word[1], AT_FDCWD, word[2], 0);
    if (!strcmp(operation, "symlink"))
        return syscall(SYS_symlinkat, word[1], AT_FDCWD, word[2]);
    if (!strcmp(operation, "unlink"))
        return syscall(SYS_unlinkat, AT_FDCWD, word[1], 0);
    if (!strcmp(operation, "rmdir"))
        return syscall(SYS_unlinkat, AT_FDCWD, word[1], AT_REMOVEDIR);
    if (!strcmp(operation, "mkdir"))
        return syscall(SYS_mkdirat, AT_FDCWD, word[1], 0755);
    if (!strcmp(operation, "fsync"))
        return syscall(SYS_fsync, files[atoi(word[1])]);
    errno = EINVAL;
    return -1;
}

static long do_line(int count, char **word, const char *self)
{
    const char *operation = word[0];
    if (operation[0] == '#')
        return do_numbered(word);
    int file = count > 1 ? files[atoi(word[1]) % IDS] : -1;
    long number = count > 2 ? atol(word[2]) : 0, length = count > 3 ? atol(word[3]) : 0;
    if (!strcmp(operation, "open"))
        return files[atoi(word[1])] = open(word[3], flags_of(word[2]), 0644);
    if (!strcmp(operation, "write"))
        return write(file, content(word[4], (size_t)length), (size_t)length);
    if (!strcmp(operation, "pwrite"))
        return pwrite(file, content(word[4], (size_t)length), (size_t)length, number);
    if (!strcmp(operation, "writev")) {
        char *bytes = content(word[4], (size_t)length);
        struct iovec parts[2] = {{bytes, (size_t)length / 3}, {bytes + length / 3, (size_t)(length - length / 3)}};
        return writev(file, parts, 2);
    }
    if (!strcmp(operation, "pwritev")) {
        char *bytes = content(word[4], (size_t)length);
        struct iovec parts[2] = {{bytes, (size_t)length / 2}, {bytes + length / 2, (size_t)(length - length / 2)}};
        return pwritev(file, parts, 2, number);
    }
    if (!strcmp(operation, "pappend")) {
        struct iovec part = {content(word[4], (size_t)length), (size_t)length};
        return pwritev2(file, &part, 1, number, RWF_APPEND);
    }
    if (!strcmp(operation, "sendfile")) {
        off_t from = 0;
        return is_same(file, files[number]) ? -1 : sendfile(file, files[number], &from, (size_t)length);
    }
    if (!strcmp(operation, "copy")) {
        off_t from = 0, to = atol(word[4]);
        return is_same(file, files[number]) ? -1 : copy_file_range(files[number], &from, file, &to, (size_t)length, 0);
    }
    if (!strcmp(operation, "ftruncate"))
        return ftruncate(file, number);
    if (!strcmp(operation, "truncate"))
        return truncate(word[1], number);
    if (!strcmp(operation, "fallocate"))
        return fallocate(file, 0, number, length);
    if (!strcmp(operation, "punch"))
        return fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, number, length);
    if (!strcmp(operation, "fsync"))
        return fsync(file);
    if (!strcmp(operation, "fdatasync"))
        return fdatasync(file);
    if (!strcmp(operation, "close"))
        return files[atoi(word[1])] = -1, close(file);
    if (!strcmp(operation, "dup"))
        return files[atoi(word[2])] = dup(file);
    if (!strcmp(operation, "dup2"))
        return dup2(file, files[number]);
    if (!strcmp(operation, "sync"))
        return sync(), 0;
    if (!strcmp(operation, "syncfs"))
        return flush_path(".", O_RDONLY, syncfs);
    if (!strcmp(operation, "syncfolder"))
        return flush_path(word[1], O_RDONLY | O_DIRECTORY, fsync);
    if (!strcmp(operation, "syncfile"))
        return flush_path(word[1], O_RDONLY | O_NOFOLLOW, fsync);
    if (!strcmp(operation, "noreplace"))
        return renameat2(AT_FDCWD, word[1], AT_FDCWD, word[2], RENAME_NOREPLACE);
    if (!strcmp(operation, "openat")) {
        int folder = open(word[3], O_RDONLY | O_DIRECTORY);
        int opened = files[atoi(word[1])] = folder < 0 ? -1 : openat(folder, word[4], flags_of(word[2]), 0644);
        int number_of_error = errno;
        if (folder >= 0)
            close(folder);
        errno = number_of_error;
        return opened;
    }
    if (!strcmp(operation, "rename"))
        return rename(word[1], word[2]);
    if (!strcmp(operation, "link"))
        return link(word[1], word[2]);
    if (!strcmp(operation, "symlink"))
        return symlink(word[1], word[2]);
    if (!strcmp(operation, "unlink"))
        return unlink(word[1]);
    if (!strcmp(operation, "remove"))
        return remove(word[1]);
    if (!strcmp(operation, "mkdir"))
        return mkdir(word[1], 0755);
    if (!strcmp(operation, "rmdir"))
        return rmdir(word[1]);
    if (!strcmp(operation, "fork")) {
        int child = fork(), status;
        return child == 0 ? 0 : child < 0 ? -1 : waitpid(child, &status, 0) < 0 ? -1 : 1;
    }
    if (!strcmp(operation, "join"))
        _exit(0);
    if (!strcmp(operation, "exec")) {
        char numbers[IDS][12], *words[IDS + 2] = {(char *)self};
        for (int id = 0; id < IDS; id++) {
            snprintf(numbers[id], sizeof numbers[id], "%d", files[id]);
            words[id + 1] = numbers[id];
        }
        return execv(self, words);
    }
    if (!strcmp(operation, "die"))
        return kill(getpid(), SIGKILL);
    errno = EINVAL;
    return -1;
}

int main(int count, char **words)
{
    char line[LINE], printed[32];
    for (int id = 0; id < IDS; id++)
        files[id] = id + 1 < count ? atoi(words[id + 1]) : -1;
    if (count > 1 && write(1, "0\n", 2) != 2) /* the result of exec */
        return 1;
    while (read_line(line)) {
        char *word[WORDS] = {strtok(line, " ")};
        int found = 1;
        while (found < WORDS && (word[found] = strtok(NULL, " ")))
            found++;
        long result = do_line(found, word, "/proc/self/exe");
        int length = snprintf(printed, sizeof printed, "%ld\n", result < 0 ? -(long)errno : result);
        if (write(1, printed, (size_t)length) != length)
            return 1;
    }
    return 0;
}
