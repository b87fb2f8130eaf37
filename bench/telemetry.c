/* telemetry: what the live view of a large cluster costs the node that shows it, and the page that
 * follows it.
 *
 *   telemetry [--nodes 64] [--devices 4] [--turns 120]
 *
 * One real node, whose state has 63 others put into it, each with simulated devices. In every turn
 * (half a second) all readings of all devices move as a busy machine's do: temperature by up to
 * 0.4 °C, use by up to 10 %, power with use, clock by up to 50 MHz, memory rarely. Prints, for the
 * node that shows them: the processor's time of a turn (view, difference, text) and the bytes of a
 * change and of the whole view; for a node that is watched: the bytes of what it tells and the time
 * that takes. All of what is told goes through the messages. */
#include "agreement/agreement.h"
#include "base/clock.h"
#include "base/json_memory.h"
#include "base/mem.h"
#include "base/merge_patch.h"
#include "base/random.h"
#include "daemon_world.h"
#include "mesh/frames.h"
#include "node/live.h"
#include "node/peers.h"
#include "thermal/governor.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { NODES_MOST = 512, DEVICES_MOST = 16 };

struct far_node {
    struct peer *peer;
    struct vitals now, told;
};

struct telemetry_bench {
    uint32_t n_nodes, n_devices, n_turns;
    struct daemon_world *world;
    struct daemon *daemon;
    struct far_node *far;
    uint64_t seed, n_drawn;
    uint64_t told_bytes, n_told;
    double tell_s, view_s;
};

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double draw(struct telemetry_bench *bench, double lowest, double highest)
{
    return lowest + (highest - lowest) * random_unit_at(bench->seed, bench->n_drawn++);
}

/* ---- the others ------------------------------------------------------------------------------ */

static void name_node(uint32_t number, char id[NODE_ID_TEXT])
{
    for (uint32_t i = 0; i + 1 < NODE_ID_TEXT; i++)
        id[i] = "0123456789abcdef"[random_at(number, i) % 16];
    id[NODE_ID_TEXT - 1] = 0;
}

static Cluster__NodeRecord *make_record(uint32_t number, uint32_t n_devices)
{
    Cluster__NodeRecord *record = mem_new(sizeof *record);
    Cluster__Node *node = mem_new(sizeof *node);
    char text[NODE_ID_TEXT];
    cluster__node_record__init(record);
    cluster__node__init(node);
    record->node = node;
    record->has_admitted = record->admitted = true;
    name_node(number, text);
    node->id = mem_copy_text(text, strlen(text));
    node->has_member = true;
    node->member = 1000 + number;
    snprintf(text, sizeof text, "machine%u", number);
    node->name = mem_copy_text(text, strlen(text));
    node->version = mem_copy_text("0.1.0", 5);
    node->addresses = mem_new_array(1, sizeof *node->addresses);
    node->addresses[node->n_addresses++] = mem_copy_text("192.168.1.17:7979", 17);
    node->devices = mem_new_array(n_devices, sizeof *node->devices);
    for (uint32_t i = 0; i < n_devices; i++) {
        Cluster__Device *device = mem_new(sizeof *device);
        cluster__device__init(device);
        snprintf(text, sizeof text, "cuda%u", i);
        device->id = mem_copy_text(text, strlen(text));
        device->name = mem_copy_text("NVIDIA GeForce RTX 4090", 23);
        device->kind = mem_copy_text("gpu", 3);
        device->backend = mem_copy_text("cuda", 4);
        device->has_memory_bytes = true;
        device->memory_bytes = UINT64_C(24) << 30;
        node->devices[node->n_devices++] = device;
    }
    return record;
}

static void add_records(struct telemetry_bench *bench)
{
    struct state *state = (struct state *)(uintptr_t)agreement_state(bench->daemon->agreement);
    struct buffer bytes = {0};
    struct error err;
    Cluster__State *root = state->root;
    Cluster__NodeRecord **old = root->nodes;
    root->nodes = mem_new_array(root->n_nodes + bench->n_nodes, sizeof *root->nodes);
    memcpy(root->nodes, old, root->n_nodes * sizeof *old);
    mem_free(old);
    for (uint32_t i = 1; i < bench->n_nodes; i++)
        root->nodes[root->n_nodes++] = make_record(i, bench->n_devices);
    (void)bytes, (void)err;
}

