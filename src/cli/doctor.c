/* medley doctor: what is wrong with this machine, and how to mend it. */
#include "base/mem.h"
#include "base/state_folder.h"
#include "base/this_process.h"
#include "base/version.h"
#include "cli/commands.h"
#include "cli/doctor_hardware.h"
#include "cli/doctor_look.h"
#include "cli/notice.h"
#include "cli/options.h"
#include "doctor/facts.h"
#include "gpu/plugins.h"
#include "node/daemon.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

static const char usage[] =
    "Usage: medley doctor [--json] [--all] [--fix]\n"
    "       medley doctor --hardware [--seconds N] [--report FILE]\n"
    "\n"
    "Looks at this machine: GPU drivers and permissions, ggml's plugins, "
    "clock, disk, what\n"
    "would suspend the machine, port, multicast, firewall, Ollama's "
    "models, and, where a node runs,\n"
    "its peers and alerts. Each thing that is wrong comes with its mend. The exit "
    "status is 1 if a\n"
    "problem was found.\n"
    "\n";

struct doctor_flags {
    bool json, all, fix, hardware;
    uint32_t seconds;
    const char *report;
};

static const struct option_row rows[] = {
    {.name = "json",
     .help = "for programs: all findings, also what is in order",
     OPTION_TRUE(struct doctor_flags, json)},
    {.name = "all", .help = "also what is in order", OPTION_TRUE(struct doctor_flags, all)},
    {.name = "fix",
     .help = "mend what is safe and can be undone, which is said before: a state folder\n"
             "that others can write into. Nothing is changed without it",
     OPTION_TRUE(struct doctor_flags, fix)},
    {.name = "hardware",
     .help = "compare every device with the CPU in all operations that the engine uses,\n"
             "measure it, and watch its sensors under load: a report (JSON) to send with an\n"
             "issue, without names of machines or users, addresses or serial numbers",
     OPTION_TRUE(struct doctor_flags, hardware)},
    {.name = "seconds",
     .value = "N",
     .standard = "60",
     .help = "of load for each device (default %s)",
     OPTION_U32(struct doctor_flags, seconds, 1, 3600)},
    {.name = "report",
     .value = "FILE",
     .help = "where the report goes, a new file (default: what is printed)",
     OPTION_TEXT(struct doctor_flags, report)},
};
static const struct option_section sections[] = {{OPTION_ROWS(rows), .column = 19}, {0}};

/* ---- printing ------------------------------------------------------------------------------ */

static void doctor_print(const struct findings *findings, bool all)
{
    static const char *const marks[] = {"fine    ", "hint    ", "PROBLEM "};
    for (int level = FINDING_PROBLEM; level >= (all ? FINDING_FINE : FINDING_HINT); level--) {
        for (uint32_t i = 0; i < findings->n; i++) {
            const struct finding *finding = &findings->list[i];
            if ((int)finding->level != level)
                continue;
            printf("%s %-9s %s\n", marks[level], finding->area, finding->text);
            if (finding->mend[0])
                printf("%20s mend: %s\n", "", finding->mend);
        }
    }
    const uint32_t n_problems = findings_count(findings, FINDING_PROBLEM);
    const uint32_t n_hints = findings_count(findings, FINDING_HINT);
    printf("%s%u problem%s, %u hint%s, %u in order%s\n", findings->n ? "\n" : "", n_problems,
           n_problems == 1 ? "" : "s", n_hints, n_hints == 1 ? "" : "s",
           findings_count(findings, FINDING_FINE),
           findings->overflows ? "; there was more to say than there is room for" : "");
}

static bool doctor_print_json(const struct findings *findings)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_str(doc, root, "medley", MEDLEY_VERSION);
    yyjson_mut_obj_add_uint(doc, root, "problems", findings_count(findings, FINDING_PROBLEM));
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "findings");
    for (uint32_t i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->list[i];
        yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_str(doc, object, "area", finding->area);
        yyjson_mut_obj_add_str(doc, object, "level", finding_level_name(finding->level));
        yyjson_mut_obj_add_str(doc, object, "text", finding->text);
        if (finding->mend[0])
            yyjson_mut_obj_add_str(doc, object, "mend", finding->mend);
        else
            yyjson_mut_obj_add_null(doc, object, "mend");
    }
    char *text =
        yyjson_mut_write(doc, YYJSON_WRITE_PRETTY | YYJSON_WRITE_ALLOW_INVALID_UNICODE, NULL);
    if (text)
        puts(text);
    free(text);
    yyjson_mut_doc_free(doc);
    return text != NULL;
}

