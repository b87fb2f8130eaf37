/* What the files of children.h share: a device's child, and its lanes. */
#pragma once

#include "pipeline/children.h"
#include "pipeline/ring.h"

#include "base/limits.h"

#include <pthread.h>
#include <stdatomic.h>

#define CHILD_ARGUMENT "--compute-on-one-device-for-the-node"
enum { CHILD_DESCRIPTOR = 3 };
/* program, CHILD_ARGUMENT, device, parent's pid, threads, backend, sim file, registry, folder,
 * CHILD_FREE or not */
enum { CHILD_ARGUMENTS = 10 };
#define CHILD_FREE "without-a-sandbox"

/* Kinds of a ring's records. REFUSED: a code (2 bytes) and a text, in the place of a message that
 * came back. CACHE and its ANSWER: child_cache.h. HALT: a micro-batch's number (8 bytes), for
 * runner_halt(). */
enum { RECORD_MESSAGE = 1, RECORD_REFUSED, RECORD_CACHE, RECORD_ANSWER, RECORD_HALT };
enum { RECORD_HALT_BYTES = 8 };

enum lane_state {
    LANE_WANTED, /* to be opened when the child is there */
    LANE_OPENING,
    LANE_READY,
    LANE_FAILED,
    LANE_CLOSING,
    LANE_CLOSED,
};

struct lane {
    struct lane *next;
    struct child *child;
    uint32_t id;
    struct lane_options options; /* without its pointers, but for the callbacks and their arg */
    struct driver_options driver_options;
    struct child_stage stages[LIMIT_STAGES];

    /* under the child's lock */
    enum lane_state state;
    bool was_ready;
    bool hurries; /* CLOSING: it was not even loaded */
    bool close_sent;
    bool is_lost;
    struct error loss, problem;
    uint32_t n_deaths, n_hangs; /* of its process, since it was READY, that of then included */
    uint64_t end_ns;            /* OPENING, CLOSING, changing: so long it may take; the watcher's */
    struct memory_step memory_step;
    _Atomic bool is_changing; /* its form: micro-batches wait for that */

    /* the rings: while is_up */
    pthread_mutex_t write_lock;
    bool is_up; /* under write_lock */
    int memory_fd;
    void *memory;
    uint64_t ring_bytes;
    struct ring out, in;
    struct lane_record *pending,
        **pending_end; /* there was no room for in the ring; the reader writes them */
    uint32_t n_pending;
    uint64_t stuck_ns; /* when the first of them began to wait */
    pthread_t reader;
    _Atomic bool stops;
    struct buffer message; /* the reader's */
    uint32_t n_under_way;  /* under the lock of the child's work */

    pthread_mutex_t jobs_lock; /* a job is added with the write_lock, too, while is_up */
    struct lane_job *jobs;     /* that were not answered yet */
    uint64_t last_number;
};

enum pin_state { PIN_WANTED, PIN_SAID, PIN_OVER }; /* OVER: the process that had them has ended */

struct lane_pin { /* under the child's lock */
    struct lane_pin *next;
    struct child *child;
    uint32_t id, lane;
    enum pin_state state;
    bool dropped;
    uint32_t n_ranges;
    struct child_range ranges[];
};

/* Micro-batches under way in the child. */
struct child_work {
    pthread_mutex_t lock;
    uint32_t n_under_way;
    uint32_t rows;        /* of the largest since there were none */
    uint64_t progress_ns; /* when one came back, or the first was sent */
    uint64_t row_ns; /* what a row took lately, the slow ones counting more; 0: none was measured */
};

enum measure_state { MEASURE_NONE, MEASURE_WANTED, MEASURE_SAID };
struct child_measure {
    enum measure_state state;
    uint32_t budget_ms;
    children_measured done;
    void *arg;
};

struct child {
    struct children *children;
    struct child *next;
    char device[32];
    struct device *local; /* the same device in this process; NULL: none */
    pthread_t watcher;
    int wake_fd;

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t moved; /* a lane's state */
    struct lane *lanes;
    struct lane_pin *pins;
    uint32_t last_id; /* of lanes and pins */
    struct child_measure measure;
    bool leaving;
    struct error suspicion; /* of a reader or writer: the child is to be killed. code 0: none */
    pid_t pid;              /* 0: not running. Changed by the watcher alone */

