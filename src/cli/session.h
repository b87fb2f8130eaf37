/* A model that is loaded and ready to run: what the commands `run`, `bench`, `logits` and `serve`
 * share, with the flags that say on which devices and how.
 *
 * Example:
 *     struct flags { struct session_flags session; … } flags = {0};
 *     static const struct option_section sections[] = {
 *         {SESSION_SECTION(struct flags, session)}, {0}};
 *     if (!options_parse(&command_run, argc, argv, &flags)) return EXIT_USAGE;
 *     struct session session;
 *     if (session_open(path, &flags.session, &session, &err)) …
 *     … generator_submit(session.generator, …) …
 *     session_close(&session); */
#pragma once

#include "cli/options.h"
#include "library/defaults.h"
#include "model/rope_stretch.h"
#include "model/tokenizer.h"
#include "pipeline/driver_generator.h"
#include "plan/plan.h"
#include "weights/version_file.h"

#include "base/limits.h"

struct gpu;
struct heat;
struct remote;
struct chat_template;
struct sight;

struct session_flags {                /* all zero: every default */
    const char *devices;              /* list of ids; NULL: the machine's best */
    struct placement_weights weights; /* of the greedy answer; zeroed: as usual */
    uint32_t plan_limit_s;            /* of the search for a split; 0: as usual */
    const char *split;                /* layers of each; NULL: as is fastest (plan/plan.h) */
    const char *backend;
    const char *sim_file; /* simulated devices; NULL: none */
    uint32_t n_threads;
    const char *draft;        /* a smaller model that guesses; NULL: none */
    const char *draft_device; /* the id of its device; NULL: where it is fastest */
    const char *projector;    /* NULL: one beside the model; "none": no pictures */
    struct driver_options driver;
    struct rope_stretch rope;
    uint32_t slots_shared; /* not a flag: where slots can share the cells of driver.n_slots, so many
                              of them are opened; 0: no more */
    bool says_where;       /* one of them says on which devices of this machine, or how: not in the
                              cluster */
    bool no_governor;      /* let the devices get as hot as they will */
    bool is_measured;      /* not a flag: the command measures speed, no governor may change it */
    bool takes_pictures;   /* not a flag: the command shows the model pictures */
    bool no_tokenizer;     /* not a flag: the command works on token ids alone */
    bool takes_defaults; /* not a flag: what the model's maker wants counts (library/defaults.h) */
};

/* Their rows, for a section of the command's options (cli/options.h). */
extern const struct option_row session_options[];
enum { SESSION_OPTIONS = 25 };
#define SESSION_SECTION(type, field)                                                               \
    .rows = session_options, .n_rows = SESSION_OPTIONS, .offset = offsetof(type, field),           \
    .column = 19

struct session {
    struct gpu *gpu;
    struct model *model;
    struct model *draft; /* that guesses for it; NULL: none. Its plan, and how far it reaches: */
    struct plan draft_plan;
    uint32_t draft_context;
    struct tokenizer *tokenizer;         /* NULL with no_tokenizer */
    struct token_list stop_tokens;       /* those that end generation */
    struct chat_template *chat_template; /* see session_chat_template() */
    struct sight *sight;                 /* NULL: it sees no pictures (session_sight.h) */
    struct generator *generator;         /* whoever answers requests: the driver, or the cluster */
    struct driver *driver;               /* NULL: the cluster has it, and what follows is empty */
    struct driver_generator of_driver;   /* so a session does not move once it is open */
    struct heat *heat;                   /* NULL: not governed */
    struct version_file smaller; /* what is streamed where --precision and too little memory meet */
    struct plan plan;            /* which layers are where, and what is to be expected of it */
    struct remote *remote;       /* NULL: this process has the driver */
    struct library_defaults defaults; /* with takes_defaults; num_ctx counts already */
    uint32_t context;                 /* that the driver has; 0: the cluster has it */
};

enum error_code session_open(const char *path, const struct session_flags *flags,
                             struct session *out, struct error *err);
void session_close(struct session *session); /* a zeroed session is fine */

/* The same in the cluster, through the node on this machine, which places the model and loads it
 * where that is not done yet; here only its vocabulary is read. *found: a node runs here. Without
 * one ERROR_NOT_FOUND; but that may also be what is wrong with a node's cluster or the file. Of the
 * flags only the context counts. */
enum error_code session_open_remote(const char *path, const struct session_flags *flags,
                                    struct session *out, bool *found, struct error *err);

/* What session_open() also does: reads the tokenizer and the tokens that end generation. */
enum error_code session_read_vocabulary(struct session *session, struct error *err);

/* The model's chat template, opened when it is first asked for; the session's. */
enum error_code session_chat_template(struct session *session, struct chat_template **out,
                                      struct error *err);

/* Appends the tokens of a prompt: special tokens in the text are parsed, and BOS is put in front
 * where the model wants it and the text has none. */
enum error_code session_encode(const struct session *session, const char *text, size_t size,
                               struct token_list *out, struct error *err);

/* What was to be expected of a request by the devices' figures, before it ran
 * (plan/plan_forecast.h); in the cluster nothing is known. */
struct plan_forecast session_forecast(const struct session *session,
                                      const struct request_usage *usage);

/* "cpu 10 layers (38 % of the time), vulkan0 6 layers (62 % of the time)": of the time they have
 * computed so far; and the devices that were left out. */
void session_describe_split(const struct session *session, struct buffer *out);
