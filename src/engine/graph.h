/* The compute graph of one stage for one batch shape.
 *
 * Shapes in the comments are ggml's: the fastest dimension first. d = head_dim, t = rows of
 * the batch, r = rows of one slot of a group, s = slots of a group, c = KV cells. */
#pragma once

#include "engine/batch_shape.h"
#include "engine/kv_cache.h"
#include "engine/recurrent_state.h"
#include "engine/weights.h"
#include "kernels/attention.h"
#include "model/architecture.h"

#include <ggml.h>

/* Our own attention, which a graph on the CPU computes instead of ggml's; see attention.h. */
struct graph_attention {
    const struct attention_kernel *kernel;
    uint32_t n_threads; /* that compute, at most */
    struct attention_form form;
    const struct kv_map *map; /* of a pool's extents; NULL: a slot's cells stand together */
};

/* The name of a layer's last node, before its index in the stage; the last layer's is "result"
 * where that is what comes out. */
#define GRAPH_LAYER_END "layer_end_"

struct graph_source { /* what graphs are built from; constant for a stage */
    const struct architecture *architecture;
    const struct hyperparameters *hyperparameters;
    const struct stage_weights *weights;
    const struct kv_cache *kv;
    const struct recurrent_state *state;
    bool first, last;
    bool flash;
    const struct graph_attention *attention; /* [n_layers]; NULL: ggml's */
    const struct product_kernel *products;   /* product_ggml.h's; NULL: ggml's */
    struct ggml_tensor *rope_factors;        /* NULL: none */
};

/* Of a layer and a group of slots, at most. */
enum { GRAPH_RECURRENT_NODES = 56, GRAPH_ATTENTION_NODES = 24, GRAPH_INDEXER_NODES = 20 };
enum { GRAPH_HEAD_NODES = 16 };     /* and of a KV head with a mask of its own */
enum { GRAPH_SUMMARY_NODES = 180 }; /* of a layer with streams and summaries, beside the usual */

struct graph_summaries {        /* inputs of layers with summaries of one length; or NULL */
    struct ggml_tensor *phases; /* I32 [t]      rows' places in their summaries */
    struct ggml_tensor *reads;  /* I32 [reads of each, n made] rows of drafts */
    struct ggml_tensor *unseen; /* F32 [1, reads of each, n made] -inf where there is no such token;
                                   NULL: of long ones */
    struct ggml_tensor *starts; /* I32 [n made] positions of their first tokens */
    struct ggml_tensor *rows;   /* I64 [n made] where they go */
    struct ggml_tensor *mask;   /* F16 [summaries, t] 0 or -inf */
};

struct graph {
    struct ggml_context *context;
    struct ggml_cgraph *cgraph;
    struct custom_runs *runs; /* of a few rows on the CPU; or NULL */
    struct batch_shape shape;
    /* inputs */
    struct ggml_tensor *tokens;    /* I32 [t]          the first stage */
    struct ggml_tensor *hidden;    /* F32 [n_embd + n_carried, t] the others */
    struct ggml_tensor *positions; /* I32 [t] */
    struct ggml_tensor *given; /* F32 [n_embd * (1 + n_deepstack), n_given]  pictures; or NULL */
    struct ggml_tensor *given_rows;   /* I64 [n_given]    the rows that they are; or NULL */
    struct ggml_tensor *given_picks;  /* I32 [n_given]    the same, to read them; or NULL */
    struct ggml_tensor *ahead;        /* I32 [t]          cells behind its own that a row sees, for
                                         our attention; or NULL */
    struct ggml_tensor *turns;        /* I32 [4 t]        positions on each axis; or NULL */
    struct ggml_tensor *types;        /* I32 [t]          of tokens, all 0; or NULL */
    struct ggml_tensor *cells;        /* I64 [t]          where K and V go; NULL when every layer is
                                         a ring */
    struct ggml_tensor *cells_window; /* I64 [t]          in rings; NULL without them */
    struct ggml_tensor *sequences;    /* I32 [t]          rows' slots; NULL without a pool */
    struct ggml_tensor *extents;      /* I32 [n_gathered] of a pool, that are gathered; or NULL */
    struct ggml_tensor *temperatures; /* F32 [1, 1, t] that queries are multiplied by; or NULL */
    struct ggml_tensor *mask; /* F16 [c, t]       0 or -inf; NULL when every layer is windowed, or
                                 `attention` is ours */
    struct ggml_tensor *mask_window;  /* F16 [their c, t] for windowed layers; NULL likewise */
    struct ggml_tensor *local_blocks; /* F32 [blocks, t]  what an indexer adds to their scores; or
                                         NULL */
    struct graph_summaries summaries[2]; /* short ones, long ones */
    struct ggml_tensor *slots;   /* I32 [n_slots]    0, 1, 2, …, for a state space; or NULL */
    struct ggml_tensor *slopes;  /* F32 [1, n_head]  of lightning attention; or NULL */
    struct ggml_tensor *scratch; /* I8               what our attention needs beside; else NULL */
    struct ggml_tensor *outputs; /* I32 [n_outputs]  rows that the last stage gives; NULL when it
                                    gives all or none */
    struct ggml_tensor
        *result; /* F32 [n_embd or n_vocab, t or n_outputs]; NULL when nothing comes out */
};

