/* Every limit of Medley. A value beyond one is refused with an error that names it. */
#pragma once

enum {
    /* devices and stages of one process */
    LIMIT_DEVICES = 64,
    LIMIT_STAGES = 64,
    LIMIT_VERIFY_MS = 20000,            /* verification of one device */
    LIMIT_REGISTRY_BYTES = 1024 * 1024, /* the file that remembers devices */
    LIMIT_REGISTRY_ENTRIES = 64,
    LIMIT_REGISTRY_AGE_S = 30 * 86400, /* after that a device is verified anew */
    LIMIT_REGISTRY_LOCK_MS = 500,      /* waiting for another process that writes it */
    LIMIT_CALIBRATION_MS = 180 * 1000, /* of one device, its driver's compiling included */
    LIMIT_SIM_DEVICES = 32,
    LIMIT_SIM_FILE_BYTES = 64 * 1024,
    LIMIT_DEVICE_REQUESTS = 1024, /* of one loop, in flight on one device */

    /* sensors: how much is looked at, how long is waited, and what is plausible */
    LIMIT_SENSOR_ENTRIES = 512, /* names in one folder of /sys */
    LIMIT_SENSOR_FILE_BYTES = 4096,
    LIMIT_SENSOR_OPEN_MS = 2000,   /* for all slow sources together */
    LIMIT_SENSOR_ANSWER_MS = 100,  /* the same, in one sample */
    LIMIT_SENSOR_CLOSE_MS = 200,   /* the same, when closing */
    LIMIT_SENSOR_STALE_MS = 2000,  /* a reading older than this is unknown */
    LIMIT_SENSOR_RETRY_MS = 30000, /* between attempts to open a source that is not available */
    LIMIT_TEMPERATURE_MC = 150000,
    LIMIT_POWER_MW = 10000000,
    LIMIT_CLOCK_MHZ = 20000,

    /* topology: how much there may be, and what is plausible of a link */
    LIMIT_TOPOLOGY_NODES = 1024,
    LIMIT_TOPOLOGY_LINKS = 1024 * 1024,
    LIMIT_NODE_NAME_BYTES = 255,
    LIMIT_LINK_DELAY_MS = 60 * 1000, /* latency, jitter, overhead */
    LIMIT_LINK_GB_PER_S = 100000,

    /* the mesh: links between nodes (docs/wire-protocol.md) */
    LIMIT_LINKS = 1024,
    LIMIT_LINK_CHANNELS = 8,             /* control included */
    LIMIT_FRAME_CONTROL_BYTES = 4 << 20, /* payload of one frame */
    LIMIT_FRAME_DATA_BYTES = 256 << 20,  /* the same, on a data channel */
    LIMIT_FRAME_GRACE_MS = 30 * 1000, /* a frame may take this long, and a second more for each … */
    LIMIT_FRAME_BYTES_PER_S = 16 * 1024, /* … so many bytes */
    LIMIT_LINK_QUEUE_BYTES =
        16 << 20, /* waiting to be sent on one channel: then its sender waits */
    LIMIT_HELLO_BYTES = 4096,
    LIMIT_GREETING_BYTES = 1024,  /* what the room above says in a hello */
    LIMIT_GREETING_MS = 5000,     /* from a connection to the end of its hellos */
    LIMIT_GREETINGS = 128,        /* connections that have not greeted yet */
    LIMIT_GREETINGS_OF_HOST = 32, /* the same, from one address */
    LIMIT_DIAL_TARGETS = 1024,
    LIMIT_DIAL_WAIT_MS = 30 * 1000, /* between attempts */
    LIMIT_DIAL_HURRY_MS = 1000,     /* between two times that one is hurried */
    LIMIT_LINK_CLOSE_MS = 5000,     /* to send what is queued when a link is closed */
    LIMIT_LINK_DOUBT_MS = 1000,     /* to answer, when the peer says that it has no link */
    LIMIT_BURST_BYTES = 512 * 1024, /* one measurement of bandwidth */

