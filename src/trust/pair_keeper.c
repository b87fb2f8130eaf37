#include "trust/pair_keeper.h"

#include "base/log.h"
#include "trust/api_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { KEEPER_DAY_S = 86400, KEEPER_WARN_DAYS = 14 };

/* Once for each reason, or a renewal that fails would fill the log. */
static void keeper_complain(struct pair_keeper *keeper, const char *text)
{
    if (strncmp(keeper->complaint, text, sizeof keeper->complaint - 1) == 0)
        return;
    snprintf(keeper->complaint, sizeof keeper->complaint, "%s", text);
    log_line(LOG_WARN, "api", "%s", text);
}

static void keeper_take(struct pair_keeper *keeper, struct tls_pair *pair)
{
    uint64_t from;
    tls_pair_deinit(&keeper->pair);
    keeper->pair = *pair;
    *pair = (struct tls_pair){0};
    if (!certificate_period(keeper->pair.certificate, &from, &keeper->until_unix_s))
        keeper->until_unix_s = 0;
    keeper->complaint[0] = 0;
    if (keeper->options.source.shown)
        keeper->options.source.shown(keeper->options.source.self, keeper->until_unix_s);
}

/* ---- the operator's files --------------------------------------------------------------- */

/* Have the files changed since they were read? Notes how they are now. */
static bool keeper_files_changed(struct pair_keeper *keeper)
{
    const char *paths[2] = {keeper->options.certificate_path, keeper->options.key_path};
    bool changed = false;
    for (int i = 0; i < 2; i++) {
        struct stat file = {0};
        if (stat(paths[i], &file) != 0)
            file = (struct stat){0}; /* gone: reading it will say so */
        if (file.st_mtim.tv_sec != keeper->changed[i].tv_sec ||
            file.st_mtim.tv_nsec != keeper->changed[i].tv_nsec ||
            file.st_size != keeper->sizes[i] || file.st_ino != keeper->inodes[i])
            changed = true;
        keeper->changed[i] = file.st_mtim;
        keeper->sizes[i] = file.st_size;
        keeper->inodes[i] = file.st_ino;
    }
    return changed;
}

static enum error_code keeper_read_files(struct pair_keeper *keeper, struct error *err)
{
    struct tls_pair pair;
    enum error_code code =
        tls_pair_read(keeper->options.certificate_path, keeper->options.key_path, &pair, err);
    if (!code)
        keeper_take(keeper, &pair);
    return code;
}

static void keeper_warn_of_end(struct pair_keeper *keeper, uint64_t now_unix_s)
{
    char text[256];
    if (keeper->until_unix_s > now_unix_s + KEEPER_WARN_DAYS * (uint64_t)KEEPER_DAY_S)
        return;
    if (keeper->until_unix_s <= now_unix_s)
        snprintf(text, sizeof text, "%s has expired: clients will refuse it",
                 keeper->options.certificate_path);
    else
        snprintf(text, sizeof text, "%s expires in less than %d days",
                 keeper->options.certificate_path, KEEPER_WARN_DAYS);
    keeper_complain(keeper, text);
}

static bool keeper_step_files(struct pair_keeper *keeper, uint64_t now_unix_s)
{
    struct error err;
    char text[sizeof err.text + 64];
    keeper_warn_of_end(keeper, now_unix_s);
    if (!keeper_files_changed(keeper))
        return false;
    if (keeper_read_files(keeper, &err)) {
        snprintf(text, sizeof text, "the certificate in use stays, the new one is no good: %s",
                 err.text);
        keeper_complain(keeper, text);
        return false;
    }
    log_line(LOG_INFO, "api", "%s was read anew", keeper->options.certificate_path);
    return true;
}

/* ---- signed ----------------------------------------------------------------------------- */

static void keeper_gather(const struct pair_keeper *keeper, struct served_names *names)
{
    *names = (struct served_names){0};
    served_names_gather(names, keeper->options.host, keeper->options.node_name);
    for (const char *const *more = keeper->options.more_names; more && *more; more++) {
        if (strchr(*more, '.') || strchr(*more, ':'))
            served_names_add(names, *more);
        else
            served_names_add_machine(names, *more); /* answered for under these suffixes, too */
    }
}

static uint64_t keeper_source_version(const struct pair_keeper *keeper)
{
    const struct pair_source *source = &keeper->options.source;
    return source->version ? source->version(source->self) : 0;
}

static enum error_code keeper_issue_own(struct pair_keeper *keeper,
                                        const struct served_names *names, uint64_t now_unix_s,
                                        struct error *err)
{
    struct tls_pair pair = {0};
    enum error_code code = ERROR_NONE;
    if (!keeper->own.certificate)
        code = api_files_own_authority(keeper->options.state_folder, &keeper->own, err);
    if (!code)
        code = api_authority_issue(&keeper->own, names, now_unix_s, &pair, err);
    if (code)
        return code;
    keeper_take(keeper, &pair);
    keeper->names = *names;
    keeper->version = 0;
    keeper->shows_own = true;
    return ERROR_NONE;
}