size_t graph_nodes_per_layer(const struct graph_source *source); /* beside those of groups */
size_t graph_nodes_per_group(const struct graph_source *source);

/* `n_nodes_max` and the context's size follow from the shape. NULL when there is no memory. */
enum error_code graph_build(struct graph *graph, const struct graph_source *source,
                            const struct batch_shape *shape, struct error *err);
void graph_deinit(struct graph *graph);

/* ---- for graph.c and its parts ---- */
struct graph_shared {          /* keys and values that later layers see, too */
    struct ggml_tensor *k, *v; /* the batch's: [d, n_head_kv, t]; NULL: no layer so far has them */
    struct ggml_tensor *k_cache, *v_cache; /* after they were written; NULL: not yet */
};

struct graph_build {
    struct ggml_context *ctx;
    struct ggml_cgraph *cgraph;
    const struct graph_source *source;
    const struct architecture *architecture;
    const struct hyperparameters *h;
    struct graph *graph;
    struct ggml_tensor *rounded,
        *rounded_of; /* the last that product_rounded() made, and of what */
    enum ggml_type rounded_for;
    struct ggml_tensor *tokens;                  /* I32 [t], where layers choose by them; or NULL */
    struct ggml_tensor *layer_inputs;            /* [n_layer_input, n_layers, t]; NULL: none */
    struct graph_shared shared[2];               /* of full layers, of windowed ones */
    struct ggml_tensor *index_q, *index_weights; /* [dim, n_head, t], [n_head, t] of an indexer */
    struct ggml_tensor *chosen; /* I32 [n, t]: cells that it chose; NULL: none, or all are seen */
    struct ggml_tensor *kept;   /* [n_embd, n, t] residuals of earlier blocks; NULL: none */
    struct ggml_tensor *chosen_masks[LIMIT_SEQUENCES]; /* of groups: F16 [c, r, 1, s]; or NULL */
};

/* y = matrix . x (+ bias); `bias` may be NULL. */
struct ggml_tensor *graph_linear(struct graph_build *b, struct ggml_tensor *matrix,
                                 struct ggml_tensor *bias, struct ggml_tensor *x);
/* matrices [n, m, n_head], x [n, t, n_head]: [m, t, n_head], each head's of its own matrix. */
struct ggml_tensor *graph_linear_by_head(struct graph_build *b, struct ggml_tensor *matrices,
                                         struct ggml_tensor *x);
/* As ggml_mul_mat_id(); `chosen` I32 [n_used, t]. */
struct ggml_tensor *graph_linear_of(struct graph_build *b, struct ggml_tensor *matrices,
                                    struct ggml_tensor *x, struct ggml_tensor *chosen);
/* RMS norm over the fastest dimension, times `weight`. */
struct ggml_tensor *graph_norm(struct graph_build *b, struct ggml_tensor *x,
                               struct ggml_tensor *weight);
