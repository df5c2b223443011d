package rd

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// script makes decisions from a fuzzer's octets.
type script struct{ b []byte }

func (s *script) next() byte {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return v
}

func (s *script) word() uint32 {
	return uint32(s.next())<<24 | uint32(s.next())<<16 | uint32(s.next())<<8 | uint32(s.next())
}

// near returns a number close to n, or any other.
func (s *script) near(n uint32) uint32 {
	switch c := s.next(); {
	case c < 200:
		return n + uint32(int8(s.next()))
	case c < 230:
		return n + uint32(int16(s.word()))
	default:
		return s.word()
	}
}

// hostile builds a packet of an attacker who knows the epochs of the flows between target and peer.
func (s *script) hostile(target *host, peer *host) []byte {
	var k wire.Packet
	k.Header = wire.NewHeader(wire.Kind(s.next()%5), testQP, testQP, s.word())
	k.Flags = wire.Flags(s.next())
	p := target.layer.peers[target.key(peer)]
	if p == nil {
		p = new(Peer)
	}
	epoch := func(right wire.Epoch) wire.Epoch {
		if s.next() < 220 {
			return right
		}
		return wire.Epoch(s.word())
	}
	k.Ack = wire.Ack{
		Epoch: epoch(p.send.epoch), Next: wire.Seq(s.near(uint32(p.send.una))), Echo: s.near(microseconds(target.net.now)),
		Window: uint16(s.next()) << (s.next() % 9), Words: s.next() % (wire.MaxSackWords + 1),
	}
	for i := range k.Ack.Words {
		k.Ack.Sack[i] = s.word()
	}
	k.Data = wire.Data{
		Epoch: epoch(p.recv.epoch), Seq: wire.Seq(s.near(uint32(p.recv.next))), Timestamp: s.word(),
		Proof: uint64(s.near(uint32(p.send.epoch))), Incarnation: s.near(p.incarnation),
	}
	k.Challenge = wire.Challenge{Epoch: epoch(p.send.epoch), Incarnation: s.near(p.incarnation), Cookie: uint64(s.word())}
	k.Refusal = wire.Refusal{Epoch: epoch(p.send.epoch), Reason: wire.Reason(s.next())}
	if k.Kind == wire.KindRD && k.Flags.Has(wire.FlagData) {
		k.ULPDU = content(nil, s.word(), 4+int(s.next()))
	}
	b := k.Append(nil)
	if s.next() > 250 {
		b = b[:int(s.next())%len(b)]
	}
	return b
}

// FuzzHostile lets an attacker, who knows everything but the layers' secrets, send packets to one
// of two hosts between valid packets. The layers stay consistent and within their limits, and flows
// of a third host still work.
func FuzzHostile(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x02\xd0\x01\x02\x03\x04\x05\x06\x07\x08\x09"))
	for seed := range byte(8) {
		b := make([]byte, 400)
		for i := range b {
			b[i] = byte(i*i)*seed + byte(i)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &script{b}
		n := newNetwork(t, 1, impairment{loss: int(s.next() % 30)})
		a, z, third := n.host(Config{}), n.host(Config{Limits: Limits{StoredBytes: 1 << 14}}), n.host(Config{})
		for _, h := range n.hosts {
			h.unchecked = true // the attacker's packets may fail the flows
		}
		for len(s.b) > 0 && len(s.b) < 4096 {
			switch c := s.next(); {
			case c < 40:
				a.send(z, int(s.next()))
			case c < 80:
				z.send(a, int(s.next()))
			case c < 90:
				n.sleep(time.Duration(s.next()) * time.Millisecond)
			case c < 93:
				n.sleep(time.Duration(s.next()) * time.Second)
			case c < 96:
				a.receives = int(s.next()) - 1
				a.layer.Resume(testQP, 3)
				a.drain()
			default:
				a.deliver(z.addr, s.hostile(a, z), c&1 != 0)
			}
			a.flush()
			n.step(n.now.Add(10 * time.Microsecond))
		}
		n.bad = impairment{}
		n.sleep(time.Second)
		third.send(a, 10)
		a.receives = -1
		n.run(5*time.Second, func() bool { return third.acked[third.key(a)] == 1 })
		n.sleep(5 * time.Minute)
		for _, h := range n.hosts {
			if h.layer.Peers() != 0 || h.layer.Deadline() != mono.Never || h.layer.segments.used != 0 {
				t.Fatalf("%v: %d peers, %d segments, deadline %v after five minutes", h, h.layer.Peers(), h.layer.segments.used, h.layer.Deadline())
			}
		}
	})
}

// FuzzInput passes any octets with a valid CRC to a layer.
func FuzzInput(f *testing.F) {
	f.Add([]byte{0x12, 0xb0}, uint16(5))
	f.Fuzz(func(t *testing.T, b []byte, step uint16) {
		n := newNetwork(t, 1, impairment{})
		h := n.host(Config{})
		h.unchecked = true
		for len(b) > 0 {
			size := min(len(b), 16+int(b[0]))
			packet := append([]byte(nil), b[:size]...)
			if size >= wire.HeaderLen {
				packet[0] = 0x10 | packet[0]&7
				binary.BigEndian.PutUint32(packet[4:], testQP)
			}
			h.deliver(h.addr, wire.AppendCRC(packet, 0), false)
			h.flush()
			n.sleep(time.Duration(step) * time.Microsecond)
			b = b[size:]
		}
	})
}
