package counters

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/verbs"
)

var roceRecovery = []conformance.Case{
	counting("duplicates", "Requests that are received again are counted",
		"a WRITE and a READ, and three times the WRITE and twice the READ again", []quantity{duplicates},
		func(w *rocePort) found {
			c := w.Connect(rcpeer.Setup{})
			read := ib.ReadRequest(c.PeerPSN(1), c.RETH(0, 16))
			c.Send(writes(c, 0), read)
			answered(c, c.PeerPSN(1))
			c.Send(writes(c, 0), writes(c, 0), writes(c, 0), read, read)
			return found{duplicates: exactly(5)}
		}),
	counting("gaps", "Requests behind a gap, and the NAKs for them, are counted",
		"five times a WRITE behind a gap, and the one that was missing", []quantity{outOfOrder, seqNAKsSent},
		func(w *rocePort) found {
			c := w.Connect(rcpeer.Setup{})
			for i := range 5 {
				c.Send(writes(c, i+1))
				c.Await("a sequence NAK", func(a *rcpeer.Arrival) bool { return a.IsNak(ib.NakSequence) })
				c.Send(writes(c, i))
				c.Await("an ACK", func(a *rcpeer.Arrival) bool { return a.IsAck(ib.AckPositive) })
			}
			return found{outOfOrder: exactly(5)}
		}),
	counting("repetitions", "Sequence NAKs that are received, and what is sent again for them, are counted",
		"on two connections, a sequence NAK for a packet of a WRITE of eight", []quantity{seqNAKsRcvd, resentPkts},
		func(w *rocePort) found {
			for _, lost := range []int{3, 5} {
				c := w.Connect(rcpeer.Setup{})
				c.PostSend(c.QP, c.WriteWR(1, 8))
				c.NextPackets(8)
				c.Send(ib.Nak(c.DevicePSN(lost), ib.NakSequence, 0))
				answered(c, c.DevicePSN(7))
				c.Send(ib.Ack(c.DevicePSN(7), 1))
				c.ExpectCompletion(1, verbs.WCSuccess)
			}
			return nil
		}),
	foundOut(counting("implied-naks", "Answers that show that an earlier one was lost are counted",
		"twice, an ACK for a SEND behind a READ that was not answered; then the answer", []quantity{impliedNAKs},
		func(w *rocePort) found {
			c := w.Connect(rcpeer.Setup{})
			for i := range 2 {
				c.PostSend(c.QP, c.ReadWR(1, 1), c.SendWR(2, 8))
				c.NextPackets(2)
				c.Send(ib.Ack(c.DevicePSN(2*i+1), uint32(2*i+2)))
				c.Drain(0)
				c.Send(ib.ReadResponseOnly(c.DevicePSN(2*i), uint32(2*i+1), rcpeer.Data(rcpeer.MTU)), ib.Ack(c.DevicePSN(2*i+1), uint32(2*i+2)))
				c.ExpectCompletion(1, verbs.WCSuccess)
				c.ExpectCompletion(2, verbs.WCSuccess)
				c.Drain(0)
			}
			return found{impliedNAKs: exactly(2)}
		}), "ImpliedNAKCounterStuck"),
	counting("timeouts", "Timeouts, what is sent again for them, and requests that are given up, are counted",
		"nothing to a SEND with retry_cnt 3", []quantity{ackTimeouts, resentPkts, retriesEnd},
		func(w *rocePort) found {
			c := w.Connect(rcpeer.Setup{Modify: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 10, 3 }})
			c.PostSend(c.QP, c.SendWR(1, 8))
			c.ExpectCompletion(1, verbs.WCRetryExcErr)
			// The last one ends the request. Some count timeouts, some repetitions.
			return found{ackTimeouts: between(3, 4), retriesEnd: exactly(1)}
		}),
	counting("rnr-naks-sent", "RNR NAKs that are sent are counted",
		"three times a SEND for which there is no receive", []quantity{rnrNAKsSent},
		func(w *rocePort) found {
			c := w.Connect(rcpeer.Setup{})
			for range 3 {
				c.Send(ib.SendOnly(c.PeerPSN(0), rcpeer.Data(8)).AckReq())
				c.Await("an RNR NAK", func(a *rcpeer.Arrival) bool { return a.IsAck(ib.AckRNR) })
			}
			return nil
		}),
	counting("rnr-naks-received", "RNR NAKs that are received, and requests that are given up for them, are counted",
		"three RNR NAKs to a SEND with rnr_retry 2", []quantity{rnrNAKsRcvd, rnrEnd},
		func(w *rocePort) found {
			c := w.Connect(rcpeer.Setup{Modify: func(a *verbs.QPAttr) { a.RNRRetry = 2 }})
			c.PostSend(c.QP, c.SendWR(1, 8))
			for range 3 {
				c.NextPackets(1)
				c.Send(ib.RNR(c.DevicePSN(0), 1, 0))
			}
			c.ExpectCompletion(1, verbs.WCRNRRetryExcErr)
			return found{rnrEnd: exactly(1)}
		}),
	counting("refusals-sent", "NAKs for errors that are sent are counted",
		"on each of three connections a WRITE with a key that opens nothing", []quantity{fatalSent},
		func(w *rocePort) found {
			for range 3 {
				c := w.Connect(rcpeer.Setup{})
				c.Send(ib.WriteOnly(c.PeerPSN(0), ib.At(c.TargetMem.Addr(), ^uint32(c.TargetMem.RKey()), 8), rcpeer.Data(8)).AckReq())
				c.Await("a NAK", func(a *rcpeer.Arrival) bool { return a.IsAck(ib.AckNegative) })
			}
			return nil
		}),
	counting("refusals-received", "NAKs for errors that are received are counted",
		"NAKs for an invalid request, an access and an operation to WRITEs of three connections", []quantity{fatalRcvd},
		func(w *rocePort) found {
			for code := ib.NakInvalidRequest; code <= ib.NakRemoteOp; code++ {
				c := w.Connect(rcpeer.Setup{})
				c.PostSend(c.QP, c.WriteWR(1, 1))
				c.NextPackets(1)
				c.Send(ib.Nak(c.DevicePSN(0), code, 0))
				wc := c.NextCompletion()
				c.Check(wc.Status != verbs.WCSuccess, "an error", "success")
			}
			return nil
		}),
}
