/* What a model would do on the cluster's machines, before anything is loaded: the document of
 * `medley plan --json`, for the demand that `place` would make, with machines left out, a second
 * device of a kind, or the very layers that somebody drags about.
 *
 * The problem is made here, on the loop; the search runs on libuv's pool, two at a time, and ends
 * with its deadline, or when nobody waits for it any more. */
#include "node/control.h"

#include "base/clock.h"
#include "base/mem.h"
#include "hosting/part_options.h"
#include "library/defaults.h"
#include "model/model.h"
#include "model/model_precision.h"
#include "node/catalogue.h"
#include "node/lead.h"
#include "node/wish.h"
#include "placing/placing.h"
#include "plan/plan_devices.h"
#include "report/report.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PLANS_RUNNING_MAX = 2, /* of the pool's four threads; disks and vocabularies need some, too */
    PLANS_MAX = 16,        /* running, or waiting for their turn */
    PLANS_OF_ONE_MAX = 4,  /* who asks */
    PLAN_STREAMS = 4,      /* as `place` has it */
};

/* Of the search, and as much again for all other questions: 2 s together. */
static const double plan_limit_s = 0.9, plan_given_limit_s = 0.1;

struct plan_job {
    uv_work_t work; /* first */
    struct plan_job *next;
    struct daemon *daemon;
    struct conversation *conversation; /* NULL: nobody waits for it */
    char actor[AUDIT_WHO_TEXT];
    bool is_running;
    atomic_bool is_cancelled;
    /* the problem: the job's own */
    struct cluster cluster;
    struct plan_model cost;
    struct report_ask ask;
    char model_name[LIMIT_CLUSTER_TEXT_BYTES + 1];
    char without[REPORT_WITHOUT_MAX][CLUSTER_NODE_MAX];
    struct placement given; /* n_stages 0: the best is searched */
    bool stands_by;
    /* the answer */
    enum error_code code;
    struct error err;
    yyjson_mut_doc *doc;
};

static void plan_job_free(struct plan_job *job)
{
    struct plan_job **at = &job->daemon->plans;
    while (*at && *at != job)
        at = &(*at)->next;
    if (*at)
        *at = job->next;
    yyjson_mut_doc_free(job->doc);
    plan_model_deinit(&job->cost);
    cluster_deinit(&job->cluster);
    mem_free(job);
}

/* ---- the search, on any thread --------------------------------------------------------------- */

static double plan_job_now_s(void *self)
{
    const struct plan_job *job = self;
    return atomic_load(&job->is_cancelled) ? INFINITY : (double)clock_now_ns() * 1e-9;
}

/* Without the devices that stand by first, as a placement would. */
static enum error_code plan_job_report(struct plan_job *job, struct report *out, struct error *err)
{
    enum error_code code = report_init(out, &job->ask, err);
    if (code || out->outcome != ERROR_NOT_FOUND || !job->stands_by)
        return code;
    plan_devices_call_in(&job->cluster);
    report_deinit(out);
    return report_init(out, &job->ask, err);
}

/* Of the search for layers from disks: as long as that for a placement. */
struct plan_stream_time {
    const struct plan_job *job;
    double until_s;
};

static bool plan_stream_goes_on(void *self)
{
    const struct plan_stream_time *time = self;
    return !atomic_load(&time->job->is_cancelled) && (double)clock_now_ns() * 1e-9 < time->until_s;
}

/* What is placed all the same: how fast that is, in words and as a figure. */
static void plan_put_stream(const struct plan_job *job, const struct report *report,
                            yyjson_mut_doc *doc, yyjson_mut_val *root)
{
    const struct placement_problem *problem = &report->cluster_problem.problem;
    struct plan_stream_placement stream;
    struct buffer text = {0};
    struct plan_stream_time time = {job, (double)clock_now_ns() * 1e-9 + job->ask.limit_s};
    struct placement_options options = plan_stream_options(problem);
    options.go_on = plan_stream_goes_on;
    options.self = &time;
    if (job->given.n_stages || job->cost.is_converted ||
        !placing_stream_of(&job->cluster, problem, &options, &stream))
        return;
    plan_stream_place_text(problem, &stream, &text);
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "streamed");
    yyjson_mut_obj_add_uint(doc, object, "n_layers", stream.n_streamed);
    yyjson_mut_obj_add_real(doc, object, "decode_tokens_per_s", stream.decode_tokens_per_s);
    yyjson_mut_obj_add_real(doc, object, "resident_tokens_per_s", stream.resident_tokens_per_s);
    yyjson_mut_obj_add_strcpy(doc, object, "words", text.data ? text.data : "");
    buffer_deinit(&text);
}