    /* models */
    LIMIT_LAYERS = 1024,
    LIMIT_MODEL_TENSORS = 65536,
    LIMIT_MODEL_PARTS = 128, /* files of one model */
    LIMIT_MODEL_KEYS = 65536,
    LIMIT_VOCAB = 4 * 1024 * 1024,
    LIMIT_TOKEN_BYTES = 64 * 1024,
    LIMIT_TOKENIZE_BYTES = 128 * 1024 * 1024, /* one text to tokenize */
    LIMIT_TEMPLATE_BYTES = 1024 * 1024,
    LIMIT_TEMPLATE_OUTPUT_BYTES = 64 * 1024 * 1024,
    LIMIT_TEMPLATE_MEMORY_BYTES = 256 * 1024 * 1024,
    LIMIT_TEMPLATE_MS = 5000,
    LIMIT_TEMPLATE_PROCESS_BYTES = 768 * 1024 * 1024, /* all data of its process: RLIMIT_DATA */
    LIMIT_TRIAL_BYTES = 2 * 1024 * 1024 * 1023,       /* all data of a process that tries a file */
    LIMIT_TRIAL_MS = 30 * 1000,                       /* of one trial, by a clock on the wall */
    LIMIT_TEMPLATE_PROCESS_MS = 60 * 1000,            /* one call of that, by a clock on the wall */

    /* pictures in prompts */
    LIMIT_PICTURE_BYTES = 20 * 1024 * 1024,
    LIMIT_PICTURE_PIXELS = 64 * 1024 * 1024,
    LIMIT_PICTURE_SIDE = 32768,                       /* pixels */
    LIMIT_PICTURE_SCANS = 256,                        /* of a progressive JPEG */
    LIMIT_PICTURE_PROCESS_BYTES = 1024 * 1024 * 1024, /* all data of the process that decodes */
    LIMIT_PICTURE_MS = 20 * 1000,                     /* for one, by a clock on the wall */

    /* the models on this machine, as `medley models` lists them */
    LIMIT_LIBRARY_MODELS = 8192,
    LIMIT_LIBRARY_FILES = 256 * 1024, /* names looked at, in all places together */
    LIMIT_LIBRARY_DEPTH = 8,          /* folders in folders */
    LIMIT_LIBRARY_FOLDERS = 32,       /* given by MEDLEY_MODELS, or by options */
    LIMIT_LIBRARY_CACHE = 4096,       /* headers that are remembered */
    LIMIT_LIBRARY_CACHE_BYTES = 8 * 1024 * 1024,
    LIMIT_LIBRARY_TEXT_BYTES = 1024 * 1024, /* another program's description of a model */
    LIMIT_LIBRARY_THREADS = 8,
    LIMIT_MODEL_DEFAULTS_BYTES = 4096, /* what requests begin with (library/defaults.h) */

