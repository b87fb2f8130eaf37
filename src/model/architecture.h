/* The architecture table: what Medley knows of each model family.
 *
 * One row of families.h's tables a family. A row says how the family differs from the plain
 * llama block; the graph (engine/graph.c) is built from the row and the hyper-parameters and has
 * no family's name in it. docs/adding-a-model.md shows how to add one. */
#pragma once

#include "base/error.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf_file;

enum rope_kind { ROPE_NORM, ROPE_NEOX }; /* rotated pairs (2i, 2i+1), or (i, i + n/2) */
/* ACT_GELU is the tanh form, ACT_GELU_ERF the exact one (arXiv:1606.08415, section 2). */
enum activation { ACT_SILU, ACT_GELU, ACT_GELU_ERF, ACT_SWIGLU_OAI, ACT_RELU_SQUARED, ACT_SITU };
enum norm_kind { NORM_RMS, NORM_LAYER }; /* x / rms(x); (x - mean(x)) / deviation(x) */
/* How the router's logits become the experts' weights. */
enum gating {
    GATE_SOFTMAX,           /* over all experts, then chosen */
    GATE_SOFTMAX_OF_CHOSEN, /* over the chosen */
    GATE_SIGMOID,           /* of each by itself */
    GATE_SQRT_SOFTPLUS      /* sqrt(ln(1 + e^x)) of each by itself */
};
/* What becomes of the hidden states of a text's tokens when its vector is asked for; the
 * format's key `pooling_type` counts from POOLING_NONE on. */
enum pooling {
    POOLING_UNSAID,
    POOLING_NONE, /* one vector a token */
    POOLING_MEAN,
    POOLING_FIRST, /* the first token's, which is CLS */
    POOLING_LAST,
    POOLING_RANK /* a score: a classifier on the first token's, or the last's in causal models */
};
/* The chosen experts' weights: divided by their sum, or as they are. */
enum expert_sum { EXPERT_SUM_ONE, EXPERT_SUM_KEPT };
/* What stands in the place of attention in layers that keep a state of fixed size instead of keys
 * and values of every token (engine/graph_recurrent.c). */
enum recurrence {
    RECURRENCE_NONE,
    RECURRENCE_SHORT_CONVOLUTION, /* LFM2: C . convolution(B . x) */
    RECURRENCE_MAMBA2,            /* selective state space (Dao and Gu 2024, arXiv:2405.21060) */
    RECURRENCE_DELTA,             /* gated delta rule (Yang et al. 2024, arXiv:2412.06464) */
    RECURRENCE_DELTA_CHANNELS,    /* … whose decay differs by channel: Kimi's, arXiv:2510.26692 */
    RECURRENCE_LIGHTNING,         /* linear attention, a fixed decay a head (arXiv:2501.08313) */
};
enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN,
    ROPE_SCALING_LONGROPE
};