/* The report as one line, and whether it can be. */
static yyjson_mut_doc *plan_job_write(const struct plan_job *job, const struct report *report)
{
    struct buffer text = {0};
    report_json(report, &text);
    yyjson_doc *read = text.failed ? NULL : yyjson_read(text.data, text.size, 0);
    yyjson_mut_doc *doc = read ? yyjson_doc_mut_copy(read, NULL) : NULL;
    yyjson_mut_val *root = doc ? yyjson_mut_doc_get_root(doc) : NULL;
    yyjson_val *infeasible = yyjson_obj_get(yyjson_doc_get_root(read), "infeasible");
    const char *why = control_text(infeasible, "why");
    yyjson_mut_obj_add_bool(doc, root, "possible", !report->outcome);
    if (report->outcome == ERROR_NOT_FOUND)
        yyjson_mut_obj_add_strcpy(doc, root, "problem",
                                  why ? why : "the model does not fit on these machines");
    else if (report->outcome)
        yyjson_mut_obj_add_str(doc, root, "problem", "no placement was found in the time");
    if (report->outcome == ERROR_NOT_FOUND)
        plan_put_stream(job, report, doc, root);
    yyjson_doc_free(read);
    buffer_deinit(&text);
    return doc;
}

static void plan_job_work(uv_work_t *work)
{
    struct plan_job *job = (struct plan_job *)work;
    struct report report = {0};
    job->code = plan_job_report(job, &report, &job->err);
    if (!job->code && !atomic_load(&job->is_cancelled) &&
        !(job->doc = plan_job_write(job, &report)))
        job->code = error_set(&job->err, ERROR_NO_MEMORY, "not enough memory for the plan");
    report_deinit(&report);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void plan_begin_next(struct daemon *daemon);

static void plan_answer(struct conversation *conversation, struct plan_job *job)
{
    yyjson_mut_doc *doc = job->doc;
    job->doc = NULL;
    if (job->code && !(job->code == ERROR_INVALID && job->given.n_stages)) {
        control_fail(conversation, &job->err);
        return;
    }
    if (job->code) { /* what somebody has dragged cannot be: that is the answer */
        yyjson_mut_val *root = control_object(&doc);
        yyjson_mut_obj_add_bool(doc, root, "possible", false);
        yyjson_mut_obj_add_strcpy(doc, root, "problem", job->err.text);
    }
    control_answer(conversation, doc);
    control_end(conversation);
}

static void plan_on_worked(uv_work_t *work, int status)
{
    struct plan_job *job = (struct plan_job *)work;
    struct daemon *daemon = job->daemon;
    struct conversation *conversation = job->conversation;
    if (conversation) {
        conversation->calls = (struct conversation_calls){0};
        conversation->data = NULL;
        plan_answer(conversation, job);
    }
    plan_job_free(job);
    plan_begin_next(daemon);
}

static void plan_begin_next(struct daemon *daemon)
{
    struct plan_job *next = NULL;
    unsigned n_running = 0;
    for (struct plan_job *job = daemon->plans; job; job = job->next) {
        n_running += job->is_running;
        if (!job->is_running)
            next = job; /* the list has the newest first: the one that waits longest */
    }
    if (!next || n_running >= PLANS_RUNNING_MAX || daemon->stopping)
        return;
    next->is_running = uv_queue_work(daemon->loop, &next->work, plan_job_work, plan_on_worked) == 0;
}

static void plan_gone(struct conversation *conversation)
{
    struct plan_job *job = conversation->data;
    conversation->data = NULL;
    if (!job)
        return;
    job->conversation = NULL;
    atomic_store(&job->is_cancelled, true);
    if (!job->is_running)
        plan_job_free(job);
}

/* ---- the problem ----------------------------------------------------------------------------- */

/* What placing calls a node: its name, where another has it already with the beginning of its id
 * behind it. UINT32_MAX: it is not there. */
static uint32_t plan_find_node(const struct cluster *cluster, const Cluster__Node *node)
{
    uint32_t found = cluster_find_node(cluster, node->name);
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const char *dash = strrchr(cluster->nodes[i].name, '-');
        const size_t digits = dash ? strlen(dash + 1) : 0;
        if (digits >= 4 && strncmp(dash + 1, node->id, digits) == 0)
            return i;
    }
    return found;
}

