package random_test

import (
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/verbs"
)

func received(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRecv && wc.ByteLen > 50 }
func sent(wc verbs.WC) bool     { return wc.Opcode < verbs.WCOpRecv && wc.Opcode != verbs.WCOpBindMW }
func fetched(wc verbs.WC) bool  { return wc.Opcode == verbs.WCOpFetchAdd }

// flip flips a bit of the bytes at the offsets that at returns, in the first region with any.
func flip(at func(region []byte) []int) testutil.Change {
	return func(d *testutil.FaultyDevice, wcs []verbs.WC, _ int) []verbs.WC {
		for _, r := range d.Regions {
			offsets := at(r.Buf)
			for _, i := range offsets {
				r.Buf[i] ^= 0x10
			}
			if offsets != nil {
				break
			}
		}
		return wcs
	}
}

// Regions are identified by size. The memory of a connection ends with eight words.
const (
	connBytes  = 3000
	wordsAt    = 4 * connBytes
	targetSize = wordsAt + 64
	sharedSize = 16
)

// inWords returns bytes of the words of the connection.
func inWords(region []byte) (at []int) {
	if len(region) == targetSize {
		for i := range 8 {
			at = append(at, wordsAt+8*i)
		}
	}
	return at
}

// inShared returns a byte of a shared word.
func inShared(region []byte) []int {
	if len(region) != sharedSize {
		return nil
	}
	return []int{3}
}

func TestEveryDeviceDefectIsDetected(t *testing.T) {
	for _, tc := range []struct {
		name    string
		service random.Service
		fault   testutil.Fault
	}{
		{"send completed twice", random.RC, testutil.Nth(0, sent, testutil.Duplicate)},
		{"receive completed twice", random.RC, testutil.Nth(0, received, testutil.Duplicate)},
		{"datagram completed twice", random.UD, testutil.Nth(0, received, testutil.Duplicate)},
		{"another QP", random.RC, testutil.Nth(0, sent, testutil.Field(func(wc *verbs.WC) { wc.QPN++ }))},
		{"another request", random.RC, testutil.Nth(0, sent, testutil.Field(func(wc *verbs.WC) { wc.WRID += 1000 }))},
		{"another connection", random.RC, testutil.Nth(0, sent, testutil.Field(func(wc *verbs.WC) { wc.WRID += 1 << 45 }))},
		{"another operation", random.RC, testutil.Nth(0, sent, testutil.Field(func(wc *verbs.WC) { wc.Opcode ^= 1 }))},
		{"failed", random.RC, testutil.Nth(0, sent, testutil.Field(func(wc *verbs.WC) { wc.Status = verbs.WCRemAccessErr }))},
		{"flushed", random.RC, testutil.Nth(0, received, testutil.Field(func(wc *verbs.WC) { wc.Status = verbs.WCWRFlushErr }))},
		{"length", random.RC, testutil.Nth(0, received, testutil.Field(func(wc *verbs.WC) { wc.ByteLen-- }))},
		{"length of a UC message", random.UC, testutil.Nth(0, received, testutil.Field(func(wc *verbs.WC) { wc.ByteLen-- }))},
		{"immediate data", random.RC, testutil.Nth(0, func(wc verbs.WC) bool { return wc.Flags&verbs.WCWithImm != 0 }, testutil.Field(func(wc *verbs.WC) { wc.Imm++ }))},
		{"key invalidated", random.RC, testutil.Nth(0, func(wc verbs.WC) bool { return wc.Flags&verbs.WCWithInv != 0 }, testutil.Field(func(wc *verbs.WC) { wc.InvalidatedRKey++ }))},
		{"source of a datagram", random.UD, testutil.Nth(0, received, testutil.Field(func(wc *verbs.WC) { wc.SrcQP++ }))},
		{"receives swapped", random.RC, testutil.Swap(0, func(wc verbs.WC) bool { return wc.Opcode >= verbs.WCOpRecv })},
		{"a byte of a message", random.RC, testutil.Nth(0, received, testutil.FlipBit)},
		{"a byte of a datagram", random.UD, testutil.Nth(0, received, testutil.FlipBit)},
		{"words of the target", random.RC, testutil.Nth(0, fetched, flip(inWords))},
		{"a shared word", random.RC, testutil.Nth(0, fetched, flip(inShared))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			size := connBytes
			if tc.service == random.UD {
				size = 1024
			}
			conn := random.NewConn(tc.service, 120, size)
			conn.RecvDepth = 64
			conn.SignalEvery = 1
			work := &random.Workload{Seed: 3, CQs: 1, SharedWords: 2, Conns: []random.Conn{conn}}
			w := newWorld(t, 1, impair.Spec{})
			l := testutil.NewFaultyDevice(tc.fault)
			l.Context = w.devices[1]
			w.devices[1] = l
			_, err := w.run(t, work)
			var v *random.Violation
			if !errors.As(err, &v) {
				t.Fatalf("run = %v, want a violation", err)
			}
			if !l.Applied {
				t.Fatal("the defect was never triggered")
			}
			t.Log(v)
		})
	}
}

// A missing completion is a deadlock, which the world reports.
func TestLostCompletionCausesDeadlock(t *testing.T) {
	work := &random.Workload{Seed: 3, CQs: 1, Conns: []random.Conn{random.NewConn(random.RC, 20, 100)}}
	w := newWorld(t, 1, impair.Spec{})
	last := func(wc verbs.WC) bool { return wc.WRID == 19 }
	l := testutil.NewFaultyDevice(testutil.Nth(0, last, testutil.Drop))
	l.Context = w.devices[1]
	w.devices[1] = l
	_, err := w.run(t, work)
	expectDeadlock(t, err)
}
