package scenarios

import "time"

// What happens to a fabric while a workload runs on it. All times count from the
// moment when the ranks are let go.

// PortSelector picks directions of cables at hosts.
type PortSelector struct {
	// On are hosts ("host1"), ports ("host1/rdma0") or patterns ("host*",
	// "host[0-3]/rdma1"); all if left out.
	On []string `yaml:"on,omitempty"`
	// Direction is which way packets go: out of the host (if left out), in to it, or both.
	// A packet between two hosts goes out of one and in to the other.
	Direction string `yaml:"way,omitempty" enum:"out in both"`
}

// The ways of Where.
const (
	Out  = "out"
	In   = "in"
	Both = "both"
)

// Outward reports whether packets that leave the host are meant.
func (w *PortSelector) Outward() bool { return w.Direction != In }

// Inward reports whether packets to the host are meant.
func (w *PortSelector) Inward() bool { return w.Direction == In || w.Direction == Both }

// Impairment is what happens to packets by chance, for a span of time. Of
// several that meet the same packet each takes its turn, in their order.
type Impairment struct {
	PortSelector `yaml:",inline"`

	// From is when it begins; at the start if left out.
	From time.Duration `yaml:"from,omitempty"`
	// Until is when it ends; never if left out.
	Until time.Duration `yaml:"until,omitempty"`

	// Loss is the share of packets lost, independently of each other.
	Loss Percent `yaml:"loss,omitempty"`
	// Burst loses packets in runs.
	Burst Burst `yaml:"burst,omitempty"`
	// Duplicate is the share of packets that come twice.
	Duplicate Percent `yaml:"duplicate,omitempty"`
	// DuplicateDelay is how far behind the second one is.
	DuplicateDelay time.Duration `yaml:"duplicate_delay,omitempty"`
	// Reorder is the share of packets held back for reorder_delay, so that those
	// behind can overtake them.
	Reorder Percent `yaml:"reorder,omitempty"`
	// ReorderDelay is how long they are held back.
	ReorderDelay time.Duration `yaml:"reorder_delay,omitempty"`
	// Delay holds every packet.
	Delay time.Duration `yaml:"delay,omitempty"`
	// Jitter adds up to so much, evenly distributed, drawn for each packet.
	Jitter time.Duration `yaml:"jitter,omitempty"`
	// KeepOrder lets no packet overtake another for jitter alone.
	KeepOrder bool `yaml:"keep_order,omitempty"`
	// Corrupt is the share of packets with one bit flipped.
	Corrupt Percent `yaml:"corrupt,omitempty"`
	// Truncate is the share of packets cut short.
	Truncate Percent `yaml:"truncate,omitempty"`
	// Mark is the share of packets marked as having met congestion.
	Mark Percent `yaml:"mark,omitempty"`
	// Rate passes no more than so many bits a second.
	Rate Rate `yaml:"rate,omitempty"`
	// Queue is how much may wait for its turn under rate; any amount if left out.
	Queue Bytes `yaml:"queue,omitempty" range:"1..1073741824"`
}

// Burst is loss in runs, after Gilbert and Elliott: before each packet the
// channel may change between a good and a bad state.
type Burst struct {
	// ToBad is how likely a good channel turns bad.
	ToBad Percent `yaml:"to_bad"`
	// ToGood is how likely a bad one turns good.
	ToGood Percent `yaml:"to_good"`
	// Loss is the share of packets lost while it is bad.
	Loss Percent `yaml:"loss"`
}

// Event does one exact thing to one exact packet, or at one place of a TCP stream. A
// scenario in which an event never happens has not shown what it claims, and
// fails.
type Event struct {
	PortSelector `yaml:",inline"`

	// QP is the destination queue pair; any if left out.
	QP *uint32 `yaml:"qp,omitempty" range:"0..16777215"`
	// PSN is the packet's sequence number; it excludes nth.
	PSN *uint32 `yaml:"psn,omitempty" range:"0..16777215"`
	// Nth is the packet's place among those this way (to qp, if that is given), 1
	// for the first.
	Nth uint64 `yaml:"nth,omitempty" range:"1..1000000000"`
	// Time is which packet with this psn is meant: 1 the first transmission, 2
	// the first retransmission; every one if left out.
	Time int `yaml:"time,omitempty" range:"1..1000000"`

	// Offset is a place in a TCP stream: how many bytes of it go this way before. The
	// segment that has the byte there is meant. It excludes qp, psn, nth and time.
	Offset *uint64 `yaml:"offset,omitempty"`
	// Conn is which stream is meant, in the order in which they are connected past
	// this port, 1 for the first; each if left out.
	Conn int `yaml:"conn,omitempty" range:"1..1000000"`

	// Do is what happens to the packet.
	Do string `yaml:"do" enum:"drop duplicate delay reorder corrupt_bit truncate set_ecn set_field reset"`
	// Count is how many copies are made (duplicate), or how many packets overtake
	// this one (reorder); 1 if left out.
	Count int `yaml:"count,omitempty" range:"1..1000"`
	// Delay is how long the packet is held (delay), at most (reorder), or how far
	// behind each copy is (duplicate).
	Delay time.Duration `yaml:"delay,omitempty"`
	// Bit is the one to invert (corrupt_bit); from the end if negative. With offset it
	// is one of that byte, 0 the lowest.
	Bit int `yaml:"bit,omitempty" range:"-1000000..1000000"`
	// Bytes is what is left of the UDP payload (truncate).
	Bytes Bytes `yaml:"bytes,omitempty" range:"0..65535"`
	// ECN is the code point to set (set_ecn).
	ECN uint8 `yaml:"ecn,omitempty" range:"0..3"`
	// Field is the one to change (set_field), such as bth.psn or reth.rkey.
	Field string `yaml:"field,omitempty" pattern:"^[a-z]+(\\.[a-z]+)?$" hint:"name a header and a field, such as bth.psn"`
	// Value is what the field becomes (set_field).
	Value uint64 `yaml:"value,omitempty"`
}

// Fault is something that is done to the fabric at a time.
type Fault struct {
	// At is when.
	At time.Duration `yaml:"at"`
	// Do is what: down (the links of ports), partition (groups cannot reach each
	// other), impair (set replaces the impairments of the ports that it names),
	// kill (a host's process, at once), freeze (it stands still), qp-error (its
	// queue pairs are moved to Error).
	Do FaultAction `yaml:"do" enum:"down partition impair kill freeze qp-error"`
	// On are the ports or hosts it is done to, as patterns.
	On []string `yaml:"on,omitempty"`
	// For is how long it lasts; it is not undone if left out.
	For time.Duration `yaml:"for,omitempty"`
	// Times is how often it is done; once if left out.
	Times int `yaml:"times,omitempty" range:"2..1000"`
	// Every is the time from one beginning to the next.
	Every time.Duration `yaml:"every,omitempty"`
	// Groups are what a partition keeps apart: lists of hosts or ports. Those in no
	// list form one more group.
	Groups [][]string `yaml:"groups,omitempty"`
	// Set is what packets meet from then on, in place of the impairments before.
	Set *Impairment `yaml:"set,omitempty"`
}

// FaultAction is what a fault does.
type FaultAction string

// The deeds.
const (
	Down      FaultAction = "down"      // the link of a port
	Partition FaultAction = "partition" // Groups cannot reach each other
	SetImpair FaultAction = "impair"    // Set replaces what packets meet
	Kill      FaultAction = "kill"      // the host's process, at once
	Freeze    FaultAction = "freeze"    // the host's process stands still
	QPError   FaultAction = "qp-error"  // the rank's queue pairs are moved to Error
)
