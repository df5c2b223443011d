package netns

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

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
	d.counts = err == nil && !d.queue.closed
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel has no queue of the kind %s (its module is sch_%[1]s; kernels for virtual machines often lack it): splice the cable instead", q.Type())
	}
	return err
}

// noQueue takes the queue away, and remembers what it has dropped.
func (d *device) noQueue(attrs netlink.QdiscAttrs) error {
	if d.counts {
		n, err := d.queueDrops()
		if err != nil {
			return err
		}
		d.dropped += n
		d.counts = false
	}
	attrs.Handle = 0
	err := d.space.ns.handle.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: attrs})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil // there was none
	}
	return err
}

// queueDrops is what the queue that is in place has dropped.
func (d *device) queueDrops() (n uint64, err error) {
	of := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: d.index}}
	qdiscs, err := d.space.ns.handle.QdiscList(of)
	for _, q := range qdiscs {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil && a.Statistics.Queue != nil {
			n = uint64(a.Statistics.Queue.Drops)
		}
	}
	return n, err
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
