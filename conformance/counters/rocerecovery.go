package counters

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/roce"
	"github.com/fabrictest/fabrictest/verbs"
)

var roceRecovery = []conformance.Case{
	roceCase("duplicates", "Duplicate requests are counted",
		"a WRITE and a READ, and three duplicates of the WRITE and two of the READ", []quantity{duplicates},
		func(w *rocePort) counts {
			c := w.Connect(roce.Setup{})
			read := ib.ReadRequest(c.PeerPSN(1), c.RETH(0, 16))
			c.Send(writePacket(c, 0), read)
			awaitPSN(c, c.PeerPSN(1))
			c.Send(writePacket(c, 0), writePacket(c, 0), writePacket(c, 0), read, read)
			return counts{duplicates: exactly(5)}
		}),
	roceCase("gaps", "Requests after a gap, and the NAKs of them, are counted",
		"five times a WRITE after a gap, and the missing one", []quantity{outOfOrder, seqNAKsSent},
		func(w *rocePort) counts {
			c := w.Connect(roce.Setup{})
			for i := range 5 {
				c.Send(writePacket(c, i+1))
				c.Await("a sequence NAK", func(a *roce.Arrival) bool { return a.IsNak(ib.NakSequence) })
				c.Send(writePacket(c, i))
				c.Await("an ACK", func(a *roce.Arrival) bool { return a.IsAck(ib.AckPositive) })
			}
			return counts{outOfOrder: exactly(5)}
		}),
	roceCase("repetitions", "Received sequence NAKs, and the retransmitted packets, are counted",
		"on two connections, a sequence NAK for a packet of a WRITE of eight", []quantity{seqNAKsRcvd, resentPkts},
		func(w *rocePort) counts {
			for _, lost := range []int{3, 5} {
				c := w.Connect(roce.Setup{})
				c.PostSend(c.QP, c.WriteWR(1, 8*roce.MTU))
				c.AwaitPackets(8)
				c.Send(ib.Nak(c.DevicePSN(lost), ib.NakSequence, 0))
				awaitPSN(c, c.DevicePSN(7))
				c.Send(ib.Ack(c.DevicePSN(7), 1))
				c.ExpectCompletion(1, verbs.WCSuccess)
			}
			return nil
		}),
	withLumina(roceCase("implied-naks", "Responses that imply that an earlier one was lost are counted",
		"twice, an ACK for a SEND after an unanswered READ; then the response", []quantity{impliedNAKs},
		func(w *rocePort) counts {
			c := w.Connect(roce.Setup{})
			for i := range 2 {
				c.PostSend(c.QP, c.ReadWR(1, roce.MTU), c.SendWR(2, 8))
				c.AwaitPackets(2)
				c.Send(ib.Ack(c.DevicePSN(2*i+1), uint32(2*i+2)))
				c.Drain(0)
				c.Send(ib.ReadResponseOnly(c.DevicePSN(2*i), uint32(2*i+1), roce.Data(roce.MTU)), ib.Ack(c.DevicePSN(2*i+1), uint32(2*i+2)))
				c.ExpectCompletion(1, verbs.WCSuccess)
				c.ExpectCompletion(2, verbs.WCSuccess)
				c.Drain(0)
			}
			return counts{impliedNAKs: exactly(2)}
		}), "ImpliedNAKCounterStuck"),
	roceCase("timeouts", "Timeouts, retransmitted packets, and requests with exhausted retries are counted",
		"no response to a SEND with retry_cnt 3", []quantity{ackTimeouts, resentPkts, retriesEnd},
		func(w *rocePort) counts {
			c := w.Connect(roce.Setup{Modify: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 10, 3 }})
			c.PostSend(c.QP, c.SendWR(1, 8))
			c.ExpectCompletion(1, verbs.WCRetryExcErr)
			// The last timeout ends the request. Some devices count timeouts, others
			// retransmissions.
			return counts{ackTimeouts: between(3, 4), retriesEnd: exactly(1)}
		}),
	roceCase("rnr-naks-sent", "Sent RNR NAKs are counted",
		"three times a SEND without a posted receive", []quantity{rnrNAKsSent},
		func(w *rocePort) counts {
			c := w.Connect(roce.Setup{})
			for range 3 {
				c.Send(ib.SendOnly(c.PeerPSN(0), roce.Data(8)).AckReq())
				c.Await("an RNR NAK", func(a *roce.Arrival) bool { return a.IsAck(ib.AckRNR) })
			}
			return nil
		}),
	roceCase("rnr-naks-received", "Received RNR NAKs, and requests with exhausted RNR retries, are counted",
		"three RNR NAKs to a SEND with rnr_retry 2", []quantity{rnrNAKsRcvd, rnrEnd},
		func(w *rocePort) counts {
			c := w.Connect(roce.Setup{Modify: func(a *verbs.QPAttr) { a.RNRRetry = 2 }})
			c.PostSend(c.QP, c.SendWR(1, 8))
			for range 3 {
				c.AwaitPackets(1)
				c.Send(ib.RNR(c.DevicePSN(0), 1, 0))
			}
			c.ExpectCompletion(1, verbs.WCRNRRetryExcErr)
			return counts{rnrEnd: exactly(1)}
		}),
	roceCase("refusals-sent", "Sent fatal NAKs are counted",
		"on each of three connections a WRITE with an invalid key", []quantity{fatalSent},
		func(w *rocePort) counts {
			for range 3 {
				c := w.Connect(roce.Setup{})
				c.Send(ib.WriteOnly(c.PeerPSN(0), ib.At(c.TargetMem.Addr(), ^uint32(c.TargetMem.RKey()), 8), roce.Data(8)).AckReq())
				c.Await("a NAK", func(a *roce.Arrival) bool { return a.IsAck(ib.AckNegative) })
			}
			return nil
		}),
	roceCase("refusals-received", "Received fatal NAKs are counted",
		"NAKs for an invalid request, an access and an operation to WRITEs of three connections", []quantity{fatalRcvd},
		func(w *rocePort) counts {
			for code := ib.NakInvalidRequest; code <= ib.NakRemoteOp; code++ {
				c := w.Connect(roce.Setup{})
				c.PostSend(c.QP, c.WriteWR(1, roce.MTU))
				c.AwaitPackets(1)
				c.Send(ib.Nak(c.DevicePSN(0), code, 0))
				wc := c.NextCompletion()
				c.Check(wc.Status != verbs.WCSuccess, "an error", "success")
			}
			return nil
		}),
}
