package counters

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/dg"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Quantities of the packets that reliable-datagram devices send.
const (
	dataSent       quantity = "data packets sent"
	dataAgain      quantity = "data packets retransmitted"
	rdAcksSent     quantity = "acknowledgements sent"
	challengesSent quantity = "Challenges sent"
	refusalsSent   quantity = "Refusals sent"
)

var rdNames = table{
	sentPackets:    {"sent_packets"},
	dataSent:       {"rd_sent_data"},
	dataAgain:      {"rd_sent_again"},
	rdAcksSent:     {"rd_sent_acks"},
	challengesSent: {"rd_sent_challenges"},
	refusalsSent:   {"rd_sent_refusals"},
}

// rdCase returns the case about the packets that a device sends to a partner. Messages go
// in both directions, and the bench records all packets of the device.
func rdCase() conformance.Case {
	about := []quantity{sentPackets, dataSent, dataAgain, rdAcksSent, challengesSent}
	return conformance.Case{
		ID:    "counters/dg/reliable-datagrams",
		Title: "Data packets, retransmissions, acknowledgements and Challenges are counted",
		Cite:  countersCite, Level: conformance.Should, Needs: verbs.CapUD | verbs.CapRD,
		Setup: conformance.Setup{Reliable: true}, Labels: []string{"service:rd"}, Defects: rdNames.stuckDefects(about...),
		Sends:   "nothing: the device and a partner send each other 40 messages, over a lossy path if the bench has one",
		Expects: "counters that agree with the recorded packets of the device",
		Run: rig.PairBody(func(p *rig.Pair) {
			rdNames.requireAny(p.DUT, about...)
			before := readCounters(p.DUT)
			p.SetPath(conformance.Path{LossPPM: 100_000})
			exchangeMessages(p)
			// Wait for late packets, such as the last Ack.
			quiet := 100 * time.Millisecond
			f := countSent(p.DUT, quiet)
			rdNames.expectIncreases(p.DUT, func(quantity) bool { return true }, before, readCounters(p.DUT), f, nil)
		}),
	}
}

// exchangeMessages has the partner send 40 messages, and then the device.
func exchangeMessages(p *rig.Pair) {
	const messages, batch = 40, 8
	near, far := p.Connect()
	// The receiver of the first message, the device, sends a Challenge.
	for _, way := range [][2]*rig.Endpoint{{far, near}, {near, far}} {
		from, to := way[0], way[1]
		out, in := from.Memory(64, verbs.AccessLocalWrite), to.Memory(256, verbs.AccessLocalWrite)
		for range messages / batch {
			for i := range batch {
				to.PostRecv(to.QP, uint64(i), in.SGE(0, 256))
			}
			for i := range batch {
				from.PostSend(verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: out.SGL(0, 64)})
			}
			for range batch {
				from.NextSuccess()
				to.NextSuccess()
			}
		}
	}
}

// countSent counts the packets of the device until it has been silent for this time.
func countSent(r *rig.Rig, quiet time.Duration) counts {
	f := make(counts)
	seen := make(map[string]bool)
	for {
		frame, err := r.Wire.Recv(quiet)
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return f
		case err != nil:
			rig.Abort(err)
		}
		ip, udp, err := udpPayload(frame.Packet)
		if err != nil || !slices.Contains(r.Local, ip.Src) {
			continue // neighbour discovery and similar
		}
		f.addSent(dg.Parse(udp), seen)
	}
}

// udpPayload returns the payload of a UDP datagram.
func udpPayload(octets []byte) (packet.IP, []byte, error) {
	ip, payload, _, err := packet.ParseIP(octets)
	if err != nil || packet.Get(ip.Protocol, 0) != packet.ProtocolUDP {
		return ip, nil, errors.New("no UDP")
	}
	_, udp, _, err := packet.ParseUDP(payload)
	return ip, udp, err
}

// addSent counts a packet. It is not specified whether retransmissions count as data, and
// whether an acknowledgement in a data packet counts.
func (f counts) addSent(g dg.ReceivedPacket, seen map[string]bool) {
	f.add(sentPackets)
	if g.Ack != nil {
		if g.Data == nil {
			f.add(rdAcksSent)
		} else {
			f[rdAcksSent] = f[rdAcksSent].plus(between(0, 1))
		}
	}
	switch iwarp.Val(g.Header.Kind) {
	case dg.KindChallenge:
		f.add(challengesSent)
	case dg.KindRefusal:
		f.add(refusalsSent)
	}
	if g.Data == nil {
		return
	}
	key := fmt.Sprint(iwarp.Val(g.Header.DestQP), iwarp.Val(g.Header.SourceQP), iwarp.Val(g.Data.Epoch), iwarp.Val(g.Data.Seq))
	if seen[key] {
		f.add(dataAgain)
		f[dataSent] = f[dataSent].plus(between(0, 1))
	} else {
		f.add(dataSent)
	}
	seen[key] = true
}