/* Linked, as far as the view asks; nothing is ever sent. */
static void add_peers(struct telemetry_bench *bench)
{
    bench->far = calloc(bench->n_nodes, sizeof *bench->far);
    for (uint32_t i = 1; i < bench->n_nodes; i++) {
        struct far_node *far = &bench->far[i];
        struct peer *peer = mem_new(sizeof *peer);
        name_node(i, peer->id);
        peer->link = (struct link *)(uintptr_t)64;
        peer->told.heard = mem_new(sizeof *peer->told.heard);
        vitals_clear(peer->told.heard);
        vitals_clear(&far->told);
        vitals_clear(&far->now);
        for (uint32_t d = 0; d < bench->n_devices; d++) {
            char id[16];
            snprintf(id, sizeof id, "cuda%u", d);
            struct vitals_device *device = &far->now.devices[far->now.n_devices++];
            vitals_clear_device(device, id);
            device->limit_dc = 830;
            device->governor = THERMAL_FREE;
            device->duty_permille = 1000;
            device->temperature_dc = (int32_t)draw(bench, 400, 700);
            device->use_permille = 500;
            device->clock_mhz = 2400;
            device->free_mib = 20000;
        }
        far->now.memory_mib = 65536;
        far->now.memory_free_mib = 40000;
        far->now.cpu_permille = 200;
        far->peer = peer;
        peer->next = bench->daemon->peers;
        bench->daemon->peers = peer;
    }
}

static void drop_peers(struct telemetry_bench *bench)
{
    for (struct peer *peer = bench->daemon->peers; peer; peer = peer->next)
        peer->link = NULL;
    daemon_free_peers(bench->daemon);
    free(bench->far);
}

/* ---- a turn ---------------------------------------------------------------------------------- */

static int32_t stepped(int32_t value, double by, int32_t lowest, int32_t highest)
{
    const double next = value + by;
    return (int32_t)(next < lowest ? lowest : next > highest ? highest : next);
}

static void move_readings(struct telemetry_bench *bench, struct far_node *far, uint32_t turn)
{
    for (uint32_t i = 0; i < far->now.n_devices; i++) {
        struct vitals_device *device = &far->now.devices[i];
        device->temperature_dc = stepped(device->temperature_dc, draw(bench, -4.5, 4.5), 300, 900);
        device->use_permille = stepped(device->use_permille, draw(bench, -100, 100), 0, 1000);
        device->power_dw = 300 + device->use_permille * 4;
        device->clock_mhz = stepped(device->clock_mhz, draw(bench, -50, 50), 300, 2800);
        device->predicted_dc = device->temperature_dc + 20;
        if (draw(bench, 0, 1) < 0.02)
            device->free_mib = stepped(device->free_mib, draw(bench, -500, 500), 0, 24576);
    }
    far->now.cpu_permille = stepped(far->now.cpu_permille, draw(bench, -50, 50), 0, 1000);
    far->now.memory_free_mib = stepped(far->now.memory_free_mib, draw(bench, -40, 40), 0, 65536);
    far->now.uptime_s = (int32_t)(turn / 2);
}

static void tell(struct telemetry_bench *bench, struct far_node *far, bool anew)
{
    static struct vitals_room room;
    Node__Vitals said;
    struct buffer bytes = {0};
    ProtobufCMessage *message = NULL;
    struct error err;
    const double begun = cpu_seconds();
    if (!vitals_tell(&far->told, &far->now, anew, &room, &said))
        return;
    message_encode(&said.base, &bytes);
    bench->tell_s += cpu_seconds() - begun;
    bench->told_bytes += anew ? 0 : bytes.size + 16 + 22; /* a frame, a TLS record */
    bench->n_told += !anew;
    if (message_decode(&node__vitals__descriptor, (const uint8_t *)bytes.data, bytes.size, &message,
                       &err) ||
        vitals_hear(far->peer->told.heard, (Node__Vitals *)message, &err))
        abort();
    message_free(message);
    buffer_deinit(&bytes);
}

