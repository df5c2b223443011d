package verbcalls

import (
	"errors"

	"github.com/fabrictest/fabrictest/verbs"
)

// sharedQueue is a verbs.SRQ.
type sharedQueue struct {
	verbs.SRQ
	handle
}

func (s *sharedQueue) sound() verbs.SRQ { return s.SRQ }

// CreateSRQ makes a shared receive queue.
func (d *device) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	if d.q.ClaimsAndRefuses {
		return nil, notTheDevices("create_srq")
	}
	if d.q.KindsUnchecked && in.Type != verbs.SRQXRC {
		in.Type = verbs.SRQBasic
	}
	if d.q.CapsShort {
		halve(&in.MaxWR, &in.MaxSGE)
	}
	s, err := d.createSRQ(in)
	if d.q.ObjectsUnchecked && errors.Is(err, verbs.ErrInvalid) {
		if err := d.supply(&in.PD); err != nil {
			return nil, err
		}
		s, err = d.createSRQ(in)
	}
	if err != nil {
		return nil, err
	}
	f := &sharedQueue{SRQ: s, handle: handle{d: d}}
	d.keep(s, f)
	return f, nil
}

// createSRQ makes the sound queue.
func (d *device) createSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	in.PD, in.CQ, in.XRCD = its(in.PD), its(in.CQ), its(in.XRCD)
	return makes(d, "SRQs", func() (verbs.SRQ, error) { return d.Context.CreateSRQ(in) })
}

// PostRecv posts receives.
func (s *sharedQueue) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if s.d.q.SGECut {
		if a, err := s.SRQ.Query(); err == nil {
			wrs = shortened(wrs, a.MaxSGE)
		}
	}
	n, err := s.SRQ.PostRecv(wrs)
	return s.posted("post_srq_recv", n, len(wrs), err)
}

// Modify changes size or limit. What the device refuses, SRQUnchecked and
// SRQModifyLies say to have done.
func (s *sharedQueue) Modify(a verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	q := &s.d.q
	if q.SRQResizeNoop && mask&verbs.SRQMaxWR != 0 {
		return nil
	}
	err := s.SRQ.Modify(a, mask)
	lies := (q.SRQUnchecked || q.SRQModifyLies) && errors.Is(err, verbs.ErrInvalid) ||
		q.SRQModifyLies && errors.Is(err, verbs.ErrNoMemory)
	if lies {
		return nil
	}
	return s.answers(err)
}

// Query returns size and limit.
func (s *sharedQueue) Query() (verbs.SRQAttr, error) {
	a, err := s.SRQ.Query()
	return a, s.answers(err)
}

// Number is what XRC senders name the queue by; by SRQNumberWrong it is not.
func (s *sharedQueue) Number() uint32 {
	if s.d.q.SRQNumberWrong {
		return s.SRQ.Number() + 1
	}
	return s.SRQ.Number()
}

// Close removes the queue.
func (s *sharedQueue) Close() error { return s.close(s.SRQ) }

// xrcDomain is a verbs.XRCD.
type xrcDomain struct {
	verbs.XRCD
	handle
}

func (x *xrcDomain) sound() verbs.XRCD { return x.XRCD }

// OpenXRCD makes an XRC domain.
func (d *device) OpenXRCD() (verbs.XRCD, error) {
	if d.q.ClaimsAndRefuses {
		return nil, notTheDevices("open_xrcd")
	}
	x, err := d.Context.OpenXRCD()
	if err != nil {
		return nil, err
	}
	return &xrcDomain{XRCD: x, handle: handle{d: d}}, nil
}

// answers is what a verb returns that works in an XRC domain, which has none of its
// own.
func (d *device) answers(in verbs.XRCD, err error) error {
	if x := mine[*xrcDomain](d, in); x != nil {
		return x.answers(err)
	}
	return err
}

// Close removes the domain.
func (x *xrcDomain) Close() error { return x.close(x.XRCD) }
