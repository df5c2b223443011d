package engine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/verbs"
)

// SRQ is a shared receive queue.
type SRQ struct {
	nic   *NIC
	num   uint32
	typ   verbs.SRQType
	pd    core.PD
	rq    recvQueue
	limit uint32
	users int
	xrcd  *XRCD
	cq    *CQ
	// Owner is the driver's to use.
	Owner any
}

// SRQConfig asks for a shared receive queue.
type SRQConfig struct {
	Type   verbs.SRQType
	PD     core.PD
	MaxWR  int
	MaxSGE int
	Limit  int
	XRCD   *XRCD
	CQ     *CQ
}

// CreateSRQ makes a shared receive queue.
func (n *NIC) CreateSRQ(c SRQConfig) (*SRQ, error) {
	invalid := func(format string, args ...any) error {
		return opError("create_srq", "", "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	if err := n.checkPD("create_srq", c.PD); err != nil {
		return nil, err
	}
	maxWR := n.cfg.Limits.SRQWR
	if n.q.CapsUnchecked {
		maxWR *= uncheckedCaps
	}
	_, domain := n.xrcds[c.XRCD]
	switch {
	case c.MaxWR < 1 || c.MaxWR > maxWR:
		return nil, invalid("%d receives, limit %d", c.MaxWR, maxWR)
	case c.MaxSGE < 0 || c.MaxSGE > n.cfg.Limits.SGE:
		return nil, invalid("%d scatter entries, limit %d", c.MaxSGE, n.cfg.Limits.SGE)
	case c.Limit < 0 || c.Limit > c.MaxWR:
		return nil, invalid("limit %d of %d receives", c.Limit, c.MaxWR)
	case c.Type == verbs.SRQXRC && (!domain || c.CQ == nil || c.CQ.gone):
		return nil, invalid("an XRC SRQ needs a domain and a CQ")
	case c.Type > verbs.SRQXRC:
		return nil, invalid("type %d", c.Type)
	case len(n.srqs) >= n.cfg.Limits.SRQs:
		return nil, opError("create_srq", "", "%w: %d SRQs", verbs.ErrNoMemory, len(n.srqs))
	}
	s := &SRQ{nic: n, num: n.allocSRQN(), typ: c.Type, pd: c.PD, rq: newRecvQueue(c.MaxWR, c.MaxSGE), limit: uint32(c.Limit)}
	if c.Type == verbs.SRQXRC {
		s.xrcd, s.cq = c.XRCD, c.CQ
		s.xrcd.users++
		s.cq.users++
	}
	n.srqs[s.num] = s
	n.pds[c.PD]++
	return s, nil
}

// allocSRQN hands numbers out in turn, as packets name them: 24 bits, not 0.
func (n *NIC) allocSRQN() uint32 {
	for {
		num := n.nextSRQ
		if n.nextSRQ++; n.nextSRQ == 1<<24 {
			n.nextSRQ = 1
		}
		if n.srqs[num] == nil {
			return num
		}
	}
}

// DestroySRQ removes an SRQ that no QP receives from.
func (n *NIC) DestroySRQ(s *SRQ) error {
	if n.srqs[s.num] != s {
		return opError("destroy_srq", s.name(), "%w: it is gone already", verbs.ErrInvalid)
	}
	if s.users > 0 {
		return opError("destroy_srq", s.name(), "%w by %d QPs", verbs.ErrBusy, s.users)
	}
	if s.xrcd != nil {
		s.xrcd.users--
		s.cq.users--
	}
	n.pds[s.pd]--
	n.retract(func(e *Event) bool { return e.SRQ == s })
	delete(n.srqs, s.num)
	return nil
}

// Num is the queue's number.
func (s *SRQ) Num() uint32 { return s.num }

func (s *SRQ) name() string { return fmt.Sprintf("srq %d", s.num) }

// PostRecv queues one receive.
func (s *SRQ) PostRecv(wr *verbs.RecvWR) error {
	if s.nic.q.OverflowSRQ && s.rq.count() >= s.rq.depth && len(wr.SGL) <= s.rq.maxSGE {
		s.rq.tail--
		s.rq.put(wr)
		return nil
	}
	return s.rq.post(wr)
}

// Modify changes size or limit.
func (s *SRQ) Modify(a verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	invalid := func(format string, args ...any) error {
		return opError("modify_srq", s.name(), "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	depth := int(s.rq.depth)
	if mask&verbs.SRQMaxWR != 0 {
		depth = a.MaxWR
		if depth < 1 || depth > s.nic.cfg.Limits.SRQWR || depth < int(s.rq.count()) {
			return invalid("%d receives with %d queued, limit %d", depth, s.rq.count(), s.nic.cfg.Limits.SRQWR)
		}
	}
	limit := int(s.limit)
	if mask&verbs.SRQLimit != 0 {
		limit = a.Limit
	}
	if limit < 0 || limit > depth {
		return invalid("limit %d of %d receives", limit, depth)
	}
	if mask&verbs.SRQMaxWR != 0 {
		s.rq = s.rq.resized(depth)
	}
	s.limit = uint32(limit)
	return nil
}

// resized returns a queue of another depth with the same receives.
func (q *recvQueue) resized(depth int) recvQueue {
	out := newRecvQueue(depth, q.maxSGE)
	for q.count() > 0 {
		w := q.peek()
		out.put(&verbs.RecvWR{WRID: w.wrID, SGL: w.sges})
		q.take()
	}
	return out
}

// Query returns size and limit.
func (s *SRQ) Query() verbs.SRQAttr {
	return verbs.SRQAttr{MaxWR: int(s.rq.depth), MaxSGE: s.rq.maxSGE, Limit: int(s.limit)}
}

// domain is the protection domain that the memory of a receive must be in.
func (s *SRQ) domain(w *recvWQE) core.PD {
	if s.nic.q.SRQReceiveAnyPD && len(w.sges) > 0 {
		return s.nic.mem.DomainOf(w.sges[0].LKey, s.pd)
	}
	return s.pd
}

// take removes the oldest receive. Falling below the limit raises one event and
// disarms it.
func (s *SRQ) take() {
	s.rq.take()
	if s.limit > 0 && s.rq.count() < s.limit {
		s.limit = 0
		s.nic.report(Event{Type: verbs.EventSRQLimitReached, SRQ: s})
	}
}

// XRCD is an extended reliable connection domain.
type XRCD struct{ users int }

// OpenXRCD makes a domain.
func (n *NIC) OpenXRCD() (*XRCD, error) {
	if len(n.xrcds) >= n.cfg.Limits.XRCDs {
		return nil, opError("open_xrcd", "", "%w: %d domains", verbs.ErrNoMemory, len(n.xrcds))
	}
	x := new(XRCD)
	n.xrcds[x] = struct{}{}
	return x, nil
}

// CloseXRCD removes a domain that nothing lives in.
func (n *NIC) CloseXRCD(x *XRCD) error {
	if _, ok := n.xrcds[x]; !ok {
		return opError("close_xrcd", "", "%w: it is closed already", verbs.ErrInvalid)
	}
	if x.users > 0 {
		return opError("close_xrcd", "", "%w by %d objects", verbs.ErrBusy, x.users)
	}
	delete(n.xrcds, x)
	return nil
}

// Attach makes a UD QP receive what is sent to a multicast group.
func (n *NIC) Attach(q *QP, group netip.Addr) error {
	members := n.mcast[group]
	switch {
	case q.typ != verbs.QPTypeUD || !group.IsMulticast():
		return opError("attach_mcast", q.name(), "%w: %v to group %v", verbs.ErrInvalid, q.typ, group)
	case n.qp(q.num) != q:
		return opError("attach_mcast", q.name(), "%w: it is gone", verbs.ErrInvalid)
	case slices.Contains(members, q):
		return nil
	case len(members) == 0 && len(n.mcast) >= n.cfg.Limits.McastGroups:
		return opError("attach_mcast", q.name(), "%w: %d groups", verbs.ErrNoMemory, len(n.mcast))
	case len(members) >= n.cfg.Limits.McastQPs:
		return opError("attach_mcast", q.name(), "%w: %d QPs in the group", verbs.ErrNoMemory, len(members))
	}
	n.mcast[group] = append(members, q)
	q.groups++
	return nil
}

// Detach undoes Attach.
func (n *NIC) Detach(q *QP, group netip.Addr) error {
	members := n.mcast[group]
	i := slices.Index(members, q)
	if i < 0 {
		return opError("detach_mcast", q.name(), "%w: not attached to %v", verbs.ErrInvalid, group)
	}
	q.groups--
	if members = slices.Delete(members, i, i+1); len(members) == 0 {
		delete(n.mcast, group)
	} else {
		n.mcast[group] = members
	}
	return nil
}
