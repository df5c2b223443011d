package counters

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/conformance/roce"
	"github.com/fabrictest/fabrictest/verbs"
)

// RoCE returns the cases for RoCE devices.
func RoCE() []conformance.Case {
	return slices.Concat(roceTraffic, roceRecovery, roceResponses, roceDrops(), roceOthers)
}

// roceCase returns a case that runs body and checks the counters of some quantities against
// the recorded packets.
func roceCase(name, title, sends string, checked []quantity, body func(*rocePort) counts) conformance.Case {
	return conformance.Case{
		ID:    "counters/roce/" + name,
		Title: title,
		Cite:  countersCite, Level: conformance.Should, Needs: verbs.CapRC, Labels: []string{"service:rc"},
		Defects: roceNames.stuckDefects(checked...),
		Sends:   sends,
		Expects: "counters that agree with the recorded packets, and no other counter changed",
		Run:     onRoCE(checked, body),
	}
}

// luminaCite is the study that found wrong counters of congestion and retries.
var luminaCite = conformance.Cite{Doc: "Lumina", Rows: []string{"roce/ecn/7"}}

// withLumina makes a case cite Lumina, and adds defects.
func withLumina(c conformance.Case, defects ...string) conformance.Case {
	c.Cite = luminaCite
	c.Defects = append(c.Defects, defects...)
	return c
}

// writePacket returns the peer's n-th packet: a WRITE with AckReq.
func writePacket(c *roce.Conn, n int) ib.Packet {
	return ib.WriteOnly(c.PeerPSN(n), c.RETH(0, 8), roce.Data(8)).AckReq()
}

// awaitPSN waits for a response with this PSN.
func awaitPSN(c *roce.Conn, psn ib.PSN) {
	c.Await("a response", func(a *roce.Arrival) bool { return a.PSN() == psn })
}

var roceTraffic = []conformance.Case{
	roceCase("what-is-received", "Received packets and bytes, and the ACKs of them, are counted",
		"three SENDs, two WRITEs and a READ of three responses",
		[]quantity{sentPackets, rcvdPackets, sentBytes, rcvdBytes, acksSent},
		func(w *rocePort) counts {
			serveRequests(w)
			return nil
		}),
	roceCase("receives", "Completed receives are counted, and nothing else",
		"three SENDs, two WRITEs and a READ", []quantity{receives},
		func(w *rocePort) counts { return counts{receives: exactly(serveRequests(w))} }),
	roceCase("what-is-sent", "Sent packets and bytes, and the ACKs of them, are counted",
		"ACKs for three SENDs and a WRITE of four packets",
		[]quantity{sentPackets, rcvdPackets, sentBytes, rcvdBytes, acksRcvd},
		func(w *rocePort) counts {
			sendRequests(w)
			return nil
		}),
	roceCase("sends", "SENDs are counted, and no other requests",
		"ACKs for three SENDs and a WRITE of four packets", []quantity{sends},
		func(w *rocePort) counts { return counts{sends: exactly(sendRequests(w))} }),
}

// serveRequests sends requests of several kinds, and returns how many use a receive.
func serveRequests(w *rocePort) (taken int) {
	c := w.Connect(roce.Setup{Receives: 3})
	for ; taken < 3; taken++ {
		c.Send(ib.SendOnly(c.PeerPSN(taken), roce.Data(16)).AckReq())
		c.ExpectRecv(uint64(taken+1), 16)
	}
	c.Send(writePacket(c, 3), writePacket(c, 4), ib.ReadRequest(c.PeerPSN(5), c.RETH(0, 2500)))
	awaitPSN(c, c.PeerPSN(7))
	return taken
}

// sendRequests has the device send requests of several kinds, and returns the number of
// SENDs.
func sendRequests(w *rocePort) (sent int) {
	c := w.Connect(roce.Setup{})
	c.PostSend(c.QP, c.SendWR(1, 8), c.SendWR(2, 8), c.SendWR(3, 8), c.WriteWR(4, 4*roce.MTU))
	c.AwaitPackets(7)
	for ; sent < 3; sent++ {
		c.Send(ib.Ack(c.DevicePSN(sent), uint32(sent+1)))
		c.ExpectCompletion(uint64(sent+1), verbs.WCSuccess)
	}
	c.Send(ib.Ack(c.DevicePSN(6), 4))
	c.ExpectCompletion(4, verbs.WCSuccess)
	return sent
}

