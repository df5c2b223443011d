package netns

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// SetLink pulls the cable at a port out, or plugs it in again: nothing passes
// either way. A host loses its carrier, unless the other end is one as well (in
// a pair): then packets vanish silently. Neither loses addresses nor routes.
// Switches that route find ways around a cable between them at once, as if their
// protocols had already agreed.
//
// On a spliced cable whoever reads the halves in the core sees them go down:
// reading from a packet socket gives ENETDOWN once.
func (f *Fabric) SetLink(port string, up bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, _, err := f.at(port)
	if err != nil {
		return err
	}
	if c.down == !up {
		return nil
	}
	c.down = !up
	if err := f.applyLink(c); err != nil {
		// Whoever asks again must not be told that it is done. As far as it can be,
		// the cable is again what it was.
		c.down = up
		return fmt.Errorf("set %s: %w", upOrDown(up), errors.Join(err, f.applyLink(c)))
	}
	return nil
}

func upOrDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func (f *Fabric) applyLink(c *cable) error {
	if plain := c.unaddressed(); plain != nil {
		for _, d := range plain {
			if err := d.setState(!c.down); err != nil {
				return err
			}
		}
		return errors.Join(c.ends[0].awaitCarrier(!c.down), c.ends[1].awaitCarrier(!c.down))
	}
	// An interface that goes down loses its addresses of IPv6, its neighbours and
	// its routes. So these stay up, and drop all that they are to send.
	for _, d := range c.ends {
		d.queue.closed = c.down
		if err := d.applyQueue(); err != nil {
			return err
		}
	}
	return f.reroute()
}

// unaddressed lists interfaces of the cable that can be set down without loss,
// so that both ends are cut off; nil if there are none.
func (c *cable) unaddressed() []*device {
	if c.halves[0] != nil {
		return c.halves[:]
	}
	for _, d := range c.ends {
		if len(d.addrs) == 0 {
			return []*device{d}
		}
	}
	return nil
}

func (d *device) setState(up bool) error {
	b := d.space.ns.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if up {
		b.setUp(d.index)
	} else {
		b.setDown(d.index)
	}
	return b.flush()
}

// awaitCarrier returns when the kernel has noticed that there is a carrier, or
// none: packets pass, or their end is known, a moment after the cause.
func (d *device) awaitCarrier(want bool) error {
	return poll("the carrier has not changed", func() (bool, error) {
		link, err := d.space.ns.handle.LinkByIndex(d.index)
		if err != nil {
			return false, err
		}
		return want == (link.Attrs().OperState == netlink.OperUp), nil
	})
}

// SetRate limits what passes the cable at a port to a rate, the same both ways;
// 0 takes the limit away. A spliced cable is for whoever joins its halves to
// limit.
func (f *Fabric) SetRate(port string, rateBps uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, _, err := f.at(port)
	if err != nil {
		return err
	}
	return f.setRate(c, rateBps)
}

func (f *Fabric) setRate(c *cable, rateBps uint64) error {
	if c.cut {
		return fmt.Errorf("cable %v: it is spliced, and has the rate that whoever joins its halves gives it", c.Cable)
	}
	for _, d := range c.ends {
		d.queue.rateBps, d.queue.bytes = rateBps, c.Link.QueueBytes
		if err := d.applyQueue(); err != nil {
			return fmt.Errorf("limit %v to %d bit/s: %w", c.Cable, rateBps, err)
		}
	}
	return nil
}

// limitRates gives cables the rates, and with netem the latencies, that the
// drawing says.
func (f *Fabric) limitRates() error {
	for _, c := range f.plan.cables {
		if c.cut {
			continue
		}
		if c.Link.Latency != 0 {
			for _, d := range c.ends {
				d.queue.netem.Delay = c.Link.Latency
			}
		}
		if c.Link.RateBps != 0 || c.Link.Latency != 0 {
			if err := f.setRate(c, c.Link.RateBps); err != nil {
				return err
			}
		}
	}
	return nil
}

// Netem has the kernel's netem impair what a port sends; the zero spec ends it.
// Many kernels have no netem: the error then says so, and a spliced cable can be
// impaired instead.
func (f *Fabric) Netem(port string, spec NetemSpec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, side, err := f.at(port)
	if err != nil {
		return err
	}
	if c.cut {
		return fmt.Errorf("netem on %s: the cable is spliced: impair it where its halves are joined", port)
	}
	d := c.ends[side]
	old := d.queue.netem
	d.queue.netem = spec
	if err := d.applyQueue(); err != nil {
		d.queue.netem = old
		return fmt.Errorf("netem on %s: %w", port, err)
	}
	return nil
}
