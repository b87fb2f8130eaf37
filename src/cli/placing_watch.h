/* {"do": "place"}: asks the node to place a model in the cluster and load it, and waits until it is
 * ready. */
#pragma once

#include "cli/daemon.h"
#include "cli/gather_bar.h"
#include "model/rope_stretch.h"

struct placing_request {
    const char *model; /* a name or an absolute path */
    uint32_t context;  /* UINT32_MAX in each: the cluster's default */
    uint32_t streams, idle_s, cells;
    const char *goal;                           /* NULL: the same */
    const char *kv;                             /* the same */
    const char *speculate;                      /* the same */
    const char *draft;                          /* a model that the cluster knows; NULL: none */
    const char *draft_device;                   /* where that guesses; NULL: as usual */
    const char *precision;                      /* of the weights; NULL: as stored */
    const char *allow_precision;                /* the same while a device is hot; NULL: none */
    const char *weights_memory, *score_weights; /* the same */
    uint32_t limit_s;                           /* 0: the same */
    struct rope_stretch rope;                   /* zeroed: the same */
    bool json; /* how a gathering goes is said on stdout (gather_bar.h) */
};

/* The last line of the answer, which has "ready"; what goes on until then is said on stderr where
 * that is a terminal. The connection ends with it. ERROR_UNSUPPORTED: the model's name is a hub's,
 * and the cluster cannot fetch it together: pull it, and place the file. */
enum error_code placing_watch(const struct placing_request *request, yyjson_doc **out,
                              struct error *err);