/* Every tensor that a family may have. Names and shapes are in the role table of architecture.c. */
enum tensor_role {
    TENSOR_TOKEN_EMBEDDING,
    TENSOR_POSITION_EMBEDDING,
    TENSOR_TYPE_EMBEDDING,
    TENSOR_EMBEDDING_NORM,
    TENSOR_EMBEDDING_NORM_BIAS,
    TENSOR_OUTPUT_NORM,
    TENSOR_OUTPUT_NORM_BIAS,
    TENSOR_OUTPUT,
    TENSOR_OUTPUT_BIAS,
    TENSOR_INPUTS_EMBEDDING,
    TENSOR_INPUTS_PROJECTION,
    TENSOR_INPUTS_NORM,
    TENSOR_RANK_DENSE,
    TENSOR_RANK_DENSE_BIAS,
    TENSOR_RANK_NORM,
    TENSOR_RANK_OUT,
    TENSOR_RANK_OUT_BIAS,
    TENSOR_ROPE_FREQS,
    TENSOR_ROPE_FACTORS_LONG,
    TENSOR_ROPE_FACTORS_SHORT,
    TENSOR_ATTENTION_NORM,
    TENSOR_ATTENTION_NORM_BIAS,
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_QKV,
    TENSOR_Q_BIAS,
    TENSOR_K_BIAS,
    TENSOR_V_BIAS,
    TENSOR_QKV_BIAS,
    TENSOR_Q_NORM,
    TENSOR_K_NORM,
    TENSOR_ATTENTION_OUT,
    TENSOR_ATTENTION_OUT_BIAS,
    TENSOR_ATTENTION_SINKS,
    TENSOR_ATTENTION_GATE,
    TENSOR_ATTENTION_HEAD_GATE,
    TENSOR_ATTENTION_POST_NORM,
    TENSOR_ATTENTION_POST_NORM_BIAS,
    TENSOR_ATTENTION_SECOND_NORM,
    TENSOR_ATTENTION_SECOND_NORM_BIAS,
    TENSOR_LATENT_Q_DOWN,
    TENSOR_LATENT_Q_NORM,
    TENSOR_LATENT_Q_UP,
    TENSOR_LATENT_KV_DOWN,
    TENSOR_LATENT_KV_NORM,
    TENSOR_LATENT_KV_UP,
    TENSOR_LATENT_K_UP,
    TENSOR_LATENT_V_UP,
    TENSOR_INDEX_Q,
    TENSOR_INDEX_Q_NORM,
    TENSOR_INDEX_K,
    TENSOR_INDEX_K_NORM,
    TENSOR_INDEX_K_NORM_BIAS,
    TENSOR_INDEX_WEIGHTS,
    TENSOR_FFN_NORM,
    TENSOR_FFN_NORM_BIAS,
    TENSOR_FFN_GATE,
    TENSOR_FFN_UP,
    TENSOR_FFN_DOWN,
    TENSOR_FFN_GATE_BIAS,
    TENSOR_FFN_UP_BIAS,
    TENSOR_FFN_DOWN_BIAS,
    TENSOR_FFN_POST_NORM,
    TENSOR_FFN_POST_NORM_BIAS,
    TENSOR_ROUTER,
    TENSOR_ROUTER_BIAS,
    TENSOR_CHOICE_BIAS,
    TENSOR_EXPERTS_GATE,
    TENSOR_EXPERTS_UP,
    TENSOR_EXPERTS_DOWN,
    TENSOR_EXPERTS_GATE_BIAS,
    TENSOR_EXPERTS_UP_BIAS,
    TENSOR_EXPERTS_DOWN_BIAS,
    TENSOR_SHARED_GATE,
    TENSOR_SHARED_UP,
    TENSOR_SHARED_DOWN,
    TENSOR_SHARED_ROUTER,
    TENSOR_EXPERTS_LATENT_DOWN,
    TENSOR_EXPERTS_LATENT_UP,
    TENSOR_EXPERTS_LATENT_NORM,
    TENSOR_ATTENTION_RESIDUALS,
    TENSOR_FFN_RESIDUALS,
    TENSOR_OUTPUT_RESIDUALS,
    TENSOR_EXPERTS_GATE_UP,
    TENSOR_EXPERTS_DOWN_SCALE,
    TENSOR_EXPERTS_NORM,
    TENSOR_EXPERTS_POST_NORM,
    TENSOR_DENSE_POST_NORM,
    TENSOR_ROUTER_SCALE,
    TENSOR_LAYER_SCALE,
    TENSOR_LAYER_INPUT_GATE,
    TENSOR_LAYER_INPUT_OUT,
    TENSOR_LAYER_INPUT_NORM,
    TENSOR_CONVOLUTION_IN,
    TENSOR_CONVOLUTION,
    TENSOR_CONVOLUTION_OUT,
    TENSOR_STATE_IN,
    TENSOR_STATE_CONVOLUTION,
    TENSOR_STATE_CONVOLUTION_BIAS,
    TENSOR_STATE_STEP_BIAS,
    TENSOR_STATE_DECAY,
    TENSOR_STATE_SKIP,
    TENSOR_STATE_NORM,
    TENSOR_STATE_OUT,
    TENSOR_DELTA_QKV,
    TENSOR_DELTA_GATE,
    TENSOR_DELTA_BETA_ALPHA,
    TENSOR_DELTA_BETA,
    TENSOR_DELTA_ALPHA,
    TENSOR_DELTA_Q,
    TENSOR_DELTA_K,
    TENSOR_DELTA_V,
    TENSOR_DELTA_Q_CONVOLUTION,
    TENSOR_DELTA_K_CONVOLUTION,
    TENSOR_DELTA_V_CONVOLUTION,
    TENSOR_DELTA_DECAY_DOWN,
    TENSOR_DELTA_DECAY_UP,
    TENSOR_DELTA_GATE_DOWN,
    TENSOR_DELTA_GATE_UP,
    TENSOR_DELTA_OUT,
    TENSOR_LIGHTNING_QKV,
    TENSOR_LIGHTNING_NORM,
    TENSOR_EXPERTS_OF_TOKEN,
    /* three groups, of which a layer has all or none (ROLE_BIT) */
    TENSOR_SUMMARIES_K,
    TENSOR_SUMMARIES_GATE,
    TENSOR_SUMMARIES_PHASE,
    TENSOR_SUMMARIES_NORM,
    TENSOR_INDEX_SUMMARIES_K,
    TENSOR_INDEX_SUMMARIES_GATE,
    TENSOR_INDEX_SUMMARIES_PHASE,
    TENSOR_INDEX_SUMMARIES_NORM,
    TENSOR_SINGLE_KV,
    TENSOR_SINGLE_KV_NORM,
    TENSOR_OUT_GROUPS,
    TENSOR_OUT_OF_GROUPS,
    TENSOR_STREAMS_ATTENTION,
    TENSOR_STREAMS_ATTENTION_BASE,
    TENSOR_STREAMS_ATTENTION_SCALE,
    TENSOR_STREAMS_FFN,
    TENSOR_STREAMS_FFN_BASE,
    TENSOR_STREAMS_FFN_SCALE,
    TENSOR_STREAMS_OUTPUT,
    TENSOR_STREAMS_OUTPUT_BASE,
    TENSOR_STREAMS_OUTPUT_SCALE,
    TENSOR_ROLE_COUNT,
};

