/* medley audit: who did what, from this machine's record of it. */
#include "audit/check.h"
#include "audit/record.h"
#include "base/limits.h"
#include "base/state_folder.h"
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/audit_show.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "Usage: medley audit [--follow] [--since TIME] [--json] [PATH]\n"
    "       medley audit --verify [PATH]\n"
    "       medley audit --keep DAYS\n"
    "\n"
    "Prints the record of who did what in the cluster: machines let in and removed, models and\n"
    "settings changed, tokens made, used for the first time, refused and revoked. All machines\n"
    "have the same record; this machine's is read, also while no node runs. PATH is another "
    "record\n"
    "instead: a file that --json wrote, or a folder.\n"
    "\n"
    "  --follow         keep printing new entries, until Ctrl-C\n"
    "  --since TIME     only what is not older: 30m, 2h, 7d, or a date such as 2026-11-22\n"
    "  --json           for programs: the record's own lines, its signed head first\n"
    "  --verify         check that nothing was changed, left out, moved, put in or cut off; what "
    "is\n"
    "                   wrong is named, and the exit status is 1\n"
    "  --keep DAYS      how long all machines keep entries (default 365)\n"
    "\n"
    "`medley audit --json > FILE` exports the record; `medley audit --verify FILE` checks it on "
    "any\n"
    "machine.\n";

enum { FOLLOW_PAUSE_US = 300 * 1000, WRITE_WAIT_MS = 5000 };

struct audit_args {
    bool follow, json, verify;
    uint64_t since_ms; /* since 1970 */
    uint32_t keep_days;
    const char *path;
    char folder[PATH_MAX];
};

/* ---- words ---- */

static bool audit_take_since(const char *text, uint64_t *out)
{
    struct tm date = {.tm_isdst = -1};
    char *end;
    const char *after = strptime(text, "%Y-%m-%d", &date);
    if (after && !*after) {
        const time_t seconds = mktime(&date);
        *out = seconds > 0 ? (uint64_t)seconds * 1000 : 0;
        return true;
    }
    const unsigned long long n = strtoull(text, &end, 10);
    const uint64_t unit_s = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : 86400;
    if (end == text || !*end || end[1] || !strchr("smhd", *end) || text[0] == '-' || n > 100000000)
        return false;
    const uint64_t now_ms = (uint64_t)time(NULL) * 1000;
    const uint64_t ago_ms = n * unit_s * 1000;
    *out = now_ms > ago_ms ? now_ms - ago_ms : 0;
    return true;
}

static bool cmd_audit_parse(int argc, char **argv, struct audit_args *args)
{
    static const struct option options[] = {
        {"follow", no_argument, NULL, 'f'},     {"since", required_argument, NULL, 's'},
        {"json", no_argument, NULL, 'j'},       {"verify", no_argument, NULL, 'v'},
        {"keep", required_argument, NULL, 'k'}, {0}};
    const struct command *command = &command_audit;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "f", options, NULL)) != -1;) {
        if (option == 'f')
            args->follow = true;
        else if (option == 'j')
            args->json = true;
        else if (option == 'v')
            args->verify = true;
        else if (option == 'k') {
            if (!option_u32(command, "--keep", optarg, 1, LIMIT_AUDIT_DAYS_MAX, &args->keep_days))
                return false;
        } else if (option != 's') {
            return option_unknown(command, argv);
        } else if (!audit_take_since(optarg, &args->since_ms)) {
            command_misused(command, "--since takes 30m, 2h, 7d or 2026-11-22, not '%s'", optarg);
            return false;
        }
    }
    if (optind < argc)
        args->path = argv[optind++];
    if (optind < argc) {
        command_misused(command, "one record at a time, please: what is '%s'?", argv[optind]);
        return false;
    }
    if (args->follow && (args->path || args->verify)) {
        command_misused(command, "--follow is for this machine's record as it grows");
        return false;
    }
    return true;
}

/* ---- what the node knows of it ---- */

/* NULL: no node runs here, and the record speaks for itself. */
static yyjson_doc *audit_ask(void)
{
    struct error err;
    yyjson_doc *doc = NULL;
    return daemon_ask(daemon_question("audit"), true, &doc, &err) ? NULL : doc;
}

static bool audit_agreed(yyjson_doc *doc, struct audit_end *out)
{
    yyjson_val *root = doc ? yyjson_doc_get_root(doc) : NULL;
    const char *hash = yyjson_get_str(yyjson_obj_get(root, "hash"));
    out->number = yyjson_get_uint(yyjson_obj_get(root, "number"));
    return out->number && hash && digest_parse(hash, &out->hash);
}

/* ---- printing ---- */

struct audit_print {
    const struct audit_args *args;
    yyjson_doc *names;
    uint64_t last; /* printed, or passed over */
    bool has_head;
    uint64_t head_last; /* an export ends there */
};

static void audit_print_raw(const char *line, size_t size)
{
    fwrite(line, 1, size, stdout);
    putchar('\n');
}

static bool audit_print_seal(struct audit_print *print, const struct audit_seal *seal,
                             const char *line, size_t size)
{
    const bool is_head = seal->type == SEAL_HEAD;
    if (is_head && print->has_head)
        return true; /* that of a later look */
    if (is_head) {
        print->has_head = true;
        print->head_last = seal->last;
    } else if (seal->last <= print->last) {
        return true;
    }
    if (print->args->json && !print->args->since_ms)
        audit_print_raw(line, size);
    else if (!print->args->json && (!is_head || seal->first > 1))
        printf("--  entries %" PRIu64 " to %" PRIu64 " are not on this machine\n",
               is_head ? (uint64_t)1 : seal->first, is_head ? seal->first - 1 : seal->last);
    if (!is_head)
        print->last = seal->last;
    return true;
}

