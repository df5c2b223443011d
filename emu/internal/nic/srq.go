package nic

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// SRQ is a shared receive queue.
type SRQ struct {
	Type verbs.SRQType
	PD   PD
	XRCD *XRCD // XRC SRQs only
	CQ   *CQ   // XRC SRQs only
	// Owner is for use by the driver.
	Owner any

	nic   *Base
	num   uint32
	rq    RecvQueue
	limit uint32
	users int
}

// SRQConfig has the attributes of a new SRQ.
type SRQConfig struct {
	Type   verbs.SRQType
	PD     PD
	MaxWR  int
	MaxSGE int
	Limit  int
	XRCD   *XRCD
	CQ     *CQ
}

// CreateSRQ creates a shared receive queue within the limits of the NIC. One of type XRC counts as
// a user of its domain and CQ, which cannot be destroyed before it.
func (b *Base) CreateSRQ(c SRQConfig) (*SRQ, error) {
	invalid := func(format string, args ...any) error {
		return OpError("create_srq", "", "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	if err := b.CheckPD("create_srq", c.PD); err != nil {
		return nil, err
	}
	maxWR := b.Limits.SRQWR
	switch {
	case c.MaxWR < 1 || c.MaxWR > maxWR:
		return nil, invalid("%d receives, limit %d", c.MaxWR, maxWR)
	case c.MaxSGE < 0 || c.MaxSGE > b.Limits.SGE:
		return nil, invalid("%d scatter entries, limit %d", c.MaxSGE, b.Limits.SGE)
	case c.Limit < 0 || c.Limit > c.MaxWR:
		return nil, invalid("limit %d of %d receives", c.Limit, c.MaxWR)
	case c.Type == verbs.SRQXRC && (!b.HasXRCD(c.XRCD) || c.CQ == nil || c.CQ.gone):
		return nil, invalid("an XRC SRQ needs a domain and a CQ")
	case c.Type > verbs.SRQXRC:
		return nil, invalid("type %d", c.Type)
	case len(b.srqs) >= b.Limits.SRQs:
		return nil, OpError("create_srq", "", "%w: %d SRQs", verbs.ErrNoMemory, len(b.srqs))
	}
	s := &SRQ{nic: b, num: b.allocSRQN(), Type: c.Type, PD: c.PD, rq: NewRecvQueue(c.MaxWR, c.MaxSGE), limit: uint32(c.Limit)}
	if c.Type == verbs.SRQXRC {
		s.XRCD, s.CQ = c.XRCD, c.CQ
		s.XRCD.users++
		s.CQ.users++
	}
	b.srqs[s.num] = s
	b.pds[c.PD]++
	return s, nil
}

// allocSRQN assigns SRQ numbers in turn: 24 bits, not 0.
func (b *Base) allocSRQN() uint32 {
	for {
		num := b.nextSRQ
		if b.nextSRQ++; b.nextSRQ == 1<<24 {
			b.nextSRQ = 1
		}
		if b.srqs[num] == nil {
			return num
		}
	}
}

// SRQ returns the SRQ with number num; nil if there is none.
func (b *Base) SRQ(num uint32) *SRQ { return b.srqs[num] }

// DestroySRQ destroys an SRQ. It fails while QPs use it.
func (b *Base) DestroySRQ(s *SRQ) error {
	if b.srqs[s.num] != s {
		return OpError("destroy_srq", s.name(), "%w: it is gone already", verbs.ErrInvalid)
	}
	if s.users > 0 {
		return OpError("destroy_srq", s.name(), "%w by %d QPs", verbs.ErrBusy, s.users)
	}
	if s.XRCD != nil {
		s.XRCD.users--
		s.CQ.users--
	}
	b.pds[s.PD]--
	b.DropEvents(func(e *Event) bool { return e.SRQ == s })
	delete(b.srqs, s.num)
	return nil
}

// Use adds n to the number of QPs that use the SRQ.
func (s *SRQ) Use(n int) { s.users += n }

// Num returns the SRQ number.
func (s *SRQ) Num() uint32 { return s.num }

func (s *SRQ) name() string { return fmt.Sprintf("srq %d", s.num) }

// PostRecv posts one receive.
func (s *SRQ) PostRecv(wr *verbs.RecvWR) error {
	return s.rq.Post(wr)
}

// Modify changes the size, the limit (below which SRQ_LIMIT_REACHED is raised), or both. An error
// changes neither.
func (s *SRQ) Modify(a verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	invalid := func(format string, args ...any) error {
		return OpError("modify_srq", s.name(), "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	depth := int(s.rq.depth)
	if mask&verbs.SRQMaxWR != 0 {
		depth = a.MaxWR
		if depth < 1 || depth > s.nic.Limits.SRQWR || depth < int(s.rq.Count()) {
			return invalid("%d receives with %d queued, limit %d", depth, s.rq.Count(), s.nic.Limits.SRQWR)
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

// Query returns the size and the limit.
func (s *SRQ) Query() verbs.SRQAttr {
	return verbs.SRQAttr{MaxWR: int(s.rq.depth), MaxSGE: s.rq.maxSGE, Limit: int(s.limit)}
}

// Count returns the number of posted receives.
func (s *SRQ) Count() uint32 { return s.rq.Count() }

// Peek returns the oldest receive, or nil.
func (s *SRQ) Peek() *Receive { return s.rq.Peek() }

// Take removes the oldest receive. If the count falls below the limit, it raises
// SRQ_LIMIT_REACHED and disarms the limit.
func (s *SRQ) Take() {
	s.rq.Take()
	if s.limit > 0 && s.rq.Count() < s.limit {
		s.limit = 0
		s.nic.Report(Event{Type: verbs.EventSRQLimitReached, SRQ: s})
	}
}

// XRCD is an extended reliable connection domain.
type XRCD struct{ users int }

// OpenXRCD opens an XRC domain.
func (b *Base) OpenXRCD() (*XRCD, error) {
	if len(b.xrcds) >= b.Limits.XRCDs {
		return nil, OpError("open_xrcd", "", "%w: %d domains", verbs.ErrNoMemory, len(b.xrcds))
	}
	x := new(XRCD)
	b.xrcds[x] = struct{}{}
	return x, nil
}

// HasXRCD reports whether x is an open domain.
func (b *Base) HasXRCD(x *XRCD) bool {
	_, ok := b.xrcds[x]
	return ok
}

// CloseXRCD closes a domain. It fails while objects use it.
func (b *Base) CloseXRCD(x *XRCD) error {
	if !b.HasXRCD(x) {
		return OpError("close_xrcd", "", "%w: it is closed already", verbs.ErrInvalid)
	}
	if x.users > 0 {
		return OpError("close_xrcd", "", "%w by %d objects", verbs.ErrBusy, x.users)
	}
	delete(b.xrcds, x)
	return nil
}

// Use adds n to the number of objects in the domain.
func (x *XRCD) Use(n int) { x.users += n }