enum { WINDOW_AS_FILE = UINT32_MAX }; /* a window_period: only as the file's pattern says */

/* A set of roles. Those that a layer has together or not at all share a bit. */
__extension__ typedef unsigned __int128 role_set;
enum { ROLE_BITS = TENSOR_SUMMARIES_K + 3 };
#define ROLE_BIT(role)                                                                             \
    ((role_set)1 << ((role) < TENSOR_SUMMARIES_K         ? (int)(role)                             \
                     : (role) < TENSOR_INDEX_SUMMARIES_K ? TENSOR_SUMMARIES_K                      \
                     : (role) < TENSOR_SINGLE_KV         ? TENSOR_SUMMARIES_K + 1                  \
                                                         : TENSOR_SUMMARIES_K + 2))

/* Positions of several axes (Qwen2-VL, arXiv:2409.12191, 2.1): sections of a head one after the
 * other, or interleaved. Text has the same position on each. */
enum rope_axes { AXES_NONE, AXES_IN_SECTIONS, AXES_INTERLEAVED };

struct architecture {
    const char *name;        /* general.architecture */
    const char *description; /* for people */
    role_set needs;          /* roles that this family has beyond the plain block's (ROLE_BIT) */
    role_set may_have;       /* roles that some of its files have and others lack */