static enum error_code plan_name_node(const struct plan_job *job, const char *name, uint32_t *out,
                                      struct error *err)
{
    const Cluster__Node *node = control_find_node(job->daemon, name, err);
    if (!node)
        return err->code;
    *out = plan_find_node(&job->cluster, node);
    return *out != UINT32_MAX ? ERROR_NONE
                              : error_set(err, ERROR_NOT_FOUND, "%s has no devices", node->name);
}

static enum error_code plan_take_without(struct plan_job *job, yyjson_val *list, struct error *err)
{
    size_t i, n;
    yyjson_val *item;
    uint32_t node;
    if (yyjson_arr_size(list) > REPORT_WITHOUT_MAX)
        return error_set(err, ERROR_INVALID, "`without` lists at most %d machines",
                         REPORT_WITHOUT_MAX);
    yyjson_arr_foreach(list, i, n, item)
    {
        enum error_code code = plan_name_node(job, yyjson_get_str(item), &node, err);
        if (code)
            return error_wrap(err, "without");
        snprintf(job->without[i], CLUSTER_NODE_MAX, "%s", job->cluster.nodes[node].name);
        job->ask.without[job->ask.n_without++] = job->without[i];
    }
    return ERROR_NONE;
}

static enum error_code plan_name_device(const struct plan_job *job, yyjson_val *item,
                                        uint32_t *node, uint32_t *device, struct error *err)
{
    const char *name = control_text(item, "device");
    enum error_code code = plan_name_node(job, control_text(item, "node"), node, err);
    if (code)
        return code;
    *device = name ? cluster_find_device(&job->cluster, *node, name) : UINT32_MAX;
    return *device != UINT32_MAX ? ERROR_NONE
                                 : error_set(err, ERROR_NOT_FOUND, "%s has no device '%.64s'",
                                             job->cluster.nodes[*node].name, name ? name : "");
}

/* Another card like one that is there. */
static enum error_code plan_add_device(struct plan_job *job, uint32_t node, uint32_t like,
                                       size_t number, struct error *err)
{
    struct cluster_device device = job->cluster.devices[like];
    struct cluster more;
    char id[CLUSTER_ID_MAX];
    snprintf(id, sizeof id, "%.20s+%zu", device.id, number + 1);
    memcpy(device.id, id, sizeof id);
    device.pci[0] = '\0';
    const enum error_code code = cluster_with_device(&job->cluster, node, &device, &more, err);
    if (code)
        return code;
    cluster_deinit(&job->cluster);
    job->cluster = more;
    return ERROR_NONE;
}

static enum error_code plan_take_with(struct plan_job *job, yyjson_val *list, struct error *err)
{
    size_t i, n;
    yyjson_val *item;
    enum error_code code = ERROR_NONE;
    if (yyjson_arr_size(list) > REPORT_EXTRAS_MAX)
        return error_set(err, ERROR_INVALID, "`with` lists at most %d devices", REPORT_EXTRAS_MAX);
    yyjson_arr_foreach(list, i, n, item)
    {
        uint32_t node, device;
        code = plan_name_device(job, item, &node, &device, err);
        if (!code)
            code = plan_add_device(job, node, device, i, err);
        if (code)
            return error_wrap(err, "with");
    }
    return code;
}

