package counters

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// RoCE returns the cases for devices of RoCE.
func RoCE() []conformance.Case {
	return slices.Concat(roceTraffic, roceRecovery, roceAnswers, roceDrops(), roceOthers)
}

// counting is a case about some quantities, in its usual form.
func counting(name, title, sends string, about []quantity, body func(*rocePort) found) conformance.Case {
	return conformance.Case{
		ID: "counters/roce/" + name, Title: title,
		Cite:  countUp,
		Level: conformance.Should, Needs: verbs.CapRC, Labels: []string{"service:rc"},
		Sends: sends, Expects: "counters that have gone as far as the record of the wire says, and others that stand still",
		Defects: roce.stuck(about...),
		Run:     onRoCE(about, body),
	}
}

// lumina is where it was found out that counters of congestion and of retries lie.
var lumina = conformance.Cite{Doc: "Lumina", Rows: []string{"roce/ecn/7"}}

// foundOut makes a case one about what Lumina found out.
func foundOut(c conformance.Case, defects ...string) conformance.Case {
	c.Cite = lumina
	c.Defects = append(c.Defects, defects...)
	return c
}

// writes are the peer's n-th packet: a WRITE that is to be acknowledged.
func writes(c *rcpeer.Conn, n int) ib.Packet {
	return ib.WriteOnly(c.PeerPSN(n), c.RETH(0, 8), rcpeer.Data(8)).AckReq()
}

// answered waits for an answer with this PSN.
func answered(c *rcpeer.Conn, psn ib.PSN) {
	c.Await("an answer", func(a *rcpeer.Arrival) bool { return a.PSN() == psn })
}

var roceTraffic = []conformance.Case{
	counting("what-is-received", "Packets and bytes that are received, and ACKs for them, are counted",
		"three SENDs, two WRITEs and a READ of three responses",
		[]quantity{sentPackets, rcvdPackets, sentBytes, rcvdBytes, acksSent},
		func(w *rocePort) found {
			receiving(w)
			return nil
		}),
	counting("receives", "Receives that are filled are counted, and nothing else is",
		"three SENDs, two WRITEs and a READ", []quantity{receives},
		func(w *rocePort) found { return found{receives: exactly(receiving(w))} }),
	counting("what-is-sent", "Packets and bytes that are sent, and ACKs for them, are counted",
		"answers to three SENDs and a WRITE of four packets",
		[]quantity{sentPackets, rcvdPackets, sentBytes, rcvdBytes, acksRcvd},
		func(w *rocePort) found {
			sending(w)
			return nil
		}),
	counting("sends", "SENDs are counted, and no other requests",
		"answers to three SENDs and a WRITE of four packets", []quantity{sends},
		func(w *rocePort) found { return found{sends: exactly(sending(w))} }),
}

// receiving sends requests of several kinds, and returns how many take a receive.
func receiving(w *rocePort) (taken int) {
	c := w.Connect(rcpeer.Setup{Receives: 3})
	for ; taken < 3; taken++ {
		c.Send(ib.SendOnly(c.PeerPSN(taken), rcpeer.Data(16)).AckReq())
		c.ExpectRecv(uint64(taken+1), 16)
	}
	c.Send(writes(c, 3), writes(c, 4), ib.ReadRequest(c.PeerPSN(5), c.RETH(0, 2500)))
	answered(c, c.PeerPSN(7))
	return taken
}

// sending has the device send requests of several kinds, and returns how many of them
// are SENDs.
func sending(w *rocePort) (sent int) {
	c := w.Connect(rcpeer.Setup{})
	c.PostSend(c.QP, c.SendWR(1, 8), c.SendWR(2, 8), c.SendWR(3, 8), c.WriteWR(4, 4))
	c.NextPackets(7)
	for ; sent < 3; sent++ {
		c.Send(ib.Ack(c.DevicePSN(sent), uint32(sent+1)))
		c.ExpectCompletion(uint64(sent+1), verbs.WCSuccess)
	}
	c.Send(ib.Ack(c.DevicePSN(6), 4))
	c.ExpectCompletion(4, verbs.WCSuccess)
	return sent
}