    /* Encoders (BERT, arXiv:1810.04805): every token sees all of its text, which goes through the
     * model at once; vectors come out, no logits. Nothing generates. */
    bool is_encoder;
    bool is_sum_normed;     /* bert: norm(x + branch(x)), no norms before branches or at the end */
    bool window_is_centred; /* modern-bert: half of the window is on each side; of every
                               `window_period` layers the first sees all */
    float alibi_max;    /* jina-bert-v2: attention's bias by distance (arXiv:2108.12409); 0: none */
    bool may_fuse_gate; /* some of its files have ffn_gate, others hold it in ffn_up */

    /* norms and the way through the block */
    enum norm_kind norm;
    bool post_norm_only;     /* olmo2, exaone4: attention and FFN are normed after, not before */
    bool ffn_norm_is_post;   /* the FFN's input norm is stored as post_attention_norm */
    bool is_parallel;        /* cohere2, phi2: attention and FFN take the same normed input */
    bool is_residual_normed; /* minimax-01: what is added to a branch is its normed input, times the
                                file's residual_scale */
    bool is_one_branch;      /* nemotron_h: a layer has attention, a state or an FFN, not two */

    /* layers with a state instead of attention */
    enum recurrence recurrence;
    uint32_t attention_period; /* of every `period` layers the last attends, where the file does not
                                  say; 0: layers without KV heads are those with a state */
    bool delta_heads_tile; /* qwen35: value head i takes key head i mod n; else i / (heads / n) */
    bool delta_rate_is_negative; /* kimi-k3: the file's ssm_a is the rate's negative */
    bool delta_decay_is_bounded; /* bailingmoe3: bound * sigmoid(…) instead of a softplus */

    /* attention */
    enum rope_kind rope;
    bool qk_norm_whole;        /* olmo2: Q/K norm over all heads at once, not per head */
    bool qk_norm_after_rope;   /* hunyuan */
    bool qk_norm_unweighted;   /* llama4: of layers that rotate, after the rotation */
    bool has_latent_attention; /* deepseek2: keys and values come from a latent of few values */
    bool keeps_yarn_length;    /* deepseek2: YaRN changes no lengths, whatever its log multiplier */
    float yarn_log_unit;       /* the file's log multiplier is in units of this; 0: not used */
    bool picks_blocks;         /* minimax-m3: its indexer picks blocks of cells */
    bool has_indexer;          /* deepseek32: an indexer picks the cells that attention sees */
    bool
        has_summaries; /* deepseek4: attention sees a window, and summaries of what is before it;
                          layers are joined by hyper-connected streams, and the first of them
                          choose experts by the token (engine/graph_summaries.c, graph_streams.c) */
    enum rope_kind indexer_rope; /* of its queries and keys */
    bool never_rotates;          /* kimi-linear, nemotron_h */
    bool rotates_if_finetuned; /* granitehybrid: unless the file's rope.scaling.finetuned is off */
    bool has_query_gate; /* qwen3next: beside each head's query stands the gate of its output */
    bool value_norm_unweighted;    /* gemma4: each head's value is normed, without weights */
    bool value_may_be_key;         /* gemma4: without attn_v, values are what attn_k gives */
    bool may_share_kv;             /* gemma4: the last layers see keys and values of earlier ones,
                                      and layers take embeddings of their own, as the file says */
    bool has_window_heads;         /* gemma4: windowed layers have heads of their own size, and turn
                                      without the file's rope factors */
    bool rotates_only_windowed;    /* layers that see all have no positions, if any is windowed */
    bool full_layers_rotate_half;  /* step35: of the file's rope.dimension_count */
    uint32_t unrotated_period;     /* of every `period` layers the last has no positions; 0: none */
    bool ignore_window;            /* phi3: the file's window is not applied, as in llama.cpp */
    uint32_t window_period;        /* sliding window: of every `period` layers the last is full; 0:
                                      no window, 1: all windowed. A pattern in the file goes first */
    uint32_t window_needs_layers;  /* exaone4: a window only with so many layers; 0: always */
    float window_rope_base;        /* rope base of windowed layers, which then are not scaled; 0: as
                                      the others */
    uint32_t layers_of_wide_scale; /* gemma: with so many layers the attention scale is
                                      1/sqrt(n_embd/n_head) */
    float attention_softcap, final_softcap; /* where the file does not say */
    float attention_scale;                  /* likewise; 0: 1/sqrt(a head's key) */
    const char *attention_scale_key;        /* NULL: attention.scale */

