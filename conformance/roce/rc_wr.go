package roce

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var writeCases = overRC.Cases([]conformance.Case{{
	ID: "rc/wr/one-reth-with-the-length-of-the-message", Cite: ibta("9.4.3", "rc/wr/1"),
	Title:   "A WRITE has one RETH, in its first packet, with the length of the whole message",
	Sends:   "posts WRITEs of 2500 and of 100 bytes",
	Expects: "FIRST with a RETH for 2500 bytes, MIDDLE and LAST with nothing but data; ONLY with a RETH for 100",
	Defects: []string{"RETHPerPacket"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.WriteWR(1, 2500), c.WriteWR(2, 100))
	}),
}, {
	ID: "rc/wr/of-nothing-looks-at-no-key", Cite: ibta("C9-88", "rc/wr/2"),
	Title:   "A WRITE of no bytes is acknowledged without checking its key and address",
	Sends:   "a WRITE of no bytes with a key that does not exist, and an invalid address",
	Expects: "an ACK",
	Defects: []string{"ZeroLengthChecksKey"}, Run: onConn(Setup{}, func(c *Conn) {
		c.expectAcked(ib.WriteOnly(c.PeerPSN(0), ib.At(3, unknownKey(c.TargetMem.RKey()), 0), nil).AckReq())
	}),
}, {
	ID: "rc/wr/plain-write-uses-no-receive", Cite: ibta("C10-87", "rc/wr/3"),
	Title:   "A WRITE without immediate data uses no receive",
	Sends:   "to a QP with one receive: WRITEs of one and of three packets, then a SEND",
	Expects: "no completion for the WRITEs; the SEND finds the receive",
	Defects: []string{"WriteConsumes"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.Send(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16)))
		c.Send(ib.Write(c.PeerPSN(1), c.RETH(0, 0), Data(2500), MTU)...)
		c.expectAck(c.PeerPSN(3))
		c.ExpectNoCompletion()
		c.expectAcked(c.peerSend(4, 8))
		c.ExpectRecv(1, 8)
	}),
}, {
	ID: "rc/wr/refused-write-with-immediate-uses-no-receive", Cite: ibta("C10-87", "rc/wr/4"),
	Title:   "A refused WRITE with immediate data uses no receive: receives are flushed",
	Sends:   "to a QP with two receives: a WRITE with immediate data and a key that does not exist",
	Expects: "a NAK for a remote access error; both receives complete with WR_FLUSH_ERR",
	Defects: []string{"FailedImmConsumes"}, Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		c.Send(ib.WriteOnlyImm(c.PeerPSN(0), c.unknownKeyRETH(8), 7, Data(8)).AckReq())
		c.expectNak(c.PeerPSN(0), ib.NakRemoteAccess)
		c.ExpectCompletions(verbs.WCWRFlushErr, 1, 2)
	}),
}, {
	ID: "rc/wr/completion-of-immediate-has-the-bytes-written", Cite: ibta("", "rc/wr/5", "cq/9"),
	Title:   "A WRITE with immediate data completes a receive as RECV_RDMA_WITH_IMM, with the number of bytes written",
	Sends:   "WRITEs with immediate data of 1028 bytes in two packets, and of 12 bytes",
	Expects: "RECV_RDMA_WITH_IMM with 1028 and 12 bytes; the bytes in the region, and none in the receive's buffer",
	Defects: []string{"SparseCompletions"}, Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		bytes := Data(1028)
		c.Send(ib.WriteFirst(c.PeerPSN(0), c.RETH(0, 1028), bytes[:MTU]), ib.New(ib.OpWriteLastImm, c.PeerPSN(1), bytes[MTU:]).WithImm(7),
			ib.WriteOnlyImm(c.PeerPSN(2), c.RETH(2048, 12), 8, bytes[:12]))
		for i, n := range []int{1028, 12} {
			wc := c.ExpectRecv(uint64(i+1), n)
			c.Check(wc.Opcode == verbs.WCOpRecvRDMAWithImm, "the opcode of a WRITE with immediate data", "%v", wc.Opcode)
			c.ExpectBytes(c.TargetMem, 2048*i, bytes[:n])
		}
		c.ExpectUntouched(c.LocalMem)
	}),
}, {
	ID: "rc/wr/data-visible-before-a-later-send-completes", Cite: ibta("", "rc/wr/6", "cq/10"),
	Title:   "When a SEND completes, its data and those of all earlier WRITEs are in memory",
	Sends:   "eight times a WRITE of three packets and a SEND, the completion of which is looked for all the time",
	Expects: "at the completion: the bytes of the WRITE and those of the SEND",
	Defects: []string{"LatePlacement"}, Run: onConn(Setup{Receives: 8}, func(c *Conn) {
		for i := range 8 {
			bytes := Data(2500 + i)[i:] // different bytes each time
			c.Send(ib.Write(c.PeerPSN(4*i), c.RETH(0, 0), bytes, MTU)...)
			c.Send(ib.SendOnly(c.PeerPSN(4*i+3), bytes[:60]))
			c.pollRecv(uint64(i+1), 60)
			c.ExpectBytes(c.TargetMem, 0, bytes)
			c.ExpectBytes(c.LocalMem, 64*i, bytes[:60])
		}
	}),
}, {
	ID: "rc/wr/more-than-two-gib-refused-when-posted", Cite: ibta("9.4.3", "rc/wr/7"),
	Title:   "A message of more than 2^31 bytes is refused and not sent",
	Sends:   "posts a WRITE, a SEND and a READ of 2^31+1 bytes, in many pieces of one region",
	Expects: "an error at the post or a completion with an error; nothing on the wire",
	Defects: []string{"LongMessagesTaken"}, Run: OnPort(func(p *Port) {
		sgl := p.longSGL()
		caps := verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 1, MaxSendSGE: len(sgl), MaxRecvSGE: 1}
		eachConn(p, Setup{caps: caps}, []verbs.WROpcode{verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMARead}, func(c *Conn, op verbs.WROpcode) {
			c.expectNeverSent(verbs.SendWR{WRID: 1, Opcode: op, Flags: verbs.SendSignaled, SGL: sgl, Remote: PeerMemory})
		})
	}),
}})

