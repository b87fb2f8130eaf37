#include "model/symbol_list.h"

#include "base/mem.h"

#include <assert.h>

bool symbol_list_reset(struct symbol_list *list, size_t n)
{
    list->count = 0;
    if (n <= list->capacity)
        return true;
    size_t capacity = n + n / 2 + 64;
    struct symbol *symbols = mem_resize(list->symbols, capacity, sizeof *symbols);
    if (!symbols)
        return false;
    list->symbols = symbols;
    list->capacity = capacity;
    return true;
}

void symbol_list_append(struct symbol_list *list, int32_t value, size_t size)
{
    assert(list->count < list->capacity);
    size_t n = list->count++;
    struct symbol *before = n ? &list->symbols[n - 1] : NULL;
    list->symbols[n] = (struct symbol){
        .value = value,
        .size = (uint32_t)size,
        .start = before ? before->start + before->size : 0,
        .previous = (int32_t)n - 1,
        .next = -1,
    };
    if (before)
        before->next = (int32_t)n;
}

void symbol_list_join(struct symbol_list *list, uint32_t left, int32_t value)
{
    struct symbol *first = &list->symbols[left];
    assert(first->next >= 0);
    struct symbol *second = &list->symbols[first->next];
    first->value = value;
    first->size += second->size;
    second->size = 0;
    first->next = second->next;
    if (second->next >= 0)
        list->symbols[second->next].previous = (int32_t)left;
}

void symbol_list_deinit(struct symbol_list *list)
{
    mem_free(list->symbols);
    *list = (struct symbol_list){0};
}
