package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var duplicateCases = overRC.Cases([]conformance.Case{{
	ID: "rc/psn/duplicate-send-delivered-once", Cite: ibta("C9-105", "rc/psn/9"),
	Title:   "A duplicate SEND is delivered once",
	Sends:   "a SEND, the same packet again, and another SEND",
	Expects: "one completion for the first, and the next receive for the other",
	Defects: []string{"DuplicatesExecuted"}, Run: onRC(func(c *Conn) {
		send := c.peerSend(0, 16)
		c.exchange(send, c.deviceAck(0, ib.AnyMSN))
		c.Send(send)
		c.Sync()
		c.ExpectRecv(1, 16)
		c.ExpectBytes(c.LocalMem, 0, Data(16))
		c.ExpectNoCompletion()
		c.Send(c.peerSend(1, 8))
		c.ExpectRecv(2, 8)
	}),
}, {
	ID: "rc/psn/duplicate-with-immediate-delivered-once", Cite: ibta("C9-105", "rc/psn/9"),
	Title:   "A message with immediate data is delivered once if it, or its last packet, is duplicated",
	Sends:   "SENDs and WRITEs with immediate data, of one packet and of two; the last packet of each again, and all of it again; another SEND",
	Expects: "an ACK for each duplicate, one completion for each message, and the next receive for the other",
	Defects: []string{"DuplicateImmReceives"}, Run: onEachConn(Setup{Receives: 2, recvLen: 2048}, []ib.Opcode{ib.OpSendOnlyImm, ib.OpWriteOnlyImm, ib.OpSendLastImm, ib.OpWriteLastImm}, func(c *Conn, op ib.Opcode) {
		var all []ib.Packet
		switch op {
		case ib.OpSendOnlyImm:
			all = []ib.Packet{ib.SendOnlyImm(c.PeerPSN(0), 7, Data(16))}
		case ib.OpWriteOnlyImm:
			all = []ib.Packet{ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, 16), 7, Data(16))}
		case ib.OpSendLastImm:
			all = []ib.Packet{ib.SendFirst(c.PeerPSN(0), Data(MTU)), ib.New(ib.OpSendLastImm, c.PeerPSN(1), Data(16)).WithImm(7)}
		case ib.OpWriteLastImm:
			all = []ib.Packet{ib.WriteFirst(c.PeerPSN(0), c.RETH(0, MTU+16), Data(MTU)), ib.New(ib.OpWriteLastImm, c.PeerPSN(1), Data(16)).WithImm(7)}
		}
		last := len(all) - 1
		all[last] = all[last].AckReq()
		c.Send(all...)
		c.expectAck(c.PeerPSN(last))
		for _, again := range [][]ib.Packet{all[last:], all} {
			c.Send(again...)
			c.expectAck(c.PeerPSN(last))
			c.Drain(0)
		}
		wc := c.ExpectRecv(1, last*MTU+16)
		c.Check(wc.Flags&verbs.WCWithImm != 0 && wc.Imm == 7, "immediate data 7", "%s", rig.Describe(&wc))
		c.ExpectNoCompletion()
		c.Send(c.peerSend(last+1, 8))
		c.ExpectRecv(2, 8)
	}),
}, {
	ID: "rc/psn/duplicate-write-not-placed-again", Cite: ibta("C9-105", "rc/psn/9"),
	Title:   "A duplicate WRITE does not overwrite later data",
	Sends:   "two WRITEs to the same address, of one packet each and then of three, and a duplicate of the first",
	Expects: "the data of the second in memory",
	Defects: []string{"DuplicatesExecuted"}, Run: onEachConn(Setup{}, []int{64, 2500}, func(c *Conn, n int) {
		first, second := ib.Write(c.PeerPSN(0), c.RETH(0, n), Data(n), MTU), make([]byte, n)
		c.Send(first...)
		c.Send(ib.Write(c.PeerPSN(len(first)), c.RETH(0, n), second, MTU)...)
		c.Sync()
		c.ExpectBytes(c.TargetMem, 0, second)
		c.Send(first...)
		c.Sync()
		c.ExpectBytes(c.TargetMem, 0, second)
		c.ExpectUnchangedOutside(c.TargetMem, 0, n)
	}),
}, {
	ID: "rc/psn/duplicate-acknowledged", Cite: ibta("C9-105", "rc/psn/9", "rc/psn/10"),
	Title:   "A duplicate SEND or WRITE is acknowledged",
	Sends:   "a SEND of one packet and a WRITE of three without AckReq, then each packet again with it",
	Expects: "each time an ACK with the PSN of the last packet executed",
	Defects: []string{"NoAcks"}, Run: onRC(func(c *Conn) {
		all := []ib.Packet{ib.SendOnly(c.PeerPSN(0), Data(16))}
		for _, part := range ib.Write(c.PeerPSN(1), c.RETH(0, 0), Data(2500), MTU) {
			part.BTH.AckReq = nil
			all = append(all, part)
		}
		c.Send(all...)
		c.Drain(0) // the device may have acknowledged packets without AckReq
		for _, again := range all {
			c.exchange(again.AckReq(), c.deviceAck(3, ib.AnyMSN))
		}
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "rc/psn/duplicate-ack-never-has-the-psn-of-a-read", Cite: ibta("C9-105", "rc/psn/10"),
	Title:   "The ACK of a duplicate WRITE does not acknowledge a later READ",
	Sends:   "a WRITE, a READ of one response, one of three, and the WRITE again",
	Expects: "an ACK with the PSN of the WRITE, which is that of the last request that is acknowledged so",
	Defects: []string{"DupAckTakesReadPSN"}, Run: onRC(func(c *Conn) {
		write := c.peerWrite(0, 16)
		c.exchange(write, c.deviceAck(0, ib.AnyMSN))
		c.Send(c.peerRead(1, 8).AckReq(), c.peerRead(2, 2500).AckReq())
		c.nextPackets(4)
		c.exchange(write, c.deviceAck(0, ib.AnyMSN))
	}),
}, {
	ID: "rc/psn/earlier-duplicate-read-answered-first", Cite: ibta("C9-110", "rc/psn/12"),
	Title:   "A duplicate READ is answered before the remaining responses of a later, longer READ",
	Sends:   "a READ of one response; then a READ of 4096 responses at full speed, and a duplicate of the first: right after it, and after its first response",
	Expects: "the response to the first READ before the last one to the second",
	Defects: []string{"DupReadWaits"}, Run: onRC(func(c *Conn) {
		long := c.Memory(longRead*MTU, allAccess)
		tries, asked := 0, false
		for _, started := range []bool{false, true} {
			for range 3 {
				seen := c.expectDuplicateReadFirst(tries*(longRead+1), long, started)
				tries++
				if asked = asked || seen; seen {
					break
				}
			}
		}
		if !asked {
			rig.BenchCannot("the long READ was answered before the duplicate was sent")
		}
	}),
}})