// pollRecv is ExpectRecv that polls every 100 ns, to see the completion as early as
// possible.
func (c *Conn) pollRecv(id uint64, n int) {
	const pollInterval, polls = 100 * time.Nanosecond, 1000
	var wcs [1]verbs.WC
	for range polls {
		k, err := c.CQ.Poll(wcs[:])
		c.Must("a completion queue that can be polled", err)
		if k > 0 {
			c.Check(wcs[0].WRID == id && wcs[0].Status == verbs.WCSuccess && int(wcs[0].ByteLen) == n, "the receive of the SEND", "%+v", wcs[0])
			return
		}
		c.Sleep(pollInterval)
	}
	c.ExpectRecv(id, n) // wait longer for slow devices
}

// longSGL returns a list of 2^31+1 bytes. It uses as many entries as the device supports
// for the same region, to register less memory.
func (p *Port) longSGL() (sgl []verbs.SGE) {
	attr := p.QueryDevice()
	pieces := 1
	for pieces < 64 && 2*pieces < attr.MaxSGE && 2*pieces < attr.MaxSGERead {
		pieces *= 2
	}
	// The memory is never touched and therefore not allocated.
	mr, err := p.PD.RegMR(verbs.MRInit{Buf: make([]byte, 1<<31/pieces), Access: verbs.AccessLocalWrite})
	p.Must("a large region", err)
	for range pieces {
		sgl = append(sgl, verbs.SGEOf(mr, 0, mr.Len()))
	}
	return append(sgl, verbs.SGEOf(mr, 0, 1))
}
