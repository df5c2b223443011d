package rcpeer

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// canary is a connection that only ever writes no bytes: what is answered to it shows
// that the device has dealt with all that came before.
type canary struct {
	p   *Port
	qp  verbs.QP
	psn ib.PSN
	mem *rig.Memory // what nothing is written to: some NICs look at the key all the same
}

// Numbers of the canary's, far from those of other connections.
const (
	canaryQPN = 0xca4a51
	canaryPSN = 0x400000
)

func newCanary(p *Port) *canary {
	c := &canary{p: p, psn: canaryPSN, mem: p.Memory(8, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)}
	cq, err := p.Device.CreateCQ(verbs.CQInit{Depth: 16})
	p.Do("a completion queue", err)
	c.qp, err = p.Device.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: p.PD, SendCQ: cq, RecvCQ: cq,
		Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	p.Do("another queue pair", err)
	p.Do("another queue pair in INIT", c.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: verbs.AccessRemoteWrite}, toInit))
	p.Do("another queue pair in RTR", c.qp.Modify(verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPN: canaryQPN, RQPSN: canaryPSN, MaxDestRdAtomic: 4, MinRNRTimer: 12,
		AH: verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(p.Peer), SGIDIndex: p.SourceIndex(), HopLimit: 64}},
	}, toRTR))
	return c
}

// sing sends a request that must be answered.
func (c *canary) sing() {
	c.p.Put(ib.WriteOnly(c.psn, ib.At(c.mem.Addr(), c.mem.RKey(), 0), nil).AckReq().To(uint32(c.qp.QPN())))
	c.psn = c.psn.Add(1)
}

// answered reports whether a packet is what the canary waits for.
func (c *canary) answered(a *Arrival) bool {
	return a.DestQP() == canaryQPN && a.PSN() == c.psn.Add(-1)
}

// Settle waits until the device has dealt with all that was put before, and answers on
// another connection. What it sends meanwhile is kept, but for that answer.
func (p *Port) Settle() {
	if p.canary == nil {
		p.canary = newCanary(p)
	}
	p.canary.sing()
	if _, ok := p.NextOf(p.canary.answered, p.Patience()); !ok {
		p.Fail("a device that answers its other connections", "nothing in %v", p.Patience())
	}
}

// Canary is the queue pair by which Settle knows, once it has been called.
func (p *Port) Canary() verbs.QP {
	if p.canary == nil {
		return nil
	}
	return p.canary.qp
}

// outOfTurn is how long, in real time, a packet may be behind the canary's answer though
// it was due before: hardware serves queue pairs in an order of its own.
const outOfTurn = 20 * time.Millisecond

// Noise settles, and returns the first packet that the device has sent by then, or in
// quiet from then on, so that what a timer would send is seen as well; keep it below the
// timers that may run. In real time it is cut to what is out of turn.
func (p *Port) Noise(quiet time.Duration) (Arrival, bool) {
	p.Settle()
	return p.Next(p.listens(quiet))
}

// listens is how long quiet lasts behind the canary's answer.
func (p *Port) listens(quiet time.Duration) time.Duration {
	if p.Virtual {
		return quiet
	}
	return min(quiet, outOfTurn)
}

// Drain settles, and returns all that the device has sent by then, and in quiet from
// then on; see [Port.Noise].
func (p *Port) Drain(quiet time.Duration) (all []Arrival) {
	for a, ok := p.Noise(quiet); ok; a, ok = p.Next(p.listens(quiet)) {
		all = append(all, a)
	}
	return all
}
