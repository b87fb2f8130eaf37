#include "cli/doctor_look.h"

#include "base/large_pages.h"
#include "base/version.h"
#include "cli/answer.h"
#include "cli/daemon.h"
#include "doctor/dial_mend.h"
#include "doctor/pages_judge.h"
#include "library/defaults.h"
#include "library/library.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- devices ------------------------------------------------------------------------------- */

/* "what is wrong; mend: how" in two. */
static void doctor_split(struct findings *findings, enum finding_level level, const char *area,
                         const char *name, const char *words)
{
    const char *mend = strstr(words, "; mend");
    const char *colon = mend ? strchr(mend, ':') : NULL;
    const int length = mend ? (int)(mend - words) : (int)strlen(words);
    findings_add(findings, level, area, colon ? colon + 2 : NULL, "%s%.*s", name, length, words);
}

/* "what is wrong; what mends it" in two. */
static void doctor_look_at_driver(const struct device_info *info, struct findings *findings)
{
    const char *mend = strstr(info->driver_fault, "; ");
    if (info->driver_fault[0])
        findings_add(findings, FINDING_HINT, "drivers", mend ? mend + 2 : NULL,
                     "%s: its driver %.*s", info->id,
                     mend ? (int)(mend - info->driver_fault) : (int)strlen(info->driver_fault),
                     info->driver_fault);
}

static bool doctor_is_for_cards(const char *backend)
{
    return strcmp(backend, "cuda") == 0 || strcmp(backend, "hip") == 0 ||
           strcmp(backend, "vulkan") == 0;
}

void doctor_look_at_devices(const struct gpu *gpu, uint32_t n_cards, struct findings *findings)
{
    char name[sizeof((struct backend_status *)0)->name + 2];
    bool has_gpu = false;
    for (uint32_t i = 0; i < gpu_device_count(gpu); i++) {
        const struct device_info *info = device_info(gpu_device(gpu, i));
        has_gpu = has_gpu || info->kind != DEVICE_CPU;
        findings_add(findings, FINDING_FINE, "devices", NULL, "%s: %s, verified%s%s", info->id,
                     info->name, info->driver[0] ? ", driver " : "", info->driver);
        doctor_look_at_driver(info, findings);
        if (!device_calibration(gpu_device(gpu, i)))
            findings_add(findings, FINDING_HINT, "devices",
                         "medley devices --calibrate (a node does it by itself when it is idle)",
                         "%s: not measured yet, so plans guess its speed", info->id);
    }
    for (uint32_t i = 0; i < gpu_rejected_count(gpu); i++) {
        const struct device_rejected *rejected = gpu_rejected(gpu, i);
        const bool is_twin = strncmp(rejected->reason, "the same GPU", 12) == 0;
        findings_add(findings, is_twin ? FINDING_FINE : FINDING_PROBLEM, "devices",
                     is_twin ? NULL : "medley devices --verify, after its driver was mended",
                     "%s: not used: %s", rejected->info.id, rejected->reason);
    }
    for (uint32_t i = 0; i < gpu_backend_count(gpu); i++) {
        const struct backend_status *backend = gpu_backend(gpu, i);
        snprintf(name, sizeof name, "%s: ", backend->name);
        if (!backend->available && doctor_is_for_cards(backend->name) && n_cards)
            doctor_split(findings, has_gpu ? FINDING_HINT : FINDING_PROBLEM, "backends", name,
                         backend->reason);
    }
    if (gpu_registry_problem(gpu)[0])
        findings_add(findings, FINDING_HINT, "devices", NULL,
                     "what was found out is not remembered: %s", gpu_registry_problem(gpu));
}

void doctor_look_at_host_driver(const char *lines, struct findings *findings)
{
    char line[400];
    while (lines && *lines) {
        const size_t length = strcspn(lines, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, lines);
        doctor_split(findings, strstr(line, "; mend") ? FINDING_PROBLEM : FINDING_FINE, "drivers",
                     "", line);
        lines += length + (lines[length] == '\n');
    }
}

/* ---- the cluster --------------------------------------------------------------------------- */

static void doctor_take_node(struct answer *answer, yyjson_val *node, struct findings *findings)
{
    const char *name = answer_text(answer, node, "name");
    const char *state = answer_text(answer, node, "state");
    const char *problem = answer_text_if(answer, node, "problem");
    uint64_t heard_ms;
    if (strcmp(state, "waiting") == 0) {
        findings_add(findings, FINDING_HINT, "peers", "medley admit NODE, or medley remove NODE",
                     "%s waits to be let in", name);
    } else if (strcmp(state, "up") != 0) {
        const char *address = answer_text_if(answer, node, "dial_address");
        const char *why = answer_text_if(answer, node, "dial_problem");
        const char *mend = doctor_dial_mend(why);
        if (answer_count_if(answer, node, "heard_ms", &heard_ms))
            findings_add(findings, FINDING_PROBLEM, "peers", mend,
                         "%s is %s, last heard %.0f s ago%s%s%s%s", name, state,
                         (double)heard_ms * 1e-3, why ? "; dialling " : "",
                         why && address ? address : "", why ? ": " : "", why ? why : "");
        else
            findings_add(findings, FINDING_PROBLEM, "peers", mend, "%s is %s%s%s%s%s", name, state,
                         why ? "; dialling " : "", why && address ? address : "", why ? ": " : "",
                         why ? why : "");
    } else {
        findings_add(findings, FINDING_FINE, "peers", NULL, "%s is up", name);
    }
    if (problem)
        findings_add(findings, FINDING_PROBLEM, "peers", NULL, "%s: %s", name, problem);
    const char *version = answer_text_if(answer, node, "version");
    if (version && strcmp(version, MEDLEY_VERSION) != 0)
        findings_add(findings, FINDING_HINT, "versions", "the same version on every machine",
                     "%s runs medley %s, this command is %s", name, version, MEDLEY_VERSION);
}