    /* weights that travel between nodes */
    LIMIT_MANIFEST_BYTES = 8 * 1024 * 1024,
    LIMIT_MANIFEST_HEADER_BYTES = 256 * 1024 * 1024, /* of a model's file, before its tensors */
    LIMIT_MANIFEST_RECENT_MS = 100, /* a file changed so shortly before may change unseen */
    LIMIT_SHELF_MODELS = 4096,
    LIMIT_FETCH_PEERS = 64,
    LIMIT_FETCH_CHUNK_BYTES = 4 * 1024 * 1024,
    LIMIT_FETCH_REQUESTS = 256,        /* under way, of one fetch */
    LIMIT_FETCH_REQUESTS_OF_PEER = 32, /* the same, at one peer */
    LIMIT_FETCH_BYTES = 128 * 1024 * 1024,
    LIMIT_FETCH_PATIENCE_MS =
        60 * 1000,             /* without any progress a fetch ends, where nobody says otherwise */
    LIMIT_FETCH_TIMEOUTS = 4,  /* in a row: the peer is asked no more */
    LIMIT_WEIGHTS_FILES = 256, /* models' files of one machine that its node remembers */
    LIMIT_WEIGHTS_MODELS = 1024,                   /* of which a node has parts or fetches some */
    LIMIT_WEIGHTS_FLIGHT_BYTES = 64 * 1024 * 1024, /* asked for by one fetch and not here yet … */
    LIMIT_WEIGHTS_BACKLOG_BYTES =
        64 * 1024 * 1024,      /* … and here, but not on the disk: then nothing more is asked */
    LIMIT_WEIGHTS_ASKED = 64,  /* requests of one peer that wait here: more are "not now" … */
    LIMIT_WEIGHTS_IN_HAND = 4, /* … of which so many are read and sent at a time … */
    LIMIT_WEIGHTS_READ = 32,   /* … and of all peers together */
    LIMIT_WEIGHTS_CONVERT = 2, /* … and converted for others: that takes a processor each */
    LIMIT_CONVERTED_CHUNK_BYTES = 1024 * 1024, /* converted parts come in such pieces */
    LIMIT_CONVERTED_ROW = 1 << 24, /* weights of a row that is converted for another node */
    LIMIT_WEIGHTS_OUTBOX_BYTES = 1024 * 1024, /* messages that a peer does not take */
    LIMIT_WEIGHTS_RETRY_MS =
        5 * 1000, /* after that a model that could not be fetched may be tried again */
    LIMIT_WEIGHTS_IDLE_MS = 2000, /* a model that nobody used for so long may go to make room */
    LIMIT_WEIGHTS_KEEP_MS = 2000, /* verified parts are recorded and told of after so long … */
    LIMIT_WEIGHTS_KEEP_BYTES = 64 * 1024 * 1024, /* … or when they are so many */
    LIMIT_WEIGHTS_VERIFY = 2,                    /* parts hashed at a time */
    LIMIT_SPREAD_RANGES = 1024, /* of layers on a node's disk, and of those that are to be copied */
    LIMIT_SPREAD_CHUNK_BYTES = 1024 * 1024,      /* spare copies come in such pieces … */
    LIMIT_SPREAD_BYTES_PER_S = 32 * 1024 * 1024, /* … at most so fast … */
    LIMIT_SPREAD_BUSY_MS = 1000,                 /* … and one in so long while anything computes */
    LIMIT_SPREAD_ROOM_MS = 10 * 1000,            /* between two looks at how much room there is */
    LIMIT_WEIGHTS_CLOSE_MS = 1000, /* for what is under way on links when a node stops */

    /* a placement: where the exact search ends, its memory, and what greedy still takes */
    LIMIT_PLACEMENT_DEVICES = 1024,
    LIMIT_PLACEMENT_EXACT_DEVICES = 64,
    LIMIT_PLACEMENT_TABLE_BYTES = 64 * 1024 * 1024,
    LIMIT_CLUSTER_FILE_BYTES = 16 * 1024 * 1024,

    /* the cluster's log and what travels for it */
    LIMIT_CLUSTER_NODES = 1024,
    LIMIT_CLUSTER_VOTERS = 5,
    LIMIT_CLUSTER_ENTRY_BYTES = 256 * 1024,         /* one event */
    LIMIT_CLUSTER_BATCH = 32,                       /* entries of one message */
    LIMIT_CLUSTER_SNAPSHOT_BYTES = 8 * 1024 * 1024, /* the whole state */
    LIMIT_CLUSTER_MESSAGE_BYTES = 9 * 1024 * 1024,  /* holds a snapshot or a full batch */
    LIMIT_CLUSTER_LOG_ENTRIES = 65536,              /* in memory since the last snapshot */
    LIMIT_CLUSTER_TERM_LEAP = 65536,                /* terms, or generations, ahead at once */
    LIMIT_CLUSTER_INDEX_LEAP = 16 * 1024 * 1024,    /* entries that a snapshot is ahead */
    LIMIT_CLUSTER_MODELS = 1024,
    LIMIT_CLUSTER_INSTANCES = 256,
    LIMIT_CLUSTER_SETTINGS = 256,
    LIMIT_CLUSTER_CERTIFICATE_BYTES = 4096, /* of an authority, in an event */
    LIMIT_CLUSTER_REMOVED = 1024,    /* ids that are never let in again; the oldest goes first */
    LIMIT_CLUSTER_MEMORY_STEP = 64,  /* the last step of a ladder (pipeline/memory_ladder.h) */
    LIMIT_CLUSTER_ID_BYTES = 63,     /* an instance's id */
    LIMIT_CLUSTER_TEXT_BYTES = 1024, /* any name or text of an event */
    LIMIT_PIECES_SENDERS = 4,        /* members of which parts of a large message are kept */
    LIMIT_PROPOSAL_MS = 10 * 1000,   /* then an event that was not applied is given up */
    LIMIT_PROPOSALS =
        1024, /* events of this node that wait to be applied; of others, at a leader */
    LIMIT_PROPOSAL_NONCES = 4096, /* that a leader remembers */