static bool audit_print_line(void *arg, const char *line, size_t size)
{
    struct audit_print *print = arg;
    struct audit_entry entry;
    struct audit_seal seal;
    if (ferror(stdout))
        return false;
    if (audit_read_seal(line, size, &seal))
        return audit_print_seal(print, &seal, line, size);
    if (!audit_read_entry(line, size, &entry)) {
        fprintf(stderr,
                "medley audit: a line that is no entry; `medley audit --verify` says more\n");
        return true;
    }
    if (entry.number <= print->last)
        return true;
    if (print->args->json && !print->args->follow && print->has_head &&
        entry.number > print->head_last)
        return false; /* came while this was read: the head does not speak of it */
    print->last = entry.number;
    if (entry.time_ms < print->args->since_ms)
        return true;
    if (print->args->json)
        audit_print_raw(line, size);
    else
        audit_show_entry(&entry, print->names);
    return true;
}

static enum error_code audit_print_all(const struct audit_args *args, struct error *err)
{
    struct audit_print print = {.args = args, .names = audit_ask()};
    enum error_code code;
    do {
        code = record_read(args->path, print.last, true, audit_print_line, &print, err);
        fflush(stdout);
        if (args->follow && !code)
            usleep(FOLLOW_PAUSE_US);
    } while (args->follow && !code && !ferror(stdout));
    yyjson_doc_free(print.names);
    return code;
}

/* ---- checking ---- */

static void audit_print_finding(void *arg, const struct audit_finding *finding)
{
    (void)arg;
    printf("%s\n", finding->text);
}

static bool audit_check_one(void *check, const char *line, size_t size)
{
    audit_check_line(check, line, size);
    return true;
}

static void audit_print_report(const struct audit_report *report, yyjson_doc *names, bool agreed)
{
    struct buffer signer = {0};
    char id[NODE_ID_TEXT] = "";
    if (report->has_head) {
        seal_signer(&report->head, id);
        audit_show_name(&signer, id, names);
    }
    printf("%" PRIu64 " entries, %" PRIu64 " to %" PRIu64 ", %" PRIu64 " signed by leaders",
           report->n_entries, report->first, report->last, report->n_signed);
    if (report->has_head)
        printf("; kept and signed by %s (%s)", signer.data ? signer.data : "?", id);
    printf("\n");
    if (report->has_head && report->head.first > 1)
        printf("it begins with entry %" PRIu64 ": this machine came later, or has kept them long "
               "enough\n",
               report->head.first);
    if (!report->n_findings)
        printf("nothing was changed, left out, moved, put in or cut off%s\n",
               agreed ? "; it ends as the cluster has agreed" : "");
    else
        printf("%" PRIu64 " things are wrong\n", report->n_findings);
    buffer_deinit(&signer);
}

/* Entries that the cluster has agreed on a moment ago are still on their way to the disk. */
static bool audit_has_reached(void *arg, const char *line, size_t size)
{
    struct audit_entry entry;
    struct audit_end *wanted = arg;
    if (audit_read_entry(line, size, &entry) && entry.number >= wanted->number)
        wanted->number = 0;
    return wanted->number != 0;
}

static void audit_await(const char *path, const struct audit_end *agreed)
{
    struct error err;
    for (int waited = 0; waited < WRITE_WAIT_MS; waited += 100) {
        struct audit_end wanted = *agreed;
        if (record_read(path, agreed->number, true, audit_has_reached, &wanted, &err) ||
            !wanted.number)
            return;
        usleep(100 * 1000);
    }
}

static enum error_code audit_verify(const struct audit_args *args, bool own, bool *good,
                                    struct error *err)
{
    struct audit_check *check = NULL;
    struct audit_end end;
    yyjson_doc *names = audit_ask();
    const bool agreed = own && audit_agreed(names, &end);
    if (agreed)
        audit_await(args->path, &end);
    enum error_code code = audit_check_new(own, audit_print_finding, NULL, &check, err);
    if (!code)
        code = record_read(args->path, 0, own, audit_check_one, check, err);
    if (!code) {
        const struct audit_report report = audit_check_end(check, agreed ? &end : NULL);
        audit_print_report(&report, names, agreed);
        *good = !report.n_findings;
    }
    audit_check_free(check);
    yyjson_doc_free(names);
    return code;
}

/* ---- all ---- */

static int audit_keep(const struct audit_args *args)
{
    static const struct ask_done done = {
        .key = "keep_days", .before = "entries are kept for ", .after = " days"};
    yyjson_mut_doc *question = daemon_question("audit");
    daemon_question_count(question, "keep_days", args->keep_days);
    return ask_do(&command_audit, question, args->json, &done);
}

static int cmd_audit_run(int argc, char **argv)
{
    struct audit_args args = {0};
    struct error err;
    bool good = true;
    enum error_code code = ERROR_NONE;
    if (!cmd_audit_parse(argc, argv, &args))
        return EXIT_USAGE;
    if (args.keep_days)
        return audit_keep(&args);
    const bool own = !args.path;
    if (own && !state_folder_file("audit", args.folder, sizeof args.folder))
        code = error_set(&err, ERROR_NOT_FOUND,
                         "this machine keeps no state (MEDLEY_STATE_DIR is empty), so no record");
    if (own)
        args.path = args.folder;
    if (!code)
        code = args.verify ? audit_verify(&args, own, &good, &err) : audit_print_all(&args, &err);
    return code ? command_fail(&command_audit, &err) : good ? EXIT_OK : EXIT_FAILED;
}

const struct command command_audit = {
    .name = "audit",
    .summary = "print who did what in the cluster, and check that nothing of it was changed",
    .usage = usage,
    .run = cmd_audit_run,
};
