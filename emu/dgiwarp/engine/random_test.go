package engine

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// Random work between four RD QPs, each with each, on a network that loses,
// repeats, delays and damages packets. A model knows what must come out: Sends in
// order for each source and whole, Reads what is there, and atomics exactly once,
// or their sum would not be right.
func TestRDRandomWorkAgreesWithAModel(t *testing.T) {
	for seed := range uint64(4) {
		randomRD(t, seed)
	}
}

func randomRD(t *testing.T, seed uint64) {
	const (
		ends    = 4
		rounds  = 150
		counter = 0          // of each end's memory: the word that atomics add to
		steady  = 1024       // what reads read, never written to
		size    = 8000       // of messages at most
		sink    = 64 << 10   // where reads go to
		source  = 96 << 10   // where sends come from, a place for each
		places  = 24         // of the send queue in use at most
		each    = size + 100 // of a receive
	)
	w := newWorld(t)
	w.rng.Uint64() // any draw will do: the seed is in what follows
	for range seed {
		w.rng.Uint64()
	}
	w.loss, w.late = 15, 20
	w.see = func(d *link.Datagram, _ *wire.Packet) bool {
		switch w.rng.IntN(20) {
		case 0:
			w.air = append(w.air, flight{w.now.Add(time.Duration(1+w.rng.IntN(3000)) * time.Microsecond), *d})
			w.air[len(w.air)-1].d.Payload = bytes.Clone(d.Payload)
			sortAir(w)
		case 1:
			d.Payload[w.rng.IntN(len(d.Payload))] ^= 1 << w.rng.IntN(8)
		}
		return false
	}
	all := make([]*end, ends)
	posted := make([]int, ends)
	free := make([][]int, ends)
	type pairOf struct{ from, to int }
	sent, got := map[pairOf]uint32{}, map[pairOf]uint32{}
	added, adds := make([]uint64, ends), 0
	for i := range all {
		all[i] = w.host().own(true)
		all[i].write(steady, size, 40+i)
		for k := range 16 {
			all[i].PostRecv(&verbs.RecvWR{WRID: uint64(k), SGL: all[i].sge(recvAt+k*each, each)})
		}
		for k := range places {
			free[i] = append(free[i], k)
		}
	}
	step := func(i int) {
		j := w.rng.IntN(ends)
		if j == i || len(free[i]) == 0 {
			return
		}
		e, to := all[i], all[j]
		place := free[i][len(free[i])-1]
		free[i] = free[i][:len(free[i])-1]
		posted[i]++
		at := source + place*64
		remote := verbs.Remote{Addr: to.h.mr.Addr + to.base, RKey: verbs.RKey(to.h.mr.Key)}
		id := uint64(place)
		switch w.rng.IntN(3) {
		case 0: // the number of the message, and the rest of a pattern
			p := pairOf{i, j}
			binary.BigEndian.PutUint32(e.bytes(at, 4), sent[p])
			sent[p]++
			n := w.rng.IntN(size - 4)
			e.post(to, verbs.SendWR{WRID: id, Opcode: verbs.OpSend, SGL: append(e.sge(at, 4), e.sge(steady, n)...)})
		case 1:
			n := w.rng.IntN(size)
			r := remote
			r.Addr += steady
			e.post(to, verbs.SendWR{WRID: id, Opcode: verbs.OpRDMARead, SGL: e.sge(sink, n), Remote: r})
		case 2:
			v := w.rng.Uint64() >> 40
			added[j] += v
			adds++
			e.post(to, verbs.SendWR{WRID: id, Opcode: verbs.OpAtomicFetchAdd, SGL: e.sge(at+8, 8), Remote: remote, Atomic: verbs.Atomic{CompareAdd: v}})
		}
	}
	settle := func() {
		w.poll()
		for i, e := range all {
			for _, wc := range e.done {
				if wc.Status != verbs.WCSuccess {
					t.Fatalf("seed %d: end %d: %+v", seed, i, wc)
				}
				if wc.Opcode != verbs.WCOpRecv {
					free[i] = append(free[i], int(wc.WRID))
					posted[i]--
					continue
				}
				b := e.bytes(recvAt+int(wc.WRID)*each, int(wc.ByteLen))
				reply, _ := verbs.InitAHFromWC(1, 0, &wc, b)
				for k, f := range all {
					if f.h.addr != reply.GRH.DGID.Addr() {
						continue
					}
					p := pairOf{k, i}
					if n := binary.BigEndian.Uint32(b[verbs.GRHLen:]); n != got[p] {
						t.Fatalf("seed %d: %d got message %d of %d, want %d", seed, i, n, k, got[p])
					}
					got[p]++
					if rest := b[verbs.GRHLen+4:]; !bytes.Equal(rest, f.bytes(steady, len(rest))) {
						t.Fatalf("seed %d: message of %d bytes from %d to %d is damaged", seed, len(b), k, i)
					}
				}
				must.Do(t, e.PostRecv(&verbs.RecvWR{WRID: wc.WRID, SGL: e.sge(recvAt+int(wc.WRID)*each, each)}))
			}
			e.done = nil
		}
	}
	for range rounds {
		for i := range all {
			for range w.rng.IntN(3) {
				step(i)
			}
		}
		w.run(time.Duration(w.rng.IntN(2000)) * time.Microsecond)
		settle()
	}
	for range 100 {
		w.run(200 * time.Millisecond)
		settle()
	}
	for i, e := range all {
		if posted[i] != 0 {
			t.Errorf("seed %d: end %d waits for %d requests", seed, i, posted[i])
		}
		if sum := binary.LittleEndian.Uint64(e.bytes(counter, 8)); sum != added[i] {
			t.Errorf("seed %d: the word of %d is %d, want %d", seed, i, sum, added[i])
		}
	}
	for p, n := range sent {
		if got[p] != n {
			t.Errorf("seed %d: %d of %d messages from %d to %d", seed, got[p], n, p.from, p.to)
		}
	}
	if adds < 50 {
		t.Errorf("seed %d: only %d atomics", seed, adds)
	}
}