/* The bytes of the change; *view is the new one. */
static size_t show(struct telemetry_bench *bench, yyjson_mut_doc **view)
{
    const double begun = cpu_seconds();
    yyjson_mut_doc *now = live_view_make(bench->daemon->live, bench->daemon);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *patch = NULL;
    size_t size = 0;
    if (!merge_patch_make(doc, yyjson_mut_doc_get_root(*view), yyjson_mut_doc_get_root(now),
                          &patch))
        abort();
    yyjson_mut_doc_set_root(doc, patch);
    char *text = yyjson_mut_write_opts(doc, 0, &json_memory, &size, NULL);
    bench->view_s += cpu_seconds() - begun;
    mem_free(text);
    yyjson_mut_doc_free(doc);
    yyjson_mut_doc_free(*view);
    *view = now;
    return size;
}

static void run_turns(struct telemetry_bench *bench)
{
    size_t whole = 0, changes = 0, largest = 0;
    for (uint32_t i = 1; i < bench->n_nodes; i++)
        tell(bench, &bench->far[i], true);
    bench->tell_s = 0;
    yyjson_mut_doc *view = live_view_make(bench->daemon->live, bench->daemon);
    mem_free(yyjson_mut_write_opts(view, 0, &json_memory, &whole, NULL));
    for (uint32_t turn = 1; turn <= bench->n_turns; turn++) {
        for (uint32_t i = 1; i < bench->n_nodes; i++) {
            move_readings(bench, &bench->far[i], turn);
            tell(bench, &bench->far[i], false);
        }
        const size_t size = show(bench, &view);
        changes += size;
        largest = size > largest ? size : largest;
    }
    yyjson_mut_doc_free(view);
    const double turns = bench->n_turns, told = (double)(bench->n_nodes - 1) * turns;
    printf("%u nodes, %u devices, %u turns of 0.5 s, all readings moving\n", bench->n_nodes,
           (bench->n_nodes - 1) * bench->n_devices, bench->n_turns);
    printf("the page: %.1f kB/s (a change: mean %.1f kB, largest %.1f), the whole view %.1f kB\n",
           (double)changes / turns * 2 / 1e3, (double)changes / turns / 1e3, (double)largest / 1e3,
           (double)whole / 1e3);
    printf("the node that shows: %.2f ms of processor a turn, %.2f %% of a core\n",
           bench->view_s / turns * 1e3, bench->view_s / turns * 2 * 100);
    printf("a node that is watched: %.0f B/s (%.0f messages of %.0f told), %.1f us a turn, %.4f %% "
           "of a core\n",
           (double)bench->told_bytes / told * 2, (double)bench->n_told, told,
           bench->tell_s / told * 1e6, bench->tell_s / told * 2 * 100);
}

/* ---- the bench ------------------------------------------------------------------------------- */

static bool leads(void *arg)
{
    const struct daemon *daemon = arg;
    return daemon->is_member && agreement_status(daemon->agreement).leads &&
           agreement_state(daemon->agreement)->root;
}

static bool take_option(struct telemetry_bench *bench, const char *name, const char *value)
{
    const uint32_t number = value ? (uint32_t)strtoul(value, NULL, 10) : 0;
    if (strcmp(name, "--nodes") == 0 && number >= 2 && number <= NODES_MOST)
        bench->n_nodes = number;
    else if (strcmp(name, "--devices") == 0 && number && number <= DEVICES_MOST)
        bench->n_devices = number;
    else if (strcmp(name, "--turns") == 0 && number)
        bench->n_turns = number;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct telemetry_bench bench = {.n_nodes = 64, .n_devices = 4, .n_turns = 120, .seed = 1};
    struct error err;
    for (int i = 1; i < argc; i += 2) {
        if (!take_option(&bench, argv[i], argv[i + 1])) {
            fprintf(stderr, "telemetry [--nodes 2…512] [--devices 1…16] [--turns N]\n");
            return 2;
        }
    }
    bench.world = daemon_world_open();
    if (daemon_world_start(bench.world, 0, &(struct daemon_options){.founds = true}, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    bench.daemon = bench.world->nodes[0].daemon;
    daemon_world_run(bench.world, leads, bench.daemon, 15000);
    daemon_world_pass(bench.world, 1000);
    add_records(&bench);
    add_peers(&bench);
    run_turns(&bench);
    drop_peers(&bench);
    daemon_world_close(bench.world);
    return 0;
}
