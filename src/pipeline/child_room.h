/* What the files of a device's process share (children.h): its rooms, one for each lane of the
 * node. */
#pragma once

#include "pipeline/child_cache.h"
#include "pipeline/children_impl.h"

struct model;
struct runner;

struct room {
    struct room *next; /* the main thread's */
    struct child_word open;
    struct device *device;
    struct child_handed handed;
    void *memory;
    pthread_t thread;
    _Atomic bool closes, ended, has_rings, is_open;
    bool said_closed; /* its thread's, then the main thread's */
    struct ring in, out;
    pthread_mutex_t write_lock;
    const struct model *model;
    struct model *stretched; /* of it, for this lane; NULL: as its file says */
    struct runner *runner;
    struct device *fallback; /* the CPU's; NULL: none, or it is that already */
    /* The lane's thread has it while its stages may change; who has it finds them there. */
    pthread_mutex_t form_lock;
    struct child_word *word; /* the lane's thread's, for what it says */
    struct far far;
    enum activation_type types[LIMIT_STAGES];
    struct buffer message;
};

/* ---- child_room.c ---- */
void *room_run(void *room); /* its thread */
/* To the ring. Any thread. */
void room_write(struct room *room, uint32_t kind, const struct buffer *bytes);

/* Without the exit handlers of drivers, which may hang. */
_Noreturn void child_leave(const struct error *why);
void child_tell(const struct child_word *word); /* to the node. Any thread */
void child_set_outcome(struct child_word *word, enum error_code code, const struct error *err);
void child_tell_readings(struct device *device); /* what it reads now */
void child_say_closed(struct device *device, uint32_t lane, struct child_word *word);

/* ---- child_measure.c ---- */
void child_measure_begin(struct device *device, const struct child_word *word); /* main thread's */
void child_measure_stop(void); /* there is other work. Any thread */

/* ---- child_room_cache.c: what the node asks of caches ---- */
void room_take_cache(struct room *room); /* that is in `message` */

/* ---- child_keep.c: what lanes share, and what stays between them ---- */
/* The same file is read once, whatever lanes are of it: takes the descriptors if it is the first
 * of them. Any thread. */
enum error_code child_model_open(const struct child_word *open, struct child_handed *handed,
                                 const struct model **out, struct error *err);
void child_model_close(const struct model *model); /* NULL is fine */
/* The main thread's. */
void child_pin(struct room *room, const struct child_word *word); /* `room` NULL: it is not there */
void child_drop(uint32_t pin);
