package fuzz_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// checkedDevice is a device with a hostile peer. It has memory whose changes are checked, and queue
// pairs whose completions are checked.
type checkedDevice struct {
	t       testing.TB
	name    string
	dev     verbs.Context
	pd      verbs.PD
	cq      verbs.CQ
	mem     *memory
	ledgers ledgers
	queues  []*queue
	srq     verbs.SRQ
	shared  *ledger
	seed    int
	// received counts the messages that have arrived.
	received int
}

// queue is a queue pair of a checkedDevice.
type queue struct {
	v    *checkedDevice
	qp   verbs.QP
	kind verbs.QPType
	sq   *ledger
	rq   *ledger // nil if receives are shared
	// localSQ has the requests without a peer, such as binds, of a queue pair of RD; nil for other
	// queue pairs. RD orders only requests to the same peer.
	localSQ *ledger
	// to is the address of the peer's queue pair, for UD.
	to verbs.UD
	// at are the addresses and keys that the peer offers.
	at []verbs.Remote
}

// cqDepth is larger than the number of outstanding requests.
const cqDepth = 1 << 10

func newCheckedDevice(t testing.TB, name string, dev verbs.Context) *checkedDevice {
	t.Helper()
	v := &checkedDevice{t: t, name: name, dev: dev}
	var err error
	var other verbs.PD
	if v.pd, err = dev.AllocPD(); err == nil {
		other, err = dev.AllocPD()
	}
	if err == nil {
		v.mem, err = newMemory(v.pd, other)
	}
	if err == nil {
		v.cq, err = dev.CreateCQ(verbs.CQInit{Depth: cqDepth})
	}
	if err == nil {
		v.srq, err = dev.CreateSRQ(verbs.SRQInit{PD: v.pd, MaxWR: 16, MaxSGE: 2})
	}
	if err != nil {
		t.Fatal(err)
	}
	v.shared = v.ledgers.open(name+", shared receives", false)
	return v
}

// newQueue creates a queue pair, which uses the shared receive queue if shared.
func (v *checkedDevice) newQueue(kind verbs.QPType, shared bool) *queue {
	v.t.Helper()
	in := verbs.QPInit{
		Type: kind, PD: v.pd, SendCQ: v.cq, RecvCQ: v.cq,
		Caps: verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 32},
	}
	if shared {
		in.SRQ, in.Caps.MaxRecvWR, in.Caps.MaxRecvSGE = v.srq, 0, 0
	}
	qp := must.Get(v.dev.CreateQP(in))(v.t)
	name := fmt.Sprintf("%s, queue pair %d (%v)", v.name, len(v.queues), kind)
	q := &queue{v: v, qp: qp, kind: kind, sq: v.ledgers.open(name+", sends", true)}
	if !shared {
		q.rq = v.ledgers.open(name+", receives", true)
	}
	v.queues = append(v.queues, q)
	return q
}

// setRemotes sets q.at to the regions and the window of the peer.
func (q *queue) setRemotes(peer *checkedDevice) {
	m := peer.mem
	at := func(mr verbs.MR, off int) verbs.Remote {
		return verbs.Remote{Addr: mr.Addr() + uint64(off), RKey: mr.RKey()}
	}
	window := at(m.windowed, windowAt-windowedAt)
	window.RKey = verbs.NextRKey(m.window.RKey())
	q.at = []verbs.Remote{at(m.readWrite, 0), at(m.readWrite, 64), at(m.readWrite, 0x400), at(m.readOnly, 8), window}
}

// send posts a request, unless the queue is full.
func (q *queue) send(wr verbs.SendWR) {
	wr.WRID = q.sq.nextID()
	wr.UD = q.to
	if n, _ := q.qp.PostSend([]verbs.SendWR{wr}); n == 1 {
		q.sq.add(wr.Flags&verbs.SendSignaled != 0)
	}
}

// fetch posts a request whose result is written to a sink of n bytes.
func (q *queue) fetch(n int, wr verbs.SendWR) {
	id := q.sq.nextID()
	sgl, ok := q.v.mem.sink(id, n)
	if !ok {
		return
	}
	wr.WRID, wr.SGL, wr.UD = id, sgl, q.to
	wr.Flags |= verbs.SendSignaled
	if taken, _ := q.qp.PostSend([]verbs.SendWR{wr}); taken == 1 {
		q.sq.add(true)
		return
	}
	q.v.mem.complete(id)
}

// recv posts a receive of n bytes.
func (q *queue) recv(n int) {
	l, post := q.rq, q.qp.PostRecv
	if l == nil {
		l, post = q.v.shared, q.v.srq.PostRecv
	}
	id := l.nextID()
	sgl, ok := q.v.mem.sink(id, n)
	if !ok {
		return
	}
	if taken, _ := post([]verbs.RecvWR{{WRID: id, SGL: sgl}}); taken == 1 {
		l.add(true)
		return
	}
	q.v.mem.complete(id)
}

// bind binds the window, through which a peer can access a part of windowed from then on.
func (q *queue) bind() {
	if sq := q.sq; q.localSQ != nil {
		q.sq = q.localSQ
		defer func() { q.sq = sq }()
	}
	m := q.v.mem
	key := verbs.NextRKey(m.window.RKey())
	q.send(verbs.SendWR{Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{MW: m.window, RKey: key, Info: verbs.BindInfo{
		MR: m.windowed, Addr: m.windowed.Addr() + windowAt - windowedAt, Length: windowLen, Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
	}}})
}

