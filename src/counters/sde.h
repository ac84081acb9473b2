/** gradwire's own counts as software-defined events of PAPI (component sde), for PAPI's other tools
 *  and for --papi-events: sde:::gradwire::wire_bytes, messages, collectives and batches of this
 *  process, inside batches. */
#ifndef GW_COUNTERS_SDE_H
#define GW_COUNTERS_SDE_H

/** Register them; call it before PAPI starts. Does nothing without PAPI's libsde. */
void gw_sde_offer(void);

#endif
