package ethernet

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// Held packets must leave with their own frame headers, whichever frame releases them.
func TestHeldPacketsKeepFrameHeaders(t *testing.T) {
	p := newPath(t, impair.Config{Events: []impair.Event{
		{Match: impair.Match{Src: v6A}, Action: impair.Action{Kind: impair.Reorder, Count: 1000, Delay: time.Millisecond}},
	}}, nil)
	var want [][]byte
	for i := range 20 {
		d := datagram(true, bytes.Repeat([]byte{byte(i)}, 50+i))
		d.HopLimit = uint8(100 + i)
		d.Src = netip.AddrPortFrom(v6A, uint16(1000+i))
		b := frameOf(t, d)
		if i%3 == 1 {
			b = build(t, d, &layers.TCP{SrcPort: 5, DstPort: 6, Seq: uint32(i), ACK: true})
		}
		b[6+5] = byte(i) // a different source address
		want = append(want, b)
		if out := collect(p, time.Duration(i), uswitch.Frame{Bytes: b}); len(out) != 0 {
			t.Fatalf("packet %d was not held", i)
		}
		// Other packets pass in between.
		if out := collect(p, time.Duration(i), uswitch.Frame{Bytes: frameOf(t, datagram(false, []byte("x")))}); len(out) != 1 {
			t.Fatalf("%d others passed", len(out))
		}
	}
	if at := p.NextTimer(); at != time.Millisecond {
		t.Fatalf("timer at %v", at)
	}
	var got [][]byte
	p.HandleTimer(time.Second, func(_ time.Duration, f uswitch.Frame) { got = append(got, bytes.Clone(f.Bytes)) })
	if len(got) != len(want) {
		t.Fatalf("%d were released, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("packet %d was released as\n%x\nwant\n%x", i, got[i], want[i])
		}
	}
	if p.held.busy != 0 {
		t.Errorf("%d slots are still in use", p.held.busy)
	}
}

func TestHeldPacketsAreBounded(t *testing.T) {
	p := newPath(t, impair.Config{Events: []impair.Event{{Action: impair.Action{Kind: impair.Reorder, Count: 1000, Delay: time.Second}}}}, nil)
	f := uswitch.Frame{Bytes: frameOf(t, datagram(true, []byte("x")))}
	n := 0
	for range 3 * maxSlots {
		n += len(collect(p, 0, f))
	}
	p.HandleTimer(2*time.Second, func(time.Duration, uswitch.Frame) { n++ })
	if got := uint64(n) + p.HeldOverflow; got != 3*maxSlots {
		t.Errorf("%d were released and %d overflowed, of %d", n, p.HeldOverflow, 3*maxSlots)
	}
	if len(p.held.all) > maxSlots {
		t.Errorf("%d envelopes", len(p.held.all))
	}
}

func TestHeldTCPSegmentIsNotDissected(t *testing.T) {
	p := newPath(t, impair.Config{Events: []impair.Event{{Match: impair.Match{Seq: new(uint32(0))}, Action: impair.Action{Kind: impair.Drop}}}}, anything{})
	if out := collect(p, 0, uswitch.Frame{Bytes: segment(t, make([]byte, 100), false)}); len(out) != 1 {
		t.Error("an event by PSN matched a TCP segment")
	}
	if out := collect(p, 0, uswitch.Frame{Bytes: frameOf(t, datagram(true, nil))}); len(out) != 0 {
		t.Error("the event did not match the datagram")
	}
}

// anything dissects every packet as number 0 of flow 0.
type anything struct{ impair.Dissector }

func (anything) Dissect([]byte) (impair.Flow, uint32, bool) { return 0, 0, true }

