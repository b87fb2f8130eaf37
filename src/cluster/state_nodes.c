/* Events of nodes, links, models and settings. */
#include "cluster/state_impl.h"

#include "base/limits.h"
#include "base/mem.h"

#include <string.h>

static Cluster__NodeRecord *find_node(Cluster__State *s, const char *id, size_t *at)
{
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (same_text(s->nodes[i]->node->id, id)) {
            if (at)
                *at = i;
            return s->nodes[i];
        }
    }
    return NULL;
}

static const char *check_node(const Cluster__State *s, const Cluster__Node *node)
{
    if (!good_text(node->id) || !good_text(node->name))
        return "the node has no id or name";
    if (node->n_devices > LIMIT_DEVICES)
        return "the node has too many devices";
    for (size_t i = 0; i < node->n_devices; i++) {
        if (!good_text(node->devices[i]->id))
            return "a device has no id";
        for (size_t j = 0; j < i; j++) {
            if (same_text(node->devices[i]->id, node->devices[j]->id))
                return "two devices have one id";
        }
    }
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (node->member && s->nodes[i]->node->member == node->member &&
            !same_text(s->nodes[i]->node->id, node->id))
            return "another node has this member id";
    }
    return NULL;
}

const char *apply_node_joined(Cluster__State *s, Cluster__Event *e)
{
    const char *reason = check_node(s, e->node_joined);
    if (reason)
        return reason;
    if (find_node(s, e->node_joined->id, NULL))
        return "the node is there already";
    if (roles_was_removed(s, e->node_joined->id))
        return "the node was removed: it can come back with a new key alone";
    if (s->n_nodes == LIMIT_CLUSTER_NODES)
        return "there are too many nodes";
    ProtobufCMessage *message = NULL;
    if (!list_reserve(&s->nodes, s->n_nodes) ||
        message_decode(&cluster__node_record__descriptor, (const uint8_t *)"", 0, &message, NULL))
        return no_memory;
    Cluster__NodeRecord *record = (Cluster__NodeRecord *)message;
    record->node = e->node_joined;
    e->node_joined = NULL;
    LIST_ADD(s->nodes, s->n_nodes, record);
    return NULL;
}

const char *apply_node_admitted(Cluster__State *s, Cluster__Event *e)
{
    Cluster__NodeRecord *record = find_node(s, e->node_admitted->id, NULL);
    if (!record)
        return "there is no such node";
    if (record->admitted)
        return "the node was let in already";
    record->has_admitted = record->admitted = true;
    return NULL;
}

const char *apply_node_removed(Cluster__State *s, Cluster__Event *e)
{
    size_t at;
    const char *id = e->node_removed->id;
    if (!find_node(s, id, &at))
        return "there is no such node";
    if (s->has_cluster && roles_is_admin(s, id) && roles_n_admins(s) == 1)
        return "it is the last admin: make another node one first";
    if (s->has_cluster && !roles_note_removed(s, id))
        return no_memory;
    for (size_t i = s->n_links; i-- > 0;) {
        if (same_text(s->links[i]->from, id) || same_text(s->links[i]->to, id))
            list_remove(&s->links, &s->n_links, i);
    }
    for (size_t i = s->n_settings; i-- > 0;) {
        const char *key = s->settings[i]->key;
        if (strncmp(key, STATE_DRAIN, strlen(STATE_DRAIN)) == 0 &&
            strcmp(key + strlen(STATE_DRAIN), id) == 0)
            list_remove(&s->settings, &s->n_settings, i);
    }
    list_remove(&s->nodes, &s->n_nodes, at);
    fail_lost_stages(s);
    return NULL;
}

const char *apply_node_updated(Cluster__State *s, Cluster__Event *e)
{
    const char *reason = check_node(s, e->node_updated);
    Cluster__NodeRecord *record = find_node(s, e->node_updated->id, NULL);
    if (reason || !record)
        return reason ? reason : "there is no such node";
    Cluster__Node *old = record->node;
    record->node = e->node_updated;
    e->node_updated = old; /* is freed with the event */
    fail_lost_stages(s);
    return NULL;
}

static Cluster__Link **find_link(Cluster__State *s, const Cluster__Link *like)
{
    for (size_t i = 0; i < s->n_links; i++) {
        if (same_text(s->links[i]->from, like->from) && same_text(s->links[i]->to, like->to))
            return &s->links[i];
    }
    return NULL;
}

