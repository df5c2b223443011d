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

// What devices of reliable datagrams count of what they send.
const (
	dataSent       quantity = "packets with data sent"
	dataAgain      quantity = "packets with data sent again"
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

// rdCase is about what a device sends to a partner of its kind, in both directions of
// which messages go. The judge plays no part in that, and sees all that leaves the
// device.
func rdCase() conformance.Case {
	about := []quantity{sentPackets, dataSent, dataAgain, rdAcksSent, challengesSent}
	return conformance.Case{
		ID: "counters/dg/reliable-datagrams", Title: "Packets with data, those sent again, acknowledgements and Challenges are counted",
		Cite: countUp, Level: conformance.Should, Needs: verbs.CapUD | verbs.CapRD, Labels: []string{"service:rd"},
		Setup:   conformance.Setup{Reliable: true},
		Sends:   "nothing: the device and a partner send each other 40 messages, over a path that loses some packets where the bench can have one",
		Expects: "counters that have gone as far as the record of what left the device says",
		Defects: rdNames.stuck(about...),
		Run: rig.PairBody(func(p *rig.Pair) {
			rdNames.has(p.DUT, about...)
			before := look(p.DUT)
			p.SetPath(conformance.Path{LossPPM: 100_000})
			chat(p)
			// What is left to say when all is done, such as the last Ack, takes a while.
			quiet := 100 * time.Millisecond
			f := leaving(p.DUT, quiet)
			rdNames.agree(p.DUT, func(quantity) bool { return true }, before, look(p.DUT), f, nil)
		}),
	}
}

// chat has both sides send messages, by turns.
func chat(p *rig.Pair) {
	const messages, batch = 40, 8
	near, far := p.Connect()
	// Who is spoken to first challenges the other: the device.
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

// leaving reads all that has left the device, until it has been silent for a while.
func leaving(r *rig.Rig, quiet time.Duration) found {
	f := make(found)
	seen := make(map[string]bool)
	for {
		frame, err := r.Wire.Recv(quiet)
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return f
		case err != nil:
			rig.Abort(err)
		}
		ip, udp, err := opened(frame.Packet)
		if err != nil || !slices.Contains(r.Local, ip.Src) {
			continue // neighbour discovery, and the like
		}
		f.leave(dg.Parse(udp), seen)
	}
}

// opened returns the payload of a UDP datagram.
func opened(octets []byte) (packet.IP, []byte, error) {
	ip, payload, _, err := packet.ParseIP(octets)
	if err != nil || packet.Get(ip.Protocol, 0) != packet.ProtocolUDP {
		return ip, nil, errors.New("no UDP")
	}
	_, udp, _, err := packet.ParseUDP(payload)
	return ip, udp, err
}

// leave counts a packet. Whether packets that are sent again count as data, and an
// acknowledgement that rides on data as one, nobody says.
func (f found) leave(g dg.Got, seen map[string]bool) {
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