static enum error_code plan_take_layers(struct plan_job *job, yyjson_val *list, struct error *err)
{
    size_t i, n;
    yyjson_val *item;
    uint32_t layer = 0;
    if (yyjson_arr_size(list) > LIMIT_STAGES)
        return error_set(err, ERROR_INVALID, "`layers` lists at most %d stages", LIMIT_STAGES);
    yyjson_arr_foreach(list, i, n, item)
    {
        uint32_t node, device;
        const uint64_t n_layers = yyjson_get_uint(yyjson_obj_get(item, "n_layers"));
        if (plan_name_device(job, item, &node, &device, err))
            return error_wrap(err, "layers");
        if (n_layers == 0 || n_layers > LIMIT_LAYERS)
            return error_set(err, ERROR_INVALID, "layers: a stage has 1 to %d layers",
                             LIMIT_LAYERS);
        job->given.stages[job->given.n_stages++] =
            (struct placement_stage){device, layer, (uint32_t)n_layers};
        layer += (uint32_t)n_layers;
    }
    if (job->given.n_stages) {
        job->ask.given = &job->given;
        job->ask.limit_s = plan_given_limit_s;
    }
    return ERROR_NONE;
}

/* As `place` would ask for it, but for what is wished already; a context of 0: nobody gave one.
 * Parts of it are the wanted ones'. */
static void plan_make_demand(const struct place_demand *wanted, Cluster__Demand *out)
{
    wish_of(wanted, NULL, out);
    out->has_goal = out->has_context_tokens = out->has_streams = true;
    out->goal = wanted->has_goal ? wanted->goal : PLACEMENT_THROUGHPUT;
    out->streams = wanted->streams ? wanted->streams : PLAN_STREAMS;
}

static enum error_code plan_fill_model(struct plan_job *job, const struct model *model,
                                       const Cluster__Demand *demand, struct error *err)
{
    const struct driver_options given = placing_driver_options(demand, model);
    struct driver_options options;
    struct plan_compute compute;
    enum error_code code = driver_options_fill(&given, model, &options, err);
    if (code)
        return code;
    plan_compute_estimate(model, &options, &compute);
    code = plan_model_init(&job->cost, model, &options, &compute,
                           plan_devices_count_embedding(&job->cluster), err);
    if (!demand->precision_allowed)
        job->cost.is_converted = false; /* nodes keep a file of that type: weights.md */
    job->ask.demand = plan_demand(&options);
    job->ask.demand.replicas = true;
    job->ask.demand.goal = (enum placement_goal)demand->goal;
    job->ask.demand.busy = demand->goal == PLACEMENT_MIX ? 0.5 : 0;
    job->ask.demand.weights = job->ask.weights = placing_weights(demand->score_weights);
    if (demand->time_limit_s)
        job->ask.limit_s = demand->time_limit_s;
    job->ask.kv_types = plan_kv_types(model, options.kv_type);
    if (!code)
        code = model_at_precision(model, options.precision, &model, err);
    job->ask.weight_bytes = model_weight_bytes(model);
    return code;
}

/* As it runs; as `place` would choose it. */
static uint32_t plan_context(struct plan_job *job, const Cluster__Model *said,
                             const struct model *model, const Cluster__Instance *instance,
                             const Cluster__Demand *demand, bool is_by_hand)
{
    if (demand->context_tokens)
        return demand->context_tokens;
    if (instance && part_whole_streams(instance->demand) == demand->streams)
        return instance->demand->context_tokens;
    const uint32_t usual = placing_context_usual(model);
    if (demand->cells) /* one stream has no more than all share */
        return demand->cells < usual ? demand->cells : usual;
    return is_by_hand ? usual
                      : placing_context(&job->cluster, job->daemon->options.wire, model, demand,
                                        library_defaults_context(said->defaults));
}

