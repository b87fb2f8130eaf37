/* A thread for the work before a request can go to the driver: rendering the chat template and
 * tokenising, which for a large or hostile input takes longer than the API's loop may stand still.
 * One job at a time, in order; that is also what a chat_template object demands. */
#pragma once

#include "api/inbox.h"

struct preparer;

struct preparer_job {
    struct inbox_item item;                /* posted as done when run() has returned */
    void (*run)(struct preparer_job *job); /* on the preparer's thread */
    struct preparer_job *next;
};

enum error_code preparer_open(struct preparer **out, struct error *err);
/* Runs what is queued, then ends the thread. */
void preparer_close(struct preparer *preparer);
void preparer_submit(struct preparer *preparer, struct preparer_job *job);
