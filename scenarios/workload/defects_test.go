package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestEveryDeviceDefectIsDetected(t *testing.T) {
	t.Parallel()
	stream := func(op string) workload.Config {
		return workload.Config{Kind: workload.Stream, Op: op, Messages: 60, Bytes: 2000, Depth: 8}
	}
	kind := func(k workload.Kind, op string) workload.Config {
		return workload.Config{Kind: k, Op: op, Messages: 60, Bytes: 2000, Depth: 8}
	}
	datagrams := stream(workload.OpSend)
	datagrams.Services, datagrams.Bytes = []string{workload.ServiceUD}, 900
	tiny := stream(workload.OpSend)
	tiny.Bytes = 3
	random := workload.Config{Kind: workload.Random, Services: []string{workload.ServiceRC}, Messages: 100, Bytes: 2000}
	calls := workload.Config{Kind: workload.Calls, Messages: 20, Bytes: 2000}
	for _, tc := range []struct {
		name  string
		rank  int // with the defect
		cfg   workload.Config
		fault testutil.Fault
		want  string
	}{
		{"damaged", 1, stream(workload.OpSend), testutil.Nth(20, message, testutil.FlipBit), "byte 1000 of 2000"},
		{"damaged datagram", 1, datagrams, testutil.Nth(20, message, testutil.FlipBit), "of 900 is"},
		{"not written", 1, stream(workload.OpSend), testutil.Nth(20, message, stale(func(l *testutil.FaultyDevice, wc verbs.WC) []byte { return l.Bytes(l.Buffers[wc.WRID].Addr, 2000) })), "of 2000 is"},
		{"length", 1, stream(workload.OpSend), testutil.Nth(20, message, testutil.Field(func(wc *verbs.WC) { wc.ByteLen-- })), "has 1999 bytes, not 2000"},
		{"received twice", 1, stream(workload.OpSend), testutil.Nth(20, message, testutil.Duplicate), "completed"},
		{"datagram twice", 1, datagrams, testutil.Nth(20, message, testutil.Duplicate), "completed"},
		{"lost", 1, stream(workload.OpSend), testutil.Nth(20, message, testutil.Drop), "before"},
		{"last lost", 1, stream(workload.OpSend), testutil.Nth(59, message, testutil.Drop), "never arrived"},
		{"out of order", 1, stream(workload.OpSend), testutil.Swap(20, message), "before"},
		{"tiny out of order", 1, tiny, testutil.Swap(20, message), "before"},
		{"tiny damaged", 1, tiny, testutil.Nth(20, message, testutil.FlipBit), "of 3 is"},
		{"another queue pair", 1, stream(workload.OpSend), testutil.Nth(20, message, testutil.Field(func(wc *verbs.WC) { wc.QPN ^= 1 << 20 })), "queue pair"},
		{"another receive", 1, stream(workload.OpSend), testutil.Nth(20, message, testutil.Field(func(wc *verbs.WC) { wc.WRID ^= 1 })), "receive"},
		{"sent twice", 0, stream(workload.OpSend), testutil.Nth(3, sent, testutil.Duplicate), "completed"},
		{"another request", 0, stream(workload.OpSend), testutil.Nth(3, sent, testutil.Field(func(wc *verbs.WC) { wc.WRID += 1000 })), "completed"},
		{"another operation", 0, stream(workload.OpSend), testutil.Nth(3, sent, testutil.Field(func(wc *verbs.WC) { wc.Opcode = verbs.WCOpRDMARead })), "completed as"},
		{"credit", 0, stream(workload.OpSend), testutil.Nth(1, func(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRecv }, testutil.Field(func(wc *verbs.WC) { wc.Imm += 50 })), "of"},

		{"slot damaged", 1, stream(workload.OpWrite), testutil.Nth(2, announced, inPublic(64+1000)), "of 2000 is"},
		{"guard damaged", 1, stream(workload.OpWrite), testutil.Nth(2, announced, inPublic(5)), "memory of host1"},
		{"announced twice", 1, stream(workload.OpWrite), testutil.Nth(2, announced, testutil.Duplicate), "completed"},
		{"announced too much", 1, stream(workload.OpWrite), testutil.Nth(2, announced, testutil.Field(func(wc *verbs.WC) { wc.Imm++ })), "message"},
		{"announcement lost at the end", 1, stream(workload.OpWrite), func(l *testutil.FaultyDevice, wcs []verbs.WC) []verbs.WC {
			var out []verbs.WC
			for _, wc := range wcs {
				if announced(wc) && wc.Imm == 60 {
					l.Applied = true
					continue
				}
				out = append(out, wc)
			}
			return out
		}, "never arrived"},

		{"read damaged", 1, stream(workload.OpRead), testutil.Nth(2, fetched, testutil.FlipBit), "of 2000 is"},
		{"read cut short", 1, stream(workload.OpRead), testutil.Nth(2, fetched, testutil.Field(func(wc *verbs.WC) { wc.ByteLen-- })), "with 1999 bytes"},
		{"read twice", 1, stream(workload.OpRead), testutil.Nth(2, fetched, testutil.Duplicate), "completed"},
		{"source damaged", 0, stream(workload.OpRead), testutil.Nth(0, sent, inPublic(5)), "memory of host0"},

		{"ping damaged", 1, kind(workload.PingPong, workload.OpSend), testutil.Nth(20, message, testutil.FlipBit), "of 2000 is"},
		{"pong damaged", 0, kind(workload.PingPong, workload.OpWrite), testutil.Nth(20, announced, inPublic(64+1000)), "of 2000 is"},
		{"incast damaged", 0, kind(workload.Incast, workload.OpSend), testutil.Nth(20, message, testutil.FlipBit), "of 2000 is"},
		{"incast out of order", 0, kind(workload.Incast, workload.OpSend), testutil.Swap(20, message), "before"},
		{"all to all damaged", 2, kind(workload.AllToAll, workload.OpSend), testutil.Nth(20, message, testutil.FlipBit), "of 2000 is"},
		{"all to all lost", 2, kind(workload.AllToAll, workload.OpSend), testutil.Nth(20, message, testutil.Drop), "before"},
		{"border damaged", 1, kind(workload.Halo, workload.OpWrite), testutil.Nth(20, announced, inPublic(64+1000)), "of 2000 is"},
		{"border read damaged", 1, kind(workload.Halo, workload.OpRead), testutil.Nth(2, fetched, testutil.FlipBit), "of 2000 is"},
		{"word changed", 1, kind(workload.Halo, workload.OpWrite), testutil.Nth(20, announced, inWord), "atomic"},
		{"atomic's result changed", 1, kind(workload.Halo, workload.OpWrite), testutil.Nth(20, added, testutil.FlipBit), "atomic"},

		{"ping twice", 1, kind(workload.PingPong, workload.OpSend), testutil.Nth(20, message, testutil.Duplicate), "twice"},
		{"ping lost", 1, kind(workload.PingPong, workload.OpSend), testutil.Nth(20, message, testutil.Drop), "received 20 of 60, waits for more"},
		{"pong announced twice", 0, kind(workload.PingPong, workload.OpWrite), testutil.Nth(20, announced, testutil.Duplicate), "announced"},
		{"incast twice", 0, kind(workload.Incast, workload.OpSend), testutil.Nth(20, message, testutil.Duplicate), "twice"},
		{"incast lost", 0, kind(workload.Incast, workload.OpSend), testutil.Nth(20, message, testutil.Drop), "never arrived"},
		{"all to all twice", 2, kind(workload.AllToAll, workload.OpSend), testutil.Nth(20, message, testutil.Duplicate), "twice"},
		{"all to all out of order", 2, kind(workload.AllToAll, workload.OpSend), testutil.Swap(20, message), "before"},
		{"all to all, guard damaged", 2, kind(workload.AllToAll, workload.OpWrite), testutil.Nth(2, announced, inPublic(5)), "memory of host2"},
		{"border twice", 1, kind(workload.Halo, workload.OpWrite), testutil.Nth(20, announced, testutil.Duplicate), "announced"},
		{"border too early", 1, kind(workload.Halo, workload.OpWrite), testutil.Nth(20, announced, testutil.Field(func(wc *verbs.WC) { wc.Imm++ })), "message"},
		{"guard of a border damaged", 1, kind(workload.Halo, workload.OpWrite), testutil.Nth(20, announced, inPublic(5)), "memory of host1"},
		{"call twice", 1, calls, testutil.Nth(7, message, testutil.Duplicate), "message 8"},

		{"call damaged", 1, calls, testutil.Nth(7, message, testutil.FlipBit), "message 7"},
		{"answer damaged", 0, calls, testutil.Nth(7, message, testutil.FlipBit), "message 7"},
		{"call cut short", 1, calls, testutil.Nth(7, message, testutil.Field(func(wc *verbs.WC) { wc.ByteLen-- })), "bytes, not"},
		{"random damaged", 1, random, testutil.Nth(0, func(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRDMARead && wc.ByteLen > 50 }, testutil.Field(func(wc *verbs.WC) { wc.ByteLen-- })), "completion with"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 4, 1)
			l := testutil.NewFaultyDevice(tc.fault)
			r.wrap = func(host int, dev verbs.Context) verbs.Context {
				if host != tc.rank {
					return dev
				}
				l.Context = dev
				return l
			}
			r.patience = 100 * time.Millisecond
			r.start(tc.cfg)
			must.Do(t, r.RunPrograms())
			if !l.Applied {
				t.Fatal("the defect was never triggered")
			}
			var all []string
			contents := false
			for rank, p := range r.reports {
				for _, v := range p.Violations {
					all = append(all, v.What)
					contents = contents || v.Kind == traffic.Contents
				}
				if r.errs[rank] != nil {
					all = append(all, r.errs[rank].Error())
				}
			}
			if found := strings.Join(all, "\n"); !strings.Contains(found, tc.want) {
				t.Errorf("violations %q, want one with %q", found, tc.want)
			} else {
				t.Log(all[0])
			}
			if damage := strings.Contains(tc.name, "damaged") && tc.cfg.Kind != workload.Random; damage && !contents {
				t.Errorf("%q: none of them is about contents", all)
			}
		})
	}
}

