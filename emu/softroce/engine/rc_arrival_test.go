package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// rc/read/21: A SEND_INV in the same batch does not affect an earlier READ,
// duplicate or not. The responses carry the memory as of the invalidation.
func TestRCReadBeforeSendInvalidateIsAnswered(t *testing.T) {
	for _, duplicate := range []bool{false, true} {
		for sent := range 3 { // response packets sent before the SEND_INV arrives
			t.Run(fmt.Sprintf("duplicate %v after %d packets", duplicate, sent), func(t *testing.T) {
				each(t, setup{}, func(p *peer) {
					p.recv(1, 8)
					key := p.bindWindow(0x8000)
					n := 3*p.mtu - 1
					read := func() { p.send(wire.OpReadRequest, 0, p.at(0, n), rkey(key)) }
					read()
					want := p.responses(0, n, 1)
					if duplicate {
						p.expect(want...)
						read()
					}
					p.expectSome(want[:sent]...)
					p.send(wire.OpSendOnly, 3, func(k *wire.Packet) {
						k.BTH.Opcode = wire.MakeOpcode(wire.TransportRC, wire.OpSendOnlyInv)
						k.IETH.RKey = key
					}, ackReq)
					p.wcs(fmt.Sprintf("1 SUCCESS RECV inv %x", key))
					clear(p.target(0, n)) // the application may reuse it now
					p.expect(append(want[sent:], "ACK 3 msn 2")...)
					for i, k := range p.got[:3-sent] {
						if at := (sent + i) * p.mtu; !bytes.Equal(k.Payload, targetData[at:][:len(k.Payload)]) {
							p.Errorf("response %d has data from after the invalidation", sent+i)
						}
					}
					p.state(verbs.QPStateRTS)
					read() // a duplicate is NAKed now
					p.expect("NAK 0 access msn 2")
					p.state(verbs.QPStateErr)
				})
			})
		}
	}
}

// A SEND_INV gets an RNR NAK while unsent READ responses exceed the limit of saved bytes.
func TestRCSendInvalidateWaitsForLongReads(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 8)
		n := memSize - targetAt
		key := p.bindWindow(uint64(n))
		packets := (n + p.mtu - 1) / p.mtu
		for i := range maxSaved/n + 1 {
			p.send(wire.OpReadRequest, i*packets, p.at(0, n), rkey(key))
		}
		last := (maxSaved/n + 1) * packets
		p.send(wire.OpSendOnlyInv, last, inv(key), ackReq)
		p.wcs()
		for p.h.nic.Output(p.now, p.ds) > 0 {
		}
		p.send(wire.OpSendOnlyInv, last, inv(key), ackReq)
		p.wcs(fmt.Sprintf("1 SUCCESS RECV inv %x", key))
		p.state(verbs.QPStateRTS)
	})
}

// The application may deregister memory while the response to a duplicate READ is
// unsent. The response is dropped without a NAK.
func TestRCDuplicateReadIsDroppedAfterDeregistration(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		mr := p.regionIn(p.h.pd, allAccess)
		n := 3 * p.mtu
		read := func() { p.send(wire.OpReadRequest, 0, p.at(0, n), rkey(mr.Key)) }
		read()
		want := p.responses(0, n, 1)
		p.expect(want...)
		read()
		p.expectSome(want[0])
		p.send(wire.OpWriteOnly, 3, p.at(0, 0), ackReq)
		must.Do(p, p.h.nic.DeregMR(mr))
		p.expect("ACK 3 msn 2")
		p.state(verbs.QPStateRTS)
		read()
		p.expect("NAK 0 access msn 2")
	})
}

