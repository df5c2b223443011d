package netns

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// qdisc configures the root qdisc of an interface. The zero value is none.
type qdisc struct {
	blackhole  bool
	rateBps    uint64
	limitBytes int // queue limit of the rate; 0 means 20 ms worth
	netem      NetemSpec
}

// applyQdisc replaces the root qdisc of the interface by that of d.qdisc: a blackhole, else netem
// with the rate, else a rate limit. If d.qdisc has none of them, it only deletes the old one.
func (d *device) applyQdisc() error {
	h := d.namespace.ns.handle
	attrs := netlink.QdiscAttrs{LinkIndex: d.index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	var q netlink.Qdisc
	switch {
	case d.qdisc.blackhole:
		q = &netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "blackhole"}
	case d.qdisc.netem != NetemSpec{}:
		q = d.qdisc.asNetem(attrs)
	case d.qdisc.rateBps != 0:
		q = d.qdisc.asTBF(attrs, d.mtu)
	default:
		return d.deleteQdisc(attrs)
	}
	// A qdisc cannot be changed into another kind under the same handle.
	if err := d.deleteQdisc(attrs); err != nil {
		return err
	}
	err := h.QdiscAdd(q)
	d.countsDrops = err == nil && !d.qdisc.blackhole // drops of a blackhole are not kept
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel has no queue of the kind %s (its module is sch_%[1]s; kernels for virtual machines often lack it): use a user-space cable instead", q.Type())
	}
	return err
}

// deleteQdisc deletes the root qdisc and keeps its drop count.
func (d *device) deleteQdisc(attrs netlink.QdiscAttrs) error {
	if d.countsDrops {
		n, err := d.qdiscDrops()
		if err != nil {
			return err
		}
		d.droppedBefore += n
		d.countsDrops = false
	}
	attrs.Handle = 0
	err := d.namespace.ns.handle.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: attrs})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil // there was none
	}
	return err
}

// qdiscDrops returns the drops of the current root qdisc.
func (d *device) qdiscDrops() (n uint64, err error) {
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: d.index}}
	qdiscs, err := d.namespace.ns.handle.QdiscList(link)
	for _, q := range qdiscs {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil && a.Statistics.Queue != nil {
			n = uint64(a.Statistics.Queue.Drops)
		}
	}
	return n, err
}

// asTBF returns a token bucket filter with a burst of two milliseconds of the rate, but at least
// four frames: enough for the kernel's timers, small enough for a steady flow. By default its queue
// holds 20 ms of the rate, but at least 16 frames, in addition to the burst.
func (q qdisc) asTBF(attrs netlink.QdiscAttrs, mtu int) *netlink.Tbf {
	rate := max(q.rateBps/8, 1) // in bytes per second
	frame := uint64(mtu + 64)   // with ample room for the headers of the link layer
	burst := max(rate/500, 4*frame)
	limit := uint64(q.limitBytes)
	if limit == 0 {
		limit = max(rate/50, 16*frame)
	}
	return &netlink.Tbf{
		QdiscAttrs: attrs,
		Rate:       rate,
		Limit:      uint32(min(limit+burst, 1<<30)), // the field has 32 bits
		Buffer:     ticks(time.Duration(float64(burst) / float64(rate) * float64(time.Second))),
	}
}

// ticks converts a duration to the unit of the kernel's packet schedulers.
func ticks(d time.Duration) uint32 {
	const nanosPerTick = 64 // PSCHED_SHIFT of 6
	return uint32(min(d.Nanoseconds()/nanosPerTick, 1<<32-1))
}

// asNetem returns the qdisc netem, with the rate of q.
func (q qdisc) asNetem(attrs netlink.QdiscAttrs) *netlink.Netem {
	s := q.netem
	n := &netlink.Netem{
		QdiscAttrs:  attrs,
		Latency:     ticks(s.Delay),
		Jitter:      ticks(s.Jitter),
		Limit:       cmp.Or(s.LimitPackets, 10_000),
		Loss:        probability(s.LossPPM),
		Duplicate:   probability(s.DuplicatePPM),
		ReorderProb: probability(s.ReorderPPM),
		CorruptProb: probability(s.CorruptPPM),
		Rate64:      q.rateBps / 8,
	}
	if s.ReorderPPM != 0 {
		n.Gap = 1 // without a gap the kernel ignores ReorderProb
	}
	return n
}

// probability converts parts per million to a fraction of 2^32-1.
func probability(ppm uint32) uint32 { return uint32(uint64(min(ppm, 1e6)) * (1<<32 - 1) / 1e6) }
