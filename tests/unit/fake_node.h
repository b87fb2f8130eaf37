/* A node's control socket that answers from a table: a thread of the test that listens in a
 * temporary MEDLEY_STATE_DIR. One connection at a time. */
#pragma once

#include <stddef.h>

enum { FAKE_STEPS = 8 };

struct fake_answer {
    const char *question;          /* the text of "do" */
    const char *steps[FAKE_STEPS]; /* what is written, one after another */
    void (*talk)(int fd);          /* after them; NULL: it hangs up */
};
#define FAKE_LISTEN ((const char *)"<")  /* a step: first a line is read from the command */
#define FAKE_ENDLESS ((const char *)"~") /* bytes without a line feed, until the command goes */

/* Makes the folder and sets MEDLEY_STATE_DIR; nobody listens yet. */
void fake_node_begin(void);
void fake_node_end(void);

/* From now on these answers, `n` of them; others are hung up on. Starts listening. */
void fake_node_answers(const struct fake_answer *answers, size_t n);
void fake_node_stop(void); /* nobody listens any more; the socket's file stays */

/* All lines that were read since the answers were set. */
const char *fake_node_heard(void);

const char *fake_node_folder(void);
