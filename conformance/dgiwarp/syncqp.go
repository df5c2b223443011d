package dgiwarp

import (
	"bytes"
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// syncQP is a queue pair that only synchronizes: its reply shows that the device has
// processed all earlier packets. With RD the device itself answers a flow start without
// a valid cookie; with UD the application replies.
type syncQP struct {
	p  *peer
	cq verbs.CQ
	// round counts the requests.
	round uint32
}

// syncQPN is the peer's QP number for it, distinct from those of other queue pairs.
const syncQPN = 0x00ca4a51

func newSyncQP(h *host) *syncQP {
	c := new(syncQP)
	var err error
	c.cq, err = h.Device.CreateCQ(verbs.CQInit{Depth: 16})
	h.Must("a completion queue", err)
	c.p = h.newQP(setup{cq: c.cq, memLen: 2 * syncBufLen}).peer(0)
	c.p.qpn = syncQPN
	return c
}

// syncBufLen is the buffer size of one message.
const syncBufLen = areaLen + 8

// sync sends a request that makes the queue pair reply.
func (c *syncQP) sync() {
	c.round++
	if c.p.Caps.Has(verbs.CapRD) {
		c.p.send(iwarp.RDData(c.round, 0, zeroLengthWrite()).Starting(0, 1, c.p.key).AckNow())
		return
	}
	c.p.PostRecv(c.p.qp, uint64(c.round), c.p.localMem.SGE(0, syncBufLen))
	c.p.send(iwarp.UD(iwarp.Send(c.round, data(8))))
	if _, ok := c.p.PollCQ(c.cq, c.p.ResponseTimeout()); !ok {
		c.p.Fail("a receive of the synchronization queue pair", "nothing in %v", c.p.ResponseTimeout())
	}
	copy(c.p.localMem.Buf[syncBufLen:], c.replyPayload())
	reply := c.p.sendWR(uint64(c.round), syncBufLen, 8)
	reply.Flags = 0
	c.p.PostSend(c.p.qp, reply)
}

// replyPayload is the payload of the reply to the current request.
func (c *syncQP) replyPayload() []byte { return binary.BigEndian.AppendUint64(nil, uint64(c.round)) }

// isReply reports whether a packet is a reply of the synchronization queue pair, to any request.
func (c *syncQP) isReply(a arrival) bool { return iwarp.Val(a.Header.DestQP) == syncQPN }

// answered reports whether a packet is the reply to the current request. Replies to
// earlier requests may still be in flight.
func (c *syncQP) answered(a arrival) bool {
	switch {
	case !c.isReply(a):
		return false
	case a.Challenge != nil:
		return iwarp.Val(a.Challenge.Epoch) == c.round
	case a.Refusal != nil:
		return iwarp.Val(a.Refusal.Epoch) == c.round
	}
	return a.Segment != nil && bytes.Equal(a.Segment.Payload, c.replyPayload())
}
