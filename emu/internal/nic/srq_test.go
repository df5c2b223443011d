package nic

import (
	"errors"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func (b *Base) mustSRQ(t testing.TB, c SRQConfig) *SRQ {
	t.Helper()
	s := must.Get(b.CreateSRQ(c))(t)
	return s
}

// postIDs posts receives without memory.
func (s *SRQ) postIDs(t testing.TB, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		must.Do(t, s.PostRecv(&verbs.RecvWR{WRID: id}))
	}
}

// drain takes all receives and returns their ids.
func (s *SRQ) drain() (ids []uint64) {
	for w := s.Peek(); w != nil; w = s.Peek() {
		ids = append(ids, w.WRID)
		s.Take()
	}
	return ids
}

func TestCreateAndDestroySRQ(t *testing.T) {
	b, pd := newBase(t, func(l *Limits, _ *Policy) { l.SRQs, l.SRQWR, l.SGE = 2, 64, 4 })
	domain := must.Get(b.OpenXRCD())(t)
	cq, gone := b.mustCQ(t, 1), b.mustCQ(t, 1)
	must.Do(t, b.DestroyCQ(gone))
	for name, c := range map[string]SRQConfig{
		"size 0":                 {PD: pd, MaxWR: 0},
		"size too large":         {PD: pd, MaxWR: 65},
		"too many SGEs":          {PD: pd, MaxWR: 1, MaxSGE: 5},
		"negative MaxSGE":        {PD: pd, MaxWR: 1, MaxSGE: -1},
		"limit above size":       {PD: pd, MaxWR: 4, Limit: 5},
		"negative limit":         {PD: pd, MaxWR: 4, Limit: -1},
		"an unknown domain":      {PD: pd + 1, MaxWR: 4},
		"an unknown type":        {PD: pd, MaxWR: 4, Type: 2},
		"XRC without a CQ":       {PD: pd, MaxWR: 4, Type: verbs.SRQXRC, XRCD: domain},
		"XRC, destroyed CQ":      {PD: pd, MaxWR: 4, Type: verbs.SRQXRC, XRCD: domain, CQ: gone},
		"XRC without a domain":   {PD: pd, MaxWR: 4, Type: verbs.SRQXRC, CQ: cq},
		"XRC of a closed domain": {PD: pd, MaxWR: 4, Type: verbs.SRQXRC, CQ: cq, XRCD: new(XRCD)},
	} {
		if _, err := b.CreateSRQ(c); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := b.mustSRQ(t, SRQConfig{PD: pd, MaxWR: 64, MaxSGE: 4, Limit: 64})
	if a := s.Query(); a != (verbs.SRQAttr{MaxWR: 64, MaxSGE: 4, Limit: 64}) {
		t.Errorf("created %+v", a)
	}
	other := b.mustSRQ(t, SRQConfig{PD: pd, MaxWR: 1, Type: verbs.SRQXRC, CQ: cq, XRCD: domain})
	if _, err := b.CreateSRQ(SRQConfig{PD: pd, MaxWR: 1}); !errors.Is(err, verbs.ErrNoMemory) {
		t.Errorf("a third SRQ of two: %v", err)
	}
	if b.SRQ(s.Num()) != s || b.SRQ(other.Num()) != other || b.SRQ(77) != nil {
		t.Error("SRQ numbers are not unique")
	}
	s.Use(1)
	if err := b.DestroySRQ(s); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("DestroySRQ with a QP: %v", err)
	}
	s.Use(-1)
	for what, err := range map[string]error{"domain": b.DeallocPD(pd), "CQ": b.DestroyCQ(cq), "XRC domain": b.CloseXRCD(domain)} {
		if !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("destroying the %s of an SRQ: %v", what, err)
		}
	}
	b.Report(Event{Type: verbs.EventSRQLimitReached, SRQ: s})
	b.Report(Event{Type: verbs.EventSRQLimitReached, SRQ: other})
	must.Do(t, b.DestroySRQ(s))
	if e, ok := b.NextEvent(); !ok || e.SRQ != other {
		t.Errorf("event of SRQ %v, want that of the SRQ that was not destroyed", e.SRQ)
	}
	if err := b.DestroySRQ(s); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("destroyed twice: %v", err)
	}
	if err := errors.Join(b.DestroySRQ(other), b.DeallocPD(pd), b.DestroyCQ(cq), b.CloseXRCD(domain)); err != nil {
		t.Error(err)
	}
}

// SRQ numbers have 24 bits, are assigned in turn and never twice at a time.
func TestSRQNumbersHave24Bits(t *testing.T) {
	b, pd := newBase(t, nil)
	c := SRQConfig{PD: pd, MaxWR: 1}
	first := b.mustSRQ(t, c)
	b.nextSRQ = 1<<24 - 1
	last, second := b.mustSRQ(t, c), b.mustSRQ(t, c)
	if first.Num() != 1 || last.Num() != 1<<24-1 || second.Num() != 2 {
		t.Errorf("numbers %#x, %#x, %#x", first.Num(), last.Num(), second.Num())
	}
}

