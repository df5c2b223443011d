package roce

import (
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

var icrcFieldCases = overRC.Cases([]conformance.Case{{
	ID: "icrc/masked/tos-ttl-and-checksums-may-change", Cite: annexA17("CA17-22(c)", "roce/icrc/3"), Setup: ipv4,
	Run: onRC(func(c *Conn) {
		c.expectAccepted(0, inFlight(func(p *ib.Packet) { p.IP.TClass = new(uint8(0x68)) }))
		c.expectAccepted(1, inFlight(func(p *ib.Packet) { p.IP.HopLimit = new(uint8(3)) }))
		c.expectAccepted(2, ib.Packet.WithUDPChecksum)
	}),
}, {
	ID:   "icrc/masked/ipv6-class-label-and-hop-limit-may-change",
	Cite: annexA17("CA17-22(c)", "roce/icrc/3"), Setup: ipv6,
	Run: onRC(func(c *Conn) {
		c.expectAccepted(0, inFlight(func(p *ib.Packet) { p.IP.TClass = new(uint8(0x68)) }))
		c.expectAccepted(1, inFlight(func(p *ib.Packet) { p.IP.FlowLabel = new(uint32(0xfedcb)) }))
		c.expectAccepted(2, inFlight(func(p *ib.Packet) { p.IP.HopLimit = new(uint8(3)) }))
	}),
}, {
	ID: "icrc/masked/fecn-becn-and-their-reserved-bits-may-change", Cite: ibta("7.8.1", "roce/icrc/4"),
	Run: onRC(func(c *Conn) {
		for n, b := range []struct {
			fecn, becn bool
			resv       uint8
		}{{fecn: true}, {becn: true}, {resv: 0x3f}, {true, true, 0x3f}} {
			c.expectAccepted(n, inFlight(func(p *ib.Packet) { p.BTH.FECN, p.BTH.BECN, p.BTH.Resv6 = &b.fecn, &b.becn, &b.resv }))
		}
	}),
}, {
	ID: "icrc/covered/ip-identification", Cite: annexA17("CA17-22", "roce/icrc/5"), Setup: ipv4,
	Run: onRC(func(c *Conn) {
		const id = 0x5a3c
		send := ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq()
		send.IP.ID = new(uint32(id))
		for bit := range 16 {
			c.expectDropped(send.InFlight(func(p *ib.Packet) { p.IP.ID = new(uint32(id ^ 1<<bit)) }))
		}
		for n, id := range []uint32{0, id, 0xffff} {
			c.expectAccepted(n, func(p ib.Packet) ib.Packet { p.IP.ID = &id; return p })
		}
	}),
}, {
	ID: "icrc/covered/ip-flags", Cite: annexA17("CA17-22", "roce/icrc/5", "roce/pkt/ip/7"), Setup: ipv4,
	Run: onRC(func(c *Conn) {
		send := ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq()
		c.expectDropped(send.InFlight(func(p *ib.Packet) { p.IP.DF = new(false) }))
		c.expectDropped(send.InFlight(func(p *ib.Packet) { p.IP.ReservedFlag = new(true) }))
		c.expectAccepted(0)
	}),
}, {
	ID: "icrc/covered/addresses-ports-and-lengths", Cite: annexA17("CA17-22", "roce/icrc/5"),
	Run: onRC(func(c *Conn) {
		send := ib.SendOnly(c.PeerPSN(0), Data(32)).AckReq()
		for bit := range 16 {
			c.expectDropped(send.InFlight(func(p *ib.Packet) { p.UDP.SrcPort = new(uint16(0xc000 ^ 1<<bit)) }))
		}
		// The ICRC is correct for another source address.
		c.expectDropped(send.From(c.PeerAddr(1)).InFlight(func(p *ib.Packet) { p.IP.Src = c.Peer }))
		c.expectDropped(send.InFlight(func(p *ib.Packet) { p.Payload = p.Payload[:28] }))
		c.expectDropped(send.InFlight(func(p *ib.Packet) { p.Payload = append(p.Payload, 0, 0, 0, 0) }))
		c.expectAccepted(0)
	}),
}, {
	ID: "icrc/covered/every-bit-of-the-bth-but-byte-4", Cite: annexA17("CA17-22", "roce/icrc/5"),
	Run: onRC(func(c *Conn) {
		bth := c.bthOffset()
		for bit := range 12 * 8 {
			if bit/8 != 4 {
				c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq().Damaged(flipBit(8*bth + bit)))
			}
		}
		c.expectAccepted(0)
	}),
}, {
	ID: "icrc/covered/extension-headers-and-payload", Cite: annexA17("CA17-22", "roce/icrc/5"),
	Run: onRC(func(c *Conn) {
		const reth, imm, payload, icrc = 16, 4, 32, 4
		begin := 8 * (c.bthOffset() + 12)
		for i := range reth + imm + payload + icrc {
			bit := begin + 8*i + c.Rand.IntN(8)
			c.expectDropped(ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, payload), 7, Data(payload)).AckReq().Damaged(flipBit(bit)))
		}
		c.expectAccepted(0)
	}),
}, {
	ID: "icrc/covered/pad-bytes", Cite: ibta("7.8.1", "roce/icrc/7", "roce/icrc/5"),
	Run: onRC(func(c *Conn) {
		send := ib.SendOnly(c.PeerPSN(0), Data(13)).AckReq()
		for i := range 3 {
			pad := make([]byte, 3)
			pad[i] = 1 << c.Rand.IntN(8)
			c.expectDropped(send.InFlight(func(p *ib.Packet) { p.Pad = pad }))
		}
		c.exchange(send.WithPad([]byte{0xff, 0xff, 0xff}), ib.Ack(c.PeerPSN(0), 1))
		c.ExpectRecv(1, 13)
		c.ExpectBytes(c.LocalMem, 0, Data(13))
		c.ExpectUnchanged(c.LocalMem, 0, 13)
	}),
}, {
	ID:   "icrc/blind/random-icrcs-are-hardly-ever-accepted",
	Cite: annexA17("CA17-24", "roce/icrc/8"), Level: conformance.May, Setup: ipv4,
	Run: onRC(func(c *Conn) {
		const batch = 64
		for range icrcAttempts / batch {
			for range batch {
				c.Send(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 0), nil).AckReq().Sealed(randomICRC(c.Rand)))
			}
			c.Sync()
			if n := len(c.Skipped()); n > maxAcceptedICRCs {
				c.Fail(fmt.Sprintf("at most %d of %d random ICRCs accepted", maxAcceptedICRCs, icrcAttempts), "%d already, the last %v", n, c.Skipped()[n-1].Packet)
			}
		}
		c.DiscardSkipped()
		c.exchange(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 0), nil).AckReq(), ib.Ack(c.PeerPSN(0), 1))
	}),
}})

// A receiver that cannot see 16 bits of the header accepts one of icrcAttempts random
// ICRCs in every fourth run, and more than maxAcceptedICRCs once in 150,000 runs. A
// receiver that sees the whole header accepts none.
const (
	icrcAttempts     = 1 << 14
	maxAcceptedICRCs = 4
)

// randomICRC returns a function that replaces the correct ICRC by a random wrong one.
func randomICRC(r *rand.Rand) func(uint32) uint32 {
	return func(right uint32) uint32 { return right ^ (1 + r.Uint32N(1<<32-1)) }
}

// inFlight returns a function that modifies a packet after its ICRC was computed.
func inFlight(modify func(*ib.Packet)) func(ib.Packet) ib.Packet {
	return func(p ib.Packet) ib.Packet { return p.InFlight(modify) }
}

// bthOffset returns the offset of the BTH in an IP packet.
func (c *Conn) bthOffset() int {
	if c.deviceAddr.Is4() {
		return 20 + 8
	}
	return 40 + 8
}

// flipBit returns a function that flips a bit of an IP packet. Bit 0 is the most
// significant bit of the first byte.
func flipBit(bit int) func([]byte) {
	return func(ip []byte) { ip[bit/8] ^= 0x80 >> (bit % 8) }
}
