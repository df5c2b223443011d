package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var sendCases = overRC.Cases([]conformance.Case{{
	ID:    "rc/send/too-long-for-the-receive-refused",
	Title: "A SEND longer than its receive is refused as an invalid request, and the receive completes with LOC_LEN_ERR",
	Cite:  ibta("C10-87", "roce/rc/send/1"), Defects: []string{"LongSendIsOpError"},
	Sends:   "8 bytes into a receive of 4; 2048 bytes in two packets into one of 1500",
	Expects: "a NAK for an invalid request with the PSN that did not fit; LOC_LEN_ERR; nothing after the buffer changed",
	Run: OnPort(func(p *Port) {
		for _, t := range []struct{ room, length int }{{4, 8}, {1500, 2 * MTU}} {
			c := p.connect(Setup{Receives: 1, recvLen: t.room})
			packets := ib.Send(c.PeerPSN(0), Data(t.length), MTU)
			c.Send(packets...)
			c.expectNak(c.PeerPSN(len(packets)-1), ib.NakInvalidRequest)
			c.ExpectCompletion(1, verbs.WCLocLenErr)
			c.ExpectUnchanged(c.LocalMem, 0, t.room)
		}
	}),
}, {
	ID:    "rc/send/bad-key-of-a-receive-is-an-operational-error",
	Title: "A SEND into a receive with a bad key is refused with a NAK for a remote operational error",
	Cite:  ibta("error class A", "roce/rc/send/2"), Defects: []string{"BadRecvKeyIsAccess"},
	Sends:   "SENDs into receives with a key that does not exist, and with memory of another protection domain",
	Expects: "a NAK for a remote operational error",
	Run: OnPort(onEachConn(Setup{}, badReceives, func(c *Conn, r badBuffer) {
		c.sendInto(r)
		c.expectNak(c.PeerPSN(0), ib.NakRemoteOp)
	})),
}, {
	ID:    "rc/send/bad-key-of-a-receive-is-a-protection-error-here",
	Title: "A receive with a bad key completes with LOC_PROT_ERR, and nothing is written",
	Cite:  ibta("error class A", "roce/rc/send/2"), Defects: []string{"RecvErrorIsQPOp"},
	Sends:   "SENDs into receives with a key that does not exist, and with memory of another protection domain",
	Expects: "the receive completes with LOC_PROT_ERR",
	Run: OnPort(onEachConn(Setup{}, badReceives, func(c *Conn, r badBuffer) {
		c.sendInto(r)
		c.ExpectCompletion(1, verbs.WCLocProtErr)
		c.ExpectUnchanged(c.LocalMem, 0, 0)
	})),
}, {
	ID:    "rc/send/srq-receive-of-another-domain-refused",
	Title: "A SEND into a receive of an SRQ whose memory is of another protection domain is refused",
	Cite:  ibta("error class A", "roce/rc/send/2"), Needs: verbs.CapSRQ, Defects: []string{"SRQReceiveAnyPD"},
	Sends:   "a SEND to a QP with an SRQ of the same PD, whose receive has memory of another PD",
	Expects: "a NAK for a remote operational error, LOC_PROT_ERR, memory unchanged",
	Run: OnPort(func(p *Port) {
		srq := p.newSRQ(p.PD)
		c := p.connect(Setup{srq: srq})
		foreign := c.otherPDMemory(verbs.AccessLocalWrite)
		c.PostRecv(srq, 1, foreign.SGE(0, 64))
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq())
		c.expectNak(c.PeerPSN(0), ib.NakRemoteOp)
		c.ExpectCompletion(1, verbs.WCLocProtErr)
		c.ExpectUnchanged(foreign, 0, 0)
	}),
}, {
	ID:    "rc/send/shorter-message-leaves-the-rest-alone",
	Title: "A SEND shorter than its receive completes it with the length sent and leaves the rest of the buffer alone",
	Cite:  ibta("", "roce/rc/send/3"), Defects: []string{"PadDelivered"},
	Sends:   "SENDs of 1, 2, 3, 4 and 1029 bytes, those of odd lengths with pad bytes, into larger receives",
	Expects: "these lengths, the bytes sent, and the rest of the buffers unchanged",
	Run: onConn(Setup{Receives: 5, recvLen: 1500}, func(c *Conn) {
		next := 0
		for i, n := range []int{1, 2, 3, 4, MTU + 5} {
			packets := ib.Send(c.PeerPSN(next), Data(n), MTU)
			next += len(packets)
			c.Send(packets...)
			c.ExpectRecv(uint64(i+1), n)
			c.ExpectBytes(c.LocalMem, 1500*i, Data(n))
			c.ExpectUnchanged(c.LocalMem, 1500*i, n)
			c.LocalMem.Snapshot()
		}
	}),
}, {
	ID:    "rc/send/empty-message-completes-a-receive",
	Title: "A SEND of no bytes completes a receive with length 0",
	Cite:  ibta("", "roce/rc/send/4"), Defects: []string{"EmptyMessagesIgnored"},
	Sends:   "a SEND of no bytes to a QP with one receive, and again with a receive that has no memory",
	Expects: "ACKs, completions with length 0, the buffer unchanged",
	Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.PostRecv(c.QP, 2)
		for i := range 2 {
			c.Send(ib.SendOnly(c.PeerPSN(i), nil).AckReq())
			c.expectAck(c.PeerPSN(i))
			c.ExpectRecv(uint64(i+1), 0)
		}
		c.ExpectUnchanged(c.LocalMem, 0, 0)
	}),
}})

// badReceives are receive buffers that the device must not write to.
var badReceives = []badBuffer{
	{"a key that does not exist", func(c *Conn) verbs.SGE {
		return verbs.SGE{Addr: c.LocalMem.Addr(), Length: 64, LKey: verbs.LKey(unknownKey(verbs.RKey(c.LocalMem.LKey())))}
	}},
	{"memory of another PD", func(c *Conn) verbs.SGE { return c.otherPDMemory(verbs.AccessLocalWrite).SGE(0, 64) }},
}

// sendInto posts a receive with this buffer, and sends a SEND to it.
func (c *Conn) sendInto(r badBuffer) {
	c.PostRecv(c.QP, 1, r.buffer(c))
	c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq())
}