/* The cells of a slot that attention looks at. */
int64_t graph_seen_cells(const struct graph_build *b, bool windowed);
/* The form of the stage's layer `index` (from 0). */
const struct layer_form *graph_layer_form(const struct graph_build *b, uint32_t index);
/* Attention and feed-forward of that layer; x and result [n_embd, t]. */
struct ggml_tensor *graph_attention(struct graph_build *b, uint32_t index, struct ggml_tensor *x);
/* What stands in attention's place in a layer with a state. */
struct ggml_tensor *graph_recurrence(struct graph_build *b, uint32_t index, struct ggml_tensor *x);
struct ggml_tensor *graph_ffn(struct graph_build *b, uint32_t index, struct ggml_tensor *x);
/* Dense and experts beside each other, with norms of their own: x as it comes, y normed for the
 * dense part. */
struct ggml_tensor *graph_ffn_beside(struct graph_build *b, uint32_t index, struct ggml_tensor *x,
                                     struct ggml_tensor *y);
/* The family's norm of a block's or the output's inputs; `bias` may be NULL. */
struct ggml_tensor *graph_block_norm(struct graph_build *b, struct ggml_tensor *x,
                                     struct ggml_tensor *weight, struct ggml_tensor *bias);
/* ---- graph_attention.c, for graph_indexer.c and graph_summaries.c ---- */
/* The group's rows of Q: [d, r, n_head, s] */
struct ggml_tensor *graph_group_query(struct graph_build *b, struct ggml_tensor *q,
                                      const struct batch_group *group);
/* The group's rows of the mask: [c, r, 1, s] */
struct ggml_tensor *graph_group_mask(struct graph_build *b, struct ggml_tensor *mask,
                                     const struct batch_group *group);
/* ggml's attention of a group: [d_v * n_head, r s]. `sinks` may be NULL. */
struct ggml_tensor *graph_attend(struct graph_build *b, struct ggml_tensor *q,
                                 struct ggml_tensor *k, struct ggml_tensor *v,
                                 struct ggml_tensor *mask, struct ggml_tensor *sinks);
/* Where the batch's rows go in the layer's cache. */
struct ggml_tensor *graph_row_cells(const struct graph_build *b, uint32_t index);
/* Rows of the cache's type that a group's slots have: slot i's are cells first + i * step and on.
 */
struct cells_view {
    struct ggml_tensor *rows;
    size_t first, step;
};
struct cells_view graph_group_cells(struct graph_build *b, struct ggml_tensor *cache, bool is_ring,
                                    const struct batch_group *group);
/* Writes the batch's rows ([d, n_head_kv, t]) into the cache; the cache with them. */
struct ggml_tensor *graph_store(struct graph_build *b, struct ggml_tensor *cache,
                                struct ggml_tensor *rows, struct ggml_tensor *cells);
/* Turns the first values of each head by their positions. */
struct ggml_tensor *graph_rotate(struct graph_build *b, const struct layer_form *form,
                                 enum rope_kind kind, struct ggml_tensor *x);
/* ---- graph_given.c ---- */
void graph_given_inputs(struct graph_build *b);
/* x with a picture's values in its rows. */
struct ggml_tensor *graph_given_put(struct graph_build *b, struct ggml_tensor *x);
/* x, what comes out of that layer, and the part of pictures' rows that is added after it. */
struct ggml_tensor *graph_given_add(struct graph_build *b, uint32_t index, struct ggml_tensor *x);
/* ---- graph_carried.c ---- */
/* Whole numbers, I32 [n, t], as two numbers each that F16 holds exactly, F32 [2 n, t]; and back. */
struct ggml_tensor *graph_carried_digits(struct graph_build *b, struct ggml_tensor *numbers);
struct ggml_tensor *graph_carried_numbers(struct graph_build *b, struct ggml_tensor *digits,
                                          int64_t n);
/* What another stage gave: its hidden states, [n_embd, t], and into `b` what they carry. */
struct ggml_tensor *graph_carried_take(struct graph_build *b);
/* What another stage is given: [n_embd + n_carried, t] */
struct ggml_tensor *graph_carried_give(struct graph_build *b, struct ggml_tensor *x);
/* The embeddings of all layers for the batch's tokens, whose scaled embedding is x: into `b`. */
void graph_layer_inputs(struct graph_build *b, struct ggml_tensor *x);
/* x, and what the layer makes of its own embedding of the token (Gemma 3n). */
struct ggml_tensor *graph_layer_input(struct graph_build *b, uint32_t index, struct ggml_tensor *x,
                                      bool very_last);
