/* Flush a file's log while it grows, in each order of two flushes, and print the records that stay. Or, with "held" and
 * the number of a thread, let all locks be held by that thread. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file_log.h"

#define INODE 7

static void add(void)
{
    long log = log_open(INODE);
    struct change_record record = {.magic = LOG_MAGIC, .kind = CHANGE_WRITE, .number = next_number()};
    log_append(log, &record, -1);
    close((int)log);
}

static void show(void)
{
    struct change_record record;
    long log = log_open(INODE);
    uint64_t size = (uint64_t)lseek((int)log, 0, SEEK_END), at = sizeof(struct log_head), next;
    for (; (next = log_next(log, size, at, &record)); at = next)
        printf("%llu ", (unsigned long long)record.number);
    puts("left");
    close((int)log);
}

int main(int count, char **words)
{
    struct log_mark first, second;
    if (count == 4 && !strcmp(words[2], "held") && state_open(words[1]) == 0) {
        control->names.word = (uint32_t)atoi(words[3]);
        for (int stripe = 0; stripe < STRIPES; stripe++)
            control->stripes[stripe].word = (uint32_t)atoi(words[3]);
        return 0;
    }
    if (count != 3 || state_open(words[1]) != 0 || log_make(INODE, 0, 0) != 0)
        return 1;
    int early_first = !strcmp(words[2], "early");
    add();                          /* record 1 */
    log_mark_end(INODE, 0, &first);    /* flush 2 begins */
    add();                          /* record 3 */
    log_mark_end(INODE, 0, &second);   /* flush 4 begins */
    add();                          /* record 5 */
    log_flushed(INODE, early_first ? &first : &second);
    show();
    add();                          /* record 6 */
    log_flushed(INODE, early_first ? &second : &first);
    show();
    log_mark_end(INODE, 0, &first);
    log_flushed(INODE, &first);
    show();
    return 0;
}