func TestFilterDropsBetweenAddresses(t *testing.T) {
	next := specPath(t, impair.Spec{Delay: 5})
	f := &Filter{Next: next, Blocked: func(src, dst netip.Addr) bool { return src == v4A || dst == v6B }}
	arp := append(append(append([]byte{}, macB...), macA...), 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1)
	arp = append(arp, macA...)
	arp = append(arp, 10, 0, 0, 1)
	arp = append(arp, macB...)
	arp = append(arp, 10, 0, 0, 2)
	back := datagram(false, nil)
	back.Src, back.Dst = back.Dst, back.Src
	for i, tc := range []struct {
		b    []byte
		pass bool
	}{
		{frameOf(t, datagram(false, nil)), false},
		{frameOf(t, datagram(true, nil)), false},
		{frameOf(t, back), true},
		{arp, false},
		{append(bytes.Clone(arp[:12]), 0x88, 0xcc), true},
		{nil, true},
	} {
		out := collect(f, 0, uswitch.Frame{Bytes: tc.b})
		if (len(out) == 1) != tc.pass {
			t.Errorf("frame %d: passes %v, want %v", i, len(out) == 1, tc.pass)
		}
	}
	if f.Dropped != 3 || f.NextTimer() != uswitch.Never {
		t.Errorf("%d blocked, timer %v", f.Dropped, f.NextTimer())
	}
	if out := collect(&Filter{Next: passThrough{}, Blocked: func(_, _ netip.Addr) bool { return false }}, 0, uswitch.Frame{Bytes: arp}); len(out) != 1 {
		t.Error("a filter without next did not pass the frame")
	}
}

// FuzzImpairer passes arbitrary bytes through an Impairer with all impairments.
// Emitted frames must be as valid as the input.
func FuzzImpairer(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		f.Add(frameOf(f, datagram(v6, []byte("payload"))), uint8(0))
		f.Add(partial(f, frameOf(f, datagram(v6, []byte("payload")))), uint8(1))
		f.Add(build(f, datagram(v6, []byte("payload")), &layers.TCP{ACK: true, FIN: true}), uint8(0))
	}
	f.Add([]byte{}, uint8(0))
	all := impair.Spec{
		LossPPM: 100_000, DuplicatePPM: 500_000, ReorderPPM: 100_000, ReorderDelay: 1, Jitter: 10,
		CorruptPPM: 500_000, TruncatePPM: 300_000, MarkPPM: 500_000, RateBps: 1e9,
	}
	f.Fuzz(func(t *testing.T, b []byte, flags uint8) {
		b = b[:len(b):len(b)] // reading beyond it panics
		before := bytes.Clone(b)
		in := uswitch.Frame{Bytes: b, ChecksumPartial: flags&1 != 0}
		p := newPath(t, impair.Config{Specs: []impair.Spec{all}, Events: []impair.Event{
			{Occurrence: 2, Action: impair.Action{Kind: impair.Reorder, Delay: 10}},
			{Occurrence: 3, Action: impair.Action{Kind: impair.SetECN, ECN: 1}},
		}}, anything{})
		tap := NewCapture(&bytes.Buffer{}, CaptureOptions{}).Tap("x", &Filter{Next: p, Blocked: func(_, _ netip.Addr) bool { return false }})
		valid := verify(in) == nil
		var h headers
		if h.parse(b) && h.proto != link.ProtocolUDP && h.proto != link.ProtocolTCP {
			valid = false // other protocols keep stale checksums
		}
		check := func(_ time.Duration, g uswitch.Frame) {
			if len(g.Bytes) > len(b) {
				t.Errorf("%d bytes became %d", len(b), len(g.Bytes))
			}
			if err := verify(g); valid && err != nil {
				t.Errorf("%v\n%x\nbecame\n%x", err, b, g.Bytes)
			}
		}
		for now := range time.Duration(5) {
			tap.Apply(now, in, check)
		}
		tap.HandleTimer(100, check)
		if !bytes.Equal(b, before) {
			t.Error("the input frame was changed")
		}
		if at := tap.NextTimer(); at != uswitch.Never {
			t.Error(fmt.Sprint("held for ever: ", at))
		}
	})
}
