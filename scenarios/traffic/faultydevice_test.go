package traffic_test

import (
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// faultyDevice is a device that reports wrong completions or corrupts memory, one defect at
// a time.
type faultyDevice struct {
	verbs.Context
	// lie changes the completions of a successful poll.
	lie func(l *faultyDevice, wcs []verbs.WC) []verbs.WC
	// regions are the bytes of every memory region, in order of registration.
	regions [][]byte
	done    bool
}

type faultyCQ struct {
	verbs.CQ
	l       *faultyDevice
	pending []verbs.WC
}

func (c *faultyCQ) Poll(into []verbs.WC) (int, error) {
	got := make([]verbs.WC, len(into))
	n, err := c.CQ.Poll(got)
	if n > 0 {
		got = c.l.lie(c.l, got[:n])
		c.pending = append(c.pending, got...)
	}
	n = copy(into, c.pending)
	c.pending = c.pending[n:]
	return n, err
}

type faultyPD struct {
	verbs.PD
	l *faultyDevice
}

func (p *faultyPD) RegMR(in verbs.MRInit) (verbs.MR, error) {
	p.l.regions = append(p.l.regions, in.Buf)
	return p.PD.RegMR(in)
}

func (l *faultyDevice) AllocPD() (verbs.PD, error) {
	pd, err := l.Context.AllocPD()
	return &faultyPD{pd, l}, err
}

func (l *faultyDevice) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	cq, err := l.Context.CreateCQ(in)
	return &faultyCQ{CQ: cq, l: l}, err
}

func (l *faultyDevice) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	in.SendCQ, in.RecvCQ, in.PD = honestCQ(in.SendCQ), honestCQ(in.RecvCQ), honestPD(in.PD)
	return l.Context.CreateQP(in)
}

func (l *faultyDevice) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	in.CQ, in.PD = honestCQ(in.CQ), honestPD(in.PD)
	return l.Context.CreateSRQ(in)
}

func honestCQ(cq verbs.CQ) verbs.CQ {
	if c, ok := cq.(*faultyCQ); ok {
		return c.CQ
	}
	return cq
}

func honestPD(pd verbs.PD) verbs.PD {
	if p, ok := pd.(*faultyPD); ok {
		return p.PD
	}
	return pd
}

// once changes the first completion that fits.
func once(fits func(verbs.WC) bool, lie func(l *faultyDevice, wcs []verbs.WC, i int) []verbs.WC) func(*faultyDevice, []verbs.WC) []verbs.WC {
	return func(l *faultyDevice, wcs []verbs.WC) []verbs.WC {
		for i := range wcs {
			if !l.done && fits(wcs[i]) {
				l.done = true
				return lie(l, wcs, i)
			}
		}
		return wcs
	}
}

func received(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRecv && wc.ByteLen > 50 }
func sent(wc verbs.WC) bool     { return wc.Opcode < verbs.WCOpRecv && wc.Opcode != verbs.WCOpBindMW }
func fetched(wc verbs.WC) bool  { return wc.Opcode == verbs.WCOpFetchAdd }

// change changes one completion.
func change(f func(wc *verbs.WC)) func(*faultyDevice, []verbs.WC, int) []verbs.WC {
	return func(_ *faultyDevice, wcs []verbs.WC, i int) []verbs.WC {
		f(&wcs[i])
		return wcs
	}
}

// spoil flips a bit of memory: of the bytes at the offsets that at returns, in the first
// region that has any.
func spoil(at func(region []byte, wc verbs.WC) []int) func(*faultyDevice, []verbs.WC, int) []verbs.WC {
	return func(l *faultyDevice, wcs []verbs.WC, k int) []verbs.WC {
		for _, r := range l.regions {
			bytes := at(r, wcs[k])
			for _, i := range bytes {
				r[i] ^= 0x10
			}
			if bytes != nil {
				break
			}
		}
		return wcs
	}
}

// Regions are identified by size. The memory of a lane ends with eight words.
const (
	laneBytes  = 3000
	wordsAt    = 4 * laneBytes
	targetSize = wordsAt + 64
	sharedSize = 16
)

// inMessage returns a byte of the completed receive: its slot is in its ID.
func inMessage(region []byte, wc verbs.WC) []int {
	if len(region) < 1000 || len(region) == targetSize {
		return nil
	}
	slot := int(wc.WRID >> 32 & 0xffff)
	return []int{slot*len(region)/64 + 20}
}

// inWords returns bytes of the words of the lane.
func inWords(region []byte, _ verbs.WC) (at []int) {
	if len(region) == targetSize {
		for i := range 8 {
			at = append(at, wordsAt+8*i)
		}
	}
	return at
}