// work posts the request or receive of number.
func (q *queue) work(number byte) {
	m := q.v.mem
	q.v.seed += 24
	// Most requests are valid: the attacker changes them, and a failed queue pair tests nothing
	// more. The last remote addresses have fewer rights.
	at := q.at[int(number>>4)%8%len(q.at)]
	good := q.at[int(number>>4)%3%len(q.at)]
	signaled := verbs.SendSignaled
	if number&0x80 != 0 {
		signaled = 0
	}
	switch number & 15 {
	case 0, 1:
		q.recv(300)
	case 2:
		q.recv(1200)
	case 3:
		q.send(verbs.SendWR{Opcode: verbs.OpSend, Flags: signaled, SGL: m.source(q.v.seed, 100)})
	case 4:
		q.send(verbs.SendWR{Opcode: verbs.OpSend, Flags: signaled | verbs.SendSolicited, SGL: m.source(q.v.seed, 700)})
	case 5:
		q.send(verbs.SendWR{Opcode: verbs.OpSendImm, Flags: signaled | verbs.SendInline, Inline: []byte("inline"), Imm: 5})
	case 6:
		q.send(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: signaled, SGL: m.source(q.v.seed, 600), Remote: good})
	case 7:
		q.send(verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Flags: signaled, SGL: m.source(q.v.seed, 40), Remote: at, Imm: 7})
	case 8:
		q.fetch(500, verbs.SendWR{Opcode: verbs.OpRDMARead, Remote: at})
	case 9:
		q.fetch(24, verbs.SendWR{Opcode: verbs.OpRDMARead, Remote: at})
	case 10:
		q.fetch(8, verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, Remote: good, Atomic: verbs.Atomic{CompareAdd: 3}})
	case 11:
		q.fetch(8, verbs.SendWR{Opcode: verbs.OpAtomicCmpAndSwp, Remote: good, Atomic: verbs.Atomic{Swap: 9}})
	case 12:
		q.bind()
	case 13:
		if number&0x40 != 0 {
			q.send(verbs.SendWR{Opcode: verbs.OpSendInv, Flags: signaled, SGL: m.source(q.v.seed, 16), InvalidateRKey: q.at[len(q.at)-1].RKey})
		} else {
			q.send(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: signaled, SGL: m.source(q.v.seed, windowLen), Remote: q.at[len(q.at)-1]})
		}
	case 14:
		q.send(verbs.SendWR{Opcode: verbs.OpFlush, Flags: signaled, Remote: good, Flush: verbs.Flush{Length: 16, Type: verbs.FlushGlobal}})
	case 15:
		q.send(verbs.SendWR{Opcode: verbs.OpAtomicWrite, Flags: signaled, SGL: m.source(q.v.seed, 8), Remote: good})
	}
}

// pollAndCheck polls the completions, and checks them and the memory.
func (v *checkedDevice) pollAndCheck() {
	v.t.Helper()
	var wcs [32]verbs.WC
	for {
		n, err := v.cq.Poll(wcs[:])
		if err != nil {
			v.t.Fatalf("%s: poll: %v", v.name, err)
		}
		for i := range wcs[:n] {
			must.Do(v.t, v.ledgers.complete(&wcs[i]))
			v.mem.complete(wcs[i].WRID)
			if wcs[i].Status == verbs.WCSuccess && wcs[i].Opcode == verbs.WCOpRecv {
				v.received++
			}
		}
		if n == 0 {
			break
		}
	}
	if err := v.mem.check(); err != nil {
		v.t.Fatalf("%s: %v", v.name, err)
	}
}

// fail moves all queue pairs to ERR, in which all requests complete.
func (v *checkedDevice) fail() {
	v.t.Helper()
	for i, q := range v.queues {
		attr, err := q.qp.Query()
		if err != nil {
			v.t.Fatalf("%s, queue pair %d: query: %v", v.name, i, err)
		}
		if attr.State == verbs.QPStateReset { // the reset dropped the requests
			q.dropPosted()
			continue
		}
		if err := q.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil {
			v.t.Fatalf("%s, queue pair %d: to ERR: %v", v.name, i, err)
		}
	}
}

// dropPosted marks the requests of a reset queue pair as completed.
func (q *queue) dropPosted() {
	for _, l := range []*ledger{q.sq, q.rq} {
		for i := range l.posted {
			l.posted[i].completed = true
			q.v.mem.complete(l.first + uint64(i))
		}
	}
}

// close checks that all requests have completed, and closes all objects.
func (v *checkedDevice) close() {
	v.t.Helper()
	v.pollAndCheck()
	for _, l := range v.ledgers.all {
		if l == v.shared {
			continue // unused receives do not complete
		}
		must.Do(v.t, l.checkCompleted())
	}
	var errs []error
	for _, q := range v.queues {
		errs = append(errs, q.qp.Close())
		if q.to.AH != nil {
			errs = append(errs, q.to.AH.Close())
		}
	}
	m := v.mem
	errs = append(errs, v.srq.Close(), m.window.Close())
	for _, mr := range m.regions() {
		errs = append(errs, mr.Close())
	}
	if err := errors.Join(append(errs, v.cq.Close(), v.pd.Close(), m.pd2.Close())...); err != nil {
		v.t.Fatalf("%s: close: %v", v.name, err)
	}
}