/* All of them or none. */
const char *apply_links(Cluster__State *s, Cluster__Event *e)
{
    Cluster__Links *links = e->links_measured;
    if (links->n_links == 0 || links->n_links > LIMIT_CLUSTER_NODES)
        return "no links, or too many at once";
    for (size_t i = 0; i < links->n_links; i++) {
        const Cluster__Link *link = links->links[i];
        if (!find_node(s, link->from, NULL) || !find_node(s, link->to, NULL) ||
            same_text(link->from, link->to))
            return "a link's end is not a node";
        for (size_t j = 0; j < i; j++) {
            if (same_text(link->from, links->links[j]->from) &&
                same_text(link->to, links->links[j]->to))
                return "a link is there twice";
        }
    }
    if (!list_reserve(&s->links, s->n_links + links->n_links))
        return no_memory;
    for (size_t i = 0; i < links->n_links; i++) {
        Cluster__Link **old = find_link(s, links->links[i]), *link = links->links[i];
        if (old) {
            links->links[i] = *old;
            *old = link;
        } else {
            links->links[i] = NULL;
            LIST_ADD(s->links, s->n_links, link);
        }
    }
    /* What was taken leaves no holes behind for who frees the event. */
    size_t left = 0;
    for (size_t i = 0; i < links->n_links; i++) {
        if (links->links[i])
            links->links[left++] = links->links[i];
    }
    links->n_links = left;
    return NULL;
}

/* ---- models and settings ---- */

static Cluster__Model **find_model(Cluster__State *s, const char *name)
{
    for (size_t i = 0; i < s->n_models; i++) {
        if (same_text(s->models[i]->name, name))
            return &s->models[i];
    }
    return NULL;
}

static bool model_in_use(const Cluster__State *s, const char *name)
{
    for (size_t i = 0; i < s->n_instances; i++) {
        if (same_text(s->instances[i]->model, name))
            return true;
    }
    return false;
}

const char *apply_model_registered(Cluster__State *s, Cluster__Event *e)
{
    Cluster__Model *model = e->model_registered;
    if (!good_text(model->name) || model->manifest.len != 32 || model->n_layers == 0 ||
        model->n_layers > LIMIT_LAYERS)
        return "the model has no name, no manifest or no layers";
    if (model->defaults &&
        strnlen(model->defaults, LIMIT_MODEL_DEFAULTS_BYTES) == LIMIT_MODEL_DEFAULTS_BYTES)
        return "the model's defaults are too long";
    Cluster__Model **old = find_model(s, model->name);
    if (old &&
        ((*old)->manifest.len != 32 ||
         memcmp((*old)->manifest.data, model->manifest.data, 32) != 0) &&
        model_in_use(s, model->name))
        return "another model of that name is in use";
    if (old) {
        e->model_registered = *old;
        *old = model;
        return NULL;
    }
    if (s->n_models == LIMIT_CLUSTER_MODELS)
        return "there are too many models";
    if (!list_reserve(&s->models, s->n_models))
        return no_memory;
    e->model_registered = NULL;
    LIST_ADD(s->models, s->n_models, model);
    return NULL;
}

const char *apply_model_forgotten(Cluster__State *s, Cluster__Event *e)
{
    Cluster__Model **model = find_model(s, e->model_forgotten->name);
    if (!model)
        return "there is no such model";
    if (model_in_use(s, e->model_forgotten->name))
        return "the model is in use";
    list_remove(&s->models, &s->n_models, (size_t)(model - s->models));
    return NULL;
}

/* A setting without a value is gone. */
const char *apply_setting(Cluster__State *s, Cluster__Event *e)
{
    Cluster__Setting *setting = e->setting_changed;
    const bool empty = !setting->value || !setting->value[0];
    if (!good_text(setting->key) || (!empty && !good_text(setting->value)))
        return "the setting has no key, or its value is too long";
    for (size_t i = 0; i < s->n_settings; i++) {
        if (!same_text(s->settings[i]->key, setting->key))
            continue;
        if (empty) {
            list_remove(&s->settings, &s->n_settings, i);
        } else {
            e->setting_changed = s->settings[i];
            s->settings[i] = setting;
        }
        return NULL;
    }
    if (empty || s->n_settings == LIMIT_CLUSTER_SETTINGS)
        return empty ? "there is no such setting" : "there are too many settings";
    if (!list_reserve(&s->settings, s->n_settings))
        return no_memory;
    e->setting_changed = NULL;
    LIST_ADD(s->settings, s->n_settings, setting);
    return NULL;
}
