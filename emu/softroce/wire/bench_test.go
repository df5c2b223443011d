package wire

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

var (
	benchSrc = netip.MustParseAddrPort("10.77.0.1:49152")
	benchDst = netip.MustParseAddrPort("10.77.0.11:4791")

	writeOnly4K = Packet{
		BTH:     BTH{Opcode: MakeOpcode(TransportRC, OpWriteOnly), PKey: DefaultPKey, DestQP: 0x11, AckReq: true, PSN: 0x89af29},
		RETH:    RETH{VA: 0x555641914000, RKey: 0x90b, DMALen: MaxMTU},
		Payload: bytes.Repeat([]byte("RoCE"), MaxMTU/4),
	}
	ackPacket = Packet{
		BTH:  BTH{Opcode: MakeOpcode(TransportRC, OpAcknowledge), PKey: DefaultPKey, DestQP: 0x11, PSN: 0x89af29},
		AETH: AETH{Syndrome: Ack(CreditUnlimited), MSN: 1},
	}
)

// BenchmarkPacket measures one packet on both sides: encode, seal, decode, check.
func BenchmarkPacket(b *testing.B) {
	for _, bc := range []struct {
		name   string
		packet *Packet
	}{
		{"4K", &writeOnly4K},
		{"Ack", &ackPacket},
	} {
		b.Run(bc.name, func(b *testing.B) {
			c := NewICRC(benchSrc, benchDst)
			buf := bc.packet.Append(nil)
			var got Packet
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				buf = bc.packet.Append(buf[:0])
				c.Seal(7, buf)
				if got.Parse(buf) != nil || !c.Check(7, buf) {
					b.Fatal("packet does not survive a round trip")
				}
			}
		})
	}
}

func BenchmarkAppendHeaders(b *testing.B) {
	buf := make([]byte, 0, MaxHeaderLen)
	b.ReportAllocs()
	for b.Loop() {
		buf = writeOnly4K.AppendHeaders(buf[:0])
	}
}

func BenchmarkParse(b *testing.B) {
	buf := writeOnly4K.Append(nil)
	var p Packet
	b.ReportAllocs()
	for b.Loop() {
		must.Do(b, p.Parse(buf))
	}
}

// BenchmarkICRC compares Check with CheckAnyIPID, for identification 0, which our sockets send, and
// for one that it must find.
func BenchmarkICRC(b *testing.B) {
	c := NewICRC(benchSrc, benchDst)
	for _, size := range []struct {
		name   string
		packet *Packet
	}{
		{"4K", &writeOnly4K},
		{"Ack", &ackPacket},
	} {
		zero := size.packet.Append(nil)
		c.Seal(0, zero)
		numbered := bytes.Clone(zero)
		c.Seal(0x953e, numbered)
		for _, bc := range []struct {
			name  string
			check func() bool
		}{
			{"Check", func() bool { return c.Check(0x953e, numbered) }},
			{"AnyIPIDZero", func() bool { _, ok := c.CheckAnyIPID(zero); return ok }},
			{"AnyIPIDFound", func() bool { _, ok := c.CheckAnyIPID(numbered); return ok }},
		} {
			b.Run(size.name+bc.name, func(b *testing.B) {
				b.SetBytes(int64(len(zero)))
				b.ReportAllocs()
				for b.Loop() {
					if !bc.check() {
						b.Fatal("ICRC rejected")
					}
				}
			})
		}
	}
}

func BenchmarkIDDelta(b *testing.B) {
	var sum uint32
	for b.Loop() {
		sum ^= IDDelta(0x953e, MaxPacketLen)
	}
	_ = sum
}

func BenchmarkNewICRC(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = NewICRC(benchSrc, benchDst)
	}
}