    /* the record of who did what */
    LIMIT_AUDIT_NOTES = 32,                     /* of one event */
    LIMIT_AUDIT_ALIKE = 4,                      /* entries of one kind and address in … */
    LIMIT_AUDIT_WINDOW_MS = 60 * 1000,          /* … such a time, and then one with their number */
    LIMIT_AUDIT_ALIKE_KINDS = 64,               /* kinds and addresses that are told apart */
    LIMIT_AUDIT_WINDOW_MS_MAX = 60 * 60 * 1000, /* the time, while they go on coming */
    LIMIT_AUDIT_BURST = 64,                     /* entries that one node tells at once, … */
    LIMIT_AUDIT_REFILL_MS = 45 * 1000,          /* … and one more in such a time */
    LIMIT_AUDIT_DAYS = 365, /* so long entries are kept, where nobody says otherwise */
    LIMIT_AUDIT_DAYS_MAX = 10 * 365,
    LIMIT_AUDIT_BYTES = 64 << 20,         /* of one node's files: then the oldest entries go */
    LIMIT_AUDIT_SEGMENT_BYTES = 1 << 20,  /* of one file */
    LIMIT_AUDIT_QUEUE_BYTES = 4 << 20,    /* waiting for a disk that is full or slow */
    LIMIT_AUDIT_SEAL_ENTRIES = 256,       /* the leader signs after so many entries, … */
    LIMIT_AUDIT_SEAL_MS = 60 * 60 * 1000, /* … or after so long, if there is a new one */

    /* alerts (alerts/alerts.h) */
    LIMIT_ALERTS = 256,         /* that are up, in the state: more have to wait */
    LIMIT_ALERTS_CLEARED = 100, /* that the state remembers; the oldest goes first */
    LIMIT_ALERT_BYTES = 2048,   /* one alert's record */
    LIMIT_ALERT_TRACKS = 1024,  /* subjects that a leader follows since their readings are bad */
    LIMIT_ALERT_GAP_MS = 30 * 1000,            /* without a value a time to hold begins anew … */
    LIMIT_ALERT_UNKNOWN_MS = 60 * 60 * 1000,   /* … and what is up is cleared */
    LIMIT_ALERT_HOLD_S = 24 * 60 * 60,         /* the longest time to hold */
    LIMIT_ALERT_TELLS = 256,                   /* readings of its own that a node tells */
    LIMIT_ALERT_BURST = 32,                    /* raised or cleared at once, in one cluster, … */
    LIMIT_ALERT_REFILL_MS = 1000,              /* … and one more in such a time */
    LIMIT_ALERT_USUAL_MIN_MS = 2 * 60 * 1000,  /* known for so long: usual enough to compare with */
    LIMIT_ALERT_USUAL_MS = 6 * 60 * 60 * 1000, /* the usual is that of so long */
    LIMIT_ALERT_MUTES = 64,
    LIMIT_ALERT_MUTE_S = 30 * 24 * 60 * 60,

    /* a running model */
    LIMIT_CONTEXT = 16 * 1024 * 1024, /* tokens of one sequence */
    LIMIT_SEQUENCES = 256,            /* KV slots of one stage */
    LIMIT_CHECKPOINTS = 64,           /* of states, of one stage */
    LIMIT_POOL_CELLS = 1 << 30,       /* that they share */
    LIMIT_BATCH_ROWS = 8192,          /* rows of one micro-batch */
    LIMIT_QUEUED_REQUESTS = 1024,
    LIMIT_PROMPT_PICTURES = 64,  /* of one request */
    LIMIT_PICTURES_MIB = 1024,   /* rows of all requests of a driver */
    LIMIT_CARRIER_ENDS = 64,     /* instances of which one node has a part */
    LIMIT_PLACING_SEARCH_S = 60, /* that somebody may give the leader: another may wait for it */
    LIMIT_SCORE_WEIGHT = 1000,   /* of devices in the order in which they are tried */

