package netns

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// SetLink sets the cable at a port down or up, in both directions, and routed switches reroute at
// once. A host loses its carrier but not its addresses and routes; between two hosts or two routed
// switches, packets are dropped without a loss of carrier.
//
// On a user-space cable its interfaces in the core namespace go down too: a
// packet socket of the program that forwards its frames returns ENETDOWN once.
func (f *Fabric) SetLink(port string, up bool) error {
	return f.withCable(port, func(c *cable, _ int) error {
		if c.down == !up {
			return nil
		}
		c.down = !up
		if err := f.applyLink(c); err != nil {
			// Restore the old state as far as possible, so that a retry is not ignored.
			c.down = up
			return fmt.Errorf("set %s: %w", upOrDown(up), errors.Join(err, f.applyLink(c)))
		}
		return nil
	})
}

// upOrDown returns the word for a state of a link.
func upOrDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// applyLink sets the interfaces of a cable to its state.
func (f *Fabric) applyLink(c *cable) error {
	if devices := c.devicesToSetDown(); devices != nil {
		for _, d := range devices {
			if err := d.setState(!c.down); err != nil {
				return err
			}
		}
		return errors.Join(c.ends[0].waitCarrier(!c.down), c.ends[1].waitCarrier(!c.down), f.reroute())
	}
	// An interface that goes down loses its IPv6 addresses, neighbours and routes.
	// Therefore both ends, which have addresses, stay up and drop all packets.
	for _, d := range c.ends {
		d.qdisc.blackhole = c.down
		if err := d.applyQdisc(); err != nil {
			return err
		}
	}
	return f.reroute()
}

// devicesToSetDown returns the interfaces of the cable that have no addresses and
// disconnect both ends when they are set down; nil if there are none.
func (c *cable) devicesToSetDown() []*device {
	if c.halves[0] != nil { // the ends of a user-space cable in the core namespace
		return c.halves[:]
	}
	for _, d := range c.ends {
		if len(d.addrs) == 0 {
			return []*device{d}
		}
	}
	return nil
}

// setState sets the interface up or down.
func (d *device) setState(up bool) error {
	b := d.namespace.ns.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if up {
		b.setUp(d.index)
	} else {
		b.setDown(d.index)
	}
	return b.flush()
}

// waitCarrier waits until the kernel reports that the interface has a carrier, or none
// if carrier is false. The kernel reports a change some time after it.
func (d *device) waitCarrier(carrier bool) error {
	return poll("the carrier has not changed", func() (bool, error) {
		link, err := d.namespace.ns.handle.LinkByIndex(d.index)
		if err != nil {
			return false, err
		}
		return carrier == (link.Attrs().OperState == netlink.OperUp), nil
	})
}

// SetRate limits the rate of the cable at a port in both directions; 0 removes
// the limit. It fails for a user-space cable.
func (f *Fabric) SetRate(port string, rateBps uint64) error {
	return f.withCable(port, func(c *cable, _ int) error { return f.setRate(c, rateBps) })
}

// setRate sets the rate of both directions of a cable that is a veth pair of the kernel.
func (f *Fabric) setRate(c *cable, rateBps uint64) error {
	if c.user {
		return fmt.Errorf("cable %v: it is a user-space cable: set the rate in its switch", c.Cable)
	}
	for _, d := range c.ends {
		d.qdisc.rateBps, d.qdisc.limitBytes = rateBps, c.Link.QueueBytes
		if err := d.applyQdisc(); err != nil {
			return fmt.Errorf("limit %v to %d bit/s: %w", c.Cable, rateBps, err)
		}
	}
	return nil
}

// applyLinkConfigs sets the rates and latencies of the topology on cables that are
// veth pairs of the kernel.
func (f *Fabric) applyLinkConfigs() error {
	for _, c := range f.plan.cables {
		if c.user {
			continue
		}
		if c.Link.Latency != 0 {
			for _, d := range c.ends {
				d.qdisc.netem.Delay = c.Link.Latency
			}
		}
		if c.Link.RateBps != 0 || c.Link.Latency != 0 {
			if err := f.setRate(c, c.Link.RateBps); err != nil { // also applies the latency
				return err
			}
		}
	}
	return nil
}

// Netem applies netem to the packets that a port sends; the zero spec removes
// it. It fails on kernels without netem and for user-space cables.
func (f *Fabric) Netem(port string, spec NetemSpec) error {
	return f.withCable(port, func(c *cable, side int) error {
		if c.user {
			return fmt.Errorf("netem on %s: it is a user-space cable: impair it in its switch", port)
		}
		d := c.ends[side]
		old := d.qdisc.netem
		d.qdisc.netem = spec
		if err := d.applyQdisc(); err != nil {
			d.qdisc.netem = old
			return fmt.Errorf("netem on %s: %w", port, err)
		}
		return nil
	})
}
