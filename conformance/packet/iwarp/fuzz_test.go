package iwarp

import (
	"bytes"
	"testing"
)

// Every prefix of a golden frame is parsed, has text, and a short header is an oddity.
func TestEveryPrefixIsParsed(t *testing.T) {
	for _, g := range golden {
		whole := g.make.Append(nil)
		for n := range whole {
			s := ParseSegment(whole[:n])
			if again := s.Append(nil); !bytes.Equal(again, whole[:n]) {
				t.Fatalf("%s: %d octets: appended again %x", g.id, n, again)
			}
			if s.String() == "" {
				t.Errorf("%s: no text for %d octets", g.id, n)
			}
			if f, _ := s.Op().form(); n < len(whole) && n < untaggedLen+f.header && !f.tagged && len(s.Oddities()) == 0 {
				t.Errorf("%s: %d of %d octets have no oddity", g.id, n, len(whole))
			}
			s.InSiwBitOrder(true)
		}
		wire := (&Framer{CRC: g.crc}).Append(nil, g.make)
		for n := range wire {
			var d Deframer
			d.Feed(wire[:n])
			if _, ok := d.Next(); ok || len(d.Pending()) != n {
				t.Errorf("%s: %d of %d octets are an FPDU, or lost", g.id, n, len(wire))
			}
		}
	}
}

func FuzzSegment(f *testing.F) {
	for _, g := range golden {
		f.Add(g.make.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := ParseSegment(b)
		if again := s.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x\nappended again %x", b, again)
		}
		if d := diffOf(s, ParseSegment(b)); d != "" {
			t.Fatalf("%v differs from itself: %s", s, d)
		}
		_, _ = s.Oddities(), s.String()
		if siw, ok := s.InSiwBitOrder(len(b)%2 == 0); ok && siw.Terminate == nil {
			t.Fatalf("%v: Terminate lost: %v", s, siw)
		}
		if wrong, ok := s.Terminate.QuotedSegment(); ok {
			_ = wrong.String()
		}
	})
}

// FuzzDeframer parses a stream at once and in two pieces, and appends the parsed FPDUs.
func FuzzDeframer(f *testing.F) {
	for _, g := range golden {
		f.Add(unhex(f, g.hex), uint16(30), false)
	}
	framer := Framer{Markers: true, CRC: true}
	f.Add(framer.Append(framer.Append(nil, Send(1, []byte("hello"))), Write(1, 2, nil)), uint16(2), true)
	framer.Position = 0
	f.Add(framer.Append(nil, Send(1, bytes.Repeat([]byte{0xff}, 520)).EditMarkers(func(m *Marker) { m.Ptr++ })), uint16(514), true)
	f.Fuzz(func(t *testing.T, b []byte, cut uint16, markers bool) {
		whole, halves := Deframer{Markers: markers}, Deframer{Markers: markers}
		whole.Feed(b)
		once := nextAll(&whole)
		at := min(int(cut), len(b))
		halves.Feed(b[:at])
		twice := nextAll(&halves)
		halves.Feed(b[at:])
		twice = append(twice, nextAll(&halves)...)
		if len(once) != len(twice) {
			t.Fatalf("%d FPDUs at once, %d if cut at %d", len(once), len(twice), at)
		}
		var raw []byte
		framer := Framer{Markers: markers}
		for i, g := range once {
			if g.String() != twice[i].String() || !bytes.Equal(g.Raw, twice[i].Raw) {
				t.Fatalf("FPDU %d: %v at once, %v if cut", i, g, twice[i])
			}
			n := 0
			again := framer.Append(nil, g.Pad(g.MPA.Pad...).CRC(*g.MPA.CRC).EditMarkers(func(m *Marker) {
				*m = g.Markers[n]
				n++
			}))
			if !bytes.Equal(again, g.Raw) {
				t.Fatalf("FPDU %d: %x\nappended again %x", i, g.Raw, again)
			}
			raw = append(raw, g.Raw...)
		}
		if raw = append(raw, whole.Pending()...); !bytes.Equal(raw, b) {
			t.Fatalf("octets were lost: %x\nof %x", raw, b)
		}
	})
}

func FuzzStartup(f *testing.F) {
	f.Add(Request().Append(nil))
	f.Add(Reply().Depths(4, NoNegotiation).PeerToPeer(RTRRead).Private([]byte("hello")).Append(nil))
	f.Add(Request().SFlag(true).Revision(2).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, ok := ParseStartupFrame(b)
		_ = s.String()
		if !ok {
			return
		}
		if again := append(s.Append(nil), rest...); !bytes.Equal(again, b) {
			t.Fatalf("%x\nappended again %x", b, again)
		}
		if d := s.Diff(s); len(d) != 0 {
			t.Fatalf("%v differs from itself: %v", s, d)
		}
	})
}

func FuzzConnDeframer(f *testing.F) {
	start := Request().Markers(true).Append(nil)
	f.Add((&Framer{CRC: true}).Append(start, Send(1, []byte("hi"))), Reply().Append(nil), uint8(7))
	f.Fuzz(func(t *testing.T, a, b []byte, step uint8) {
		var d ConnDeframer
		streams := [2][]byte{a, b}
		n := 0
		for side := 0; len(streams[0])+len(streams[1]) > 0; side = 1 - side {
			k := min(int(step)+1, len(streams[side]))
			for _, h := range d.Feed(side, streams[side][:k]) {
				n += len(h.String())
			}
			streams[side] = streams[side][k:]
		}
		if left := len(d.Pending(0)) + len(d.Pending(1)); n == 0 && left != len(a)+len(b) {
			t.Fatalf("no frame, but only %d of %d octets are pending", left, len(a)+len(b))
		}
	})
}

func diffOf(want, got Segment) string { return Diff(want, ReceivedFPDU{Segment: got}).String() }
