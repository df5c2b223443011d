package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

const talkQKey = 0x1111

// datagramDefects are about the services that answer nothing, and about who may
// send to a connection.
var datagramDefects = map[string]defectCase{
	"UCLossLocksUp": {
		setup:     onUC,
		talk:      lossOnUC,
		sound:     "1 SUCCESS RECV 8B; 2 SUCCESS RECV 8B",
		defective: "no completion",
	},
	"UCLosesNext": {
		setup: onUC,
		talk: func(c *talk) {
			lossOnUC(c)
			// A message that vanished as a whole does no harm to the next.
			c.recv(3, 64)
			c.send(wire.OpWriteOnly, 5, as(wire.TransportUC), c.at(0, 8), rkey(bogusKey), data(8))
			c.send(wire.OpSendOnly, 9, as(wire.TransportUC), data(8))
			c.done()
		},
		sound:     "1 SUCCESS RECV 8B; 2 SUCCESS RECV 8B; 3 SUCCESS RECV 8B",
		defective: "1 SUCCESS RECV 8B; 2 SUCCESS RECV 8B",
	},
	"UDOversizeCut": {
		talk: func(c *talk) {
			c.q = c.datagramQP(nil)
			c.sendDatagram(c.handle(c.h.pd), 4100, talkQKey)
			c.note("%d sent", len(c.heard))
			for _, k := range c.got {
				c.note("%d bytes", len(k.Payload))
			}
			c.done()
		},
		sound:     "taken; 0 sent; 1 SUCCESS SEND",
		defective: "taken; 1 sent; 4096 bytes; 1 SUCCESS SEND",
	},
	"AHOtherPD": {
		talk: func(c *talk) {
			pd, err := c.h.nic.AllocPD()
			c.must(err)
			c.q = c.datagramQP(nil)
			c.sendDatagram(c.handle(pd), 8, talkQKey)
			c.note("%d sent", len(c.heard))
		},
		sound:     "refused; 0 sent",
		defective: "taken; 1 sent",
	},
	"PrivilegedQKey": {
		talk: func(c *talk) {
			c.q = c.datagramQP(nil)
			c.sendDatagram(c.handle(c.h.pd), 8, 0x8000_0005)
			c.note("Q_Key %08x", c.got[0].DETH.QKey)
		},
		sound:     "taken; Q_Key 00001111",
		defective: "taken; Q_Key 80000005",
	},
	"UDLongKillsQP": {
		talk: func(c *talk) {
			c.q = c.datagramQP(nil)
			c.recv(1, 200)
			c.deliver(c.datagram(c.q, 164))
			c.done()
			c.standing()
		},
		sound:     "no completion; RTS",
		defective: "1 WR_FLUSH_ERR; ERR",
	},
	"NoTClassInArea": {
		talk: func(c *talk) {
			c.q = c.datagramQP(nil)
			c.recv(1, 200)
			d := c.datagram(c.q, 8)
			d.TClass = 0x68
			c.deliver(d)
			c.note("traffic class %#x", c.recvBuf(1, verbs.GRHLen)[21]) // the IPv4 header is the second half
		},
		sound:     "traffic class 0x68",
		defective: "traffic class 0x0",
	},
	"GSIAckReq": {
		talk: func(c *talk) {
			c.h.nic.SendMAD(MAD{Local: c.h.addr, Remote: c.addr, PKey: wire.DefaultPKey})
			c.skip()
			c.note("AckReq %v", c.got[0].BTH.AckReq)
		},
		sound:     "AckReq false",
		defective: "AckReq true",
	},
	"SourceUnchecked": {
		talk: func(c *talk) {
			c.altered(c.build(wire.OpWriteOnly, 0, c.at(0, 4), data(4), ackReq), func(d *link.Datagram) {
				d.Src = netip.AddrPortFrom(otherAddr, d.Src.Port())
			})
			c.hear()
		},
		sound:     "silence",
		defective: "ACK 0 msn 1",
	},
}

// onUC makes the conversation one over an unreliable connection.
var onUC = setup{qp: func(q *QPConfig) { q.Type = verbs.QPTypeUC }}

// lossOnUC loses the middle of a message; two whole ones follow.
func lossOnUC(c *talk) {
	c.recv(1, 4096)
	c.recv(2, 4096)
	c.send(wire.OpSendFirst, 0, as(wire.TransportUC), data(1024))
	c.send(wire.OpSendLast, 2, as(wire.TransportUC), data(8))
	c.send(wire.OpSendOnly, 3, as(wire.TransportUC), data(8))
	c.send(wire.OpSendOnly, 4, as(wire.TransportUC), data(8))
	c.done()
}

// datagramQP makes a UD QP that is ready.
func (c *talk) datagramQP(edit func(*QPConfig)) *QP {
	c.Helper()
	q := c.h.qp(verbs.QPTypeUD, edit)
	c.h.readyUD(q, talkQKey)
	return q
}

// handle makes an address handle of the peer.
func (c *talk) handle(pd nic.PD) *AH {
	c.Helper()
	ah, err := c.h.nic.CreateAH(pd, connAttr(c.addr, 0).AH)
	c.must(err)
	return ah
}

// datagram builds a datagram of n bytes for a UD QP.
func (c *talk) datagram(q *QP, n int) link.Datagram {
	return c.build(wire.OpSendOnly, 0, as(wire.TransportUD), toQP(q), data(n), func(k *wire.Packet) {
		k.DETH = wire.DETH{QKey: talkQKey, SrcQP: peerQPN}
	})
}

// sendDatagram posts a datagram of n bytes and looks at what leaves.
func (c *talk) sendDatagram(ah *AH, n int, qkey uint32) {
	c.Helper()
	wr := verbs.SendWR{
		WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{c.h.sge(0, n)},
		UD: verbs.UD{QPN: peerQPN, QKey: qkey},
	}
	c.tried(c.q.PostSend(c.now, &wr, Refs{AH: ah}))
	c.skip()
}