    uint32_t context_max; /* llama4: beyond it layers attend by chunks, which is not computed
                             here; 0: none */

    /* pictures */
    bool takes_pictures; /* rows may stand in place of tokens' embeddings */
    enum rope_axes axes; /* that a picture's rows have positions on */
    bool adds_deepstack; /* qwen3vl: further parts of a row are added after the first layers */

    /* feed-forward */
    enum activation activation;
    bool fused_gate_up;           /* phi3, glm4: ffn_up holds gate and up */
    bool has_no_gate;             /* phi2: down(act(up(x))) */
    enum gating gating;           /* where the file does not say */
    enum expert_sum expert_sum;   /* likewise */
    bool has_dense_beside;        /* grok: beside the experts, and the sum divided by sqrt(2) */
    bool has_normed_dense_beside; /* gemma4: likewise, each with norms of its own, of one input */
    bool weighs_input;            /* llama4: an expert's input is weighted, not its output */
    bool clamps_before;           /* deepseek4: SwiGLU's gate is clamped before, not after silu */

    /* scales */
    bool embedding_scale_sqrt;          /* gemma: embeddings times sqrt(n_embd) */
    bool logit_scale_divides;           /* granite: logits are divided by logit_scale */
    float embedding_scale, logit_scale; /* where the file does not say; 0: 1 */
};

/* What differs from layer to layer. */
struct layer_form {
    uint32_t n_head, n_head_kv;
    uint32_t dim_k, dim_v; /* of a head, as they are cached */
    uint32_t n_rot;        /* 0: no positions */
    uint32_t n_ff;         /* of a dense part */
    uint32_t kv_layer;     /* whose keys and values it sees; its own, or an earlier layer's */
    bool is_windowed;
    uint32_t summary;  /* tokens that a summary stands for; 0: it has none */
    bool has_indexer;  /* of its own; else it sees what the layer before it saw, or with blocks all;
                          summaries that it picks from overlap */
    bool is_recurrent; /* keeps a state; then n_head_kv is 0 */
    bool has_no_mixer; /* a feed-forward alone; then n_head_kv is 0 */
    bool has_no_ffn;
    bool is_mixture;
    float experts_clamp, shared_clamp; /* SwiGLU's halves are clamped to it; 0: not */
};

/* What picks the cells that a layer's attention sees (engine/graph_indexer.c). */
struct indexer_form {
    uint32_t n_head, dim; /* of its queries; all share a key. 0: there is none */
    uint32_t top_k;       /* cells that a row sees, at most; or blocks, for each KV head its own */
    uint32_t block;       /* cells of a block; 0: cells are picked one by one */
    uint32_t n_local;     /* of the last blocks, that are seen in any case */
};

/* Layers that see a window, and summaries of all tokens (engine/graph_summaries.c). */
struct summary_form {
    bool is_there;
    float rope_base;         /* of layers with summaries; the others are not scaled */
    uint32_t out_groups;     /* of heads, whose values are projected apart */
    uint32_t out_rank;       /* … to so many values each */
    uint32_t n_token_routed; /* the first layers, whose experts follow from the token */
};
enum { SUMMARY_SHORT = 4, SUMMARY_LONG = 128 }; /* tokens */

/* Hyper-connections (engine/graph_streams.c). */
struct streams_form {
    uint32_t n;            /* residual streams; 0: the plain one */
    uint32_t n_iterations; /* of Sinkhorn's normalisation */
    float epsilon;
};

/* What layers with a state keep, for each sequence: the last inputs of a causal convolution, and
 * for each head a matrix. */
