package workload_test

import (
	"strings"
	"testing"
	"time"

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
	one := func(f func(*verbs.WC)) func(*faultyDevice, []verbs.WC, int) []verbs.WC { return change(f) }
	for _, tc := range []struct {
		name string
		rank int // with the defect
		cfg  workload.Config
		lie  func(*faultyDevice, []verbs.WC) []verbs.WC
		want string
	}{
		{"damaged", 1, stream(workload.OpSend), nth(20, message, spoil), "byte 1000 of 2000"},
		{"damaged datagram", 1, datagrams, nth(20, message, spoil), "of 900 is"},
		{"not written", 1, stream(workload.OpSend), nth(20, message, stale(func(l *faultyDevice, wc verbs.WC) []byte { return l.bytes(l.recvs[wc.WRID].Addr, 2000) })), "of 2000 is"},
		{"length", 1, stream(workload.OpSend), nth(20, message, one(func(wc *verbs.WC) { wc.ByteLen-- })), "has 1999 bytes, not 2000"},
		{"received twice", 1, stream(workload.OpSend), nth(20, message, again), "completed"},
		{"datagram twice", 1, datagrams, nth(20, message, again), "completed"},
		{"lost", 1, stream(workload.OpSend), nth(20, message, drop), "before"},
		{"last lost", 1, stream(workload.OpSend), nth(59, message, drop), "never arrived"},
		{"out of order", 1, stream(workload.OpSend), swapped(20, message), "before"},
		{"tiny out of order", 1, tiny, swapped(20, message), "before"},
		{"tiny damaged", 1, tiny, nth(20, message, spoil), "of 3 is"},
		{"another queue pair", 1, stream(workload.OpSend), nth(20, message, one(func(wc *verbs.WC) { wc.QPN ^= 1 << 20 })), "queue pair"},
		{"another receive", 1, stream(workload.OpSend), nth(20, message, one(func(wc *verbs.WC) { wc.WRID ^= 1 })), "receive"},
		{"sent twice", 0, stream(workload.OpSend), nth(3, sent, again), "completed"},
		{"another request", 0, stream(workload.OpSend), nth(3, sent, one(func(wc *verbs.WC) { wc.WRID += 1000 })), "completed"},
		{"another operation", 0, stream(workload.OpSend), nth(3, sent, one(func(wc *verbs.WC) { wc.Opcode = verbs.WCOpRDMARead })), "completed as"},
		{"credit", 0, stream(workload.OpSend), nth(1, func(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRecv }, one(func(wc *verbs.WC) { wc.Imm += 50 })), "of"},

		{"slot damaged", 1, stream(workload.OpWrite), nth(2, announced, inPublic(64+1000)), "of 2000 is"},
		{"guard damaged", 1, stream(workload.OpWrite), nth(2, announced, inPublic(5)), "memory of host1"},
		{"announced twice", 1, stream(workload.OpWrite), nth(2, announced, again), "completed"},
		{"announced too much", 1, stream(workload.OpWrite), nth(2, announced, one(func(wc *verbs.WC) { wc.Imm++ })), "message"},
		{"announcement lost at the end", 1, stream(workload.OpWrite), func(l *faultyDevice, wcs []verbs.WC) []verbs.WC {
			var out []verbs.WC
			for _, wc := range wcs {
				if announced(wc) && wc.Imm == 60 {
					l.told = true
					continue
				}
				out = append(out, wc)
			}
			return out
		}, "never arrived"},

		{"read damaged", 1, stream(workload.OpRead), nth(2, fetched, spoil), "of 2000 is"},
		{"read cut short", 1, stream(workload.OpRead), nth(2, fetched, one(func(wc *verbs.WC) { wc.ByteLen-- })), "with 1999 bytes"},
		{"read twice", 1, stream(workload.OpRead), nth(2, fetched, again), "completed"},
		{"source damaged", 0, stream(workload.OpRead), nth(0, sent, inPublic(5)), "memory of host0"},

		{"ping damaged", 1, kind(workload.PingPong, workload.OpSend), nth(20, message, spoil), "of 2000 is"},
		{"pong damaged", 0, kind(workload.PingPong, workload.OpWrite), nth(20, announced, inPublic(64+1000)), "of 2000 is"},
		{"incast damaged", 0, kind(workload.Incast, workload.OpSend), nth(20, message, spoil), "of 2000 is"},
		{"incast out of order", 0, kind(workload.Incast, workload.OpSend), swapped(20, message), "before"},
		{"all to all damaged", 2, kind(workload.AllToAll, workload.OpSend), nth(20, message, spoil), "of 2000 is"},
		{"all to all lost", 2, kind(workload.AllToAll, workload.OpSend), nth(20, message, drop), "before"},
		{"border damaged", 1, kind(workload.Halo, workload.OpWrite), nth(20, announced, inPublic(64+1000)), "of 2000 is"},
		{"border read damaged", 1, kind(workload.Halo, workload.OpRead), nth(2, fetched, spoil), "of 2000 is"},
		{"word changed", 1, kind(workload.Halo, workload.OpWrite), nth(20, announced, inWord), "atomic"},
		{"atomic's result changed", 1, kind(workload.Halo, workload.OpWrite), nth(20, added, spoil), "atomic"},

		{"ping twice", 1, kind(workload.PingPong, workload.OpSend), nth(20, message, again), "twice"},
		{"ping lost", 1, kind(workload.PingPong, workload.OpSend), nth(20, message, drop), "received 20 of 60, waits for more"},
		{"pong announced twice", 0, kind(workload.PingPong, workload.OpWrite), nth(20, announced, again), "announced"},
		{"incast twice", 0, kind(workload.Incast, workload.OpSend), nth(20, message, again), "twice"},
		{"incast lost", 0, kind(workload.Incast, workload.OpSend), nth(20, message, drop), "never arrived"},
		{"all to all twice", 2, kind(workload.AllToAll, workload.OpSend), nth(20, message, again), "twice"},
		{"all to all out of order", 2, kind(workload.AllToAll, workload.OpSend), swapped(20, message), "before"},
		{"all to all, guard damaged", 2, kind(workload.AllToAll, workload.OpWrite), nth(2, announced, inPublic(5)), "memory of host2"},
		{"border twice", 1, kind(workload.Halo, workload.OpWrite), nth(20, announced, again), "announced"},
		{"border too early", 1, kind(workload.Halo, workload.OpWrite), nth(20, announced, one(func(wc *verbs.WC) { wc.Imm++ })), "message"},
		{"guard of a border damaged", 1, kind(workload.Halo, workload.OpWrite), nth(20, announced, inPublic(5)), "memory of host1"},
		{"call twice", 1, calls, nth(7, message, again), "message 8"},

		{"call damaged", 1, calls, nth(7, message, spoil), "message 7"},
		{"answer damaged", 0, calls, nth(7, message, spoil), "message 7"},
		{"call cut short", 1, calls, nth(7, message, one(func(wc *verbs.WC) { wc.ByteLen-- })), "bytes, not"},
		{"random damaged", 1, random, nth(0, func(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRDMARead && wc.ByteLen > 50 }, one(func(wc *verbs.WC) { wc.ByteLen-- })), "completion with"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 4, 1)
			l := &faultyDevice{lie: tc.lie, recvs: map[uint64]verbs.SGE{}}
			r.disguise = func(host int, dev verbs.Context) verbs.Context {
				if host != tc.rank {
					return dev
				}
				l.Context = dev
				return l
			}
			r.patience = 100 * time.Millisecond
			r.start(tc.cfg)
			if err := r.RunPrograms(); err != nil {
				t.Fatal(err)
			}
			if !l.told {
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