    /* KV caches on their way from one placement to the next (pipeline/cache_wire.h) */
    LIMIT_CACHE_TOKENS = 1 << 20,        /* of all slots together; the others are computed anew */
    LIMIT_CACHE_ROWS_BYTES = 256 << 10,  /* of one message, where a row is not more */
    LIMIT_CACHE_OFFER_MS = 3000,         /* until the old driver has said what it has */
    LIMIT_CACHE_PATIENCE_MS = 60 * 1000, /* until all of it is there, at most */

    LIMIT_GUARDED_FILES = 256, /* model files that are open at a time (model/gguf_guard.h) */

    /* devices' processes (pipeline/children.h) */
    LIMIT_CHILD_WORD_BYTES = 16 * 1024, /* one message of control */
    LIMIT_CHILD_LANES = 64,             /* pipelines that have stages on one device */
    LIMIT_CHILD_START_MS =
        120 * 1000, /* until it has opened its device: a driver may compile first */
    LIMIT_CHILD_SILENCE_MS = 15 * 1000, /* after that a process which answers nothing hangs */
    LIMIT_CHILD_LOAD_MS = 120 * 1000,   /* until a pipeline's stages are loaded, … */
    LIMIT_CHILD_LOAD_BYTES_PER_S =
        10 * 1000 * 1000,            /* … and so much longer as this rate takes for their weights */
    LIMIT_CHILD_WORK_MS = 60 * 1000, /* so long a micro-batch may take beyond what is expected, … */
    LIMIT_CHILD_ROW_MS = 10 * 1000,  /* … which is this for a row as long as none was measured */
    LIMIT_CHILD_DEATHS = 5,          /* so many deaths of a child … */
    LIMIT_CHILD_DEATHS_MS = 60 * 1000, /* … in such a time: then the device is given up */
    LIMIT_CHILD_HANGS = 3,             /* a process that hangs is noticed late: so many … */
    LIMIT_CHILD_HANGS_MS =
        15 * 60 * 1000, /* … in such a time, or one in starting and another in the next try */
    LIMIT_CHILD_PAUSE_MS = 10 * 1000, /* the longest before it is started again */
    LIMIT_RING_BYTES = 1 << 30,       /* of one direction; touched only as far as it is used */
    LIMIT_LANE_PENDING = 256,         /* messages that wait for room in a ring */
    LIMIT_RING_WAIT_MS = 5000,        /* for its reader, when it is full */

    /* access tokens (trust/access_token.h) */
    LIMIT_ACCESS_TOKENS = 256,
    LIMIT_ACCESS_TOKEN_BYTES = 4096, /* one token's record, with all that it is bound to */
    LIMIT_ACCESS_TOKEN_NAME_BYTES = 63,
    LIMIT_ACCESS_USAGE_BYTES = 64 * 1024, /* the file of what tokens have used today */
    LIMIT_ACCESS_TOKEN_BINDINGS = 64,     /* models; and machines or devices */

    /* requests on their way between nodes */
    LIMIT_REQUEST_BYTES = 80 << 20,     /* one message: holds a prompt that fills LIMIT_CONTEXT */
    LIMIT_REQUEST_TOKENS = 4096,        /* of one message back */
    LIMIT_STOP_TOKENS = 4096,           /* tokens that end a request's generation */
    LIMIT_RELAY_REQUESTS = 4096,        /* of one node, to all instances */
    LIMIT_RELAY_OF_PEER = 1024,         /* requests that a node serves one other */
    LIMIT_RELAY_QUEUE_BYTES = 64 << 20, /* waiting for one link: answers beyond end with an error */
    LIMIT_RELAY_PATIENCE_MS =
        600 * 1000, /* waiting for an instance's driver, where nobody says otherwise */