static enum error_code keeper_issue(struct pair_keeper *keeper, const struct served_names *names,
                                    uint64_t now_unix_s, struct error *err)
{
    const struct pair_source *source = &keeper->options.source;
    const uint64_t version = keeper_source_version(keeper);
    struct tls_pair pair = {0};
    if (!version)
        return keeper_issue_own(keeper, names, now_unix_s, err);
    const enum error_code code = source->issue(source->self, names, now_unix_s, &pair, err);
    if (code)
        return code;
    keeper_take(keeper, &pair);
    keeper->names = *names;
    keeper->version = version;
    keeper->shows_own = false;
    return ERROR_NONE;
}

/* The source cannot sign now, and there is nothing to show. */
static enum error_code keeper_fall_back(struct pair_keeper *keeper,
                                        const struct served_names *names, uint64_t now_unix_s,
                                        struct error *err)
{
    const struct pair_source *source = &keeper->options.source;
    struct tls_pair pair = {0};
    struct error none;
    if (!source->last || source->last(source->self, now_unix_s, &pair, &none))
        return keeper_issue_own(keeper, names, now_unix_s, err);
    keeper_take(keeper, &pair);
    return ERROR_NONE;
}

static bool keeper_is_due(const struct pair_keeper *keeper, const struct served_names *names,
                          uint64_t now_unix_s)
{
    return now_unix_s + API_LEAF_RENEW_DAYS * (uint64_t)KEEPER_DAY_S > keeper->until_unix_s ||
           keeper_source_version(keeper) != keeper->version ||
           !served_names_equal(names, &keeper->names);
}

/* Clients that trust the cluster's authority refuse the machine's own: that is worth saying. */
static void keeper_say_why(struct pair_keeper *keeper, const struct error *why)
{
    char text[sizeof why->text + 128];
    if (why->code == ERROR_BUSY)
        return;
    snprintf(text, sizeof text, "the API %s: %s",
             keeper->shows_own ? "shows a certificate of this machine's own authority, which "
                                 "clients of the cluster do not trust"
                               : "keeps the certificate that it has",
             why->text);
    keeper_complain(keeper, text);
}

/* The source signs not now: what the machine itself has signed follows its names all the same. */
static bool keeper_renew_own(struct pair_keeper *keeper, const struct served_names *names,
                             uint64_t now_unix_s)
{
    struct error err;
    const bool lasts =
        now_unix_s + API_LEAF_RENEW_DAYS * (uint64_t)KEEPER_DAY_S <= keeper->until_unix_s;
    return keeper->shows_own && (!lasts || !served_names_equal(names, &keeper->names)) &&
           keeper_issue_own(keeper, names, now_unix_s, &err) == ERROR_NONE;
}

static bool keeper_step_signed(struct pair_keeper *keeper, uint64_t now_unix_s)
{
    struct served_names names;
    struct error err;
    keeper_gather(keeper, &names);
    if (!keeper_is_due(keeper, &names, now_unix_s))
        return false;
    if (keeper_issue(keeper, &names, now_unix_s, &err)) {
        keeper_say_why(keeper, &err);
        return keeper_renew_own(keeper, &names, now_unix_s);
    }
    log_line(LOG_INFO, "api", "the API has a new certificate");
    return true;
}

/* ---- its life --------------------------------------------------------------------------- */

enum error_code pair_keeper_init(struct pair_keeper *keeper,
                                 const struct pair_keeper_options *options, uint64_t now_unix_s,
                                 struct error *err)
{
    struct served_names names;
    enum error_code code;
    *keeper = (struct pair_keeper){.options = *options};
    if (options->certificate_path) {
        keeper_files_changed(keeper);
        code = keeper_read_files(keeper, err);
    } else {
        keeper_gather(keeper, &names);
        code = keeper_issue(keeper, &names, now_unix_s, err);
        if (code)
            code = keeper_fall_back(keeper, &names, now_unix_s, err);
    }
    if (code)
        pair_keeper_deinit(keeper);
    return code;
}

bool pair_keeper_step(struct pair_keeper *keeper, uint64_t now_unix_s)
{
    return keeper->options.certificate_path ? keeper_step_files(keeper, now_unix_s)
                                            : keeper_step_signed(keeper, now_unix_s);
}

void pair_keeper_deinit(struct pair_keeper *keeper)
{
    if (!keeper)
        return;
    tls_pair_deinit(&keeper->pair);
    api_authority_deinit(&keeper->own);
    *keeper = (struct pair_keeper){0};
}
