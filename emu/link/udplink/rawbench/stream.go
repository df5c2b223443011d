package rawbench

import (
	"fmt"
	"time"
)

// StreamConfig says what a stream carries. The zero value is the reference:
// 4 KiB segments, one copy and one CRC32 on each side.
type StreamConfig struct {
	// Duration is how long the sender sends; 0 means 500 ms.
	Duration time.Duration
	// SegmentBytes is the UDP payload of each datagram; 0 means 4096.
	SegmentBytes int
	// BatchSegments is how many datagrams are offered at a time; 0 means as
	// many as fit one 64 KiB super-packet, at most 64.
	BatchSegments int
	// WindowBytes is how far the sender may be ahead of the receiver; 0 means
	// 1 MiB. The window is a shared counter and costs no packet: it stands for
	// perfect flow control, so that a result is never flattered or spoilt by
	// loss in the receiver's queue.
	WindowBytes int
	// AppBytes is the size of the memory that is copied from, and of that which
	// is copied to; 0 means 1 MiB.
	AppBytes int
	// Scattered gives each segment that a link sends a buffer of its own.
	// Otherwise those of a batch lie one behind the other in memory, as a bare
	// sender's always do, and the kernel takes them as one piece.
	Scattered bool
	// NoCopy and NoCRC leave out the work of either kind on both sides.
	NoCopy, NoCRC bool

	cpus [2]int // of the bare sides
}

func (c StreamConfig) withDefaults() (StreamConfig, error) {
	orDefault(&c.SegmentBytes, 4096)
	orDefault(&c.BatchSegments, min(64, maxUDPPayload/max(1, c.SegmentBytes)))
	orDefault(&c.WindowBytes, 1<<20)
	orDefault(&c.AppBytes, 1<<20)
	if c.Duration == 0 {
		c.Duration = 500 * time.Millisecond
	}
	switch {
	case c.SegmentBytes < minSegment || c.SegmentBytes > maxUDPPayload:
		return c, fmt.Errorf("stream: segment of %d bytes, want %d to %d", c.SegmentBytes, minSegment, maxUDPPayload)
	case c.BatchSegments < 1 || c.BatchSegments > 1024:
		return c, fmt.Errorf("stream: batch of %d segments, want 1 to 1024", c.BatchSegments)
	case c.AppBytes < c.SegmentBytes:
		return c, fmt.Errorf("stream: application memory of %d bytes holds no segment of %d", c.AppBytes, c.SegmentBytes)
	case c.WindowBytes < c.SegmentBytes*c.BatchSegments:
		return c, fmt.Errorf("stream: window of %d bytes holds no batch of %d", c.WindowBytes, c.SegmentBytes*c.BatchSegments)
	}
	return c, nil
}

func orDefault(v *int, d int) {
	if *v == 0 {
		*v = d
	}
}

// StreamResult is what arrived.
type StreamResult struct {
	Elapsed  time.Duration // from the first send to the last arrival
	Sent     uint64        // segments the network took
	Received uint64        // segments that arrived intact
	Corrupt  uint64        // segments whose CRC or length was wrong
	Bytes    uint64        // UDP payload received
}

// Gbps is the goodput in gigabits of UDP payload a second.
func (r StreamResult) Gbps() float64 { return float64(r.Bytes) * 8 / float64(r.Elapsed.Nanoseconds()) }

// Lost is how many sent segments never arrived.
func (r StreamResult) Lost() uint64 { return r.Sent - r.Received - r.Corrupt }

func (r StreamResult) String() string {
	return fmt.Sprintf("%.2f Gb/s (%d segments, %d lost, %d corrupt, %v)", r.Gbps(), r.Received, r.Lost(), r.Corrupt, r.Elapsed)
}