    /* trust between nodes */
    LIMIT_SECRET_BYTES = 64 * 1024,    /* a file with keys or certificates */
    LIMIT_SECRET_LOCK_MS = 2000,       /* waiting for another process that has them open */
    LIMIT_TLS_FILE_BYTES = 256 * 1024, /* a file of --cert or --key */
    LIMIT_TLS_CHAIN = 9,               /* certificates between the API's and a root */
    LIMIT_JOIN_MESSAGE_BYTES = 56 * 1024,
    LIMIT_JOIN_PAYLOAD_BYTES =
        48 * 1024, /* what the cluster tells a new member in its first message */
    LIMIT_JOIN_CODE_MS =
        10 * 60 * 1000, /* how long a join code is good, where nobody says otherwise */
    LIMIT_JOIN_CODE_MS_MAX = 24 * 60 * 60 * 1000,
    LIMIT_JOIN_WRONG = 3,           /* wrong attempts that void a join code */
    LIMIT_JOIN_PAUSE_MS = 2000,     /* after a wrong attempt no other is looked at for so long */
    LIMIT_JOIN_GUESSES = 8,         /* how many others a joiner shows one code's proof to */
    LIMIT_JOIN_STEP_MS = 30 * 1000, /* until the next message, where no person is asked */
    LIMIT_JOIN_WAIT_MS = 10 * 60 * 1000, /* the same, where one is */
    LIMIT_JOIN_CHANNELS = 16,            /* machines that are being let in by one member at once */
    LIMIT_JOIN_CHANNELS_OF_HOST = 4,     /* the same, from one address */
    LIMIT_JOIN_CONNECT_MS =
        5000, /* to look a name up; then, for each address, to connect and shake hands */
    LIMIT_JOIN_TURN_MS =
        20 * 1000, /* a joiner by hand waits so long for its pace, the connection being there */
    LIMIT_JOIN_MESSAGE_MS = 10 * 1000, /* from the first byte of a message to its last */
    LIMIT_JOIN_DECIDE_MS =
        20 * 1000, /* for the cluster to take in a machine, less than the joiner waits for it */
    LIMIT_JOIN_LINGER_MS = 1000, /* to read why it was refused */
    LIMIT_JOIN_CONFIRM_MS =
        5000, /* for the member to say that it knows that the joiner has kept all */
    LIMIT_JOIN_DECLINED_MS = 60 * 1000, /* until a machine asks again where a person said no */

    /* the control socket, by which commands ask this machine's node */
    LIMIT_CONTROL_LINE_BYTES = 17 * 1024 * 1024, /* one answer; holds a cluster file */
    LIMIT_CONTROL_ANSWER_MS = 30 * 1000,         /* to a question that the node answers by itself */
    LIMIT_CONTROL_BACK_MS =
        30 * 1000, /* that a command waits for its node to come back, in mid-answer */

    LIMIT_DESCRIPTORS = 65536, /* of a process that serves */

    /* the API: the names that it answers for, this machine's among them */
    LIMIT_API_HOSTS = 32,
    /* A node that has just begun may not have heard from its cluster: what comes meanwhile waits,
     * until the node is so old. */
    LIMIT_EARLY_MS = 30 * 1000,

    /* one request of the API */
    LIMIT_BODY_BYTES = 32 * 1024 * 1024,
    LIMIT_REQUEST_ROWS = 4 * 1024 * 1024, /* tokens of all its choices' prompts, where many */
    LIMIT_CHOICES = 16,
    LIMIT_STOP_STRINGS = 16,
    LIMIT_STOP_BYTES = 512,
    LIMIT_LOGIT_BIAS = 1024,
    LIMIT_TOP_LOGPROBS = 20,
    LIMIT_REQUEST_ID_BYTES = 128,     /* of an x-request-id */
    LIMIT_LAST_EVENT_ID_BYTES = 8192, /* positions of all choices */
    LIMIT_LIVE_STREAMS = 64,          /* of /api/live */
    LIMIT_LIVE_OF_CLIENT = 16,
};

#define LIMIT_LINK_LOSS_SHARE 0.5 /* a link that loses more packets is not used */
