/* Take away what was not flushed.
 *
 * All is decided first and written to the file `plan`, whose steps are then done. Each step can be done again, and the
 * file `stage` says which part is done, so that a cut that was interrupted comes to the same end when it is repeated. */
#ifndef CUT_H
#define CUT_H

#include "tree.h"

/* Write the plan of a cut; `seed` is used if `torn`. No process may use the state. */
void plan_cut(enum model model, int torn, uint64_t seed);
/* Return whether a cut has begun. */
int is_cut_begun(void);
/* Do the plan to its end, and print its report. */
void do_cut(void);
/* Forget the logs: all counts as flushed. */
void clear_logs(void);

#endif
