/* The sensors behind device_temperature_mc() and its like: opened by the first question.
 *
 * The first question waits for slow sources as sensors_open() does, and samples once; a question
 * that comes within 100 ms of a sample is answered from it. Any thread may ask. */
#pragma once

#include "sensors/sensors.h"

struct on_demand;

/* Copies the options' pointers, so that what they point to must outlive it; copies the devices.
 * NULL: no memory. */
struct on_demand *on_demand_new(const struct sensors_options *options, uint32_t n_devices);
void on_demand_set_device(struct on_demand *on_demand, uint32_t index,
                          const struct device_info *info);
void on_demand_free(struct on_demand *on_demand); /* NULL is fine; nobody may ask any more */

/* All invalid when the sensors could not be opened. */
struct sensor_device on_demand_read(struct on_demand *on_demand, uint32_t index);
