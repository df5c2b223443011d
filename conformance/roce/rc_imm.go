package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// rdmaImm is immediate data that differs in every byte order.
const rdmaImm = 0x0a0b0c0d

var immediateCases = overRC.Cases([]conformance.Case{{
	ID:    "rc/imm/send-carries-it-as-posted",
	Title: "The immediate data of a SEND follow the BTH of its last packet, in the byte order posted",
	Cite:  ibta("", "roce/rc/imm/1"), Defects: []string{"ByteOrderWrong"},
	Sends:   "posts SENDs of 16 and of 2500 bytes with immediate data 0x0a0b0c0d",
	Expects: "0a 0b 0c 0d after the BTH in SEND_ONLY_IMM and SEND_LAST_IMM, then the payload",
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
	ID:    "rc/imm/write-carries-it-behind-the-reth",
	Title: "The immediate data of a WRITE are in its last packet, after the RETH if there is one, in the byte order posted",
	Cite:  ibta("", "roce/rc/imm/1"), Defects: []string{"ByteOrderWrong"},
	Sends:   "posts WRITEs of 16 and of 1500 bytes with immediate data 0x0a0b0c0d",
	Expects: "RETH and 0a 0b 0c 0d in WRITE_ONLY_IMM; 0a 0b 0c 0d after the BTH in WRITE_LAST_IMM",
	Run: onConn(Setup{}, func(c *Conn) {
		c.postImm(verbs.OpRDMAWriteImm, 16)
		c.expect(ib.WriteOnlyImm(c.DevicePSN(0), rdmaRemoteRETH(16), rdmaImm, c.LocalMem.Buf[:16]))
		c.Send(ib.Ack(c.DevicePSN(0), 1))
		c.postImm(verbs.OpRDMAWriteImm, 1500)
		c.expect(ib.WriteFirst(c.DevicePSN(1), rdmaRemoteRETH(1500), c.LocalMem.Buf[:MTU]))
		c.expect(ib.WriteLastImm(c.DevicePSN(2), rdmaImm, c.LocalMem.Buf[MTU:1500]))
	}),
}, {
	ID:    "rc/imm/receiver-gets-it-as-sent",
	Title: "The completion of a receive has the immediate data in the byte order sent",
	Cite:  ibta("", "roce/rc/imm/1", "roce/rc/wr/5"), Defects: []string{"ByteOrderWrong"},
	Sends:   "a SEND and a WRITE with immediate data 0x0a0b0c0d",
	Expects: "completions with the flag for immediate data, and 0x0a0b0c0d",
	Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		c.Send(ib.SendOnlyImm(c.PeerPSN(0), rdmaImm, Data(16)), ib.WriteOnlyImm(c.PeerPSN(1), c.RETH(0, 16), rdmaImm, Data(16)))
		c.expectRecvImm(1, 16)
		c.expectRecvImm(2, 16)
	}),
}, {
	ID:    "rc/imm/empty-message-completes-a-receive",
	Title: "A SEND or WRITE with immediate data and no payload completes a receive",
	Cite:  ibta("", "roce/rc/imm/2"), Defects: []string{"EmptyMessagesIgnored"},
	Sends:   "a SEND and a WRITE with immediate data and no payload",
	Expects: "two completions of no bytes, with the immediate data",
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
