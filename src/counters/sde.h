/** gradwire's own counts as software-defined events of PAPI (component sde), for its other tools
 * and for
 *  --papi-events: sde:::gradwire::wire_bytes, messages, collectives and batches, of this process,
 * inside batches. */
#ifndef GW_COUNTERS_SDE_H
#define GW_COUNTERS_SDE_H

/** Offer them; before PAPI starts. Without PAPI's libsde nothing happens. */
void gw_sde_offer(void);

#endif