/* What its stages take now is free for the plan of the same model. */
static enum error_code plan_job_fill(struct plan_job *job, const Cluster__Model *said,
                                     Cluster__Demand *demand, yyjson_val *request,
                                     struct error *err)
{
    struct daemon *daemon = job->daemon;
    const struct model *model = catalogue_model_here(daemon, said);
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), said->name);
    if (!model)
        return error_set(err, ERROR_BUSY, "the header of %.64s is being fetched; ask again",
                         said->name);
    enum error_code code = placing_cluster(daemon_placing_view(daemon),
                                           instance ? instance->id : NULL, &job->cluster, err);
    if (!code)
        code = plan_take_with(job, yyjson_obj_get(request, "with"), err);
    if (!code)
        code = plan_take_without(job, yyjson_obj_get(request, "without"), err);
    if (!code) {
        const bool is_by_hand = yyjson_arr_size(yyjson_obj_get(request, "layers")) > 0;
        demand->context_tokens = plan_context(job, said, model, instance, demand, is_by_hand);
        code = plan_fill_model(job, model, demand, err);
    }
    if (!code)
        code = plan_take_layers(job, yyjson_obj_get(request, "layers"), err);
    if (code)
        return code;
    snprintf(job->model_name, sizeof job->model_name, "%s", said->name);
    job->stands_by = plan_devices_stand_by(&job->cluster, &job->cost.model);
    if (job->given.n_stages)
        plan_devices_call_in(&job->cluster);
    job->ask.cluster = &job->cluster;
    job->ask.model = &job->cost.model;
    job->ask.model_name = job->model_name;
    return ERROR_NONE;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static bool plan_has_room(const struct daemon *daemon, const char *actor, struct error *err)
{
    unsigned n = 0, n_own = 0;
    for (const struct plan_job *job = daemon->plans; job; job = job->next) {
        n++;
        n_own += job->conversation && strcmp(job->actor, actor) == 0;
    }
    if (n < PLANS_MAX && n_own < PLANS_OF_ONE_MAX)
        return true;
    error_set(err, ERROR_BUSY, "too many plans are being made; try again in a moment");
    return false;
}

static void plan_begin(struct conversation *conversation, const Cluster__Model *model,
                       Cluster__Demand *demand, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    struct error err = {ERROR_NO_MEMORY, "not enough memory for a plan"};
    if (!plan_has_room(daemon, conversation->actor, &err)) {
        control_fail(conversation, &err);
        return;
    }
    struct plan_job *job = mem_new(sizeof *job);
    if (!job) {
        control_fail(conversation, &err);
        return;
    }
    job->daemon = daemon;
    job->next = daemon->plans;
    daemon->plans = job;
    job->ask.limit_s = plan_limit_s;
    job->ask.now_s = plan_job_now_s;
    job->ask.self = job;
    snprintf(job->actor, sizeof job->actor, "%s", conversation->actor);
    if (plan_job_fill(job, model, demand, request, &err)) {
        plan_job_free(job);
        control_fail(conversation, &err);
        return;
    }
    job->conversation = conversation;
    conversation->data = job;
    conversation->calls = (struct conversation_calls){.gone = plan_gone};
    plan_begin_next(daemon);
}

void control_plan(struct conversation *conversation, yyjson_val *request)
{
    const char *name = control_text(request, "model");
    struct place_demand wanted;
    Cluster__Demand demand;
    struct error err;
    if (!control_require_member(conversation))
        return;
    const Cluster__Model *model = name ? catalogue_find(conversation->daemon, name) : NULL;
    if (!model) {
        error_set(&err, ERROR_NOT_FOUND,
                  "the cluster has no model '%.64s'; `medley add FILE` adds "
                  "it",
                  name ? name : "");
        control_fail(conversation, &err);
        return;
    }
    if (!control_take_wanted(conversation, request, &wanted))
        return;
    if (daemon_check_wanted(conversation->daemon, model, NULL, &wanted, &err)) {
        control_fail(conversation, &err);
        return;
    }
    plan_make_demand(&wanted, &demand);
    plan_begin(conversation, model, &demand, request);
}