func message(wc verbs.WC) bool {
	return wc.Opcode == verbs.WCOpRecv && wc.ByteLen > 0 && wc.Status == verbs.WCSuccess
}

func announced(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRecvRDMAWithImm }

func fetched(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRDMARead }

func added(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpFetchAdd }

func sent(wc verbs.WC) bool {
	return wc.Opcode < verbs.WCOpRecv && wc.Opcode != verbs.WCOpBindMW && wc.Status == verbs.WCSuccess
}

// stale clears data, as if it had not been written.
func stale(of func(l *testutil.FaultyDevice, wc verbs.WC) []byte) testutil.Change {
	return func(l *testutil.FaultyDevice, wcs []verbs.WC, i int) []verbs.WC {
		b := of(l, wcs[i])
		for k := len(b) / 2; k < len(b)/2+16; k++ {
			b[k] = 0
		}
		return wcs
	}
}

// inPublic flips a bit in memory that peers write to: in the guard before the slots, or at
// the same place of every slot.
func inPublic(at int) testutil.Change {
	return func(l *testutil.FaultyDevice, wcs []verbs.WC, _ int) []verbs.WC {
		for _, r := range l.Regions {
			if !r.Public || len(r.Buf) <= at {
				continue
			}
			for i := at; i < len(r.Buf)-64; i += 2048 {
				r.Buf[i] ^= 1
				if at < 64 {
					break
				}
			}
		}
		return wcs
	}
}

// inWord changes the word of the atomics.
func inWord(l *testutil.FaultyDevice, wcs []verbs.WC, _ int) []verbs.WC {
	for _, r := range l.Regions {
		if len(r.Buf) == 8 {
			r.Buf[0] += 5
		}
	}
	return wcs
}
