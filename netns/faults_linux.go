package netns

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
		return fmt.Errorf("set %s: %w", upOrDown(up), err)
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
	if f.plan.cut(c.Cable) {
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
		if f.plan.cut(c.Cable) {
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
	if f.plan.cut(c.Cable) {
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

// Stats are what the kernel counted at a port.
func (f *Fabric) Stats(port string) (Stats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, side, err := f.at(port)
	if err != nil {
		return Stats{}, err
	}
	d := c.ends[side]
	h := d.space.ns.handle
	link, err := h.LinkByIndex(d.index)
	if err != nil {
		return Stats{}, fmt.Errorf("statistics of %s: %w", port, err)
	}
	var s Stats
	if k := link.Attrs().Statistics; k != nil {
		s = Stats{
			RxPackets: k.RxPackets, RxBytes: k.RxBytes, RxDropped: k.RxDropped,
			TxPackets: k.TxPackets, TxBytes: k.TxBytes, TxDropped: k.TxDropped,
		}
	}
	qdiscs, err := h.QdiscList(link)
	if err != nil {
		return Stats{}, fmt.Errorf("statistics of the queue of %s: %w", port, err)
	}
	for _, q := range qdiscs {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil && a.Statistics.Queue != nil {
			s.QueueDropped = uint64(a.Statistics.Queue.Drops)
		}
	}
	return s, nil
}

// queue is what an interface does to what it sends.
type queue struct {
	closed  bool
	rateBps uint64
	bytes   int // that may wait for the rate; 0 for some milliseconds' worth
	netem   NetemSpec
}

func (d *device) applyQueue() error {
	h := d.space.ns.handle
	attrs := netlink.QdiscAttrs{LinkIndex: d.index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	var q netlink.Qdisc
	switch {
	case d.queue.closed:
		q = &netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "blackhole"}
	case d.queue.netem != NetemSpec{}:
		q = d.queue.asNetem(attrs)
	case d.queue.rateBps != 0:
		q = d.queue.asTBF(attrs, d.mtu)
	default:
		return d.noQueue(attrs)
	}
	// A queue of one kind cannot be changed into another under the same handle.
	if err := d.noQueue(attrs); err != nil {
		return err
	}
	err := h.QdiscAdd(q)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel has no queue of the kind %s (its module is sch_%[1]s; kernels for virtual machines often lack it): splice the cable instead", q.Type())
	}
	return err
}

func (d *device) noQueue(attrs netlink.QdiscAttrs) error {
	attrs.Handle = 0
	err := d.space.ns.handle.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: attrs})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil // there was none
	}
	return err
}

// asTBF is a token bucket as deep as two milliseconds of the rate, or a few
// frames: deep enough for the kernel's timers, shallow enough for a steady flow.
func (q queue) asTBF(attrs netlink.QdiscAttrs, mtu int) *netlink.Tbf {
	rate := max(q.rateBps/8, 1)
	burst := max(rate/500, 4*uint64(mtu+64))
	waiting := uint64(q.bytes)
	if waiting == 0 {
		waiting = max(rate/50, 16*uint64(mtu+64))
	}
	return &netlink.Tbf{
		QdiscAttrs: attrs,
		Rate:       rate,
		Limit:      uint32(min(waiting+burst, 1<<30)),
		Buffer:     ticks(time.Duration(float64(burst) / float64(rate) * float64(time.Second))),
	}
}

// ticks is a duration as the kernel's packet schedulers count it.
func ticks(d time.Duration) uint32 {
	const ns = 64 // PSCHED_SHIFT of 6
	return uint32(min(d.Nanoseconds()/ns, 1<<32-1))
}

func (q queue) asNetem(attrs netlink.QdiscAttrs) *netlink.Netem {
	s := q.netem
	n := &netlink.Netem{
		QdiscAttrs:  attrs,
		Latency:     ticks(s.Delay),
		Jitter:      ticks(s.Jitter),
		Limit:       10_000,
		Loss:        share(s.LossPPM),
		Duplicate:   share(s.DuplicatePPM),
		ReorderProb: share(s.ReorderPPM),
		CorruptProb: share(s.CorruptPPM),
		Rate64:      q.rateBps / 8,
	}
	if s.LimitPackets != 0 {
		n.Limit = s.LimitPackets
	}
	if s.ReorderPPM != 0 {
		n.Gap = 1
	}
	return n
}

// share is parts per million of all that fits into 32 bits.
func share(ppm uint32) uint32 { return uint32(uint64(min(ppm, 1e6)) * (1<<32 - 1) / 1e6) }
