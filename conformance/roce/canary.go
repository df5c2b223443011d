package roce

import (
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// canary is a connection that only ever writes no bytes: what is answered to it shows
// that the device has dealt with all that came before.
type canary struct {
	p   *port
	qp  verbs.QP
	psn ib.PSN
	mem *rig.Memory // what nothing is written to: some NICs look at the key all the same
}

// Numbers of the canary's, far from those of other connections.
const (
	canaryQPN = 0xca4a51
	canaryPSN = 0x400000
)

func newCanary(p *port) *canary {
	c := &canary{p: p, psn: canaryPSN, mem: p.Memory(8, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)}
	cq, err := p.Device.CreateCQ(verbs.CQInit{Depth: 16})
	p.Do("a completion queue", err)
	c.qp, err = p.Device.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: p.PD, SendCQ: cq, RecvCQ: cq,
		Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	p.Do("another queue pair", err)
	p.toInit(c.qp, verbs.AccessRemoteWrite)
	a := peerAttr(p.peer)
	a.DestQPN, a.RQPSN = canaryQPN, canaryPSN
	p.toRTR(c.qp, a)
	return c
}

// sing sends a request that must be answered.
func (c *canary) sing() {
	c.p.put(ib.WriteOnly(c.psn, ib.At(c.mem.Addr(), c.mem.RKey(), 0), nil).AckReq().To(uint32(c.qp.QPN())))
	c.psn = c.psn.Add(1)
}

// answered reports whether a packet is what the canary waits for.
func (c *canary) answered(pkt ib.Packet) bool {
	return pkt.DestQP() == canaryQPN && pkt.PSN() == c.psn.Add(-1)
}
