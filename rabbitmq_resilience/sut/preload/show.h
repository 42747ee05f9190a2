/* Show a state. */
#ifndef SHOW_H
#define SHOW_H

#include <stddef.h>

/* Print settings, counters, calls that were not followed, processes and sizes as one JSON object. */
void show(void);
/* Write the ids of the living processes that use the state, separated by commas, as far as this user may see them. */
void list_pids(char *text, size_t size);

#endif
