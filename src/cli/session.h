/* A model that is loaded and ready to run: what the commands `run`, `bench`, `logits` and `serve`
 * share, with the flags that say on which devices and how.
 *
 * Example:
 *     struct session_flags flags = {0};
 *     … getopt_long with SESSION_SHORT_OPTIONS and SESSION_LONG_OPTIONS; for each option:
 *         if (session_flag(&flags, &command_run, option, optarg) == SESSION_FLAG_WRONG) return
 *         EXIT_USAGE;
 *     struct session session;
 *     if (session_open(path, &flags, &session, &err)) …
 *     … generator_submit(session.generator, …) …
 *     session_close(&session); */
#pragma once

#include "cli/command.h"
#include "model/tokenizer.h"
#include "pipeline/generator.h"
#include "plan/plan.h"

#include "base/limits.h"

#include <getopt.h>

struct gpu;
struct heat;
struct remote;
struct chat_template;

struct session_flags {   /* all zero: every default */
    const char *devices; /* list of ids; NULL: the machine's best */
    const char *split;   /* layers of each; NULL: as is fastest (plan/plan.h) */
    const char *backend;
    const char *sim_file; /* simulated devices; NULL: none */
    uint32_t n_threads;
    struct driver_options driver;
    bool says_where;   /* one of them says on which devices of this machine, or how: not in the
                          cluster */
    bool no_governor;  /* let the devices get as hot as they will */
    bool is_measured;  /* not a flag: the command measures speed, no governor may change it */
    bool no_tokenizer; /* not a flag: the command works on token ids alone */
};

enum { /* values that getopt_long returns; a command's own start at SESSION_OPTION_END */
       SESSION_OPTION_DEVICES = 256,
       SESSION_OPTION_SPLIT,
       SESSION_OPTION_BACKEND,
       SESSION_OPTION_SIM,
       SESSION_OPTION_KV,
       SESSION_OPTION_FLASH,
       SESSION_OPTION_SLOTS,
       SESSION_OPTION_BATCH,
       SESSION_OPTION_NO_REPACK,
       SESSION_OPTION_NO_GOVERNOR,
       SESSION_OPTION_END,
};

#define SESSION_SHORT_OPTIONS "t:c:"
#define SESSION_LONG_OPTIONS                                                                       \
    {"devices", required_argument, NULL, SESSION_OPTION_DEVICES},                                  \
        {"split", required_argument, NULL, SESSION_OPTION_SPLIT},                                  \
        {"backend", required_argument, NULL, SESSION_OPTION_BACKEND},                              \
        {"sim", required_argument, NULL, SESSION_OPTION_SIM},                                      \
        {"threads", required_argument, NULL, 't'}, {"context", required_argument, NULL, 'c'},      \
        {"kv", required_argument, NULL, SESSION_OPTION_KV},                                        \
        {"flash", required_argument, NULL, SESSION_OPTION_FLASH},                                  \
        {"slots", required_argument, NULL, SESSION_OPTION_SLOTS},                                  \
        {"batch", required_argument, NULL, SESSION_OPTION_BATCH},                                  \
        {"no-governor", no_argument, NULL, SESSION_OPTION_NO_GOVERNOR},                            \
    {                                                                                              \
        "no-repack", no_argument, NULL, SESSION_OPTION_NO_REPACK                                   \
    }

#define SESSION_USAGE                                                                              \
    "  --devices LIST   on these, such as cpu,vulkan0 (see `medley devices`)\n"                    \
    "  --split LIST     layers of each device, such as 10,6; with one device, stages on it\n"      \
    "                   (default: the devices and layers that generate fastest, which may leave "  \
    "some out)\n"                                                                                  \
    "  --backend NAME   only this backend and the CPU\n"                                           \
    "  --sim FILE       simulated devices (docs/simulated-devices.md); used alone unless "         \
    "--devices says else\n"                                                                        \
    "  -t, --threads N  threads of the CPU\n"                                                      \
    "  -c, --context N  tokens of prompt and answer together (default: the model's, at most "      \
    "4096)\n"                                                                                      \
    "  --kv TYPE        type of the KV cache: f16 (default), f32 or q8_0\n"                        \
    "  --flash MODE     flash attention: auto (default), on or off\n"                              \
    "  --slots N        sequences at once\n"                                                       \
    "  --batch N        rows of one micro-batch (default 512)\n"                                   \
    "  --no-governor    do not slow a device down before it gets too hot (bench and logits never " \
    "do)\n"                                                                                        \
    "  --no-repack      keep the CPU's weights as they are stored: slower, for comparisons\n"

enum session_flag_result { SESSION_FLAG_TAKEN, SESSION_FLAG_FOREIGN, SESSION_FLAG_WRONG };
/* FOREIGN: not one of these flags. WRONG: the value is, and that has been said. */
enum session_flag_result session_flag(struct session_flags *flags, const struct command *command,
                                      int option, const char *value);

struct session {
    struct gpu *gpu;
    struct model *model;
    struct tokenizer *tokenizer;         /* NULL with no_tokenizer */
    struct token_list stop_tokens;       /* those that end generation */
    struct chat_template *chat_template; /* see session_chat_template() */
    struct generator *generator;         /* whoever answers requests: the driver, or the cluster */
    struct driver *driver;               /* NULL: the cluster has it, and what follows is empty */
    struct driver_generator of_driver;   /* so a session does not move once it is open */
    struct heat *heat;                   /* NULL: not governed */
    struct plan plan;      /* which layers are where, and what is to be expected of it */
    struct remote *remote; /* NULL: this process has the driver */
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
