/* Write in bursts, from many threads, until killed; or measure how long writes take.
 *
 *   bursts threads FOLDER COUNT SHARED    COUNT files, each with a thread that appends records and one that flushes,
 *                                         and a thread that replaces FOLDER/target by rename
 *   bursts measure FILE COUNT             COUNT writes of 4 KB with a flush each 64; print microseconds for each
 *
 * SHARED is mapped, so that what was known before the kill can be read: for each file (the last one is the target)
 * how many records were begun and done, and, by the last flush, how many were done before it and begun at its end. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RECORD 64
#define BLOCK 4096

struct known {
    _Atomic long begun, done, low, high, flushes_begun, flushes_done;
};

struct work {
    struct known *known;
    const char *folder;
    int fd;
};

static void *append(void *given)
{
    struct work *work = given;
    for (;;) {
        long record[RECORD / sizeof(long)];
        long number = atomic_fetch_add(&work->known->begun, 1);
        for (size_t at = 0; at < sizeof record / sizeof *record; at++)
            record[at] = number;
        if (write(work->fd, record, RECORD) != RECORD)
            exit(1);
        atomic_fetch_add(&work->known->done, 1);
        if (number % 16 == 0)
            usleep(100);
    }
    return NULL;
}

static void *flush(void *given)
{
    struct work *work = given;
    for (;;) {
        long done = atomic_load(&work->known->done);
        atomic_fetch_add(&work->known->flushes_begun, 1);
        if (fsync(work->fd) != 0)
            exit(1);
        atomic_store(&work->known->high, atomic_load(&work->known->begun));
        atomic_store(&work->known->low, done);
        atomic_fetch_add(&work->known->flushes_done, 1);
        usleep(2000);
    }
    return NULL;
}

static void *replace(void *given)
{
    struct work *work = given;
    char made[4096], target[4096];
    snprintf(made, sizeof made, "%s/made", work->folder);
    snprintf(target, sizeof target, "%s/target", work->folder);
    int folder = open(work->folder, O_RDONLY | O_DIRECTORY);
    for (long number = 1;; number++) {
        atomic_store(&work->known->begun, number);
        int file = open(made, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (file < 0 || write(file, &number, sizeof number) != sizeof number || (number % 2 && fsync(file) != 0)
            || close(file) != 0 || rename(made, target) != 0 || fsync(folder) != 0)
            exit(1);
        atomic_store(&work->known->low, number);
    }
    return NULL;
}

static int measure(const char *path, long count)
{
    static char block[BLOCK];
    struct timespec start, end;
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long at = 1; at <= count; at++)
        if (write(file, block, BLOCK) != BLOCK || (at % 64 == 0 && fsync(file) != 0))
            return 1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.3f\n", ((double)(end.tv_sec - start.tv_sec) * 1e6 + (double)(end.tv_nsec - start.tv_nsec) / 1e3) / (double)count);
    return 0;
}

int main(int count, char **words)
{
    if (count == 4 && !strcmp(words[1], "measure"))
        return measure(words[2], atol(words[3]));
    if (count != 5)
        return 1;
    int files = atoi(words[3]), shared = open(words[4], O_RDWR);
    struct known *known = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    for (int at = 0; at <= files; at++) {
        struct work *work = malloc(sizeof *work);
        char path[4096];
        pthread_t thread;
        *work = (struct work){&known[at], words[2], -1};
        if (at == files) {
            pthread_create(&thread, NULL, replace, work);
            break;
        }
        snprintf(path, sizeof path, "%s/%d", words[2], at);
        work->fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
        pthread_create(&thread, NULL, append, work);
        pthread_create(&thread, NULL, flush, work);
    }
    for (;;)
        pause();
}