struct recurrent_form {
    uint32_t kernel;   /* of the convolution; its state has one input less. 0: no convolution */
    uint32_t channels; /* that it goes over */
    uint32_t n_head, n_group; /* heads; groups of them that share a key. 0: no matrices */
    uint32_t dim_k, dim_v;    /* of a head's matrix */
    float decay_bound;        /* delta_decay_is_bounded */
};
uint32_t recurrent_convolution_values(const struct recurrent_form *form); /* of a sequence */
uint32_t recurrent_matrix_values(const struct recurrent_form *form);

struct hyperparameters {
    uint32_t n_layers, n_embd, n_vocab, n_context_train;
    uint32_t n_context_max;     /* a longer one is refused; 0: none is */
    uint32_t n_layers_file;     /* with those of multi-token prediction, which are not run */
    uint32_t n_head, n_head_kv; /* the most that a layer has */
    uint32_t n_head_dim_k, n_head_dim_v; /* the most that a layer's heads have */
    uint32_t n_ff, n_ff_expert, n_ff_shared, n_experts, n_experts_used;
    uint32_t residual_period; /* every so many layers the hidden state is kept, for later layers;
                                 0: none is (engine/graph_residual.c) */
    float situ_beta, situ_linear_beta; /* of ACT_SITU; the second 0: none */
    uint32_t n_layer_input;   /* values of an embedding that each layer has for a token; 0: none */
    uint32_t n_carried;       /* values of a row that go from stage to stage beside n_embd */
    uint32_t n_latent_expert; /* routed experts work on so many values; 0: n_embd */
    struct recurrent_form recurrent;
    struct indexer_form indexer;
    struct summary_form summaries;
    struct streams_form streams;
    uint32_t n_expert_groups, n_expert_groups_used; /* 1, 1: no groups */
    uint32_t n_leading_dense, mixture_period; /* layers before it, and all but every n-th: dense */
    uint32_t n_rot, n_context_original;
    uint32_t window;      /* tokens that windowed layers keep; 0: none */
    uint32_t window_seen; /* … and of those see */
    uint32_t window_period;
    uint32_t window_reach;            /* of centred windows: tokens on each side; 0: none is */
    uint32_t n_latent_q, n_latent_kv; /* latent attention; 0: none (q: not compressed) */
    uint32_t n_latent_dim_k, n_latent_dim_v; /* a head's, unpacked */
    float alibi_max;                         /* of the bias by distance; 0: none */
    bool reads_whole;       /* a token sees those behind it, too: a text goes through at once */
    bool gives_no_logits;   /* vectors or scores alone */
    bool has_fused_gate;    /* ffn_up holds gate and up */
    bool has_fused_experts; /* one tensor holds gate and up of all experts */
    enum pooling pooling;
    uint32_t n_token_types, n_labels; /* of a rank head: scores that it gives */
    uint32_t given_width;  /* values of a picture's row: n_embd, and n_deepstack times as many more;
                              0: it takes no pictures */
    uint32_t given_layers; /* the first layers, that take a part of it */
    uint32_t n_deepstack;  /* parts of a picture's row beside that which stands for an embedding */
    enum rope_axes rope_axes;  /* AXES_NONE: the file has no sections, and positions are one */
    uint32_t rope_sections[4]; /* pairs of a head that are turned by time, height, width, no axis;
                                  0: all by the position */
    bool is_latent_absorbed;   /* the caches hold the latent itself, one head for all */
    enum norm_kind norm;
    float norm_epsilon;
    float rope_base, rope_base_window;
    float rope_frequency_scale; /* 1 / factor for linear and yarn */
    enum rope_scaling rope_scaling;
    float yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    float yarn_score_scale;                 /* squared in attention_scale already; 1: none */
    float attention_softcap, final_softcap; /* 0: none */
    float attention_scale;                  /* multiplied into Q.K */
    float value_scale;                      /* of attention's result; 1: none */
    /* queries are multiplied by 1 + scale ln(1 + floor((position + offset) / length)); 0: not */
    float temperature_scale, temperature_offset;
    uint32_t temperature_length;
    bool temperature_is_unrotated; /* … of layers without positions alone */
    float embedding_scale, residual_scale,
        logit_scale; /* 1: none; logits are multiplied by logit_scale */
    enum gating gating;
    enum expert_sum expert_sum;
    float expert_weight_scale; /* 1: none */
    struct layer_form layers[LIMIT_LAYERS];
};