// inShared returns a byte of a shared word.
func inShared(region []byte, _ verbs.WC) []int {
	if len(region) != sharedSize {
		return nil
	}
	return []int{3}
}

func TestEveryDeviceDefectIsDetected(t *testing.T) {
	duplicate := func(_ *faultyDevice, wcs []verbs.WC, i int) []verbs.WC { return append(wcs, wcs[i]) }
	swap := func(_ *faultyDevice, wcs []verbs.WC, i int) []verbs.WC {
		wcs[i], wcs[i+1] = wcs[i+1], wcs[i]
		return wcs
	}
	for _, tc := range []struct {
		name    string
		service traffic.Service
		lie     func(*faultyDevice, []verbs.WC) []verbs.WC
	}{
		{"send completed twice", traffic.RC, once(sent, duplicate)},
		{"receive completed twice", traffic.RC, once(received, duplicate)},
		{"datagram completed twice", traffic.UD, once(received, duplicate)},
		{"another QP", traffic.RC, once(sent, change(func(wc *verbs.WC) { wc.QPN++ }))},
		{"another request", traffic.RC, once(sent, change(func(wc *verbs.WC) { wc.WRID += 1000 }))},
		{"another lane", traffic.RC, once(sent, change(func(wc *verbs.WC) { wc.WRID += 1 << 45 }))},
		{"another operation", traffic.RC, once(sent, change(func(wc *verbs.WC) { wc.Opcode ^= 1 }))},
		{"failed", traffic.RC, once(sent, change(func(wc *verbs.WC) { wc.Status = verbs.WCRemAccessErr }))},
		{"flushed", traffic.RC, once(received, change(func(wc *verbs.WC) { wc.Status = verbs.WCWRFlushErr }))},
		{"length", traffic.RC, once(received, change(func(wc *verbs.WC) { wc.ByteLen-- }))},
		{"length of a UC message", traffic.UC, once(received, change(func(wc *verbs.WC) { wc.ByteLen-- }))},
		{"immediate data", traffic.RC, once(func(wc verbs.WC) bool { return wc.Flags&verbs.WCWithImm != 0 }, change(func(wc *verbs.WC) { wc.Imm++ }))},
		{"key invalidated", traffic.RC, once(func(wc verbs.WC) bool { return wc.Flags&verbs.WCWithInv != 0 }, change(func(wc *verbs.WC) { wc.InvalidatedRKey++ }))},
		{"source of a datagram", traffic.UD, once(received, change(func(wc *verbs.WC) { wc.SrcQP++ }))},
		{"receives swapped", traffic.RC, func(l *faultyDevice, wcs []verbs.WC) []verbs.WC {
			if l.done || len(wcs) < 2 || !received(wcs[0]) || !received(wcs[1]) {
				return wcs
			}
			l.done = true
			return swap(l, wcs, 0)
		}},
		{"a byte of a message", traffic.RC, once(received, spoil(inMessage))},
		{"a byte of a datagram", traffic.UD, once(received, spoil(inMessage))},
		{"words of the target", traffic.RC, once(fetched, spoil(inWords))},
		{"a shared word", traffic.RC, once(fetched, spoil(inShared))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			size := laneBytes
			if tc.service == traffic.UD {
				size = 1024
			}
			lane := traffic.NewLane(tc.service, 120, size)
			lane.RecvDepth = 64
			lane.SignalEvery = 1
			work := &traffic.Workload{Seed: 3, CQs: 1, SharedWords: 2, Lanes: []traffic.Lane{lane}}
			w := newWorld(t, 1, impair.Spec{})
			l := &faultyDevice{Context: w.devices[1], lie: tc.lie}
			w.devices[1] = l
			_, err := w.run(t, work)
			var v *traffic.Violation
			if !errors.As(err, &v) {
				t.Fatalf("run = %v, want a violation", err)
			}
			if !l.done {
				t.Fatal("the defect was never triggered")
			}
			t.Log(v)
		})
	}
}

// A missing completion is a deadlock, which the world reports.
func TestLostCompletionCausesDeadlock(t *testing.T) {
	work := &traffic.Workload{Seed: 3, CQs: 1, Lanes: []traffic.Lane{traffic.NewLane(traffic.RC, 20, 100)}}
	w := newWorld(t, 1, impair.Spec{})
	last := func(wc verbs.WC) bool { return wc.WRID == 19 }
	w.devices[1] = &faultyDevice{Context: w.devices[1], lie: once(last, func(_ *faultyDevice, wcs []verbs.WC, i int) []verbs.WC { return append(wcs[:i], wcs[i+1:]...) })}
	_, err := w.run(t, work)
	expectDeadlock(t, err)
}
