package random

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

func connsOf(l ...Conn) *Workload { return &Workload{Seed: 5, CQs: 1, SharedWords: 2, Conns: l} }

func TestBothSidesComputeSamePlan(t *testing.T) {
	w := connsOf(NewConn(RC, 100, 3000), NewConn(UC, 100, 3000))
	for conn := range w.Conns {
		a, b := newPlan(w, conn, A), newPlan(w, conn, A)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("connection %d: two plans from one workload differ", conn)
		}
		if reflect.DeepEqual(a.ops, newPlan(w, conn, B).ops) {
			t.Errorf("connection %d: both directions have the same plan", conn)
		}
	}
}

// A request must not change memory of an earlier read without a fence between them: a
// retransmitted read executes again.
func TestPlanFencesRequestsThatChangeReadMemory(t *testing.T) {
	l := NewConn(RC, 2000, 3000)
	l.Windows = 4
	ops := newPlan(connsOf(l), 0, A).ops
	reads := 0
	for i := range ops {
		r := &ops[i]
		if r.code != verbs.OpRDMARead {
			continue
		}
		for k := i + 1; k < len(ops) && ops[k].flags&verbs.SendFence == 0; k++ {
			at, n := ops[k].modifies()
			if n > 0 && (extent{at, n}).overlaps(extent{r.at, r.size}) {
				t.Errorf("request %d (%v) changes what request %d (%v) reads", k, &ops[k], i, r)
			}
			if ops[k].code == verbs.OpSendInv && ops[k].window == r.window {
				t.Errorf("request %d invalidates the window of request %d", k, i)
			}
		}
		reads++
	}
	if reads == 0 {
		t.Fatal("no reads in 2000 requests")
	}
}

func TestPlansContainEveryOperation(t *testing.T) {
	for _, s := range []Service{RC, UC, UD, XRC} {
		seen := map[verbs.WROpcode]int{}
		p := newPlan(connsOf(NewConn(s, 1000, 1024)), 0, A)
		for i := range p.ops {
			seen[p.ops[i].code]++
		}
		for _, op := range Operations(s) {
			if seen[op] == 0 {
				t.Errorf("%v: no %v in 1000 requests", s, op)
			}
		}
		if s == RC && seen[verbs.OpLocalInv] == 0 {
			t.Error("RC: no window is invalidated locally")
		}
	}
}

func TestCheckMemoryAcceptsOnlyLaterRequests(t *testing.T) {
	w := connsOf(NewConn(RC, 0, 100))
	p := plan{key: 1, ops: []op{
		{code: verbs.OpRDMAWrite, at: 0, size: 50},
		{code: verbs.OpRDMAWrite, at: 20, size: 50},
		{code: verbs.OpAtomicFetchAdd, at: connWordAt(&w.Conns[0], 0), size: 8, operand: 1 << 40},
	}}
	image := initialTarget(w, 0, B)
	p.apply(0, image)
	target := bytes.Clone(image)
	if err := p.checkMemory(image, target, 0, len(image), 1); err != nil {
		t.Errorf("correct memory: %v", err)
	}
	p.apply(1, target)
	p.apply(2, target)
	if err := p.checkMemory(image, target, 0, len(image), 1); err != nil {
		t.Errorf("later requests executed early: %v", err)
	}
	if err := p.checkMemory(image, target, 0, len(image), 2); err == nil {
		t.Error("a request that is not later is accepted")
	}
	target[90] ^= 1
	if err := p.checkMemory(image, target, 0, len(image), 1); err == nil || !strings.Contains(err.Error(), "byte 20 is") {
		t.Errorf("a byte that no request wrote: %v", err)
	}
}

func TestUntouchedDetectsEveryByteOutsideMessage(t *testing.T) {
	const size = 40
	pieces := split(nil, 99, 30, 4)
	total := 0
	for _, p := range pieces {
		total += p.n
	}
	if len(pieces) < 2 || total != 30 {
		t.Fatalf("pieces %v", pieces)
	}
	slot := make([]byte, slotLen(size, 4))
	for n := 0; n <= 30; n++ {
		poisonSlot(slot)
		msg := bytes.Repeat([]byte{1}, n)
		part := firstBytes(pieces, n)
		scatter(slot, msg, part)
		if !untouched(slot, pieces, n) {
			t.Fatalf("%d bytes: the message itself counts as touched", n)
		}
		for i := range slot {
			if slot[i] != poisonByte {
				continue // of the message
			}
			slot[i] = 0
			if untouched(slot, pieces, n) {
				t.Fatalf("%d bytes: a write to byte %d is not detected", n, i)
			}
			slot[i] = poisonByte
		}
	}
}

// firstBytes returns the first n bytes of pieces.
func firstBytes(pieces []piece, n int) (out []piece) {
	for _, p := range pieces {
		p.n = min(p.n, n)
		n -= p.n
		out = append(out, p)
	}
	return out
}