static void doctor_take_alert(struct answer *answer, yyjson_val *alert, struct findings *findings)
{
    findings_add(findings, FINDING_PROBLEM, "alerts", answer_text_if(answer, alert, "mend"), "%s",
                 answer_text(answer, alert, "text"));
}

/* Asks for a list, and looks at each of it. False: the node did not answer. */
static bool doctor_ask(const char *what,
                       void (*take)(struct answer *answer, yyjson_val *item,
                                    struct findings *findings),
                       struct findings *findings, struct error *err)
{
    yyjson_doc *doc;
    struct answer answer = {0};
    yyjson_val *item;
    size_t i, n;
    enum error_code code = daemon_ask(daemon_question(what), true, &doc, err);
    if (code)
        return false;
    yyjson_arr_foreach(answer_list(&answer, yyjson_doc_get_root(doc), what), i, n, item)
        take(&answer, item, findings);
    code = answer_failed(&answer, err);
    yyjson_doc_free(doc);
    return code == ERROR_NONE;
}

bool doctor_look_at_cluster(struct findings *findings)
{
    struct error err;
    if (!doctor_ask("nodes", doctor_take_node, findings, &err)) {
        if (err.code == ERROR_NOT_FOUND)
            findings_add(findings, FINDING_HINT, "node", "medley up",
                         "no node runs here, so peers were not looked at");
        else
            findings_add(findings, FINDING_PROBLEM, "node", "MEDLEY_LOG=debug medley up says more",
                         "this machine's node does not answer: %.200s", err.text);
        return err.code != ERROR_NOT_FOUND;
    }
    if (!doctor_ask("alerts", doctor_take_alert, findings, &err))
        findings_add(findings, FINDING_HINT, "alerts", NULL, "not read: %.200s", err.text);
    return true;
}

/* ---- models -------------------------------------------------------------------------------- */

enum {
    DEFAULTS_LOOKED_AT = 24, /* models: each may look through all of Ollama's manifests */
    PAGES_LOOKED_AT = 24,    /* models: each a millisecond */
};

static void doctor_look_at_pages(const struct library_model *model, struct findings *findings)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(model->path, '/');
    const int fd = slash ? open(model->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - model->path) + 1, model->path);
    const struct large_pages_seen seen = large_pages_look(fd);
    const struct model_pages pages = {.name = model->name,
                                      .path = model->path,
                                      .n_places = seen.n_places,
                                      .n_large = seen.n_large,
                                      .can_be_large = large_pages_possible(folder)};
    pages_judge(&pages, findings);
    close(fd);
}

static void doctor_look_at_defaults(const struct library_model *model, struct findings *findings)
{
    struct library_defaults defaults = {0};
    struct buffer said = {0};
    struct error err;
    if (library_defaults_read(model->path, &defaults, &err) == ERROR_NONE)
        library_defaults_say(defaults.json.data, &said);
    if (said.size && !said.failed)
        findings_add(findings, FINDING_FINE, "models", NULL,
                     "%s: requests that do not say otherwise begin with %.160s", model->name,
                     said.data);
    if (defaults.unused[0])
        findings_add(findings, FINDING_HINT, "models",
                     "say with each request what you need, or give Ollama's model no such ones",
                     "%s: of its parameters these are not used: %s", model->name, defaults.unused);
    buffer_deinit(&said);
    library_defaults_deinit(&defaults);
}

void doctor_look_at_models(struct findings *findings)
{
    const struct library_options options = {0};
    struct library library = {0};
    struct error err;
    uint32_t n = 0, n_pages = 0;
    if (library_find(&options, &library, &err))
        findings_add(findings, FINDING_HINT, "models", NULL, "not looked at: %.200s", err.text);
    for (uint32_t i = 0; i < library.n && n < DEFAULTS_LOOKED_AT; i++) {
        const struct library_model *model = &library.models[i];
        if (model->state == LIBRARY_WHOLE && n_pages++ < PAGES_LOOKED_AT)
            doctor_look_at_pages(model, findings);
        if (model->state != LIBRARY_WHOLE ||
            (model->place != LIBRARY_OLLAMA && model->place != LIBRARY_PULLED))
            continue;
        doctor_look_at_defaults(model, findings);
        n++;
    }
    library_deinit(&library);
}
