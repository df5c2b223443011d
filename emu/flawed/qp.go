package flawed

import (
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/verbs"
)

// pair is a verbs.QP.
type pair struct {
	verbs.QP
	d      *device
	shared bool // its receives come from an SRQ
	opened bool // by OpenQP: a further handle to an XRC target

	mu  sync.Mutex
	set verbs.QPAttr // QueryStale: state and PSNs as they were set
}

func (p *pair) sound() verbs.QP { return p.QP }

// CreateQP makes a queue pair.
func (d *device) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	p := &pair{d: d, shared: in.SRQ != nil}
	in.SendCQ, in.RecvCQ, in.SRQ = its(in.SendCQ), its(in.RecvCQ), its(in.SRQ)
	in.SignalAll = in.SignalAll && !d.q.SignalAllIgnored
	var err error
	if p.QP, err = d.Context.CreateQP(in); err != nil {
		return nil, err
	}
	d.keep(p.QP, p)
	return p, nil
}

// OpenQP opens a further handle to an XRC target.
func (d *device) OpenQP(x verbs.XRCD, num verbs.QPN) (verbs.QP, error) {
	q, err := d.Context.OpenQP(x, num)
	if err != nil {
		return nil, err
	}
	p := &pair{QP: q, d: d, opened: true}
	p.learn()
	d.keep(q, p)
	return p, nil
}

// PostSend posts requests.
func (p *pair) PostSend(wrs []verbs.SendWR) (int, error) {
	if p.d.q.FenceIgnored || p.d.q.AlwaysFenced {
		wrs = slices.Clone(wrs)
	}
	for i := range wrs {
		switch {
		case p.d.q.FenceIgnored:
			wrs[i].Flags &^= verbs.SendFence
		case p.d.q.AlwaysFenced:
			wrs[i].Flags |= verbs.SendFence
		}
	}
	return p.QP.PostSend(wrs)
}

// PostRecv posts receives. Those of a queue pair that has none of its own vanish
// by SRQUnchecked.
func (p *pair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if p.shared && p.d.q.SRQUnchecked {
		return len(wrs), nil
	}
	return p.QP.PostRecv(wrs)
}

// Modify changes attributes.
func (p *pair) Modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	if err := p.QP.Modify(a, mask); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if mask&verbs.QPAttrState != 0 {
		p.set.State = a.State
	}
	if mask&verbs.QPAttrSQPSN != 0 {
		p.set.SQPSN = a.SQPSN
	}
	if mask&verbs.QPAttrRQPSN != 0 {
		p.set.RQPSN = a.RQPSN
	}
	return nil
}

// Query returns the attributes.
func (p *pair) Query() (verbs.QPAttr, error) {
	a, err := p.QP.Query()
	if p.d.q.QueryStale && err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		a.State, a.CurState, a.SQPSN, a.RQPSN = p.set.State, p.set.State, p.set.SQPSN, p.set.RQPSN
	}
	return a, err
}

// learn takes what somebody else has set for what was set.
func (p *pair) learn() {
	if a, err := p.QP.Query(); err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.set = a
	}
}

// Close closes the handle, and by XRCTargetDies the others to the same target too.
func (p *pair) Close() error {
	err := p.QP.Close()
	if err != nil {
		return err
	}
	p.d.drop(p.QP)
	if p.d.q.XRCTargetDies && !p.opened && p.Type() == verbs.QPTypeXRCRecv {
		for _, other := range p.d.openedOf(p.QPN()) {
			_ = other.QP.Close() // it may have been closed just now
		}
	}
	return nil
}

// openedOf are the further handles to a target.
func (d *device) openedOf(num verbs.QPN) (all []*pair) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.flawed {
		if p, ok := f.(*pair); ok && p.opened && p.QPN() == num {
			all = append(all, p)
		}
	}
	return all
}
