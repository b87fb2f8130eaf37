/* Writes the corpora of cluster_event and cluster_wire: `make-cluster-corpus FOLDER`. */
#include "cluster_events.h"

#include "cluster/members.h"
#include "cluster/replica.h"
#include "cluster/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void save(const char *folder, const char *corpus, const char *name,
                 const struct buffer *bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/%s", folder, corpus, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes->data, 1, bytes->size, file) != bytes->size || fclose(file)) {
        perror(path);
        exit(1);
    }
}

static void events(const char *folder)
{
    struct event_draws draws = {.seed = 5};
    struct state state = {0};
    struct state_outcome outcome;
    int saved[64] = {0};
    for (uint64_t index = 1; index <= 2000; index++) {
        struct buffer event = {0};
        Cluster__Event *decoded = NULL;
        random_event(&draws, &state, &event);
        state_apply(&state, index, (const uint8_t *)event.data, event.size, &outcome, NULL);
        event_decode((const uint8_t *)event.data, event.size, &decoded, NULL);
        if (decoded && outcome.applied && saved[decoded->kind_case]++ == 0) {
            /* Behind the state that it was made for, with the byte that splits the two. */
            struct buffer both = {0}, snapshot = {0};
            char name[32];
            state_encode(&state, &snapshot);
            const size_t size = 1 + snapshot.size + event.size;
            const char split = (char)(snapshot.size * 255 / (size - 1) + 1);
            buffer_append(&both, &split, 1);
            buffer_append(&both, snapshot.data, snapshot.size);
            buffer_append(&both, event.data, event.size);
            snprintf(name, sizeof name, "event-%d", (int)decoded->kind_case);
            save(folder, "cluster_event", name, &event);
            snprintf(name, sizeof name, "state-%d", (int)decoded->kind_case);
            save(folder, "cluster_event", name, &both);
            buffer_deinit(&both);
            buffer_deinit(&snapshot);
        }
        event_free(decoded);
        buffer_deinit(&event);
    }
    state_deinit(&state);
}

/* In the form of fuzz_cluster_wire.c: two bytes of length, then the message. */
static void add(struct buffer *out, const struct wire_message *message)
{
    struct buffer bytes = {0};
    wire_encode(&bytes, message);
    const char length[] = {(char)(bytes.size & 255), (char)(bytes.size >> 8)};
    buffer_append(out, length, 2);
    buffer_append(out, bytes.data, bytes.size);
    buffer_deinit(&bytes);
}

static void messages(const char *folder)
{
    const struct lineage lineage = {1, 7}, higher = {2, 8};
    struct log_write first;
    if (replica_found(8, &first, NULL))
        exit(1);
    const struct log_entry *members = &first.log.entries[0];
    struct log entries = {0};
    log_append(&entries, members, NULL);
    for (int i = 0; i < 5; i++)
        log_append(&entries, &(struct log_entry){1, LOG_EVENT, (uint8_t *)"event", 5}, NULL);
    const struct log_snapshot snapshot = {.index = 9,
                                          .term = 1,
                                          .members_index = 1,
                                          .members = members->bytes,
                                          .members_size = members->size,
                                          .state = (uint8_t *)"state",
                                          .state_size = 5};
    const struct wire_message list[] = {
        {WIRE_VOTE, lineage, .vote = {3, 2, 1, false, true}},
        {WIRE_VOTE, lineage, .vote = {5, 9, 4, true, false}},
        {WIRE_VOTE_RESULT, lineage, .vote_result = {3, true, true}},
        {WIRE_APPEND, higher, .append = {2, 0, 0, 3, entries}},
        {WIRE_APPEND, higher, .append = {2, 6, 1, 6, {.first = 7}}},
        {WIRE_APPEND_RESULT, lineage, .append_result = {2, 1, 0}},
        {WIRE_INSTALL, higher, .install = {3, snapshot}},
        {WIRE_TIMEOUT_NOW, higher, .timeout_now = {3, 9, 1}},
        {WIRE_STATUS, lineage, .status = {1, 6, false, true}},
    };
    struct buffer all = {0};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct buffer one = {0}, bare = {0};
        char name[32];
        add(&one, &list[i]);
        add(&all, &list[i]);
        wire_encode(&bare, &list[i]);
        snprintf(name, sizeof name, "message-%zu", i);
        save(folder, "cluster_wire", name, &one);
        snprintf(name, sizeof name, "bare-%zu", i);
        save(folder, "cluster_wire", name, &bare);
        buffer_deinit(&one);
        buffer_deinit(&bare);
    }
    save(folder, "cluster_wire", "all", &all);
    buffer_deinit(&all);
    log_deinit(&entries);
    log_write_clear(&first);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make-cluster-corpus FOLDER\n");
        return 2;
    }
    events(argv[1]);
    messages(argv[1]);
    return 0;
}