var roceAnswers = []conformance.Case{
	counting("stale-answers", "ACKs for what was acknowledged before are counted",
		"an ACK for the second of two SENDs, then three for the first", []quantity{staleAnswers},
		func(w *rocePort) found {
			c := w.Connect(rcpeer.Setup{})
			c.PostSend(c.QP, c.SendWR(1, 8), c.SendWR(2, 8))
			c.NextPackets(2)
			c.Send(ib.Ack(c.DevicePSN(1), 2))
			c.ExpectCompletion(1, verbs.WCSuccess)
			c.ExpectCompletion(2, verbs.WCSuccess)
			for range 3 {
				c.Send(ib.Ack(c.DevicePSN(0), 1))
			}
			return found{staleAnswers: exactly(3)}
		}),
	counting("ghost-answers", "ACKs for what was never sent are counted",
		"on each of three connections, an ACK for a PSN far ahead of a SEND", []quantity{ghostAnswers},
		func(w *rocePort) found {
			for i := range 3 {
				c := w.Connect(rcpeer.Setup{})
				c.PostSend(c.QP, c.SendWR(1, 8))
				c.NextPackets(1)
				c.Send(ib.Ack(c.DevicePSN(100+i), 1))
			}
			return found{ghostAnswers: exactly(3)}
		}),
	counting("bad-answers", "Answers of the wrong kind are counted",
		"on each of two connections, an atomic acknowledge to a READ", []quantity{badAnswers},
		func(w *rocePort) found {
			for range 2 {
				c := w.Connect(rcpeer.Setup{})
				c.PostSend(c.QP, c.ReadWR(1, 1))
				c.NextPackets(1)
				c.Send(ib.AtomicAck(c.DevicePSN(0), 1, 7))
				c.NextCompletion() // with which status is not the question here
			}
			return found{badAnswers: exactly(2)}
		}),
}

var roceOthers = []conformance.Case{
	congestion(counting("congestion", "Marks that are seen, and CNPs that are sent and received, are counted",
		"three marked WRITEs, each when a CNP is due again, and four CNPs", []quantity{marksSeen, cnpsSent, cnpsHandled},
		func(w *rocePort) found {
			c := w.Connect(rcpeer.Setup{})
			for i := range 3 {
				c.Send(writes(c, i).CE())
				c.Sleep(20 * time.Millisecond) // longer than any device waits between CNPs
			}
			for range 4 {
				c.Send(ib.CNP())
			}
			return nil
		})),
	managed(counting("connection-requests", "Requests for connections, and rejections of them, are counted",
		"three REQs for a service that nobody has", []quantity{madsSent, madsRcvd, cmRequests, cmRejects},
		func(w *rocePort) found {
			if _, err := w.Device.CM(); err != nil { // some begin to answer when somebody has asked for it
				w.Must("a connection manager", err)
			}
			for i := range 3 {
				w.Send(ib.CM(uint64(i+1), ib.REQ{
					LocalCommID: new(uint32(i + 1)), ServiceID: new(ib.ServiceID(ib.PortSpaceTCP, 7175)), LocalCAGUID: new(uint64(0x02005efffe000001)),
					QPN: new(uint32(0x777)), StartingPSN: new(ib.PSN(1)), LocalGID: w.Peer, RemoteGID: w.Local[0],
					RespResources: new(uint8(4)), InitiatorDepth: new(uint8(4)),
					Private: ib.AddrHeader{SrcPort: 40000, Src: w.Peer, Dst: w.Local[0]}.Append(nil),
				}))
				_, ok := w.NextMatching(func(a *rcpeer.Arrival) bool { return a.DestQP() == ib.GSIQPN }, w.ResponseTimeout())
				w.Check(ok, "a REJ", "nothing in %v", w.ResponseTimeout())
			}
			return found{cmRequests: exactly(3), cmRejects: exactly(3)}
		})),
	counting("overruns", "Completions that find no room are counted",
		"SENDs to a queue pair whose completion queue has room for one less", []quantity{overruns},
		func(w *rocePort) found {
			full, err := w.Device.CreateCQ(verbs.CQInit{Depth: 1})
			w.Must("a completion queue", err)
			n := full.Depth() // it may be deeper than was asked for
			if n > 60 {
				rig.Abort(fmt.Errorf("the smallest completion queue has room for %d: %w", n, conformance.ErrBenchCannot))
			}
			cq := w.CQ
			w.CQ = full
			c := w.Connect(rcpeer.Setup{Receives: n + 2})
			w.CQ = cq
			for i := range n + 1 {
				c.Send(ib.SendOnly(c.PeerPSN(i), rcpeer.Data(8)).AckReq())
			}
			// The queue pair fails, and the receive that is flushed then finds no room
			// either.
			return found{overruns: between(1, 2)}
		}),
}

// managed makes a case one for devices with a connection manager.
func managed(c conformance.Case) conformance.Case {
	c.Needs |= verbs.CapCM
	return c
}

// congestion makes a case one for devices that manage it.
func congestion(c conformance.Case) conformance.Case {
	c.Needs |= verbs.CapCongestion
	return foundOut(c, "CNPCounterStuck")
}