// A duplicate READ after the invalidation of its key is NAKed, even if the key becomes valid again.
func TestRCDuplicateReadAfterInvalidateIsNAKed(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		w := p.window(verbs.MWType2)
		key := p.mustBind(w, 0, 64)
		read := func() { p.send(wire.OpReadRequest, 0, p.at(0, 64), rkey(key)) }
		read()
		p.expect("RR_ONLY 0 64B msn 1")
		must.Do(p, p.h.nic.Mem.Invalidate(key, p.h.pd, p.q.num))
		read()
		must.Do(p, p.h.nic.Mem.Bind(w, nic.Bind{
			Region: p.h.mr, Addr: p.h.mr.Addr + targetAt, Len: 64, Key: key, PD: p.h.pd, QPN: p.q.num, Access: windowRights,
		}))
		p.expect("NAK 0 access msn 1")
	})
}

// Random batches: a peer that repeats READs only before it invalidates their keys
// gets no NAK, and data from before the invalidation.
func TestRCRandomBatchesOfReadsAndInvalidations(t *testing.T) {
	var total readerCounts
	for seed := range uint64(200) {
		r := newReader(t, seed)
		for r.step() {
		}
		r.drain()
		total.add(r.counts)
	}
	t.Logf("%+v", total)
	if total.overtaken < 100 || total.dropped < 10 || total.saved < 100 {
		t.Error("too few responses were pending while their key was invalidated")
	}
}

// reader is a scripted peer that reads memory through windows and regions at random.
type reader struct {
	*peer
	rng    *rand.Rand
	next   int // index of the next PSN
	places []*place
	reads  []*readOp
	counts readerCounts
}

type readerCounts struct {
	reads, duplicates int
	overtaken         int // windows invalidated while a response was pending
	saved             int // response packets sent after that
	dropped           int // duplicates whose region was deregistered before the response
}

func (c *readerCounts) add(d readerCounts) {
	c.reads += d.reads
	c.duplicates += d.duplicates
	c.overtaken += d.overtaken
	c.saved += d.saved
	c.dropped += d.dropped
}

// place is memory that only one key allows access to.
type place struct {
	off    int
	key    uint32
	region *nic.Region // nil: a window
	open   bool
}

// readOp is a READ of the peer. The expected response has the PSNs [from, to].
type readOp struct {
	first, last int
	off, n      int
	place       *place
	answered    bool // the response was complete once
	from, to    int
}

func (o *readOp) waits() bool { return o.from <= o.to }

const placeSize = 0x2000

func newReader(t *testing.T, seed uint64) *reader {
	rng := rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))
	return &reader{peer: newPeer(t, flavours[rng.IntN(len(flavours))], setup{}), rng: rng}
}

// step performs one random operation. It reports false when all memory is used.
func (r *reader) step() bool {
	switch r.rng.IntN(8) {
	case 0, 1:
		return r.openPlace()
	case 2, 3:
		r.read()
	case 4, 5:
		r.readAgain()
	case 6:
		r.closePlace()
	default:
		r.take(r.rng.IntN(12))
	}
	return true
}

// pickPlace returns a place that is open, or nil.
func (r *reader) pickPlace() *place {
	if len(r.places) == 0 {
		return nil
	}
	if c := r.places[r.rng.IntN(len(r.places))]; c.open {
		return c
	}
	return nil
}

func (r *reader) openPlace() bool {
	c := &place{off: len(r.places) * placeSize, open: true}
	if c.off+placeSize > memSize-targetAt {
		return false
	}
	if r.rng.IntN(3) == 0 {
		c.region = r.regionIn(r.h.pd, allAccess)
		c.key = c.region.Key
	} else {
		c.key = r.bindWindow(uint64(c.off + placeSize))
	}
	r.places = append(r.places, c)
	return true
}

// held returns the READs that are in the replay ring of the responder.
func (r *reader) held() []*readOp { return r.reads[max(0, len(r.reads)-4):] }

