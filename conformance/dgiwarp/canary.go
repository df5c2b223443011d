package dgiwarp

import (
	"github.com/fabrictest/fabrictest/conformance/packet/dg"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// canary is a queue pair of its own whose answer shows that the device has dealt with
// all that came before. One of RD answers a start without proof by itself, and keeps
// nothing; for one of UD the device's program answers.
type canary struct {
	p  *peer
	cq verbs.CQ
	// songs is how many times it was asked.
	songs uint32
}

// canaryQPN is the peer's number for it, far from those of other queue pairs.
const canaryQPN = 0x00ca4a51

func newCanary(h *host) *canary {
	c := new(canary)
	var err error
	c.cq, err = h.Device.CreateCQ(verbs.CQInit{Depth: 16})
	h.Do("a completion queue", err)
	c.p = h.queuePair(setup{cq: c.cq, memLen: 2 * canaryRoom}).peer(0)
	c.p.qpn = canaryQPN
	return c
}

// canaryRoom is what a message of the canary's takes.
const canaryRoom = areaLen + 8

// sing has the queue pair answer.
func (c *canary) sing() {
	c.songs++
	if c.p.Caps.Has(verbs.CapRD) {
		c.p.send(dg.Data(c.songs, 0, emptyWrite()).Starting(0, 1, c.p.key).AckNow())
		return
	}
	c.p.Recv(c.p.qp, uint64(c.songs), c.p.own.SGE(0, canaryRoom))
	c.p.send(dg.UD(iwarp.Send(c.songs, data(8))))
	if _, ok := c.p.WaitOn(c.cq, c.p.Patience()); !ok {
		c.p.Fail("a device whose other queue pairs receive", "nothing in %v", c.p.Patience())
	}
	song := c.p.sendWR(uint64(c.songs), canaryRoom, 8)
	song.Flags = 0
	c.p.Post(c.p.qp, song)
}

// answered reports whether a packet is what the canary waits for.
func (c *canary) answered(a arrival) bool { return iwarp.Val(a.Header.DestQP) == canaryQPN }
