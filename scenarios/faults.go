package scenarios

import "time"

// Impairments, events and faults of a fabric. All times count from the start of the ranks.

// PortSelector selects ports of hosts and a direction.
type PortSelector struct {
	// On are hosts ("host1"), ports ("host1/rdma0") or patterns ("host*",
	// "host[0-3]/rdma1"); all if left out.
	On []string `yaml:"on,omitempty"`
	// Direction is where packets go: out of the host (if left out), in to it, or both. A
	// packet between two hosts goes out of one and in to the other.
	Direction string `yaml:"way,omitempty" enum:"out in both"`
}

// Values of Direction.
const (
	Out  = "out"
	In   = "in"
	Both = "both"
)

// Outward reports whether packets from the host are selected.
func (s *PortSelector) Outward() bool { return s.Direction != In }

// Inward reports whether packets to the host are selected.
func (s *PortSelector) Inward() bool { return s.Direction == In || s.Direction == Both }

// Impairment is a random impairment of packets for a period of time. Several impairments of
// the same packet apply in their order.
type Impairment struct {
	PortSelector `yaml:",inline"`

	// From is when it begins; at the start if left out.
	From time.Duration `yaml:"from,omitempty"`
	// Until is when it ends; never if left out.
	Until time.Duration `yaml:"until,omitempty"`

	// Loss is the share of lost packets, independent of each other.
	Loss Percent `yaml:"loss,omitempty"`
	// Burst loses packets in bursts.
	Burst Burst `yaml:"burst,omitempty"`
	// Duplicate is the share of duplicated packets.
	Duplicate Percent `yaml:"duplicate,omitempty"`
	// DuplicateDelay is the delay of the duplicate.
	DuplicateDelay time.Duration `yaml:"duplicate_delay,omitempty"`
	// Reorder is the share of packets that are delayed by reorder_delay, which lets later
	// ones overtake them.
	Reorder Percent `yaml:"reorder,omitempty"`
	// ReorderDelay is how long they are delayed.
	ReorderDelay time.Duration `yaml:"reorder_delay,omitempty"`
	// Delay delays every packet.
	Delay time.Duration `yaml:"delay,omitempty"`
	// Jitter is the largest additional delay, uniformly distributed, per packet.
	Jitter time.Duration `yaml:"jitter,omitempty"`
	// KeepOrder prevents jitter from reordering packets.
	KeepOrder bool `yaml:"keep_order,omitempty"`
	// Corrupt is the share of packets with one flipped bit.
	Corrupt Percent `yaml:"corrupt,omitempty"`
	// Truncate is the share of truncated packets.
	Truncate Percent `yaml:"truncate,omitempty"`
	// Mark is the share of packets with a CE mark.
	Mark Percent `yaml:"mark,omitempty"`
	// Rate limits the bits per second.
	Rate Rate `yaml:"rate,omitempty"`
	// Queue is how much may wait under rate; unlimited if left out.
	Queue Bytes `yaml:"queue,omitempty" range:"1..1073741824"`
}

// Burst is burst loss after Gilbert and Elliott: before each packet the channel may change
// between a good and a bad state.
type Burst struct {
	// ToBad is the probability that a good channel turns bad.
	ToBad Percent `yaml:"to_bad"`
	// ToGood is the probability that a bad channel turns good.
	ToGood Percent `yaml:"to_good"`
	// Loss is the share of packets lost in the bad state.
	Loss Percent `yaml:"loss"`
}

// Event applies one action to one packet, or to one byte of a TCP stream. A scenario in
// which an event does not occur fails.
type Event struct {
	PortSelector `yaml:",inline"`

	// QP is the destination queue pair; any if left out.
	QP *uint32 `yaml:"qp,omitempty" range:"0..16777215"`
	// PSN is the packet's sequence number; it excludes nth.
	PSN *uint32 `yaml:"psn,omitempty" range:"0..16777215"`
	// Nth is the packet's number in this direction (among those to qp, if given), from 1.
	Nth uint64 `yaml:"nth,omitempty" range:"1..1000000000"`
	// Time selects a transmission of this psn: 1 the first transmission, 2 the first
	// retransmission; every one if left out.
	Time int `yaml:"time,omitempty" range:"1..1000000"`

	// Offset is a byte of a TCP stream, by the number of bytes before it in this direction.
	// The event applies to the segment with that byte. It excludes qp, psn, nth and time.
	Offset *uint64 `yaml:"offset,omitempty"`
	// Conn selects a stream, in the order in which they connect past this port, 1 for the
	// first; each if left out.
	Conn int `yaml:"conn,omitempty" range:"1..1000000"`

	// Do is the action.
	Do string `yaml:"do" enum:"drop duplicate delay reorder corrupt_bit truncate set_ecn set_field reset"`
	// Count is the number of copies (duplicate), or of packets that overtake this one
	// (reorder); 1 if left out.
	Count int `yaml:"count,omitempty" range:"1..1000"`
	// Delay is the delay of the packet (delay), the largest delay (reorder), or the delay
	// of each copy (duplicate).
	Delay time.Duration `yaml:"delay,omitempty"`
	// Bit is the bit to flip (corrupt_bit); from the end if negative. With offset it is a
	// bit of that byte, 0 the lowest.
	Bit int `yaml:"bit,omitempty" range:"-1000000..1000000"`
	// Bytes is the remaining length of the UDP payload (truncate).
	Bytes Bytes `yaml:"bytes,omitempty" range:"0..65535"`
	// ECN is the code point to set (set_ecn).
	ECN uint8 `yaml:"ecn,omitempty" range:"0..3"`
	// Field is the field to change (set_field), such as bth.psn or reth.rkey.
	Field string `yaml:"field,omitempty" pattern:"^[a-z]+(\\.[a-z]+)?$" hint:"name a header and a field, such as bth.psn"`
	// Value is the new value of the field (set_field).
	Value uint64 `yaml:"value,omitempty"`
}

// Fault is a fault of the fabric or its hosts at a time.
type Fault struct {
	// At is when it begins.
	At time.Duration `yaml:"at"`
	// Do is the action: down (the links of ports), partition (groups cannot reach each
	// other), impair (set replaces the impairments of the ports that it names), kill (a
	// host's process), freeze (a host's process stops), qp-error (its queue pairs are moved
	// to the error state).
	Do FaultAction `yaml:"do" enum:"down partition impair kill freeze qp-error"`
	// On are the ports or hosts, as patterns.
	On []string `yaml:"on,omitempty"`
	// For is how long it lasts; to the end of the run if left out.
	For time.Duration `yaml:"for,omitempty"`
	// Times is how often it occurs; once if left out.
	Times int `yaml:"times,omitempty" range:"2..1000"`
	// Every is the period of the repetition.
	Every time.Duration `yaml:"every,omitempty"`
	// Groups are the groups of a partition: lists of hosts or ports. All others are one more group.
	Groups [][]string `yaml:"groups,omitempty"`
	// Set replaces the impairments of the selected ports.
	Set *Impairment `yaml:"set,omitempty"`
}

// FaultAction is the action of a fault.
type FaultAction string

// The actions.
const (
	Down      FaultAction = "down"      // the link of a port
	Partition FaultAction = "partition" // Groups cannot reach each other
	SetImpair FaultAction = "impair"    // Set replaces impairments
	Kill      FaultAction = "kill"      // the host's process
	Freeze    FaultAction = "freeze"    // the host's process stops
	QPError   FaultAction = "qp-error"  // the rank's queue pairs are moved to the error state
)
