package ethernet

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

func TestDatagramMatchesFrame(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		want := datagram(v6, []byte("payload"))
		padded := append(frameOf(t, want), make([]byte, 20)...)
		tagged := append(append(bytes.Clone(padded[:12]), 0x81, 0, 0, 5), padded[12:]...)
		for name, b := range map[string][]byte{"plain": frameOf(t, want), "padded": padded, "tagged": tagged} {
			got := read(t, b)
			if !bytes.Equal(got.Payload, want.Payload) {
				t.Errorf("IPv6 %v, %s: payload %q", v6, name, got.Payload)
			}
			got.Payload = want.Payload
			if got.Src != want.Src || got.Dst != want.Dst || got.TClass != want.TClass || got.HopLimit != want.HopLimit ||
				got.IPID != want.IPID || got.FlowLabel != want.FlowLabel {
				t.Errorf("IPv6 %v, %s: %+v, want %+v", v6, name, got, want)
			}
		}
	}
}

// states are the possible states of a checksum.
func states(t *testing.T, d link.Datagram) map[string]uswitch.Frame {
	whole := frameOf(t, d)
	none := bytes.Clone(whole)
	var h headers
	h.parse(none)
	none[h.l4+6], none[h.l4+7] = 0, 0
	return map[string]uswitch.Frame{
		"complete": {Bytes: whole}, "partial": {Bytes: partial(t, whole), ChecksumPartial: true}, "none": {Bytes: none},
	}
}

func TestChangedFramesHaveValidHeaders(t *testing.T) {
	payload := bytes.Repeat([]byte("0123456789"), 30)
	for _, v6 := range []bool{false, true} {
		for _, tc := range []struct {
			name   string
			spec   impair.Spec
			change func(before, after link.Datagram) bool // expected change
		}{
			{"corrupt", impair.Spec{CorruptPPM: impair.PPM}, func(b, a link.Datagram) bool {
				flipped := 0
				for i := range a.Payload {
					flipped += bits.OnesCount8(a.Payload[i] ^ b.Payload[i])
				}
				return flipped == 1 && len(a.Payload) == len(b.Payload)
			}},
			{"truncate", impair.Spec{TruncatePPM: impair.PPM}, func(b, a link.Datagram) bool {
				return len(a.Payload) < len(b.Payload) && bytes.HasPrefix(b.Payload, a.Payload)
			}},
			{"mark", impair.Spec{MarkPPM: impair.PPM}, func(b, a link.Datagram) bool {
				return a.TClass == b.TClass|link.CE && bytes.Equal(a.Payload, b.Payload)
			}},
		} {
			p := specPath(t, tc.spec)
			for range 20 {
				for state, f := range states(t, datagram(v6, payload)) {
					before := bytes.Clone(f.Bytes)
					out := collect(p, 0, f)
					if !bytes.Equal(f.Bytes, before) {
						t.Fatalf("%s: the input frame was changed", tc.name)
					}
					if len(out) != 1 || out[0].ChecksumPartial != f.ChecksumPartial || bytes.Equal(out[0].Bytes, before) {
						t.Fatalf("%s, %s: %d frames, or unchanged", tc.name, state, len(out))
					}
					if err := verify(out[0].Frame); err != nil {
						t.Errorf("%s, IPv6 %v, %s: %v", tc.name, v6, state, err)
					}
					a, b := read(t, out[0].Bytes), read(t, before)
					if !tc.change(b, a) || a.Src != b.Src || a.Dst != b.Dst || a.IPID != b.IPID || a.HopLimit != b.HopLimit || a.FlowLabel != b.FlowLabel {
						t.Errorf("%s, %s: %+v became %+v", tc.name, state, b, a)
					}
					var h headers
					h.parse(out[0].Bytes)
					if none := binary.BigEndian.Uint16(out[0].Bytes[h.l4+6:]) == 0; none != (state == "none") {
						t.Errorf("%s, %s: checksum is 0: %v", tc.name, state, none)
					}
					if h.end != len(out[0].Bytes) {
						t.Errorf("%s, %s: %d bytes follow the packet", tc.name, state, len(out[0].Bytes)-h.end)
					}
				}
			}
		}
	}
}

func TestUnchangedFramesAreNotCopied(t *testing.T) {
	p := specPath(t, impair.Spec{Delay: 5, DuplicatePPM: impair.PPM, DuplicateDelay: 2})
	f := uswitch.Frame{Bytes: append(frameOf(t, datagram(true, []byte("x"))), 0, 0, 0)}
	n := 0
	p.Apply(0, f, func(after time.Duration, g uswitch.Frame) {
		if &g.Bytes[0] != &f.Bytes[0] || len(g.Bytes) != len(f.Bytes) || after != time.Duration(5+2*n) {
			t.Errorf("frame %d after %v is not the input frame", n, after)
		}
		n++
	})
	if n != 2 {
		t.Errorf("%d frames", n)
	}
}

