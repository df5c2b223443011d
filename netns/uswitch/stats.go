package uswitch

import "time"

// Stats are the counters of a switch.
type Stats struct {
	Ports []PortStats
	// DelayedFrames and DelayedBytes are delayed now; the maxima are the peaks.
	DelayedFrames, DelayedBytes       int
	DelayedFramesMax, DelayedBytesMax int
	// Addresses is the number of known addresses, static or learnt.
	// LearnFailures counts frames whose source did not fit in the table.
	Addresses     int
	LearnFailures uint64
	// Flooded counts frames sent to all ports: broadcast, multicast, or unknown destination.
	Flooded uint64
	// CPU is the CPU time of Run, for all switches that it runs.
	CPU time.Duration
}

// PortStats are the counters of a port.
type PortStats struct {
	Name  string
	State PortState
	In    Counters
	Out   Counters
	// BufferBytes is the receive buffer size that the kernel granted.
	BufferBytes int
}

// Counters counts the frames of one direction; a GSO packet counts as its segments. In counts
// received frames before the FrameHandler, Out sent frames after it.
type Counters struct {
	Frames, Bytes uint64
	// Offered counts frames before the FrameHandler, dropped or not; for In it equals Frames.
	Offered, OfferedBytes uint64
	// GSOPackets counts the GSO packets among them.
	GSOPackets uint64
	Drops      Drops
}

// Drops counts dropped frames by cause, without those that a FrameHandler dropped.
type Drops struct {
	Overrun    uint64 // in: the receive buffer of the socket was full
	Malformed  uint64 // shorter than an Ethernet header, or a GSO packet that cannot be segmented
	Down       uint64 // the port is down, or went down while the frame was delayed
	QueueFull  uint64 // too many delayed frames
	TooBig     uint64 // out: larger than the MTU of the interface
	SendErrors uint64 // out: other errors of the kernel
}

// Total returns the sum over all causes.
func (d Drops) Total() uint64 {
	return d.Overrun + d.Malformed + d.Down + d.QueueFull + d.TooBig + d.SendErrors
}

// PortState is the state of a port.
type PortState uint8

// The states of a port.
const (
	PortUp      PortState = iota
	PortDown              // by SetPort
	PortRemoved           // its interface no longer exists
)

// String returns the name of the state, as messages have it.
func (s PortState) String() string {
	switch s {
	case PortUp:
		return "up"
	case PortDown:
		return "down"
	case PortRemoved:
		return "gone"
	}
	return "unknown"
}
