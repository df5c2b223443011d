package uswitch

import "time"

// Stats is what a switch has done.
type Stats struct {
	Ports []PortStats
	// HeldFrames and HeldBytes wait now to leave later; the maxima are the most
	// that ever did.
	HeldFrames, HeldBytes       int
	HeldFramesMax, HeldBytesMax int
	// Addresses are those known now, given or learnt; LearnFailures counts frames whose
	// sender did not fit in the table any more.
	Addresses     int
	LearnFailures uint64
	// Flooded counts frames that were sent to all ports, because they were for
	// all or because nobody knew where their receiver is.
	Flooded uint64
	// CPU is the processor time that Run has used, for all switches that it runs.
	CPU time.Duration
}

// PortStats is what has passed a port.
type PortStats struct {
	Name  string
	State PortState
	In    Counters
	Out   Counters
	// BufferBytes is what the kernel granted for frames that wait for the switch.
	BufferBytes int
}

// Counters counts frames of one direction. A super-packet counts as the frames
// that it stands for. In counts what came from the cable, before any Path; Out
// counts what was put on the cable, after it.
type Counters struct {
	Frames, Bytes uint64
	// Offered is what was to pass, before any Path and whatever became of it; of
	// what comes in, the same as Frames.
	Offered, OfferedBytes uint64
	// GSOPackets is how many super-packets were among them.
	GSOPackets uint64
	Drops      Drops
}

// Drops counts lost frames by cause. What a Path lost is in no counter here: it
// counts itself.
type Drops struct {
	Overrun    uint64 // in: the switch came too late, and the kernel's buffer was full
	Malformed  uint64 // shorter than an Ethernet header, or a super-packet of a kind that cannot be cut
	Down       uint64 // the port is down, or was taken down on the way
	HeldFull   uint64 // too much was held for later
	TooBig     uint64 // out: larger than the MTU of the interface
	SendErrors uint64 // out: the kernel took it not for another reason
}

// Total is the sum over all causes.
func (d Drops) Total() uint64 {
	return d.Overrun + d.Malformed + d.Down + d.HeldFull + d.TooBig + d.SendErrors
}

// PortState is how a port is.
type PortState uint8

// The states of a port.
const (
	PortUp      PortState = iota
	PortDown              // by SetPort
	PortRemoved           // its interface no longer exists
)

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