// longRead is the number of responses to a READ that takes a while on any device.
const longRead = 4096

// expectDuplicateReadFirst sends a short READ with the k-th PSN, a READ of long, and the short one
// again: right after the long one or, with afterFirst, when the first response to that has
// arrived. The case fails if the duplicate is answered after the long READ although it was sent
// during its first half. It returns false if the duplicate was sent too late to tell.
func (c *Conn) expectDuplicateReadFirst(k int, long *rig.Memory, afterFirst bool) bool {
	short := c.peerRead(k, 8).AckReq()
	answer := ib.ReadResponseOnly(c.PeerPSN(k), ib.AnyMSN, c.TargetMem.Buf[:8])
	c.exchange(short, answer)
	c.Send(ib.ReadRequest(c.PeerPSN(k+1), rethFor(long, 0, len(long.Buf))).AckReq())
	if afterFirst {
		c.expect(ib.Response(ib.OpReadResponseFirst, c.PeerPSN(k+1), ib.AnyMSN, nil))
	}
	c.Send(short)
	sent, after := c.Now(), 0 // after counts the responses to the long READ since the duplicate was sent
	for longDone := false; ; {
		p, ok := c.NextPacket(c.ResponseTimeout())
		switch {
		case !ok || longDone && p.PSN() == c.PeerPSN(k):
			c.Check(after < longRead/2, "the response to the duplicate before the last one to the later READ",
				"%d of %d came after the duplicate was sent, and before its response", after, longRead)
			return false
		case p.PSN() == c.PeerPSN(k):
			c.checkPacket(c.fromDevice(answer), p)
			// The rest of the interrupted answer need not be sent.
			for ok && p.PSN() != c.PeerPSN(k+longRead) {
				p, ok = c.NextPacket(c.ResponseTimeout())
			}
			return true
		case p.At > sent:
			after++
		}
		longDone = longDone || p.PSN() == c.PeerPSN(k+longRead)
	}
}

// throttle makes a device with congestion control send slowly, so that long READs take a while.
func (c *Conn) throttle() { c.sendCNPs(ib.CNP(), 20) }
