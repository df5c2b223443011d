package verbcalls

import (
	"errors"
	"sync"

	"github.com/fabrictest/fabrictest/verbs"
)

// pair is a verbs.QP.
type pair struct {
	verbs.QP
	handle
	pd         *domain
	send, recv *queue
	srq        *sharedQueue
	shared     bool // its receives come from an SRQ
	signalAll  bool
	opened     bool         // by OpenQP: a further handle to an XRC target
	caps       verbs.QPCaps // its true sizes

	mu       sync.Mutex
	set      verbs.QPAttr          // QueryStale: state and PSNs as they were set
	held     []verbs.SendWR        // InlineLate: for the next poll
	stays    []verbs.SendWR        // RefusedWRStays: for the device when it takes requests
	quiet    map[uint64]bool       // UnsignaledErrorsLost: requests, and whether they ask for no completion
	receives map[uint64]int        // BusyQPStays: those that were posted and have not completed
	moved    map[*address]verbs.AH // AHsAnyDomain: handles made in our domain
}

func (p *pair) sound() verbs.QP { return p.QP }

// CreateQP makes a queue pair, with other queues, sizes or objects than asked for.
func (d *device) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	if d.q.CQsSwapped {
		in.SendCQ, in.RecvCQ = in.RecvCQ, in.SendCQ
	}
	if d.q.CapsShort {
		halve(&in.Caps.MaxSendWR, &in.Caps.MaxRecvWR, &in.Caps.MaxSendSGE, &in.Caps.MaxRecvSGE)
		in.Caps.MaxInline /= 2
	}
	if d.q.KindsUnchecked {
		in.Type = d.known(in.Type)
	}
	in.SignalAll = in.SignalAll && !d.q.SignalAllIgnored
	sound, err := d.createQP(in)
	if d.q.ObjectsUnchecked && errors.Is(err, verbs.ErrInvalid) {
		if mine[*sharedQueue](d, in.SRQ) == nil {
			in.SRQ = nil
		}
		if err := d.supply(&in.PD, &in.SendCQ, &in.RecvCQ); err != nil {
			return nil, err
		}
		sound, err = d.createQP(in)
	}
	if err != nil {
		return nil, d.answers(in.XRCD, err)
	}
	p := &pair{
		QP: sound, handle: handle{d: d}, pd: mine[*domain](d, in.PD), send: mine[*queue](d, in.SendCQ), recv: mine[*queue](d, in.RecvCQ),
		srq: mine[*sharedQueue](d, in.SRQ), shared: in.SRQ != nil, signalAll: in.SignalAll,
		quiet: map[uint64]bool{}, receives: map[uint64]int{},
	}
	return d.adopt(p), nil
}

// createQP makes the sound queue pair.
func (d *device) createQP(in verbs.QPInit) (verbs.QP, error) {
	in.PD, in.XRCD, in.SendCQ, in.RecvCQ, in.SRQ = its(in.PD), its(in.XRCD), its(in.SendCQ), its(in.RecvCQ), its(in.SRQ)
	return makes(d, "QPs", func() (verbs.QP, error) { return d.Context.CreateQP(in) })
}

// adopt makes a pair known.
func (d *device) adopt(p *pair) *pair {
	if a, err := p.QP.Query(); err == nil {
		p.set, p.caps = a, a.Caps
	}
	d.firstQP.CompareAndSwap(0, uint32(p.QP.QPN()))
	d.keep(p.QP, p)
	return p
}

// halve is what CapsShort makes of sizes: at least one of what there was.
func halve(sizes ...*int) {
	for _, n := range sizes {
		if *n > 0 {
			*n = (*n + 1) / 2
		}
	}
}

// known is the type that KindsUnchecked makes for one that there is not.
func (d *device) known(t verbs.QPType) verbs.QPType {
	switch t {
	case verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD, verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv:
		return t
	}
	if d.truth().Caps.Has(verbs.CapRC) {
		return verbs.QPTypeRC
	}
	return verbs.QPTypeUD
}

// supply puts a domain and queues where there are none of ours, which live as long
// as the device.
func (d *device) supply(pd *verbs.PD, cqs ...*verbs.CQ) (err error) {
	if mine[*domain](d, *pd) == nil {
		if *pd, err = d.Context.AllocPD(); err != nil {
			return err
		}
	}
	for _, cq := range cqs {
		if mine[*queue](d, *cq) == nil {
			if *cq, err = d.Context.CreateCQ(verbs.CQInit{Depth: 64}); err != nil {
				return err
			}
		}
	}
	return nil
}

// OpenQP opens a further handle to an XRC target, by OpenQPAny to a new one if there
// is none of that number.
func (d *device) OpenQP(x verbs.XRCD, num verbs.QPN) (verbs.QP, error) {
	q, err := d.Context.OpenQP(its(x), num)
	if err != nil && d.q.OpenQPAny {
		return d.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: x})
	}
	if err != nil {
		return nil, d.answers(x, err)
	}
	return d.adopt(&pair{QP: q, handle: handle{d: d}, opened: true}), nil
}

// QPN is the number of the queue pair, by QPNsRepeat of the first.
func (p *pair) QPN() verbs.QPN {
	if p.d.q.QPNsRepeat {
		return verbs.QPN(p.d.firstQP.Load())
	}
	return p.QP.QPN()
}

// pairOf is the pair that a completion of the device's is of, nil if it is gone.
func (d *device) pairOf(num verbs.QPN) *pair {
	for _, p := range kept(d, func(p *pair) bool { return !p.opened && p.QP.QPN() == num }) {
		return p
	}
	return nil
}

// AttachMulticast makes the queue pair a member of a group.
func (p *pair) AttachMulticast(group verbs.GID) error { return p.answers(p.QP.AttachMulticast(group)) }

// DetachMulticast undoes AttachMulticast.
func (p *pair) DetachMulticast(group verbs.GID) error { return p.answers(p.QP.DetachMulticast(group)) }

// Close closes the queue pair. With XRCTargetDies it also closes the other handles of the
// same XRC target.
func (p *pair) Close() error {
	if p.d.q.BusyQPStays && p.waits() {
		return refused("destroy_qp", verbs.ErrBusy, "it has receives")
	}
	num := p.QP.QPN()
	if err := p.close(p.QP); err != nil {
		return err
	}
	p.mu.Lock()
	moved := p.moved
	p.mu.Unlock()
	for _, ah := range moved {
		_ = ah.Close() // ours alone, and of no use any more
	}
	if p.d.q.XRCTargetDies && !p.opened && p.Type() == verbs.QPTypeXRCRecv {
		for _, other := range kept(p.d, func(x *pair) bool { return x.opened && x.QP.QPN() == num }) {
			_ = other.QP.Close() // it may have been closed just now
		}
	}
	return nil
}
