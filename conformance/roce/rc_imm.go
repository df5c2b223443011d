package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// rdmaImm is immediate data that differs in every byte order.
const rdmaImm = 0x0a0b0c0d

var immediateCases = overRC.Cases([]conformance.Case{{
	ID: "rc/imm/send-carries-it-as-posted", Cite: ibta("", "roce/rc/imm/1"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.postImm(verbs.OpSendImm, 16)
		c.expect(ib.SendOnlyImm(c.DevicePSN(0), rdmaImm, c.LocalMem.Buf[:16]))
		c.Send(ib.Ack(c.DevicePSN(0), 1)) // the next SEND may need the credit
		c.postImm(verbs.OpSendImm, 2500)
		c.expect(ib.SendFirst(c.DevicePSN(1), c.LocalMem.Buf[:MTU]))
		c.expect(ib.SendMiddle(c.DevicePSN(2), c.LocalMem.Buf[MTU:2*MTU]))
		c.expect(ib.SendLastImm(c.DevicePSN(3), rdmaImm, c.LocalMem.Buf[2*MTU:2500]))
	}),
}, {
	ID: "rc/imm/write-carries-it-behind-the-reth", Cite: ibta("", "roce/rc/imm/1"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.postImm(verbs.OpRDMAWriteImm, 16)
		c.expect(ib.WriteOnlyImm(c.DevicePSN(0), rdmaRemoteRETH(16), rdmaImm, c.LocalMem.Buf[:16]))
		c.Send(ib.Ack(c.DevicePSN(0), 1))
		c.postImm(verbs.OpRDMAWriteImm, 1500)
		c.expect(ib.WriteFirst(c.DevicePSN(1), rdmaRemoteRETH(1500), c.LocalMem.Buf[:MTU]))
		c.expect(ib.WriteLastImm(c.DevicePSN(2), rdmaImm, c.LocalMem.Buf[MTU:1500]))
	}),
}, {
	ID: "rc/imm/receiver-gets-it-as-sent", Cite: ibta("", "roce/rc/imm/1", "roce/rc/wr/5"),
	Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		c.Send(ib.SendOnlyImm(c.PeerPSN(0), rdmaImm, Data(16)), ib.WriteOnlyImm(c.PeerPSN(1), c.RETH(0, 16), rdmaImm, Data(16)))
		c.expectRecvImm(1, 16)
		c.expectRecvImm(2, 16)
	}),
}, {
	ID: "rc/imm/empty-message-completes-a-receive", Cite: ibta("", "roce/rc/imm/2"),
	Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		c.Send(ib.SendOnlyImm(c.PeerPSN(0), rdmaImm, nil), ib.WriteOnlyImm(c.PeerPSN(1), ib.At(0, 0, 0), rdmaImm, nil).AckReq())
		c.expectAck(c.PeerPSN(1))
		c.expectRecvImm(1, 0)
		c.expectRecvImm(2, 0)
	}),
}})

// postImm makes the device send or write n bytes with immediate data.
func (c *Conn) postImm(op verbs.WROpcode, n int) {
	c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: op, SGL: c.LocalMem.SGL(0, n), Imm: rdmaImm, Remote: rdmaRemote})
}

// expectRecvImm fails the case unless the next completion is that of receive id, with n
// bytes and the immediate data.
func (c *Conn) expectRecvImm(id uint64, n int) {
	wc := c.ExpectRecv(id, n)
	c.Check(wc.Flags&verbs.WCWithImm != 0 && wc.Imm == rdmaImm, "immediate data 0x0a0b0c0d", "flags %#x, %#08x", wc.Flags, wc.Imm)
}
