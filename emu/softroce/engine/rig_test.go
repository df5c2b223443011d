package engine

import (
	"net/netip"
	"sync"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// host is a NIC with common objects and memory for tests.
type host struct {
	t    testing.TB
	nic  *NIC
	addr netip.Addr
	pd   nic.PD
	cq   *nic.CQ
	mem  []byte
	mr   *nic.Region
}

const (
	allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
		verbs.AccessMWBind | verbs.AccessFlushGlobal | verbs.AccessFlushPersistent
	memSize = 1 << 20
)

// idleMemory has the memory of hosts of finished tests, for reuse: allocation would take most of
// the time of the tests.
var idleMemory = sync.Pool{New: func() any { return new([memSize]byte) }}

func takeMemory(t testing.TB) []byte {
	m := idleMemory.Get().(*[memSize]byte)
	t.Cleanup(func() {
		*m = [memSize]byte{}
		idleMemory.Put(m)
	})
	return m[:]
}

// newHost creates a host at addr. edit, if not nil, changes its configuration.
func newHost(t testing.TB, addr string, edit func(*Config)) *host {
	t.Helper()
	return newHostWith(t, addr, takeMemory(t), edit)
}

// newHostWith is newHost with the given memory.
func newHostWith(t testing.TB, addr string, mem []byte, edit func(*Config)) *host {
	t.Helper()
	h := &host{t: t, addr: netip.MustParseAddr(addr), mem: mem}
	cfg := Config{GIDs: RoCEv2GIDs(h.addr), LinkMTU: 9000, Link: link.Features{SeesIPID: true, SetsIPID: true, SeesHeader: true, SetsHeader: true}}
	if edit != nil {
		edit(&cfg)
	}
	h.nic = must.Get(New(cfg))(t)
	h.pd = must.Get(h.nic.AllocPD())(t)
	h.cq = must.Get(h.nic.CreateCQ(4096))(t)
	h.mr = must.Get(h.nic.RegMR(h.pd, nic.Bytes(h.mem), 0, allAccess))(t)
	return h
}

// sge returns an SGE for n bytes of memory at off.
func (h *host) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: h.mr.Addr + uint64(off), Length: uint32(n), LKey: verbs.LKey(h.mr.Key)}
}

// remote returns the remote address and key of the memory at off.
func (h *host) remote(off int) verbs.Remote {
	return verbs.Remote{Addr: h.mr.Addr + uint64(off), RKey: verbs.RKey(h.mr.Key)}
}

func (h *host) qp(typ verbs.QPType, edit func(*QPConfig)) *QP {
	h.t.Helper()
	c := QPConfig{
		Type: typ, PD: h.pd, SendCQ: h.cq, RecvCQ: h.cq,
		Caps: verbs.QPCaps{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64},
	}
	if edit != nil {
		edit(&c)
	}
	q := must.Get(h.nic.CreateQP(c))(h.t)
	return q
}

func (h *host) poll() []verbs.WC {
	h.t.Helper()
	var out []verbs.WC
	var into [16]verbs.WC
	for {
		n := must.Get(h.cq.Poll(into[:]))(h.t)
		if n == 0 {
			return out
		}
		out = append(out, into[:n]...)
	}
}

// modify fails the test if Modify fails.
func (h *host) modify(q *QP, a verbs.QPAttr, mask verbs.QPAttrMask) {
	h.t.Helper()
	must.Do(h.t, q.Modify(0, a, mask))
}

// connAttr returns the attributes with which tests connect QPs.
func connAttr(peer netip.Addr, qpn uint32) verbs.QPAttr {
	return verbs.QPAttr{
		Port: 1, Access: allAccess, PathMTU: verbs.MTU1024, DestQPN: verbs.QPN(qpn),
		AH:    verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(peer), HopLimit: 64}},
		RQPSN: 100, SQPSN: 100, MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12,
		Timeout: 14, RetryCnt: 3, RNRRetry: 3,
	}
}

const (
	initMask = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	rtrMask  = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	rcRTR    = rtrMask | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	rcRTS    = verbs.QPAttrState | verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt |
		verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
)