    _Atomic bool measure_stops; /* there is other work */
    struct child_work work;
    uint64_t
        deaths_ns[LIMIT_CHILD_DEATHS]; /* the last ones, newest first: the watcher's to change */

    /* the watcher's */
    int socket;
    bool said_hello;
    uint64_t started_ns, heard_ns, beat_ns, start_at_ns, stepped_ns;
    uint64_t hangs_ns[LIMIT_CHILD_HANGS]; /* the last ones, newest first */
    struct error last_death;
};

struct children {
    struct children_options options; /* its texts are copies */
    pthread_mutex_t lock;
    struct child *list;
    _Atomic uint32_t n_measuring;
};

/* ---- children.c ---- */
/* They stay as long as `children`, and with them what is known of their deaths. NULL: there is
 * none, or with `makes` no memory for it. */
struct child *child_of(struct children *children, const char *device, bool makes,
                       struct error *err);

/* ---- children_measure.c: on the watching thread ---- */
void child_measure_step(struct child *child);
void child_measure_ended(struct child *child, const struct device_calibration *found,
                         const struct error *why);

/* ---- child_watch.c ---- */
void *child_watch(void *child); /* the watching thread */
void child_wake(struct child *child);
void child_suspect(struct child *child, const struct error *why); /* any thread */

/* ---- child_death.c: on that thread, but for the first ---- */
uint32_t deaths_count_recent(const uint64_t *list_ns, uint32_t n_max, uint64_t now_ns, uint64_t ms);
void child_tell_lanes(struct child *child); /* that something has changed */
void child_mirror(struct child *child, const struct device_readings *readings);
void child_take_down(struct child *child); /* all lanes: nothing is sent or received any more */
/* It has ended, or could not be started. */
void child_died(struct child *child, const struct error *why, bool hung);
/* The same; it is killed if it has not ended. `what`: why; NULL: it has ended. */
void child_bury(struct child *child, const char *what, bool hung);

/* ---- child_spawn.c ---- */
/* `socket`: this end. */
enum error_code child_spawn(const struct child *child, pid_t *pid, int *socket, struct error *err);
/* False: it does not end. `text` says how it ended. */
bool child_reap(pid_t pid, char *text, size_t size);
/* What goes along with CHILD_OPEN, as descriptors. */
struct child_handed {
    int rings; /* -1: did not come */
    uint32_t n_files;
    int files[LIMIT_MODEL_PARTS]; /* the model's */
};
void child_drop_handed(struct child_handed *handed);
/* `handed` NULL: nothing goes along. */
enum error_code child_say(int socket, const struct child_word *word,
                          const struct child_handed *handed, struct error *err);
/* 1: a word; 0: none now; -1: the other end is gone, or said what cannot be. */
int child_hear(int socket, bool waits, struct child_word *word, struct child_handed *handed,
               struct error *err);

/* ---- child_lane.c ---- */
enum error_code lane_up(struct lane *lane,
                        struct error *err); /* makes the rings and starts the reader */
void lane_down(struct lane *lane);          /* nothing is sent or received any more */
/* With the write_lock, while it is_up: into the ring, or into what waits for room there. False: too
 * much waits. */
bool lane_put(struct lane *lane, uint32_t kind, const void *bytes, size_t size);
void work_begins(struct lane *lane, uint32_t rows);
void work_ends(struct lane *lane, uint32_t rows); /* 0: it tells nothing of how long a row takes */
void work_is_undone(struct lane *lane);
/* How long the micro-batches under way have made no progress beyond what may be, in ms; 0: all is
 * well. `rests`: none is expected now. */
uint64_t child_work_hangs_ms(struct child *child, uint64_t now_ns, bool rests, uint32_t *rows);

/* ---- child_lane_cache.c ---- */
/* Room for what is asked of caches, and for some of it at a time. */
uint64_t lane_cache_bytes_max(const struct driver_options *options);
enum error_code lane_take_answer(struct lane *lane,
                                 struct error *err); /* the reader's: that is in `message` */
void lane_fail_jobs(struct lane *lane);              /* once it is down */

/* ---- child_pin.c ---- */
/* All with the child's lock. */
struct lane_pin *pin_next(struct child *child); /* of which something is to be said. NULL: none */
void pin_forget(struct lane_pin *pin);          /* out of the list, and freed */
void pins_end(struct child *child);             /* its process has ended */
bool pins_needed(const struct child *child);