func (r *reader) read() {
	c := r.pickPlace()
	if held := r.held(); c == nil || len(held) == 4 && !held[0].answered {
		return
	}
	o := &readOp{first: r.next, off: c.off, n: r.rng.IntN(placeSize), place: c, from: r.next}
	o.last = o.first + max(1, (o.n+r.mtu-1)/r.mtu) - 1
	o.to = o.last
	r.next = o.last + 1
	r.reads = append(r.reads, o)
	r.counts.reads++
	r.request(o.first, o.off, o.n, c.key)
}

func (r *reader) request(psn, off, n int, key uint32) {
	r.send(wire.OpReadRequest, psn, r.at(off, n), rkey(key))
}

// readAgain repeats a READ or its last part.
func (r *reader) readAgain() {
	held := r.held()
	if len(held) == 0 {
		return
	}
	o := held[r.rng.IntN(len(held))]
	if !o.place.open {
		return
	}
	skip := r.rng.IntN(o.last - o.first + 1)
	r.counts.duplicates++
	o.from, o.to = o.first+skip, o.last
	r.request(o.from, o.off+skip*r.mtu, o.n-skip*r.mtu, o.place.key)
}

// closePlace invalidates a window with SEND_INV, or deregisters a region after a
// SEND that confirms all READs.
func (r *reader) closePlace() {
	c := r.pickPlace()
	if c == nil || c.region != nil && r.unanswered(c) {
		return
	}
	for _, o := range r.reads {
		switch {
		case o.place != c || !o.waits():
		case c.region != nil:
			o.from = o.to + 1
			r.counts.dropped++
		default:
			r.counts.overtaken++
		}
	}
	c.open = false
	r.recv(1, 8)
	op := wire.OpSendOnlyInv
	if c.region != nil {
		op = wire.OpSendOnly
	}
	r.send(op, r.next, inv(c.key))
	r.next++
	if len(r.h.poll()) != 1 {
		r.Fatal("the SEND did not complete a receive")
	}
	if c.region != nil {
		must.Do(r, r.h.nic.DeregMR(c.region))
	}
	clear(r.target(c.off, placeSize))
}

// unanswered reports whether a READ of c has no complete response.
func (r *reader) unanswered(c *place) bool {
	return slices.ContainsFunc(r.reads, func(o *readOp) bool { return o.place == c && !o.answered })
}

// take receives up to n packets from the NIC and checks them.
func (r *reader) take(n int) int {
	r.got = r.got[:0]
	n = r.h.nic.Output(r.now, r.ds[:n])
	for i := range n {
		text := r.checkPacket(&r.ds[i])
		k := &r.got[i]
		psn := int(k.BTH.PSN.Sub(r.rq))
		if k.AETH.Syndrome.Kind() == wire.SyndromeNak {
			r.Fatalf("%s, for a valid request", text)
		}
		if k.BTH.Opcode.Operation() != wire.OpAcknowledge {
			r.check(text, psn, k.Payload)
		}
	}
	return n
}

// check checks one packet of a READ response.
func (r *reader) check(text string, psn int, payload []byte) {
	for _, o := range r.reads {
		if psn < o.first || psn > o.last {
			continue
		}
		at := (psn - o.first) * r.mtu
		switch {
		case psn != o.from:
			r.Fatalf("%s, want PSN %d", text, o.from)
		case !bytes.Equal(payload, targetData[o.off+at:][:min(r.mtu, o.n-at)]):
			r.Fatalf("%s: other data than the memory had while the key was valid", text)
		}
		if !o.place.open {
			r.counts.saved++
		}
		o.from++
		o.answered = o.answered || !o.waits()
		return
	}
	r.Fatalf("%s is no response to a READ", text)
}

// drain receives all packets and checks that no response is missing.
func (r *reader) drain() {
	for r.take(len(r.ds)) > 0 {
	}
	held := r.held()
	for i, o := range r.reads {
		if o.waits() && (!o.answered || len(r.reads)-i <= len(held)) {
			r.Fatalf("READ %d of %d, PSNs %d to %d: no response from %d on", i, len(r.reads), o.first, o.last, o.from)
		}
	}
}
