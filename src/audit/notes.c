#include "audit/notes.h"

#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ADDRESS_TEXT = 64, NOTES_READY = 2 * LIMIT_AUDIT_BURST };

struct alike { /* notes of one kind from one address, in one time */
    char what[AUDIT_WHAT_TEXT], address[ADDRESS_TEXT];
    uint64_t since_ms, window_ms; /* 0: the place is free */
    uint64_t told, more;          /* entries of their own, and those that are only counted */
    struct told_note last;
};

struct audit_notes {
    struct alike kinds[LIMIT_AUDIT_ALIKE_KINDS];
    struct alike others; /* from addresses for which there is no place */
    uint64_t refilled_ms;
    uint32_t left; /* entries that may be told now */
    bool filled;   /* `left` was set once */
    uint32_t n_ready;
    struct told_note ready[NOTES_READY];
};

struct audit_notes *notes_new(void)
{
    return mem_new(sizeof(struct audit_notes));
}

void notes_free(struct audit_notes *notes)
{
    mem_free(notes);
}

/* ---- how many ---- */

static void notes_refill(struct audit_notes *notes, uint64_t now_ms)
{
    if (!notes->filled) {
        notes->filled = true;
        notes->left = LIMIT_AUDIT_BURST;
        notes->refilled_ms = now_ms;
    }
    const uint64_t n = (now_ms - notes->refilled_ms) / LIMIT_AUDIT_REFILL_MS;
    notes->refilled_ms += n * LIMIT_AUDIT_REFILL_MS;
    notes->left =
        n + notes->left > LIMIT_AUDIT_BURST ? LIMIT_AUDIT_BURST : notes->left + (uint32_t)n;
}

/* Whether anybody on the network can bring it about, as often as he likes. */
static bool note_is_strangers(const char *what)
{
    return strcmp(what, AUDIT_LOGIN_REFUSED) == 0 || strcmp(what, AUDIT_JOIN_FAILED) == 0;
}

static bool notes_have_room(const struct audit_notes *notes, const char *what)
{
    const uint32_t spared = note_is_strangers(what) ? LIMIT_AUDIT_BURST / 2 : 0;
    return notes->left > spared && notes->n_ready < NOTES_READY;
}

static void notes_ready(struct audit_notes *notes, const struct told_note *told)
{
    assert(notes->left && notes->n_ready < NOTES_READY);
    notes->left--;
    notes->ready[notes->n_ready++] = *told;
}

/* ---- alike ---- */

static struct alike *notes_find_alike(struct audit_notes *notes, const char *what,
                                      const char *address)
{
    struct alike *free_place = NULL;
    const bool spares = note_is_strangers(what); /* a quarter of the places, for others */
    for (uint32_t i = 0; i < LIMIT_AUDIT_ALIKE_KINDS; i++) {
        struct alike *at = &notes->kinds[i];
        if (!at->window_ms && (!spares || i >= LIMIT_AUDIT_ALIKE_KINDS / 4))
            free_place = free_place ? free_place : at;
        else if (!at->window_ms)
            continue;
        else if (strcmp(at->what, what) == 0 && strcmp(at->address, address) == 0)
            return at;
    }
    struct alike *place = free_place ? free_place : &notes->others;
    if (place->window_ms && strcmp(place->what, what) != 0)
        audit_text(place->what, sizeof place->what, AUDIT_SEVERAL_KINDS);
    if (place->window_ms)
        return place;
    *place = (struct alike){.window_ms = LIMIT_AUDIT_WINDOW_MS};
    audit_text(place->what, sizeof place->what, what);
    audit_text(place->address, sizeof place->address,
               place == &notes->others ? "other addresses" : address);
    return place;
}

/* A time is over: what was only counted is told, and the next is twice as long. */
static void alike_end_window(struct audit_notes *notes, struct alike *alike, uint64_t now_ms,
                             uint64_t wall_ms)
{
    if (!alike->window_ms || now_ms - alike->since_ms < alike->window_ms)
        return;
    if (!alike->more) {
        alike->window_ms = 0;
        return;
    }
    if (!notes_have_room(notes, alike->what))
        return; /* they go on being counted */
    struct told_note merged = alike->last;
    merged.time_ms = wall_ms;
    char text[AUDIT_SUBJECT_TEXT];
    snprintf(text, sizeof text, "%" PRIu64 " more like this from %s in %" PRIu64 " s", alike->more,
             alike->address[0] ? alike->address : "here", (now_ms - alike->since_ms) / 1000);
    audit_text(merged.subject, sizeof merged.subject, text);
    if (alike == &notes->others)
        merged.who[0] = 0;
    notes_ready(notes, &merged);
    alike->since_ms = now_ms;
    alike->told = LIMIT_AUDIT_ALIKE; /* none by itself while they go on */
    alike->more = 0;
    alike->window_ms = 2 * alike->window_ms < LIMIT_AUDIT_WINDOW_MS_MAX
                           ? 2 * alike->window_ms
                           : (uint64_t)LIMIT_AUDIT_WINDOW_MS_MAX;
}

void notes_add(struct audit_notes *notes, uint64_t now_ms, uint64_t wall_ms,
               const struct audit_note *note)
{
    const char *address = note->address ? note->address : "";
    struct told_note told = {.time_ms = wall_ms};
    assert(note->what && note->what[0]);
    notes_refill(notes, now_ms);
    audit_text(told.what, sizeof told.what, note->what);
    audit_text(told.who, sizeof told.who, note->who);
    audit_text(told.subject, sizeof told.subject, note->subject);
    audit_text(told.outcome, sizeof told.outcome, note->outcome);
    struct alike *alike = notes_find_alike(notes, told.what, address);
    if (!alike->told && !alike->more)
        alike->since_ms = now_ms;
    alike->last = told;
    if (alike->told < LIMIT_AUDIT_ALIKE && alike != &notes->others &&
        notes_have_room(notes, told.what)) {
        alike->told++;
        notes_ready(notes, &told);
    } else {
        alike->more++;
    }
}

void notes_add_own(struct audit_notes *notes, const struct told_note *note)
{
    if (notes->n_ready < NOTES_READY)
        notes->ready[notes->n_ready++] = *note;
}

uint32_t notes_take(struct audit_notes *notes, uint64_t now_ms, uint64_t wall_ms,
                    struct told_note *out, uint32_t max)
{
    notes_refill(notes, now_ms);
    for (uint32_t i = 0; i < LIMIT_AUDIT_ALIKE_KINDS; i++)
        alike_end_window(notes, &notes->kinds[i], now_ms, wall_ms);
    alike_end_window(notes, &notes->others, now_ms, wall_ms);
    const uint32_t n = notes->n_ready < max ? notes->n_ready : max;
    memcpy(out, notes->ready, n * sizeof *out);
    notes->n_ready -= n;
    memmove(notes->ready, notes->ready + n, notes->n_ready * sizeof *out);
    return n;
}

void notes_give_back(struct audit_notes *notes, const struct told_note *list, uint32_t n)
{
    const uint32_t room = NOTES_READY - notes->n_ready;
    n = n < room ? n : room;
    memmove(notes->ready + n, notes->ready, notes->n_ready * sizeof *list);
    memcpy(notes->ready, list, n * sizeof *list);
    notes->n_ready += n;
}
