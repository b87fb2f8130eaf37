#include "gpu/vetting.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/probe.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now_unix_s(void)
{
    time_t now = time(NULL);
    return now > 0 ? (uint64_t)now : 0;
}

static void vetting_note(struct vet *vet, enum registry_result result, const char *reason)
{
    vet->change.result = result;
    vet->change.verified_unix_s = now_unix_s();
    snprintf(vet->change.reason, sizeof vet->change.reason, "%s", reason);
    for (char *at = vet->change.reason; *at;
         at++) { /* drivers say anything; a file of ours is plain text */
        if (*at < ' ' || *at > '~')
            *at = '?';
    }
}

/* What the registry keeps as the reason of a backend that passed and listed no device. */
static const char no_device[] = "lists no device";

/* ---- what is remembered ---------------------------------------------------------------- */

static void refuse_remembered(struct vet *vet, const struct registry_entry *entry)
{
    char day[16] = "?";
    time_t when = (time_t)entry->verified_unix_s;
    struct tm utc;
    if (gmtime_r(&when, &utc))
        strftime(day, sizeof day, "%Y-%m-%d", &utc);
    vet->verdict = VET_REFUSED;
    snprintf(vet->reason, sizeof vet->reason,
             "%.150s (on %s, and not tried since: `medley devices --verify` does)", entry->reason,
             day);
}

static bool vetting_is_cpu(const struct vet *vet)
{
    return strcmp(vet->info.backend, "cpu") == 0;
}

/* True when a verification is needed. */
static bool vetting_consult(struct vet *vet, const struct registry *registry, bool verify)
{
    const struct registry_entry *entry = registry_find(registry, &vet->change.key);
    if (!entry)
        return true;
    vet->calibrated = entry->calibrated;
    vet->calibration = entry->calibration;
    if (verify || entry->result == REGISTRY_UNKNOWN || entry->result == REGISTRY_FAILED)
        return true;
    if (entry->result != REGISTRY_PASSED &&
        vetting_is_cpu(vet)) /* nothing works without it: it is always tried */
        return true;
    if (entry->result != REGISTRY_PASSED) {
        refuse_remembered(vet, entry);
        return false;
    }
    if (!registry_is_fresh(entry, now_unix_s()))
        return true;
    vet->verdict = VET_QUICK;
    vet->lists_none = strcmp(entry->reason, no_device) == 0;
    vet->verification = (struct device_verification){VERIFIED_BY_REGISTRY, entry->verified_unix_s};
    return false;
}

/* ---- what children say ----------------------------------------------------------------- */

static void vetting_take_answer(struct vet *vet, const struct probe *probe)
{
    static const enum registry_result results[] = {
        [PROBE_NOT_RUN] = REGISTRY_UNKNOWN, [PROBE_PASSED] = REGISTRY_PASSED,
        [PROBE_FAILED] = REGISTRY_FAILED,   [PROBE_CRASHED] = REGISTRY_CRASHED,
        [PROBE_HUNG] = REGISTRY_HUNG,
    };
    log_line(LOG_DEBUG, "gpu", "device %s: child after %u ms: %s", vet->info.id,
             (unsigned)probe->took_ms, probe->reason[0] ? probe->reason : "passed");
    if (probe->result == PROBE_NOT_RUN) {
        log_line(LOG_INFO, "gpu", "device %s: no child to verify it in (%s), so in this process",
                 vet->info.id, probe->reason);
        return;
    }
    vetting_note(vet, results[probe->result], probe->reason);
    if (probe->result == PROBE_PASSED) {
        vet->verdict = VET_QUICK;
        vet->verification = (struct device_verification){VERIFIED_IN_CHILD, now_unix_s()};
    } else {
        vet->verdict = VET_REFUSED;
        memcpy(vet->reason, probe->reason, sizeof vet->reason);
    }
}

static void ask_children(struct vet *const *asked, uint32_t count,
                         const struct gpu_options *options)
{
    if (count == 0)
        return;
    struct probe *probes = mem_new_array(count, sizeof *probes);
    if (!probes)
        return; /* in this process, then */
    for (uint32_t i = 0; i < count; i++) {
        probes[i].backend = asked[i]->info.backend;
        probes[i].index = asked[i]->index;
        probes[i].name = asked[i]->info.name;
    }
    const struct probe_options how = {
        .program = options->prober,
        .limit_ms = options->verify_limit_ms ? options->verify_limit_ms : LIMIT_VERIFY_MS,
        .is_free = options->prober_is_free || getenv("MEDLEY_NO_SANDBOX")};
    probe_run(probes, count, &how);
    for (uint32_t i = 0; i < count; i++)
        vetting_take_answer(asked[i], &probes[i]);
    mem_free(probes);
}

/* ---- all of them ----------------------------------------------------------------------- */

void vet_devices(struct vet *vets, uint32_t count, const struct registry *known,
                 const struct gpu_options *options)
{
    assert(count <= LIMIT_DEVICES);
    struct vet *asked[LIMIT_DEVICES];
    uint32_t n_asked = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct vet *vet = &vets[i];
        vet->verdict = VET_FULL;
        vet->change.key = registry_key_of(&vet->info, vet->index, options->n_cpu_threads);
        /* the CPU's backend computes in this process in any case */
        if (vetting_consult(vet, known, options->verify) && options->prober && !vetting_is_cpu(vet))
            asked[n_asked++] = vet;
    }
    ask_children(asked, n_asked, options);
}

void vet_outcome(struct vet *vet, const char *reason, bool hung)
{
    if (reason) {
        vetting_note(vet, hung ? REGISTRY_HUNG : REGISTRY_FAILED, reason);
    } else if (vet->verdict == VET_FULL) {
        vet->verification = (struct device_verification){VERIFIED_IN_PROCESS, now_unix_s()};
        vetting_note(vet, REGISTRY_PASSED, "");
    }
}

enum error_code vet_remember(const struct vet *vets, uint32_t count,
                             const struct gpu_options *options, struct error *err)
{
    if (!options->registry || !options->registry[0] || options->registry_is_others)
        return ERROR_NONE;
    struct registry_entry *changes = mem_new_array(count ? count : 1, sizeof *changes);
    if (!changes)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (vets[i].change.result != REGISTRY_UNKNOWN)
            changes[n++] = vets[i].change;
    }
    enum error_code code = n ? registry_update(options->registry, changes, n, err) : ERROR_NONE;
    mem_free(changes);
    return code;
}

void vet_note_list(const struct backend *backend, bool lists_none, const struct registry *known,
                   const struct gpu_options *options)
{
    struct vet vet = {0};
    struct error err; /* the next start asks again */
    snprintf(vet.info.backend, sizeof vet.info.backend, "%s", backend->name);
    vet.change.key = registry_key_of(&vet.info, 0, options->n_cpu_threads);
    const struct registry_entry *entry = registry_find(known, &vet.change.key);
    if (!entry || entry->result != REGISTRY_PASSED ||
        lists_none == (strcmp(entry->reason, no_device) == 0))
        return;
    vetting_note(&vet, REGISTRY_PASSED, lists_none ? no_device : "");
    vet.change.verified_unix_s = entry->verified_unix_s; /* it was not vetted now */
    vet_remember(&vet, 1, options, &err);
}