func TestSharedWordChangesFormOneOrder(t *testing.T) {
	newWords := func() *sharedWords {
		return &sharedWords{initial: []uint64{10}, changes: []wordChange{
			{conn: 0, n: 1, old: 10, new: 15},
			{conn: 1, n: 4, old: 15, new: 100},
			{conn: 0, n: 2, old: 100, new: 101},
			{conn: 1, n: 5, old: 15, new: 15}, // a swap that failed
		}}
	}
	if err := newWords().check([]uint64{101}); err != nil {
		t.Errorf("a valid chain: %v", err)
	}
	for name, change := range map[string]func(*sharedWords) []uint64{
		"executed twice":  func(x *sharedWords) []uint64 { return []uint64{102} },
		"never executed":  func(x *sharedWords) []uint64 { return []uint64{100} },
		"same value read": func(x *sharedWords) []uint64 { x.changes[2].old = 15; return []uint64{101} },
		"out of order":    func(x *sharedWords) []uint64 { x.changes[0].n = 3; return []uint64{101} },
		"unknown value":   func(x *sharedWords) []uint64 { x.changes[3].old, x.changes[3].new = 77, 77; return []uint64{101} },
		"wrong count":     func(x *sharedWords) []uint64 { return nil },
	} {
		x := newWords()
		if err := x.check(change(x)); err == nil {
			t.Errorf("%s: not detected", name)
		}
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	valid := NewConn(RC, 1, 1)
	for want, change := range map[string]func(*Workload, *Conn){
		"no connections":     func(w *Workload, _ *Conn) { w.Conns = nil },
		"CQs is 0":           func(w *Workload, _ *Conn) { w.CQs = 0 },
		"SharedWords is -1":  func(w *Workload, _ *Conn) { w.SharedWords = -1 },
		"no such service":    func(_ *Workload, l *Conn) { l.Service = 9 },
		"Messages[1] is -1":  func(_ *Workload, l *Conn) { l.Messages[1] = -1 },
		"RdAtomic[0] is 0":   func(_ *Workload, l *Conn) { l.RdAtomic[0] = 0 },
		"sizes 5..1":         func(_ *Workload, l *Conn) { l.MinBytes = 5 },
		"Mix is empty":       func(_ *Workload, l *Conn) { l.Mix = nil },
		"IBV_WR_RDMA_READ":   func(_ *Workload, l *Conn) { l.Service, l.Windows, l.Mix = UC, 0, []verbs.WROpcode{verbs.OpRDMARead} },
		"queues of 1 sends":  func(_ *Workload, l *Conn) { l.SendDepth = 1 },
		"MaxSGE is 0":        func(_ *Workload, l *Conn) { l.MaxSGE = 0 },
		"SignalEvery is 0":   func(_ *Workload, l *Conn) { l.SignalEvery = 0 },
		"XRCQueues":          func(_ *Workload, l *Conn) { *l = NewConn(XRC, 1, 1); l.XRCQueues = 0 },
		"windows are for RC": func(_ *Workload, l *Conn) { *l = NewConn(XRC, 1, 1); l.Windows = 1 },
		"not a valid MTU":    func(_ *Workload, l *Conn) { l.MTU = 0 },
		"does not fit":       func(_ *Workload, l *Conn) { *l = NewConn(UD, 1, 1025) },
	} {
		w := connsOf(valid)
		change(w, &w.Conns[0])
		if err := w.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %v, want an error with %q", err, want)
		}
		if _, err := NewEnd(Env{}, w, A); err == nil {
			t.Errorf("NewEnd accepts a workload with the error %q", want)
		}
	}
}

// A fenced request arrives after all atomics before it have executed.
func TestFenceWaitsForAtomics(t *testing.T) {
	word, other := extent{4096, 8}, extent{4104, 8}
	atomic := op{code: verbs.OpAtomicFetchAdd, at: word.at, size: 8}
	send := op{code: verbs.OpSend, size: 1}
	fenced := send
	fenced.flags = verbs.SendFence
	write := op{code: verbs.OpRDMAWrite, at: word.at, size: 8}
	for _, tc := range []struct {
		name string
		ops  []op
		on   extent
		late bool
	}{
		{"next message", []op{atomic, send}, word, true},
		{"second next message", []op{atomic, send, send}, word, true},
		{"another word", []op{atomic, send}, other, false},
		{"a write is never late", []op{write, send}, word, false},
		{"fenced message", []op{atomic, fenced}, word, false},
		{"fence before the message", []op{atomic, fenced, send}, word, false},
		{"fence before the atomic", []op{fenced, atomic, send}, word, true},
		{"fence between two", []op{atomic, fenced, atomic, send}, word, true},
	} {
		c := &conn{end: &End{w: &Workload{Traits: traffic.TransportTraits{AtomicsAfterLaterWrites: true}}}}
		x := &reliableChecker{incoming: incoming{direction: direction{conn: c, plan: plan{ops: tc.ops}}}}
		if got := x.mayBeLate(tc.on, 0, len(tc.ops)-1); got != tc.late {
			t.Errorf("%s: late %v", tc.name, got)
		}
		x.conn.end.w.Traits.AtomicsAfterLaterWrites = false
		if x.mayBeLate(tc.on, 0, len(tc.ops)-1) {
			t.Errorf("%s: late without AtomicsAfterLaterWrites", tc.name)
		}
	}
}