// Falling below the limit raises one event and disarms the limit.
func TestSRQLimitEventIsRaisedOnce(t *testing.T) {
	b, pd := newBase(t, nil)
	s := b.mustSRQ(t, SRQConfig{PD: pd, MaxWR: 4, Limit: 3})
	s.postIDs(t, 0, 1, 2, 3)
	s.Take()
	if s.Count() != 3 || len(b.events) != 0 {
		t.Errorf("%d receives, %d events: 3 is not below the limit", s.Count(), len(b.events))
	}
	s.Take()
	if e, ok := b.NextEvent(); !ok || e.Type != verbs.EventSRQLimitReached || e.SRQ != s || s.Query().Limit != 0 {
		t.Errorf("event %+v, limit %d", e, s.Query().Limit)
	}
	s.Take()
	if e, ok := b.NextEvent(); ok {
		t.Errorf("second event: %+v", e)
	}
}

// A limit above the size, or a size below the number of posted receives, is
// rejected without changes. Resizing keeps posted receives.
func TestModifySRQ(t *testing.T) {
	b, pd := newBase(t, func(l *Limits, _ *Policy) { l.SRQWR = 32 })
	s := b.mustSRQ(t, SRQConfig{PD: pd, MaxWR: 8, MaxSGE: 1, Limit: 2})
	s.postIDs(t, 90, 91, 92, 93, 94) // so that the ring wraps
	s.drain()
	s.postIDs(t, 0, 1, 2, 3, 4, 5)
	before := s.Query()
	const both = verbs.SRQMaxWR | verbs.SRQLimit
	refused := func(mask verbs.SRQAttrMask, attrs ...verbs.SRQAttr) {
		t.Helper()
		for _, a := range attrs {
			if err := s.Modify(a, mask); !errors.Is(err, verbs.ErrInvalid) || s.Query() != before {
				t.Errorf("%+v: %v, now %+v", a, err, s.Query())
			}
		}
	}
	refused(verbs.SRQLimit, verbs.SRQAttr{Limit: 9}, verbs.SRQAttr{Limit: -1})
	refused(verbs.SRQMaxWR, verbs.SRQAttr{MaxWR: 5}, verbs.SRQAttr{}, verbs.SRQAttr{MaxWR: 33})
	refused(both, verbs.SRQAttr{MaxWR: 6, Limit: 7})
	if err := s.Modify(verbs.SRQAttr{MaxWR: 6, Limit: 6}, both); err != nil || s.Query() != (verbs.SRQAttr{MaxWR: 6, MaxSGE: 1, Limit: 6}) {
		t.Errorf("%v, is %+v", err, s.Query())
	}
	if err := s.PostRecv(&verbs.RecvWR{}); !errors.Is(err, verbs.ErrNoMemory) {
		t.Errorf("a seventh receive of six: %v", err)
	}
	must.Do(t, s.Modify(verbs.SRQAttr{MaxWR: 7, Limit: 0}, both))
	s.postIDs(t, 6)
	if got := s.drain(); !slices.Equal(got, []uint64{0, 1, 2, 3, 4, 5, 6}) {
		t.Errorf("receives %v", got)
	}
}

func TestFullSRQRejectsPostRecv(t *testing.T) {
	b, pd := newBase(t, nil)
	s := b.mustSRQ(t, SRQConfig{PD: pd, MaxWR: 3}) // no power of two
	s.postIDs(t, 0, 1, 2)
	if err := s.PostRecv(&verbs.RecvWR{WRID: 9}); !errors.Is(err, verbs.ErrNoMemory) {
		t.Errorf("a fourth receive of three: %v", err)
	}
	if err := s.PostRecv(&verbs.RecvWR{SGL: make([]verbs.SGE, 1)}); err == nil {
		t.Error("a receive with more SGEs than MaxSGE was accepted")
	}
	if got := s.drain(); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("receives %v", got)
	}
}

func TestXRCDomainLimit(t *testing.T) {
	b, _ := newBase(t, func(l *Limits, _ *Policy) { l.XRCDs = 1 })
	x := must.Get(b.OpenXRCD())(t)
	if _, err := b.OpenXRCD(); !errors.Is(err, verbs.ErrNoMemory) {
		t.Errorf("a second XRC domain of one: %v", err)
	}
	x.Use(1)
	if err := b.CloseXRCD(x); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("CloseXRCD of a domain in use: %v", err)
	}
	x.Use(-1)
	if err := b.CloseXRCD(x); err != nil || b.HasXRCD(x) {
		t.Error(err)
	}
	if err := b.CloseXRCD(x); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := b.OpenXRCD(); err != nil {
		t.Error(err)
	}
}
