package random

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// The memory model: the bytes of a target after the requests of a plan, in order.

func word(b []byte) uint64       { return binary.LittleEndian.Uint64(b) }
func putWord(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// initialTarget returns the memory of a side before the traffic.
func initialTarget(w *Workload, lane int, s Side) []byte {
	l := &w.Lanes[lane]
	n := targetLen(l)
	if !l.Service.Reliable() {
		n = 8 // the target may be empty, but a region may not
		p := newPlan(w, lane, s.Peer())
		for i := range p.ops {
			if at, size := p.ops[i].modifies(); size > 0 {
				n = max(n, at+size)
			}
		}
	}
	b := make([]byte, n)
	traffic.Fill(b, traffic.Derive(w.Seed, uint64(lane), uint64(s), keyTarget))
	return b
}

// modifies returns the part of the target that the request changes, except a word that several
// ranks change.
func (o *op) modifies() (at, n int) {
	switch o.code {
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
		return o.at, o.size
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpAtomicWrite:
		if !o.shared {
			return o.at, 8
		}
	}
	return 0, 0
}

// apply executes a request on an image of the target.
func (p *plan) apply(n int, image []byte) {
	o := &p.ops[n]
	at, size := o.modifies()
	if size == 0 {
		return
	}
	b := image[at : at+size]
	switch o.code {
	case verbs.OpAtomicFetchAdd:
		putWord(b, word(b)+o.operand)
	case verbs.OpAtomicCmpAndSwp:
		if word(b) == o.operand {
			putWord(b, o.swap)
		}
	default:
		p.fillPayload(n, b)
	}
}

// fillPayload writes the payload of request n.
func (p *plan) fillPayload(n int, b []byte) {
	switch o := &p.ops[n]; o.code {
	case verbs.OpAtomicWrite:
		putWord(b, o.swap)
	default:
		traffic.Fill(b, p.payloadKey(n))
	}
}

// checkMemory compares bytes [at, at+n) of a target with the image after the requests
// before next. Later requests may have been executed in whole or in part: a byte that
// differs must be one that such a request writes.
func (p *plan) checkMemory(image, target []byte, at, n, next int) error {
	want, got := image[at:at+n], target[at:at+n]
	diff := traffic.FirstDifference(want, got)
	if diff == "" {
		return nil
	}
	explained, open := make([]bool, n), 0
	for i := range want {
		if explained[i] = want[i] == got[i]; !explained[i] {
			open++
		}
	}
	future := append([]byte(nil), image...)
	for k := next; k < len(p.ops) && open > 0; k++ {
		from, size := p.ops[k].modifies()
		if size == 0 || !(extent{from, size}).overlaps(extent{at, n}) {
			continue
		}
		p.apply(k, future)
		for i := max(from, at); i < min(from+size, at+n); i++ {
			if !explained[i-at] && future[i] == target[i] {
				explained[i-at] = true
				open--
			}
		}
	}
	if open == 0 {
		return nil
	}
	return fmt.Errorf("memory at %d: %s, and no later request explains it", at, diff)
}