var roceResponses = []conformance.Case{
	roceCase("stale-answers", "Duplicate ACKs are counted",
		"an ACK for the second of two SENDs, then three for the first", []quantity{staleResponses},
		func(w *rocePort) counts {
			c := w.Connect(roce.Setup{})
			c.PostSend(c.QP, c.SendWR(1, 8), c.SendWR(2, 8))
			c.AwaitPackets(2)
			c.Send(ib.Ack(c.DevicePSN(1), 2))
			c.ExpectCompletion(1, verbs.WCSuccess)
			c.ExpectCompletion(2, verbs.WCSuccess)
			for range 3 {
				c.Send(ib.Ack(c.DevicePSN(0), 1))
			}
			return counts{staleResponses: exactly(3)}
		}),
	roceCase("ghost-answers", "ACKs with PSNs that were never sent are counted",
		"on each of three connections, an ACK for a PSN far ahead of a SEND", []quantity{unsentResponses},
		func(w *rocePort) counts {
			for i := range 3 {
				c := w.Connect(roce.Setup{})
				c.PostSend(c.QP, c.SendWR(1, 8))
				c.AwaitPackets(1)
				c.Send(ib.Ack(c.DevicePSN(100+i), 1))
			}
			return counts{unsentResponses: exactly(3)}
		}),
	roceCase("bad-answers", "Responses of the wrong kind are counted",
		"on each of two connections, an atomic acknowledge to a READ", []quantity{badResponses},
		func(w *rocePort) counts {
			for range 2 {
				c := w.Connect(roce.Setup{})
				c.PostSend(c.QP, c.ReadWR(1, roce.MTU))
				c.AwaitPackets(1)
				c.Send(ib.AtomicAck(c.DevicePSN(0), 1, 7))
				c.NextCompletion() // the status is not checked here
			}
			return counts{badResponses: exactly(2)}
		}),
}

var roceOthers = []conformance.Case{
	needsCongestion(roceCase("congestion", "Received CE marks, and CNPs sent and received, are counted",
		"three marked WRITEs, at intervals longer than that of CNPs, and four CNPs", []quantity{marksSeen, cnpsSent, cnpsHandled},
		func(w *rocePort) counts {
			c := w.Connect(roce.Setup{})
			for i := range 3 {
				c.Send(writePacket(c, i).CE())
				c.Sleep(20 * time.Millisecond) // longer than the CNP interval of any device
			}
			for range 4 {
				c.Send(ib.CNP())
			}
			return nil
		})),
	needsCM(roceCase("connection-requests", "Connection requests and their rejections are counted",
		"three REQs for a service without a listener", []quantity{madsSent, madsRcvd, cmRequests, cmRejects},
		func(w *rocePort) counts {
			if _, err := w.Device.CM(); err != nil { // some devices answer only after the application opened the CM
				w.Must("a connection manager", err)
			}
			for i := range 3 {
				w.SendPacket(ib.CM(uint64(i+1), ib.REQ{
					LocalCommID: new(uint32(i + 1)), ServiceID: new(ib.ServiceID(ib.PortSpaceTCP, 7175)), LocalCAGUID: new(uint64(0x02005efffe000001)),
					QPN: new(uint32(0x777)), StartingPSN: new(ib.PSN(1)), LocalGID: w.Peer, RemoteGID: w.Local[0],
					RespResources: new(uint8(4)), InitiatorDepth: new(uint8(4)),
					Private: ib.AddrHeader{SrcPort: 40000, Src: w.Peer, Dst: w.Local[0]}.Append(nil),
				}))
				_, ok := w.NextMatching(func(a *roce.Arrival) bool { return a.DestQP() == ib.GSIQPN }, w.ResponseTimeout())
				w.Check(ok, "a REJ", "nothing in %v", w.ResponseTimeout())
			}
			return counts{cmRequests: exactly(3), cmRejects: exactly(3)}
		})),
	roceCase("overruns", "CQ overruns are counted",
		"one SEND more than the completion queue has entries", []quantity{overruns},
		func(w *rocePort) counts {
			full, err := w.Device.CreateCQ(verbs.CQInit{Depth: 1})
			w.Must("a completion queue", err)
			n := full.Depth() // the device may have rounded it up
			if n > 60 {
				rig.Abort(fmt.Errorf("the smallest completion queue has room for %d: %w", n, conformance.ErrBenchCannot))
			}
			cq := w.CQ
			w.CQ = full
			c := w.Connect(roce.Setup{Receives: n + 2})
			w.CQ = cq
			for i := range n + 1 {
				c.Send(ib.SendOnly(c.PeerPSN(i), roce.Data(8)).AckReq())
			}
			// The queue pair fails, and the flushed receive overruns the CQ too.
			return counts{overruns: between(1, 2)}
		}),
}

// needsCM restricts a case to devices with a connection manager.
func needsCM(c conformance.Case) conformance.Case {
	c.Needs |= verbs.CapCM
	return c
}

// needsCongestion restricts a case to devices with congestion control.
func needsCongestion(c conformance.Case) conformance.Case {
	c.Needs |= verbs.CapCongestion
	return withLumina(c, "CNPCounterStuck")
}
