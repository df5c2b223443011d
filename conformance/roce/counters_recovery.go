package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var counterRecoveryCases = []conformance.Case{
	counterCase("duplicates", "Duplicate requests are counted",
		"a WRITE and a READ, and three duplicates of the WRITE and two of the READ", []*rig.Counter{cntDuplicates},
		func(p *Port) rig.Counts {
			c := p.Connect(Setup{})
			read := ib.ReadRequest(c.PeerPSN(1), c.RETH(0, 16))
			c.Send(writePacket(c, 0), read)
			awaitPSN(c, c.PeerPSN(1))
			c.Send(writePacket(c, 0), writePacket(c, 0), writePacket(c, 0), read, read)
			return rig.Counts{cntDuplicates: rig.Exactly(5)}
		}),
	counterCase("gaps", "Requests after a gap, and the NAKs of them, are counted",
		"five times a WRITE after a gap, and the missing one", []*rig.Counter{cntOutOfOrder, cntSeqNAKsSent},
		func(p *Port) rig.Counts {
			c := p.Connect(Setup{})
			for i := range 5 {
				c.Send(writePacket(c, i+1))
				c.Await("a sequence NAK", func(a *Arrival) bool { return a.IsNak(ib.NakSequence) })
				c.Send(writePacket(c, i))
				c.Await("an ACK", func(a *Arrival) bool { return a.IsAck(ib.AckPositive) })
			}
			return rig.Counts{cntOutOfOrder: rig.Exactly(5)}
		}),
	counterCase("repetitions", "Received sequence NAKs, and the retransmitted packets, are counted",
		"on two connections, a sequence NAK for a packet of a WRITE of eight", []*rig.Counter{cntSeqNAKsRcvd, cntResentPkts},
		func(p *Port) rig.Counts {
			for _, lost := range []int{3, 5} {
				c := p.Connect(Setup{})
				c.PostSend(c.QP, c.WriteWR(1, 8*MTU))
				c.AwaitPackets(8)
				c.Send(ib.Nak(c.DevicePSN(lost), ib.NakSequence, 0))
				awaitPSN(c, c.DevicePSN(7))
				c.completeWith(ib.Ack(c.DevicePSN(7), 1), 1)
			}
			return nil
		}),
	withLumina(counterCase("implied-naks", "Responses that imply that an earlier one was lost are counted",
		"twice, an ACK for a SEND after an unanswered READ; then the response", []*rig.Counter{cntImpliedNAKs},
		func(p *Port) rig.Counts {
			c := p.Connect(Setup{})
			for i := range 2 {
				c.PostSend(c.QP, c.ReadWR(1, MTU), c.SendWR(2, 8))
				c.AwaitPackets(2)
				c.Send(ib.Ack(c.DevicePSN(2*i+1), uint32(2*i+2)))
				c.Drain(0)
				c.Send(ib.ReadResponseOnly(c.DevicePSN(2*i), uint32(2*i+1), Data(MTU)), ib.Ack(c.DevicePSN(2*i+1), uint32(2*i+2)))
				c.ExpectCompletions(verbs.WCSuccess, 1, 2)
				c.Drain(0)
			}
			return rig.Counts{cntImpliedNAKs: rig.Exactly(2)}
		}), "ImpliedNAKCounterStuck"),
	counterCase("timeouts", "Timeouts, retransmitted packets, and requests with exhausted retries are counted",
		"no response to a SEND with retry_cnt 3", []*rig.Counter{cntAckTimeouts, cntResentPkts, cntRetriesEnd},
		func(p *Port) rig.Counts {
			c := p.Connect(Setup{Modify: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 10, 3 }})
			c.PostSend(c.QP, c.SendWR(1, 8))
			c.ExpectCompletion(1, verbs.WCRetryExcErr)
			// The last timeout ends the request. Some devices count timeouts, others
			// retransmissions.
			return rig.Counts{cntAckTimeouts: rig.Between(3, 4), cntRetriesEnd: rig.Exactly(1)}
		}),
	counterCase("rnr-naks-sent", "Sent RNR NAKs are counted",
		"three times a SEND without a posted receive", []*rig.Counter{cntRNRNAKsSent},
		func(p *Port) rig.Counts {
			c := p.Connect(Setup{})
			for range 3 {
				c.Send(ib.SendOnly(c.PeerPSN(0), Data(8)).AckReq())
				c.Await("an RNR NAK", func(a *Arrival) bool { return a.IsAck(ib.AckRNR) })
			}
			return nil
		}),
	counterCase("rnr-naks-received", "Received RNR NAKs, and requests with exhausted RNR retries, are counted",
		"three RNR NAKs to a SEND with rnr_retry 2", []*rig.Counter{cntRNRNAKsRcvd, cntRNREnd},
		func(p *Port) rig.Counts {
			c := p.Connect(Setup{Modify: func(a *verbs.QPAttr) { a.RNRRetry = 2 }})
			c.PostSend(c.QP, c.SendWR(1, 8))
			for range 3 {
				c.AwaitPackets(1)
				c.Send(ib.RNR(c.DevicePSN(0), 1, 0))
			}
			c.ExpectCompletion(1, verbs.WCRNRRetryExcErr)
			return rig.Counts{cntRNREnd: rig.Exactly(1)}
		}),
	counterCase("refusals-sent", "Sent fatal NAKs are counted",
		"on each of three connections a WRITE with an invalid key", []*rig.Counter{cntFatalSent},
		func(p *Port) rig.Counts {
			for range 3 {
				c := p.Connect(Setup{})
				c.Send(ib.WriteOnly(c.PeerPSN(0), ib.At(c.TargetMem.Addr(), ^uint32(c.TargetMem.RKey()), 8), Data(8)).AckReq())
				c.Await("a NAK", func(a *Arrival) bool { return a.IsAck(ib.AckNegative) })
			}
			return nil
		}),
	counterCase("refusals-received", "Received fatal NAKs are counted",
		"NAKs for an invalid request, an access and an operation to WRITEs of three connections", []*rig.Counter{cntFatalRcvd},
		func(p *Port) rig.Counts {
			for code := ib.NakInvalidRequest; code <= ib.NakRemoteOp; code++ {
				c := p.Connect(Setup{})
				c.PostSend(c.QP, c.WriteWR(1, MTU))
				c.AwaitPackets(1)
				c.Send(ib.Nak(c.DevicePSN(0), code, 0))
				wc := c.NextCompletion()
				c.Check(wc.Status != verbs.WCSuccess, "an error", "success")
			}
			return nil
		}),
}
