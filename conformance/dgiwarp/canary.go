package dgiwarp

import (
	"bytes"
	"encoding/binary"

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
	h.Must("a completion queue", err)
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
	c.p.PostRecv(c.p.qp, uint64(c.songs), c.p.own.SGE(0, canaryRoom))
	c.p.send(dg.UD(iwarp.Send(c.songs, data(8))))
	if _, ok := c.p.PollCQ(c.cq, c.p.ResponseTimeout()); !ok {
		c.p.Fail("a device whose other queue pairs receive", "nothing in %v", c.p.ResponseTimeout())
	}
	copy(c.p.own.Buf[canaryRoom:], c.verse())
	song := c.p.sendWR(uint64(c.songs), canaryRoom, 8)
	song.Flags = 0
	c.p.PostSend(c.p.qp, song)
}

// verse is what the device's program answers to the present song, and to no other.
func (c *canary) verse() []byte { return binary.BigEndian.AppendUint64(nil, uint64(c.songs)) }

// hers reports whether a packet is for the canary, whichever song it answers.
func (c *canary) hers(a arrival) bool { return iwarp.Val(a.Header.DestQP) == canaryQPN }

// answered reports whether a packet answers the present song. One that was under way
// since an earlier one says nothing of what came behind that.
func (c *canary) answered(a arrival) bool {
	switch {
	case !c.hers(a):
		return false
	case a.Challenge != nil:
		return iwarp.Val(a.Challenge.Epoch) == c.songs
	case a.Refusal != nil:
		return iwarp.Val(a.Refusal.Epoch) == c.songs
	}
	return a.Segment != nil && bytes.Equal(a.Segment.Payload, c.verse())
}