/* ---- graph_indexer.c ---- */
/* The indexer's key into its cache, and its queries into `b`; x normed, [n_embd, t]. */
void graph_index(struct graph_build *b, uint32_t index, struct ggml_tensor *x,
                 struct ggml_tensor *q_latent);
/* Likewise of an indexer that picks blocks. */
void graph_index_blocks(struct graph_build *b, uint32_t index, struct ggml_tensor *x);
/* The group's mask of each KV head, without the blocks that were not chosen: F16 [c, r, n_head_kv,
 * s]. NULL: all are seen. */
struct ggml_tensor *graph_index_block_masks(struct graph_build *b, uint32_t index,
                                            const struct batch_group *group,
                                            struct ggml_tensor *mask);
/* The group's mask, without what the indexer did not choose. */
struct ggml_tensor *graph_index_mask(struct graph_build *b, uint32_t index, uint32_t group_index,
                                     struct ggml_tensor *mask);
/* The group's mask of summaries, without those that the indexer did not choose by their keys `k`.
 */
struct ggml_tensor *graph_index_summaries_mask(struct graph_build *b,
                                               const struct batch_group *group,
                                               struct ggml_tensor *k, struct ggml_tensor *mask);
/* What a row carries of it. NULL: nothing. */
void graph_index_take(struct graph_build *b, struct ggml_tensor *carried);
struct ggml_tensor *graph_index_give(struct graph_build *b);
/* ---- graph_residual.c ---- */
/* A layer whose branches take a mixture of x and the residuals of earlier blocks. */
struct ggml_tensor *graph_residual_layer(struct graph_build *b, uint32_t index,
                                         struct ggml_tensor *x, bool very_last);
struct ggml_tensor *graph_residual_mix(struct graph_build *b, struct ggml_tensor *x,
                                       struct ggml_tensor *weight);
/* ---- graph_streams.c ---- */
/* Streams, [n_embd, n, t], of embeddings; a layer; what the output takes of them, [n_embd, t]. */
struct ggml_tensor *graph_streams_begin(struct graph_build *b, struct ggml_tensor *x);
struct ggml_tensor *graph_streams_layer(struct graph_build *b, uint32_t index,
                                        struct ggml_tensor *x, bool very_last);
struct ggml_tensor *graph_streams_end(struct graph_build *b, struct ggml_tensor *x);
struct ggml_tensor *graph_streams_flat(struct graph_build *b, struct ggml_tensor *x);
/* ---- graph_summaries.c ---- */
/* Attention over a window and summaries; x normed, [n_embd, t]. */
struct ggml_tensor *graph_summaries_attention(struct graph_build *b, uint32_t index,
                                              struct ggml_tensor *x);
/* Summaries of so many tokens that a batch makes, at most one for each of a slot's rows: each
 * slot's run of rows begins with that of its first row. Drafts that each is made of. */
uint32_t graph_summaries_made(const struct batch_shape *shape, uint32_t summary);
uint32_t graph_summary_reads(uint32_t summary);
/* ---- graph_encoder.c ---- */
/* What an encoder's first block takes: the embeddings x of tokens, plus those of types and
 * positions, normed; [n_embd, t] */
struct ggml_tensor *graph_encoder_inputs(struct graph_build *b, struct ggml_tensor *x);
/* A block whose sums are normed. */
struct ggml_tensor *graph_encoder_layer(struct graph_build *b, uint32_t index,
                                        struct ggml_tensor *x, bool very_last);
/* Scores of each row, and zeros up to its width: [n_embd, t] */
struct ggml_tensor *graph_rank(struct graph_build *b, struct ggml_tensor *x);
/* The rows that are wanted, where not all are. */
struct ggml_tensor *graph_pick_rows(struct graph_build *b, struct ggml_tensor *x);
