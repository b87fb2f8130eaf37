/* The frames that nodes send each other (docs/wire-protocol.md), and on which channel of a link
 * each travels. */
#pragma once

enum node_frame {
    /* control: the cluster */
    FRAME_RAFT = 32, /* a replica's message (cluster/wire.h) */
    FRAME_ABOUT =
        33, /* Cluster.Node: the sender of itself, when the link is up and when it changes */
    FRAME_PROPOSE = 34,     /* Cluster.Event for the log, to the leader */
    FRAME_NOW = 35,         /* node.Now: what changes all the time */
    FRAME_SIGN = 36,        /* node.SignRequest, to an admin */
    FRAME_SIGNED = 37,      /* node.SignAnswer, back */
    FRAME_VITALS = 38,      /* node.Vitals: readings, to the leader and to who watches */
    FRAME_WATCH = 39,       /* node.Watch: the sender watches, for a while */
    FRAME_HISTORY_ASK = 40, /* node.HistoryRequest: the last minute of a device */
    FRAME_HISTORY = 41,     /* node.HistoryAnswer, back */
    FRAME_GATHER = 42,      /* node.Gather: fetch parts of a model from its hub */
    FRAME_GATHERED = 43,    /* node.Gathered, back */
    FRAME_HALT = 46, /* a micro-batch is wanted no more (hosting/carrier.h); passes those on data */
    /* data: the pipeline */
    FRAME_PIPELINE = 64, /* a micro-batch (pipeline/wire.h) */
    FRAME_REQUEST =
        65,           /* a request to an instance's driver, its cancellation, and its tokens back */
    FRAME_CACHE = 66, /* KV caches that move (pipeline/cache_wire.h) */
    /* data: weights (weights/fetch_message.h) */
    FRAME_WEIGHTS = 96,
};

enum {
    NODE_CHANNEL_PIPELINE = 1,
    NODE_CHANNEL_WEIGHTS = 2, /* so that a token never waits behind a model that is being fetched */
    NODE_DATA_CHANNELS = 2,
};