const struct architecture *architecture_find(const char *name); /* NULL: unknown */
uint32_t architecture_count(void);
const struct architecture *architecture_at(uint32_t index);

/* Reads and checks every hyper-parameter of the family from the file. */
enum error_code hyperparameters_read(const struct architecture *architecture,
                                     const struct gguf_file *file, struct hyperparameters *out,
                                     struct error *err);

/* What a layer needs to make summaries: of a token so many values, in both ways, and their gates,
 * F32, for as long as the window. 0: it has none. */
uint32_t hyperparameters_draft_values(const struct hyperparameters *hyperparameters,
                                      const struct layer_form *form);
/* A summary of `dim` values takes so many of each of its cells. */
static inline uint32_t summary_width(uint32_t summary, uint32_t dim)
{
    return (dim + summary - 1) / summary;
}
/* True when the layer keeps the last `window` tokens and nothing of those before. */
bool hyperparameters_layer_windowed(const struct hyperparameters *hyperparameters, uint32_t layer);
/* Whether every layer's heads are whole blocks of so many values. */
bool hyperparameters_heads_fit(const struct hyperparameters *hyperparameters, uint32_t block);
/* True when some layers keep a state, which stands for one length of a sequence alone. */
bool hyperparameters_has_states(const struct hyperparameters *hyperparameters);
/* Some layers see the keys and values of an earlier one, and have none. */
bool hyperparameters_shares_kv(const struct hyperparameters *hyperparameters);
/* The layer whose keys and values others see, too, windowed or not; n_layers: there is none. */
uint32_t hyperparameters_shared_layer(const struct hyperparameters *hyperparameters, bool windowed);
/* F32 values of state that the layer keeps for a sequence; 0: none. */
uint64_t hyperparameters_state_values(const struct hyperparameters *hyperparameters,
                                      uint32_t layer);
/* After so many layers their forms come again, leading dense ones aside. */
uint32_t hyperparameters_period(const struct hyperparameters *hyperparameters);

/* The role's name in the file, written out for `layer`. */
void tensor_role_name(enum tensor_role role, uint32_t layer, char *out, size_t out_size);
/* The name that some files give it instead. False: there is none. */
bool tensor_role_other_name(enum tensor_role role, uint32_t layer, char *out, size_t out_size);
/* One matrix an expert. */
bool tensor_role_is_of_experts(enum tensor_role role);
bool tensor_role_per_layer(enum tensor_role role);
/* Which stages have the role's tensor. */
enum tensor_place { PLACE_LAYER, PLACE_EVERYWHERE, PLACE_FIRST, PLACE_LAST };
enum tensor_place tensor_role_place(enum tensor_role role);
/* Added, multiplied or convolved with, never a product's matrix: F32. */
bool tensor_role_is_elementwise(enum tensor_role role);

/* The shape that the role's tensor must have in that layer: ne[0..2], 0 where there is no such
 * dimension. */
void tensor_role_shape(const struct architecture *architecture,
                       const struct hyperparameters *hyperparameters, enum tensor_role role,
                       uint32_t layer, int64_t ne[3]);

/* Roles that this layer must have (and the model, outside its layers), and those that it may have.
 * Q, K, V and QKV are not needed: a layer has the three or the one. */
role_set architecture_roles_needed(const struct architecture *architecture,
                                   const struct hyperparameters *hyperparameters, uint32_t layer);
role_set architecture_roles_allowed(const struct architecture *architecture,
                                    const struct hyperparameters *hyperparameters, uint32_t layer);