func TestDiscoveryFramesAlwaysPass(t *testing.T) {
	ndp := func(typ uint8) []byte {
		d := datagram(true, make([]byte, 20))
		return build(t, d, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, 0)})
	}
	mld := ndp(143)
	hopByHop := append(bytes.Clone(mld[:54]), 58, 0, 5, 2, 0, 0, 0, 0)
	hopByHop = append(hopByHop, mld[54:]...)
	hopByHop[20] = 0
	binary.BigEndian.PutUint16(hopByHop[18:], binary.BigEndian.Uint16(mld[18:])+8)
	arp := append(append(append([]byte{}, macB...), macA...), 0x08, 0x06)
	arp = append(arp, make([]byte, 46)...)
	pass := map[string][]byte{
		"ARP": arp, "solicitation": ndp(135), "advertisement": ndp(136), "router": ndp(134), "MLD": hopByHop,
		"LLDP": append(bytes.Clone(arp[:12]), 0x88, 0xcc, 1, 2, 3), "short": {1, 2, 3}, "empty": {},
	}
	lose := map[string][]byte{
		"UDP":  frameOf(t, datagram(true, nil)),
		"TCP":  build(t, datagram(false, nil), &layers.TCP{SYN: true}),
		"ping": build(t, datagram(false, nil), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}), "ping6": ndp(128),
	}
	p := specPath(t, impair.Spec{LossPPM: impair.PPM})
	for name, b := range pass {
		if out := collect(p, 0, uswitch.Frame{Bytes: b}); len(out) != 1 || !bytes.Equal(out[0].Bytes, b) {
			t.Errorf("%s did not pass", name)
		}
	}
	for name, b := range lose {
		if out := collect(p, 0, uswitch.Frame{Bytes: b}); len(out) != 0 {
			t.Errorf("%s was not lost", name)
		}
	}
	if c := p.Pipe.Counters(); c.Offered != uint64(len(lose)) || c.Lost != uint64(len(lose)) {
		t.Errorf("%+v", c)
	}
}

func segment(t *testing.T, payload []byte, fin bool) []byte {
	return build(t, datagram(true, payload), &layers.TCP{
		SrcPort: 1000, DstPort: 2000, Seq: 7, Ack: 8, ACK: true, PSH: true, FIN: fin, Window: 100,
		Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}},
	})
}

func TestTCPCorruptionAffectsDataOnly(t *testing.T) {
	payload := bytes.Repeat([]byte("abc"), 10)
	const front = 14 + 40 + 32
	p := specPath(t, impair.Spec{CorruptPPM: impair.PPM})
	places := map[int]bool{}
	for range 300 {
		for _, f := range []uswitch.Frame{{Bytes: segment(t, payload, true)}, {Bytes: partial(t, segment(t, payload, true)), ChecksumPartial: true}} {
			out := collect(p, 0, f)
			if len(out) != 1 || len(out[0].Bytes) != len(f.Bytes) {
				t.Fatalf("%d frames", len(out))
			}
			must.Do(t, verify(out[0].Frame))
			flipped := 0
			for i, b := range out[0].Bytes {
				if x := b ^ f.Bytes[i]; x != 0 && i != 14+40+16 && i != 14+40+17 { // not the checksum
					flipped += bits.OnesCount8(x)
					places[i] = true
					if i < front {
						t.Fatalf("byte %d of the headers was changed", i)
					}
				}
			}
			if flipped != 1 {
				t.Fatalf("%d bits changed", flipped)
			}
		}
	}
	if len(places) != len(payload) {
		t.Errorf("%d of %d bytes were corrupted", len(places), len(payload))
	}
	ack := uswitch.Frame{Bytes: segment(t, nil, false)}
	if out := collect(p, 0, ack); len(out) != 1 || !bytes.Equal(out[0].Bytes, ack.Bytes) {
		t.Error("a segment without data was changed")
	}
}

func TestTruncatedTCPSegmentIsPrefix(t *testing.T) {
	payload := bytes.Repeat([]byte("abcd"), 100)
	p := specPath(t, impair.Spec{TruncatePPM: impair.PPM})
	shortest := len(payload)
	for range 300 {
		out := collect(p, 0, uswitch.Frame{Bytes: segment(t, payload, true)})
		must.Do(t, verify(out[0].Frame))
		b := out[0].Bytes
		const front = 14 + 40 + 32
		if !bytes.HasPrefix(payload, b[front:]) || len(b[front:]) >= len(payload) || b[14+40+13] != 0x10 {
			t.Fatalf("data of %d bytes, flags %#x", len(b[front:]), b[14+40+13])
		}
		shortest = min(shortest, len(b[front:]))
	}
	if shortest > 20 {
		t.Errorf("never shorter than %d bytes", shortest)
	}
}

