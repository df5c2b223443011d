package impair

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

func eventPipe(t *testing.T, events ...Event) *Pipe { return pipe(t, Config{Events: events}) }

// psn applies a Pipe to a packet of a flow and returns the output.
func psn(p *Pipe, flow byte, seq uint32) []Outcome {
	return p.Apply(0, datagram(toyPacket(flow, seq, 0)), nil)
}

func seqs(out []Outcome) (all []uint32) {
	for _, o := range out {
		_, seq, _ := toy{}.Dissect(o.Datagram.Payload)
		all = append(all, seq)
	}
	return all
}

func TestEventMatchesAddresses(t *testing.T) {
	for _, tc := range []struct {
		match Match
		want  int // packets that pass
	}{
		{Match{Src: source.Addr()}, 0},
		{Match{Src: destination.Addr()}, 1},
		{Match{Dst: destination.Addr()}, 0},
		{Match{Dst: source.Addr()}, 1},
		{Match{Src: source.Addr(), Dst: destination.Addr()}, 0},
		{Match{Src: source.Addr(), Dst: source.Addr()}, 1},
	} {
		p := eventPipe(t, Event{Match: tc.match, Action: Action{Kind: Drop}})
		if got := len(p.Apply(0, datagram(nil), nil)); got != tc.want {
			t.Errorf("%+v: %d packets, want %d", tc.match, got, tc.want)
		}
	}
}

func TestDropThirdOccurrenceOfPSN(t *testing.T) {
	p := eventPipe(t, Event{Match: Match{Flow: new(Flow(5)), Seq: new(uint32(7))}, Occurrence: 3, Action: Action{Kind: Drop}})
	for i, want := range []int{1, 1, 0, 1, 1} {
		for _, other := range [][2]uint32{{5, 6}, {6, 7}, {5, 8}} {
			if len(psn(p, byte(other[0]), other[1])) != 1 {
				t.Fatalf("flow %d, PSN %d was dropped", other[0], other[1])
			}
		}
		if got := len(psn(p, 5, 7)); got != want {
			t.Errorf("flow 5, PSN 7, time %d: %d packets, want %d", i+1, got, want)
		}
	}
	c := p.Counters()
	if c.EventsFired != 1 || c.EventsDropped != 1 || slices.Contains(p.Fired(), 0) || p.Err() != nil {
		t.Errorf("counters %+v, fired %v, err %v", c, p.Fired(), p.Err())
	}
}

func TestDropEveryOccurrence(t *testing.T) {
	p := eventPipe(t, Event{Match: Match{Seq: new(uint32(7))}, Action: Action{Kind: Drop}})
	for range 3 {
		if len(psn(p, 1, 7)) != 0 || len(psn(p, 2, 7)) != 0 || len(psn(p, 1, 8)) != 1 {
			t.Fatal("want PSN 7 of any flow dropped every time, and nothing else")
		}
	}
}

func TestDropNthPacketOfAddress(t *testing.T) {
	cfg := Config{Events: []Event{{Match: Match{Src: netip.MustParseAddr("::ffff:10.0.0.1"), Nth: new(uint64(3))}, Action: Action{Kind: Drop}}}}
	p, err := NewPipe(cfg, nil, nil) // needs no dissector and no random source
	if err != nil {
		t.Fatal(err)
	}
	other := datagram(nil)
	other.Src = netip.MustParseAddrPort("10.0.0.9:1")
	for i := range 6 {
		if len(p.Apply(0, other, nil)) != 1 {
			t.Fatal("a packet from another address was dropped")
		}
		if got, want := len(p.Apply(0, datagram(nil), nil)), min(1, max(i-2, 2-i)); got != want {
			t.Errorf("packet %d: %d, want %d", i+1, got, want)
		}
	}
}

func TestNthCountsPacketsOfFlow(t *testing.T) {
	p := eventPipe(t, Event{Match: Match{Flow: new(Flow(2)), Nth: new(uint64(2))}, Action: Action{Kind: Drop}})
	got := ""
	for _, flow := range []byte{1, 2, 1, 1, 2, 2} {
		got += fmt.Sprint(len(psn(p, flow, 0)))
	}
	if got != "111101" {
		t.Errorf("passed %s, want 111101", got)
	}
}

