#!/bin/sh
# The card's settings. They are gone after a reboot, and after some drivers' resets: ExecStartPre=+ of the appliance with this file's path keeps them (with the +,
# as root: its own user may not), or a .link file of systemd does.
# Before anything is changed: ethtool -c, -g, -k, -a and -x show what there is to go back to.
set -eu

# The card does not hold its interrupt back to make one for several packets. (network-coalescing)
ethtool -C @INTERFACE@ adaptive-rx off rx-usecs 0

# It does not wait for more packets to merge; drivers refuse XDP beside it. (network-merging)
ethtool -K @INTERFACE@ lro off
ethtool -K @INTERFACE@ rx-gro-hw off || true

# One slow receiver on the switch does not stop this sender. (network-pause)
ethtool -A @INTERFACE@ autoneg off rx off tx off

# A burst finds slots while its reader is away for some µs. (network-ring)
ethtool -G @INTERFACE@ rx @RX_RING@

# All that comes by the hash comes to the appliance's queue. (network-spread)
ethtool -X @INTERFACE@ start @QUEUE@ equal 1