func TestOtherProtocolsKeepStaleChecksum(t *testing.T) {
	ping := build(t, datagram(false, bytes.Repeat([]byte{1}, 100)), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)})
	out := collect(specPath(t, impair.Spec{CorruptPPM: impair.PPM}), 0, uswitch.Frame{Bytes: ping})
	if len(out) != 1 || len(out[0].Bytes) != len(ping) || bytes.Equal(out[0].Bytes, ping) || verify(out[0].Frame) == nil {
		t.Errorf("%d frames; its checksum must be wrong", len(out))
	}
	fragment := frameOf(t, datagram(false, bytes.Repeat([]byte{1}, 100)))
	fragment[14+6] |= 0x20 // more fragments
	out = collect(specPath(t, impair.Spec{MarkPPM: impair.PPM, TruncatePPM: impair.PPM}), 0, uswitch.Frame{Bytes: fragment})
	if len(out) != 1 || len(out[0].Bytes) >= len(fragment) || out[0].Bytes[15]&3 != link.CE {
		t.Errorf("fragment: %+v", out)
	}
}

func TestRateCountsIPBytes(t *testing.T) {
	for name, b := range map[string][]byte{"TCP": segment(t, make([]byte, 100), false), "UDP": frameOf(t, datagram(true, make([]byte, 100)))} {
		p := specPath(t, impair.Spec{RateBps: 8e9}) // a byte a nanosecond
		if out := collect(p, 0, uswitch.Frame{Bytes: b}); out[0].after != time.Duration(len(b)-14) {
			t.Errorf("%s: %v for an IP packet of %d bytes", name, out[0].after, len(b)-14)
		}
	}
}

func TestSpecTimesCountFromStart(t *testing.T) {
	p := must.Get(NewImpairer(impair.Config{Specs: []impair.Spec{{LossPPM: impair.PPM, Until: 100}}},
		Options{Start: 1000, Source: impair.RandSources(1, "n/p/up")}))(t)
	for now, want := range map[time.Duration]int{0: 1, 999: 1, 1000: 0, 1099: 0, 1100: 1} {
		if got := len(collect(p, now, uswitch.Frame{Bytes: frameOf(t, datagram(true, nil))})); got != want {
			t.Errorf("at %d: %d frames, want %d", now, got, want)
		}
	}
}

func TestInvalidConfigIsRejected(t *testing.T) {
	_, err := NewImpairer(impair.Config{Specs: []impair.Spec{{Delay: -1}}}, Options{})
	if err == nil {
		t.Error("a negative delay was accepted")
	}
	_, err = NewImpairer(impair.Config{Events: []impair.Event{{Match: impair.Match{Seq: new(uint32(1))}, Action: impair.Action{Kind: impair.Drop}}}}, Options{})
	if err == nil {
		t.Error("an event by sequence number was accepted without a dissector")
	}
}

func TestImpairerDoesNotAllocate(t *testing.T) {
	p := specPath(t, impair.Spec{LossPPM: 10_000, DuplicatePPM: 100_000, CorruptPPM: 100_000, MarkPPM: 100_000, RateBps: 1e9})
	f := uswitch.Frame{Bytes: partial(t, frameOf(t, datagram(true, make([]byte, 4096)))), ChecksumPartial: true}
	emit := func(time.Duration, uswitch.Frame) {}
	now := time.Duration(0)
	run := func() { now += 1000; p.Apply(now, f, emit) }
	for range 100 {
		run()
	}
	if n := testing.AllocsPerRun(1000, run); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func BenchmarkImpairer(b *testing.B) {
	for name, spec := range map[string]impair.Spec{
		"loss": {LossPPM: 10_000}, "corrupt": {CorruptPPM: impair.PPM}, "mark": {MarkPPM: impair.PPM},
	} {
		b.Run(name, func(b *testing.B) {
			p := specPath(b, spec)
			f := uswitch.Frame{Bytes: partial(b, frameOf(b, datagram(true, make([]byte, 4096)))), ChecksumPartial: true}
			emit := func(time.Duration, uswitch.Frame) {}
			b.SetBytes(int64(len(f.Bytes)))
			for b.Loop() {
				p.Apply(0, f, emit)
			}
		})
	}
}
