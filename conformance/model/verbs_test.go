package model

import (
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestVerbsObjectIsBusyWhileUsed(t *testing.T) {
	pd, cq := NewVerbsObject(), NewVerbsObject()
	qp := NewVerbsObject(pd, cq, cq)
	for i, step := range []struct {
		object *VerbsObject
		want   error
	}{
		{pd, verbs.ErrBusy},
		{cq, verbs.ErrBusy},
		{qp, nil},
		{qp, verbs.ErrClosed},
		{cq, nil},
	} {
		if got := step.object.Close(); !errors.Is(got, step.want) {
			t.Errorf("close %d returns %v, want %v", i, got, step.want)
		}
	}
	if NewVerbsObject(pd, cq) != nil {
		t.Error("an object can use a closed one")
	}
	if err := pd.Close(); err != nil {
		t.Errorf("a refused creation leaves the domain busy: %v", err)
	}
}

// newTestQP returns a queue pair with two places in either queue.
func newTestQP(kind verbs.QPType, cq *VerbsCQ) *VerbsQP {
	return NewVerbsQP(7, VerbsQP{
		Type: kind, State: verbs.QPStateRTS, HasSQE: kind != verbs.QPTypeRC,
		Sends: VerbsQueue{Size: 2, CQ: cq}, Recvs: VerbsQueue{Size: 2, CQ: cq},
		Transitions: []VerbsTransition{
			{verbs.QPStateRTS, verbs.QPStateSQD, 0, verbs.QPAttrEnSQDAsyncNotify},
			{verbs.QPStateSQD, verbs.QPStateRTS, 0, verbs.QPAttrQKey},
			{verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPAttrSQPSN, verbs.QPAttrQKey},
		},
	})
}

func TestVerbsQPAcceptsRequiredAndOptionalAttributes(t *testing.T) {
	q := newTestQP(verbs.QPTypeUD, &VerbsCQ{Depth: 4})
	q.State = verbs.QPStateRTR
	for _, c := range []struct {
		to   verbs.QPState
		mask verbs.QPAttrMask
		want bool
	}{
		{verbs.QPStateRTS, verbs.QPAttrSQPSN, true},
		{verbs.QPStateRTS, verbs.QPAttrSQPSN | verbs.QPAttrQKey, true},
		{verbs.QPStateRTS, verbs.QPAttrQKey, false},
		{verbs.QPStateRTS, verbs.QPAttrSQPSN | verbs.QPAttrPort, false},
		{verbs.QPStateSQD, 0, false},
		{verbs.QPStateErr, 0, true},
		{verbs.QPStateErr, verbs.QPAttrPort, false},
		{verbs.QPStateReset, 0, true},
	} {
		if got := q.CanModify(c.to, c.mask|verbs.QPAttrState); got != c.want {
			t.Errorf("RTR to %v with %v: %v, want %v", c.to, c.mask, got, c.want)
		}
	}
	q.State = verbs.QPStateReset
	if q.CanModify(verbs.QPStateErr, verbs.QPAttrState) {
		t.Error("RESET to ERR is permitted")
	}
}

func TestVerbsQPFlushesInOrder(t *testing.T) {
	cq := &VerbsCQ{Depth: 8}
	q := newTestQP(verbs.QPTypeRC, cq)
	q.PostRecv(1)
	q.PostSend(2, false)
	q.PostSend(3, true)
	q.Modify(&verbs.QPAttr{State: verbs.QPStateSQD}, verbs.QPAttrState)
	if !q.Draining() || q.CanModify(verbs.QPStateRTS, verbs.QPAttrState) {
		t.Error("a queue pair with unacknowledged requests is not draining, or can leave SQD")
	}
	q.Modify(&verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
	flushed := func(id uint64) error {
		_, err := cq.Take(&verbs.WC{WRID: id, Status: verbs.WCWRFlushErr, QPN: 7})
		return err
	}
	if flushed(3) == nil {
		t.Error("the second send can complete before the first")
	}
	for _, id := range []uint64{2, 1, 3} {
		if err := flushed(id); err != nil {
			t.Errorf("request %d: %v", id, err)
		}
	}
	if least, most := q.Sends.Room(); least != 2 || most != 2 {
		t.Errorf("room for %d to %d requests, want 2", least, most)
	}
}

func TestVerbsQPGoesToSQEAndContinues(t *testing.T) {
	cq := &VerbsCQ{Depth: 8}
	q := newTestQP(verbs.QPTypeUD, cq)
	q.PostRecv(1)
	q.Sends.Add(VerbsWR{ID: 2})
	q.FailSend(verbs.WCLocProtErr)
	if q.State != verbs.QPStateSQE || len(q.Recvs.Pending()) != 1 {
		t.Errorf("state %v with %d receives, want SQE with 1", q.State, len(q.Recvs.Pending()))
	}
	if _, err := cq.Take(&verbs.WC{WRID: 2, Status: verbs.WCLocProtErr, QPN: 7}); err != nil {
		t.Error(err)
	}
}

func TestVerbsCQReportsArmedCompletionOnce(t *testing.T) {
	for _, c := range []struct {
		name      string
		solicited bool
		status    verbs.WCStatus
		arm       []bool // solicited only
		events    int
	}{
		{name: "never armed"},
		{name: "any", arm: []bool{false}, events: 1},
		{name: "solicited only", arm: []bool{true}},
		{name: "solicited only, and it is", arm: []bool{true}, solicited: true, events: 1},
		{name: "solicited only, and it failed", arm: []bool{true}, status: verbs.WCWRFlushErr, events: 1},
		{name: "any overrides solicited", arm: []bool{true, false}, events: 1},
	} {
		cq := &VerbsCQ{Depth: 4}
		for _, solicited := range c.arm {
			cq.ArmFor(solicited)
		}
		q := &VerbsQueue{Size: 4, CQ: cq}
		for id := range uint64(2) {
			q.Add(VerbsWR{ID: id, Signaled: true})
			q.Complete(verbs.WC{Status: c.status}, c.solicited)
		}
		if cq.Events != c.events {
			t.Errorf("%s: %d events, want %d", c.name, cq.Events, c.events)
		}
	}
}

func TestVerbsCQOverruns(t *testing.T) {
	cq := &VerbsCQ{Depth: 1}
	q := &VerbsQueue{Size: 4, CQ: cq}
	for id := range uint64(2) {
		q.Add(VerbsWR{ID: id, Signaled: true})
		q.Complete(verbs.WC{}, false)
		if cq.Overrun != (id == 1) {
			t.Errorf("after %d completions overrun is %v", id+1, cq.Overrun)
		}
	}
}

func TestVerbsSRQReportsLimitOnce(t *testing.T) {
	s := &VerbsSRQ{Posted: make(map[uint64]bool)}
	for id := range uint64(4) {
		s.Post(id)
	}
	s.Limit = 3
	for used, want := range []int{0, 1, 1, 1} {
		if s.use(); s.Events != want {
			t.Errorf("after %d receives %d events, want %d", used+1, s.Events, want)
		}
	}
}

func TestVerbsMemoryRemote(t *testing.T) {
	region := &VerbsRegion{VerbsRange: VerbsRange{Base: 1000, Off: 16, Len: 64}, Access: verbs.AccessRemoteRead | verbs.AccessMWBind, RKey: 1}
	type1, type2 := &VerbsWindow{Type: verbs.MWType1, Key: 2}, &VerbsWindow{Type: verbs.MWType2, Key: 3}
	m := VerbsMemory{Regions: []*VerbsRegion{nil, region}, Windows: []*VerbsWindow{type1, type2}}
	type1.Bind(&VerbsBind{Region: region, Addr: 1008, Len: 8, Access: verbs.AccessRemoteRead}, 12)
	type2.Bind(&VerbsBind{Region: region, Addr: 1016, Len: 8, Access: verbs.AccessRemoteRead | verbs.AccessZeroBased, QP: 1}, 13)
	for _, c := range []struct {
		name   string
		qp, pd int
		at     verbs.Remote
		n      int
		right  verbs.Access
		off    int // -1 if it is refused
	}{
		{"all of a region", 0, 0, verbs.Remote{Addr: 1000, RKey: 1}, 64, verbs.AccessRemoteRead, 16},
		{"a byte too many", 0, 0, verbs.Remote{Addr: 1000, RKey: 1}, 65, verbs.AccessRemoteRead, -1},
		{"a byte before", 0, 0, verbs.Remote{Addr: 999, RKey: 1}, 1, verbs.AccessRemoteRead, -1},
		{"the end of the address space", 0, 0, verbs.Remote{Addr: 1<<64 - 1, RKey: 1}, 8, verbs.AccessRemoteRead, -1},
		{"another right", 0, 0, verbs.Remote{Addr: 1000, RKey: 1}, 8, verbs.AccessRemoteWrite, -1},
		{"another domain", 0, 1, verbs.Remote{Addr: 1000, RKey: 1}, 8, verbs.AccessRemoteRead, -1},
		{"a window of type 1", 0, 0, verbs.Remote{Addr: 1008, RKey: 12}, 8, verbs.AccessRemoteRead, 24},
		{"its old key", 0, 0, verbs.Remote{Addr: 1008, RKey: 2}, 8, verbs.AccessRemoteRead, -1},
		{"beyond the window", 0, 0, verbs.Remote{Addr: 1009, RKey: 12}, 8, verbs.AccessRemoteRead, -1},
		{"a zero-based window of type 2", 1, 0, verbs.Remote{Addr: 0, RKey: 13}, 8, verbs.AccessRemoteRead, 32},
		{"the same over another queue pair", 0, 0, verbs.Remote{Addr: 0, RKey: 13}, 8, verbs.AccessRemoteRead, -1},
	} {
		off, ok := m.Remote(c.qp, c.pd, c.at, c.n, c.right)
		if ok != (c.off >= 0) || ok && off != c.off {
			t.Errorf("%s: offset %d, permitted %v; want %d", c.name, off, ok, c.off)
		}
	}
	if bound, _ := m.BoundTo(region); bound != 2 {
		t.Errorf("%d windows are bound, want 2", bound)
	}
	if m.CanInvalidate(1, 13) != type2 || m.CanInvalidate(0, 13) != nil || m.CanInvalidate(0, 12) != nil {
		t.Error("only the queue pair that bound a window of type 2 can invalidate it")
	}
}

func TestVerbsWindowCanBind(t *testing.T) {
	region := &VerbsRegion{VerbsRange: VerbsRange{Base: 1000, Len: 64}, Access: verbs.AccessMWBind}
	for _, c := range []struct {
		name   string
		window VerbsWindow
		bind   VerbsBind
		want   bool
	}{
		{"type 1", VerbsWindow{Type: verbs.MWType1}, VerbsBind{Addr: 1000, Len: 64}, true},
		{"type 1 to no bytes", VerbsWindow{Type: verbs.MWType1}, VerbsBind{Addr: 1000}, true},
		{"type 1, zero-based", VerbsWindow{Type: verbs.MWType1}, VerbsBind{Addr: 1000, Len: 64, Access: verbs.AccessZeroBased}, false},
		{"type 1 again", VerbsWindow{Type: verbs.MWType1, Region: region}, VerbsBind{Addr: 1000, Len: 64}, true},
		{"type 2", VerbsWindow{Type: verbs.MWType2}, VerbsBind{Addr: 1063, Len: 1}, true},
		{"type 2 to no bytes", VerbsWindow{Type: verbs.MWType2}, VerbsBind{Addr: 1000}, false},
		{"type 2 again", VerbsWindow{Type: verbs.MWType2, Region: region}, VerbsBind{Addr: 1000, Len: 64}, false},
		{"beyond the region", VerbsWindow{Type: verbs.MWType2}, VerbsBind{Addr: 1001, Len: 64}, false},
		{"write without local write", VerbsWindow{Type: verbs.MWType2}, VerbsBind{Addr: 1000, Len: 64, Access: verbs.AccessRemoteWrite}, false},
		{"another domain", VerbsWindow{Type: verbs.MWType2, PD: 1}, VerbsBind{Addr: 1000, Len: 64}, false},
	} {
		c.bind.Region = region
		if got := c.window.CanBind(&c.bind); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestVerbsWindowOfClosedQPOpensForNoQP(t *testing.T) {
	r := &VerbsRegion{VerbsRange: VerbsRange{Base: 0x1000, Len: 64}, Access: verbs.AccessRemoteRead}
	m := VerbsMemory{Windows: []*VerbsWindow{{Type: verbs.MWType2}, {Type: verbs.MWType1}}}
	for i, w := range m.Windows {
		w.Bind(&VerbsBind{QP: 1, Region: r, Addr: 0x1000, Len: 8, Access: verbs.AccessRemoteRead}, verbs.RKey(i+7))
	}
	m.QPGone(1)
	for qp := range 3 {
		if _, ok := m.Remote(qp, 0, verbs.Remote{Addr: 0x1000, RKey: 7}, 8, verbs.AccessRemoteRead); ok || m.MayBeValid(7) {
			t.Errorf("queue pair %d: the window of a closed queue pair may open", qp)
		}
		if _, ok := m.Remote(qp, 0, verbs.Remote{Addr: 0x1000, RKey: 8}, 8, verbs.AccessRemoteRead); !ok {
			t.Errorf("queue pair %d: a window of type 1 does not open", qp)
		}
	}
}