/* ---- looking ------------------------------------------------------------------------------- */

/* Devices are verified as `medley devices` does it, and remembered where that does. */
static void doctor_open_devices(const struct machine_facts *facts, struct findings *findings)
{
    char registry[PATH_MAX];
    gpu_registry_path(registry, sizeof registry);
    const struct gpu_options wanted = {.registry = registry, .prober = this_program()};
    struct gpu *gpu;
    struct error err;
    struct notice notice;
    notice_begin(&notice, "looking at the devices …");
    const enum error_code code = gpu_open(&wanted, &gpu, &err);
    notice_end(&notice);
    if (code) {
        findings_add(findings, FINDING_PROBLEM, "devices", "sudo apt install libggml0",
                     "not even the CPU computes: %s", err.text);
        return;
    }
    findings_add(findings, FINDING_FINE, "versions", NULL, "medley %s, ggml's plugins in %s",
                 MEDLEY_VERSION, plugins_folder()[0] ? plugins_folder() : "no folder");
    doctor_look_at_devices(gpu, facts->n_nvidia + facts->n_amd + facts->n_intel, findings);
    gpu_close(gpu);
}

/* The one place where something is changed. */
static bool doctor_mend(struct machine_facts *facts, const struct facts_wanted *wanted)
{
    char said[PATH_MAX + 64];
    if (!facts_fixable(facts, said, sizeof said)) {
        fprintf(stderr, "medley doctor: nothing to mend that is safe to\n");
        return true;
    }
    fprintf(stderr, "medley doctor: %s\n", said);
    const int failure = facts_fix(facts);
    if (failure)
        fprintf(stderr, "medley doctor: that failed: %s\n", strerror(failure));
    facts_read(wanted, facts);
    return failure == 0;
}

static int cmd_doctor_run(int argc, char **argv)
{
    struct doctor_flags flags = {0};
    if (!options_parse(&command_doctor, argc, argv, &flags))
        return EXIT_USAGE;
    if (optind < argc)
        return command_misused(&command_doctor, "unexpected argument '%s'", argv[optind]);
    if (flags.hardware)
        return doctor_hardware_run(&command_doctor, flags.seconds, flags.report);
    struct findings *findings = mem_new(sizeof *findings);
    struct machine_facts *facts = mem_new(sizeof *facts);
    struct error err;
    int status = EXIT_FAILED;
    if (!findings || !facts) {
        error_set(&err, ERROR_NO_MEMORY, "out of memory");
        command_fail(&command_doctor, &err);
        goto done;
    }
    char state[PATH_MAX];
    state_folder(state, sizeof state);
    const bool node_runs = doctor_look_at_cluster(findings);
    const struct facts_wanted wanted = {
        .state = state, .port = DAEMON_PORT, .node_runs = node_runs};
    facts_read(&wanted, facts);
    const bool mended = !flags.fix || doctor_mend(facts, &wanted);
    facts_judge(facts, findings);
    doctor_look_at_host_driver(getenv("MEDLEY_HOST_DRIVER"), findings);
    doctor_look_at_models(findings);
    doctor_open_devices(facts, findings);
    bool printed = true;
    if (flags.json)
        printed = doctor_print_json(findings);
    else
        doctor_print(findings, flags.all);
    if (fflush(stdout) != 0 || !printed)
        fprintf(stderr, "medley doctor: cannot write what was found\n");
    else if (mended && findings_count(findings, FINDING_PROBLEM) == 0)
        status = EXIT_OK;
done:
    mem_free(findings);
    mem_free(facts);
    return status;
}

const struct command command_doctor = {
    .name = "doctor",
    .summary = "what is wrong with this machine, and how to mend it",
    .usage = usage,
    .options = sections,
    .run = cmd_doctor_run,
};