// ready connects a QP to (peer, qpn) and moves it to RTS. edit may change the attributes.
func (h *host) ready(q *QP, peer netip.Addr, qpn uint32, edit func(*verbs.QPAttr)) {
	h.t.Helper()
	a := connAttr(peer, qpn)
	if edit != nil {
		edit(&a)
	}
	rtr, rts := rcRTR, rcRTS
	switch q.cfg.Type {
	case verbs.QPTypeUC:
		rtr, rts = rtrMask, verbs.QPAttrState|verbs.QPAttrSQPSN
	case verbs.QPTypeXRCSend:
		rtr = rtrMask
	case verbs.QPTypeXRCRecv:
		rts = verbs.QPAttrState | verbs.QPAttrSQPSN | verbs.QPAttrTimeout
	}
	a.State = verbs.QPStateInit
	h.modify(q, a, initMask|verbs.QPAttrAccessFlags)
	a.State = verbs.QPStateRTR
	h.modify(q, a, rtr)
	a.State = verbs.QPStateRTS
	h.modify(q, a, rts)
}

func (h *host) readyUD(q *QP, qkey uint32) {
	h.t.Helper()
	a := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qkey, SQPSN: 7}
	h.modify(q, a, initMask|verbs.QPAttrQKey)
	a.State = verbs.QPStateRTR
	h.modify(q, a, verbs.QPAttrState)
	a.State = verbs.QPStateRTS
	h.modify(q, a, verbs.QPAttrState|verbs.QPAttrSQPSN)
}

func (h *host) send(q *QP, now mono.Time, wr verbs.SendWR) {
	h.t.Helper()
	must.Do(h.t, q.PostSend(now, &wr, Refs{}))
}

func (h *host) recv(q *QP, id uint64, sges ...verbs.SGE) {
	h.t.Helper()
	must.Do(h.t, q.PostRecv(&verbs.RecvWR{WRID: id, SGL: sges}))
}

// network connects hosts without delay and in order. drop selects packets to drop.
type network struct {
	now   mono.Time
	hosts []*host
	drop  func(d *link.Datagram) bool
	batch []link.Datagram
	sent  int
}

func newNetwork(hosts ...*host) *network {
	n := &network{hosts: hosts, batch: make([]link.Datagram, 64)}
	for i := range n.batch {
		n.batch[i].Payload = make([]byte, 0, 4200)
	}
	return n
}

// settle delivers packets until no host sends.
func (n *network) settle() {
	for moved := true; moved; {
		moved = false
		for _, h := range n.hosts {
			for {
				k := h.nic.Output(n.now, n.batch)
				if k == 0 {
					break
				}
				moved = true
				for i := range k {
					n.deliver(&n.batch[i])
				}
			}
		}
	}
}

func (n *network) deliver(d *link.Datagram) {
	n.sent++
	d.IPID = 0
	if n.drop != nil && n.drop(d) {
		return
	}
	for _, h := range n.hosts {
		if h.nic.owns(d.Dst.Addr()) {
			h.nic.Input(n.now, d)
		}
	}
}

// run delivers packets and advances the time until no timer runs or until is reached.
func (n *network) run(until mono.Time) {
	for {
		n.settle()
		next := mono.Never
		for _, h := range n.hosts {
			next = min(next, h.nic.Deadline())
		}
		if next > until {
			n.now = until
			return
		}
		n.now = next
		for _, h := range n.hosts {
			h.nic.Tick(n.now)
		}
	}
}

// rcPair creates two hosts with connected RC QPs.
func rcPair(t testing.TB, edit func(*Config)) (net *network, a, b *host, qa, qb *QP) {
	t.Helper()
	a = newHost(t, "fd00::1", edit)
	b = newHost(t, "fd00::2", edit)
	qa, qb = a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, nil)
	a.ready(qa, b.addr, qb.num, nil)
	b.ready(qb, a.addr, qa.num, nil)
	return newNetwork(a, b), a, b, qa, qb
}

// fill writes a pattern.
func fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}
