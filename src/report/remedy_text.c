#include "report/remedy.h"

#include "base/size_text.h"

static void remedy_text_say_change(const struct placement_problem *problem,
                                   const struct placement_kv_types *kv_types,
                                   const struct placement_remedy *remedy, struct buffer *text)
{
    const struct placement_demand *demand = &problem->demand;
    const struct placement_device *device = &problem->devices[remedy->device];
    const char *between = "";
    if (remedy->kv_type[0]) {
        buffer_printf(text, "a KV cache in %s instead of %s", remedy->kv_type,
                      kv_types->current.name);
        between = ", ";
    }
    if (remedy->streams != demand->streams) {
        buffer_printf(text, "%s%u stream%s instead of %u", between, remedy->streams,
                      remedy->streams == 1 ? "" : "s", demand->streams);
        between = ", ";
    }
    if (remedy->context_tokens != demand->context_tokens)
        buffer_printf(text, "%sa context of %u tokens instead of %u", between,
                      remedy->context_tokens, demand->context_tokens);
    if (remedy->kind == PLACEMENT_REMEDY_FREE_MEMORY)
        buffer_printf(text, "%s more memory free on %s of %s", size_text(remedy->bytes).text,
                      device->id, device->node);
    if (remedy->kind == PLACEMENT_REMEDY_ADD_DEVICE)
        buffer_printf(text, "one more device with %s free, linked as %s of %s is",
                      size_text(remedy->bytes).text, device->id, device->node);
}

void placement_remedies_text(const struct placement_problem *problem,
                             const struct placement_kv_types *kv_types,
                             const struct placement_remedies *remedies, struct buffer *text)
{
    if (remedies->fits) {
        buffer_text(text, "It fits.\n");
        return;
    }
    if (remedies->undecided) {
        buffer_text(text, "Found no placement in time, and no proof that there is none.\n");
        return;
    }
    buffer_printf(text, "It fits nowhere: %s\n", remedies->why);
    buffer_printf(text, "  needed  %s, there  %s beside buffers\n",
                  size_text(remedies->needed_bytes).text, size_text(remedies->there_bytes).text);
    if (remedies->missing_bytes)
        buffer_printf(text, "  missing %s under the best packing\n",
                      size_text(remedies->missing_bytes).text);
    buffer_text(text, remedies->n ? "It would fit with any of\n"
                                  : "No single change was found that would help.\n");
    for (uint32_t i = 0; i < remedies->n; i++) {
        const struct placement_remedy *remedy = &remedies->list[i];
        buffer_text(text, "  ");
        remedy_text_say_change(problem, kv_types, remedy, text);
        buffer_printf(text, ": %.1f tok/s%s\n", remedy->rates.decode_tokens_per_s,
                      remedy->least ? "" : " (less of a change may do)");
    }
}