func TestDuplicateEventSendsDelayedCopies(t *testing.T) {
	p := eventPipe(t, Event{Match: Match{Seq: new(uint32(1))}, Action: Action{Kind: Duplicate, Count: 2, Delay: 5}})
	out := psn(p, 1, 1)
	if len(out) != 3 || out[0].Delay != 0 || out[1].Delay != 5 || out[2].Delay != 10 {
		t.Fatalf("got %+v", out)
	}
}

func TestDelayEvent(t *testing.T) {
	p := eventPipe(t, Event{Match: Match{Seq: new(uint32(1))}, Action: Action{Kind: Delay, Delay: 5}})
	if out := psn(p, 1, 1); len(out) != 1 || out[0].Delay != 5 {
		t.Fatalf("got %+v", out)
	}
}

func TestReorderWaitsForPacketsOfSameFlow(t *testing.T) {
	p := eventPipe(t, Event{
		Match: Match{Flow: new(Flow(1)), Seq: new(uint32(1))}, Occurrence: 1,
		Action: Action{Kind: Reorder, Count: 2, Delay: time.Millisecond},
	})
	var got []uint32
	for _, x := range [][2]uint32{{1, 1}, {9, 90}, {1, 2}, {9, 91}, {1, 3}, {1, 4}} {
		mine := toyPacket(byte(x[0]), x[1], 0)
		got = append(got, seqs(p.Apply(0, datagram(mine), nil))...)
		clear(mine) // a held packet must not use the caller's buffer
	}
	if want := []uint32{90, 2, 91, 3, 1, 4}; !reflect.DeepEqual(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if p.NextTimer() != mono.Never {
		t.Errorf("timer at %v without a held packet", p.NextTimer())
	}
	if n := p.Counters().Reordered; n != 1 {
		t.Errorf("%d packets were counted as reordered, want 1", n)
	}
}

func TestReorderReleasesAtDeadline(t *testing.T) {
	p := eventPipe(t, Event{Match: Match{Nth: new(uint64(1))}, Action: Action{Kind: Reorder, Delay: time.Millisecond}})
	if out := p.Apply(500, datagram(toyPacket(1, 7, 0)), nil); len(out) != 0 {
		t.Fatalf("not held: %+v", out)
	}
	at := mono.Time(500).Add(time.Millisecond)
	if p.NextTimer() != at {
		t.Fatalf("timer at %v, want %v", p.NextTimer(), at)
	}
	if out := p.HandleTimer(at-1, nil); len(out) != 0 {
		t.Fatalf("released early: %+v", out)
	}
	if out := p.HandleTimer(at, nil); !reflect.DeepEqual(seqs(out), []uint32{7}) || out[0].Delay != 0 {
		t.Fatalf("released %+v", out)
	}
	if p.NextTimer() != mono.Never {
		t.Errorf("timer at %v without a held packet", p.NextTimer())
	}
}

// A swap of adjacent packets; the event fires each time.
func TestReorderEveryOccurrenceSwapsNeighbours(t *testing.T) {
	p := eventPipe(t, Event{Match: Match{Seq: new(uint32(2))}, Action: Action{Kind: Reorder, Delay: time.Second}})
	var got []uint32
	for _, s := range []uint32{1, 2, 3, 1, 2, 2, 3} {
		got = append(got, seqs(psn(p, 1, s))...)
	}
	// The event matches any flow, so any packet overtakes; the second 2 is held
	// itself and releases nothing.
	if want := []uint32{1, 3, 2, 1, 3, 2, 2}; !reflect.DeepEqual(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestCorruptBitInvertsBit(t *testing.T) {
	for _, tc := range []struct {
		bit, at int
		mask    byte
	}{{0, 0, 0x80}, {7, 0, 0x01}, {9, 1, 0x40}, {-1, 6, 0x01}, {-56, 0, 0x80}} {
		p := eventPipe(t, Event{Action: Action{Kind: CorruptBit, Bit: tc.bit}})
		mine := toyPacket(1, 2, 3)
		want := bytes.Clone(mine)
		want[tc.at] ^= tc.mask
		if got := p.Apply(0, datagram(mine), nil)[0].Datagram.Payload; !bytes.Equal(got, want) {
			t.Errorf("bit %d: % x, want % x", tc.bit, got, want)
		}
		if !toyIntact(mine) {
			t.Errorf("bit %d: the caller's bytes were changed", tc.bit)
		}
	}
}

func TestSetECNSetsAnyCodepoint(t *testing.T) {
	for ecn := range uint8(4) {
		p := eventPipe(t, Event{Action: Action{Kind: SetECN, ECN: ecn}})
		d := datagram(nil)
		d.TClass = 0xfd
		if got := p.Apply(0, d, nil)[0].Datagram.TClass; got != 0xfc|ecn || d.TClass != 0xfd {
			t.Errorf("ECN %02b: traffic class %#x", ecn, got)
		}
	}
}

func TestTruncateEventSetsLength(t *testing.T) {
	p := eventPipe(t, Event{Action: Action{Kind: Truncate, Bytes: 3}})
	if got := psn(p, 1, 1)[0].Datagram.Payload; len(got) != 3 {
		t.Errorf("%d bytes, want 3", len(got))
	}
}

func TestSetFieldUpdatesChecksum(t *testing.T) {
	p := eventPipe(t, Event{Action: Action{Kind: SetField, Field: "field", Value: 200}})
	mine := toyPacket(1, 2, 3)
	got := p.Apply(0, datagram(mine), nil)[0].Datagram.Payload
	if !bytes.Equal(got, toyPacket(1, 2, 200)) || !bytes.Equal(mine, toyPacket(1, 2, 3)) {
		t.Errorf("got % x from % x", got, mine)
	}
}

func TestInapplicableEventReportsError(t *testing.T) {
	for _, tc := range []struct {
		action Action
		want   string
	}{
		{Action{Kind: CorruptBit, Bit: 56}, "there is no bit 56 in a payload of 56 bits"},
		{Action{Kind: CorruptBit, Bit: -57}, "bit -57"},
		{Action{Kind: Truncate, Bytes: 7}, "7 bytes is not less than the payload of 7"},
		{Action{Kind: SetField, Field: "nosuch", Value: 1}, "nosuch = 0x1: no such field"},
	} {
		p := eventPipe(t, Event{Action: tc.action})
		want := toyPacket(1, 2, 3)
		if out := p.Apply(0, datagram(want), nil); len(out) != 1 || !bytes.Equal(out[0].Datagram.Payload, want) {
			t.Errorf("%+v: packet became %+v, want it unchanged", tc.action, out)
		}
		if err := p.Err(); err == nil || !strings.Contains(err.Error(), tc.want) || p.Counters().EventsFailed != 1 {
			t.Errorf("%+v: %v, want %q", tc.action, err, tc.want)
		}
	}
	p := eventPipe(t, Event{Action: Action{Kind: SetField, Field: "nosuch"}})
	psn(p, 1, 1)
	if !errors.Is(p.Err(), errNoField) {
		t.Errorf("Err = %v, want it to wrap the dissector's error", p.Err())
	}
}

func TestEventsOfOnePacketApplyInOrder(t *testing.T) {
	p := eventPipe(t,
		Event{Action: Action{Kind: Duplicate}},
		Event{Action: Action{Kind: SetField, Field: "field", Value: 9}},
		Event{Action: Action{Kind: Delay, Delay: 5}})
	out := psn(p, 1, 1)
	if len(out) != 2 || out[0].Delay != 5 || out[0].Datagram.Payload[5] != 9 || out[1].Delay != 0 || out[1].Datagram.Payload[5] != 0 {
		t.Fatalf("got %+v, want the original changed and delayed, the copy unchanged", out)
	}
	p = eventPipe(t, Event{Action: Action{Kind: Duplicate}}, Event{Action: Action{Kind: Drop}}, Event{Action: Action{Kind: Delay, Delay: 5}})
	if out := psn(p, 1, 1); len(out) != 1 || out[0].Delay != 0 {
		t.Fatalf("got %+v, want the copy alone", out)
	}
	if c := p.Counters(); c.EventsFired != 2 {
		t.Errorf("%d events fired, want 2: the packet was dropped before the third", c.EventsFired)
	}
}

func TestEventsCountPacketsDroppedByOthers(t *testing.T) {
	m := Match{Seq: new(uint32(7))}
	p := eventPipe(t, Event{Match: m, Occurrence: 1, Action: Action{Kind: Drop}}, Event{Match: m, Occurrence: 2, Action: Action{Kind: Delay, Delay: 5}})
	if len(psn(p, 1, 7)) != 0 {
		t.Fatal("the first was not dropped")
	}
	if out := psn(p, 1, 7); len(out) != 1 || out[0].Delay != 5 {
		t.Fatalf("the second: %+v, want it delayed", out)
	}
}

func TestEventsApplyBeforeSpecs(t *testing.T) {
	p := pipe(t, Config{
		Specs:  []Spec{{Delay: 100}},
		Events: []Event{{Match: Match{Seq: new(uint32(1))}, Action: Action{Kind: Reorder, Delay: time.Second}}},
	})
	psn(p, 1, 1)
	out := psn(p, 1, 2)
	if !reflect.DeepEqual(seqs(out), []uint32{2, 1}) || out[0].Delay != 100 || out[1].Delay != 100 {
		t.Fatalf("got %+v, want both delayed, the held one last", out)
	}
}

func TestPacketOfOtherProtocolMatchesNoFlow(t *testing.T) {
	p := eventPipe(t, Event{Match: Match{Flow: new(Flow(0))}, Action: Action{Kind: Drop}}, Event{Match: Match{Seq: new(uint32(0))}, Action: Action{Kind: Drop}})
	if len(p.Apply(0, datagram([]byte{0, 0}), nil)) != 1 {
		t.Error("a packet that the dissector rejects was matched")
	}
}

func TestEventValidateReportsErrors(t *testing.T) {
	drop := Action{Kind: Drop}
	for _, tc := range []struct {
		event       Event
		noDissector bool
		want        string
	}{
		{Event{Match: Match{Flow: new(Flow(1))}, Action: drop}, true, "flow and seq need a dissector"},
		{Event{Match: Match{Seq: new(uint32(1))}, Action: drop}, true, "flow and seq need a dissector"},
		{Event{Action: Action{Kind: SetField, Field: "f"}}, true, "set_field needs a dissector"},
		{Event{Match: Match{Nth: new(uint64(1)), Seq: new(uint32(1))}, Action: drop}, false, `leave out "seq" and "time"`},
		{Event{Match: Match{Nth: new(uint64(1))}, Occurrence: 1, Action: drop}, false, `leave out "seq" and "time"`},
		{Event{Match: Match{Nth: new(uint64(0))}, Action: drop}, false, "nth counts from 1"},
		{Event{Occurrence: -1, Action: drop}, false, "time: -1 is negative"},
		{Event{}, false, `kind "" is none of`},
		{Event{Action: Action{Kind: "explode"}}, false, `kind "explode" is none of`},
		{Event{Action: Action{Kind: Delay}}, false, "0 does nothing"},
		{Event{Action: Action{Kind: Delay, Delay: -1}}, false, "negative"},
		{Event{Action: Action{Kind: Reorder}}, false, `set "delay"`},
		{Event{Action: Action{Kind: Truncate, Bytes: -1}}, false, "-1 bytes"},
		{Event{Action: Action{Kind: SetECN, ECN: 4}}, false, "not a code point"},
		{Event{Action: Action{Kind: SetField}}, false, "no field named"},
		{Event{Action: Action{Kind: Duplicate, Count: 1001}}, false, "not in 0..1000"},
		{Event{Action: Action{Kind: Duplicate, Count: -1}}, false, "not in 0..1000"},
	} {
		var d Dissector = toy{}
		if tc.noDissector {
			d = nil
		}
		cfg := Config{Events: []Event{tc.event}}
		if err := cfg.Validate(d); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "events[0]: ") {
			t.Errorf("%+v: %v, want %q", tc.event, err, tc.want)
		}
	}
	if err := (&Event{Match: Match{Nth: new(uint64(1))}, Action: drop}).Validate(nil); err != nil {
		t.Errorf("an event that needs no dissector: %v", err)
	}
}
