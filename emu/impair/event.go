package impair

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
)

// Event does one exact thing to one exact packet.
type Event struct {
	Match Match `json:"match" yaml:"match"`
	// Time is which of the packets that match it is: 1 the first, as a PSN's
	// first transmission is; 2 the second, its first retransmission; 0 every one.
	Occurrence int    `json:"time,omitempty" yaml:"time,omitempty"`
	Action     Action `json:"action" yaml:"action"`
}

// Flow is a protocol's own name for a stream of packets, as a Dissector reads it:
// in RoCEv2 the destination QP number.
type Flow uint64

// Match picks packets. What is left out matches any.
type Match struct {
	Src  netip.Addr `json:"src,omitzero" yaml:"src,omitempty"`
	Dst  netip.Addr `json:"dst,omitzero" yaml:"dst,omitempty"`
	Flow *Flow      `json:"flow,omitempty" yaml:"flow,omitempty"`
	// Seq is the protocol's sequence number, in RoCEv2 the PSN.
	Seq *uint32 `json:"seq,omitempty" yaml:"seq,omitempty"`
	// Nth is the place of the packet among those that match Src, Dst and Flow, 1
	// for the first. It excludes Seq and Time.
	Nth *uint64 `json:"nth,omitempty" yaml:"nth,omitempty"`
}

// ActionKind names what an Action does.
type ActionKind string

// What can be done to a packet.
const (
	Drop       ActionKind = "drop"
	Duplicate  ActionKind = "duplicate"   // Count copies (0: one), the first Delay behind, and so on
	Delay      ActionKind = "delay"       // for Delay
	Reorder    ActionKind = "reorder"     // behind Count (0: one) later packets of the same match, or after Delay at the latest
	CorruptBit ActionKind = "corrupt_bit" // invert Bit of the payload; counted from the end if negative
	Truncate   ActionKind = "truncate"    // to Bytes of payload
	SetECN     ActionKind = "set_ecn"     // to the code point ECN
	SetField   ActionKind = "set_field"   // Field to Value, checksums made right again
)

// Action is what an Event does; Kind says which of the other fields count.
type Action struct {
	Kind  ActionKind    `json:"kind" yaml:"kind"`
	Count int           `json:"count,omitempty" yaml:"count,omitempty"`
	Delay time.Duration `json:"delay,omitempty" yaml:"delay,omitempty"`
	Bit   int           `json:"bit,omitempty" yaml:"bit,omitempty"`
	Bytes int           `json:"bytes,omitempty" yaml:"bytes,omitempty"`
	ECN   uint8         `json:"ecn,omitempty" yaml:"ecn,omitempty"`
	Field string        `json:"field,omitempty" yaml:"field,omitempty"`
	Value uint64        `json:"value,omitempty" yaml:"value,omitempty"`
}

// Dissector is what a Pipe knows of the protocol it carries.
type Dissector interface {
	// Dissect reads a packet's flow and sequence number; ok is false for a packet
	// of another protocol, which no Flow and no Seq matches. It keeps no reference
	// to payload and does not change it.
	Dissect(payload []byte) (flow Flow, seq uint32, ok bool)
	// SetField gives a field a value and makes the checksums that cover it right
	// again. It may change d.Payload in place.
	SetField(d *link.Datagram, field string, value uint64) error
}

// Validate reports what makes no sense in e, or cannot work without a Dissector.
func (e *Event) Validate(d Dissector) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	m := &e.Match
	if d == nil && (m.Flow != nil || m.Seq != nil) {
		bad("match: flow and seq need a dissector, and there is none: match by src, dst and nth")
	}
	if d == nil && e.Action.Kind == SetField {
		bad("action: set_field needs a dissector, and there is none")
	}
	if m.Nth != nil && (m.Seq != nil || e.Occurrence != 0) {
		bad("match: nth already names one packet: leave out seq and time")
	}
	if m.Nth != nil && *m.Nth == 0 {
		bad("match: nth counts from 1")
	}
	if e.Occurrence < 0 {
		bad("time: %d is negative (1 the first, 0 every one)", e.Occurrence)
	}
	if err := e.Action.validate(); err != nil {
		errs = append(errs, fmt.Errorf("action: %w", err))
	}
	return errors.Join(errs...)
}

func (a *Action) validate() error {
	if a.Count < 0 || a.Count > maxCount {
		return fmt.Errorf("count: %d is not in 0..%d", a.Count, maxCount)
	}
	if a.Delay < 0 {
		return fmt.Errorf("delay: %v is negative", a.Delay)
	}
	switch a.Kind {
	case Drop, Duplicate, CorruptBit:
	case Delay:
		if a.Delay == 0 {
			return errors.New("delay: 0 does nothing")
		}
	case Reorder:
		if a.Delay == 0 {
			return errors.New("reorder: set delay, the longest to wait for packets to overtake")
		}
	case Truncate:
		if a.Bytes < 0 {
			return fmt.Errorf("truncate: %d bytes", a.Bytes)
		}
	case SetECN:
		if a.ECN&^uint8(link.ECN) != 0 {
			return fmt.Errorf("set_ecn: %#b is not a code point of two bits", a.ECN)
		}
	case SetField:
		if a.Field == "" {
			return errors.New("set_field: no field named")
		}
	default:
		return fmt.Errorf("kind %q is none of drop, duplicate, delay, reorder, corrupt_bit, truncate, set_ecn, set_field", a.Kind)
	}
	return nil
}

// maxCount bounds what one event may multiply or hold up.
const maxCount = 1000

// expectation is an Event and how far it has come.
type expectation struct {
	Event
	seen  uint64 // packets that matched
	fired uint64
}

// observe counts a packet and reports whether the event's turn has come.
func (x *expectation) observe(d *link.Datagram, id identity) bool {
	if !x.Match.flow(d, id) {
		return false
	}
	if x.Match.Seq != nil && (!id.ok || *x.Match.Seq != id.seq) {
		return false
	}
	x.seen++
	if x.Match.Nth != nil {
		return x.seen == *x.Match.Nth
	}
	return x.Occurrence == 0 || x.seen == uint64(x.Occurrence)
}

// spent reports that the event can not happen any more.
func (x *expectation) spent() bool {
	if x.Match.Nth != nil {
		return x.seen >= *x.Match.Nth
	}
	return x.Occurrence > 0 && x.seen >= uint64(x.Occurrence)
}

// identity is what the Dissector said of a packet.
type identity struct {
	flow Flow
	seq  uint32
	ok   bool
}

// flow reports whether a packet belongs to the stream that m names.
func (m *Match) flow(d *link.Datagram, id identity) bool {
	if m.Src.IsValid() && m.Src.Unmap() != d.Src.Addr().Unmap() {
		return false
	}
	if m.Dst.IsValid() && m.Dst.Unmap() != d.Dst.Addr().Unmap() {
		return false
	}
	return m.Flow == nil || (id.ok && *m.Flow == id.flow)
}
