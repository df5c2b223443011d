package perflab

import (
	"fmt"
	"time"
)

// RawUDPStreamConfig configures a stream. The zero value means 4 KiB segments with one copy and
// one CRC32 on each side.
type RawUDPStreamConfig struct {
	// Duration is how long the sender sends; 0 means 500 ms.
	Duration time.Duration
	// SegmentBytes is the UDP payload of each datagram; 0 means 4096.
	SegmentBytes int
	// BatchSegments is the number of datagrams per batch; 0 means as many as fit into one
	// super-packet of 64 KiB, at most 64.
	BatchSegments int
	// WindowBytes is how far the sender may be ahead of the receiver; 0 means 1 MiB. The
	// window is a shared counter: ideal flow control without packets, so that the receive
	// queue does not overflow.
	WindowBytes int
	// AppBytes is the size of the source and the destination memory; 0 means 1 MiB.
	AppBytes int
	// Scattered gives each segment that a link sends a separate buffer. Otherwise the
	// segments of a batch are adjacent in memory, as those of a bare sender.
	Scattered bool
	// NoCopy and NoCRC omit the copy and the CRC on both sides.
	NoCopy, NoCRC bool

	cpus [2]int // of sender and receiver
}

// withDefaults returns the configuration with defaults for zero values, and checks it.
func (c RawUDPStreamConfig) withDefaults() (RawUDPStreamConfig, error) {
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

// orDefault sets *v to def if it is 0.
func orDefault(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

// RawUDPStreamResult is the result of a stream.
type RawUDPStreamResult struct {
	Elapsed  time.Duration // from the first send to the last arrival
	Sent     uint64        // segments that the network took
	Received uint64        // segments that arrived intact
	Corrupt  uint64        // segments whose CRC or length was wrong
	Bytes    uint64        // UDP payload received
}

// Gbps is the goodput in gigabits of UDP payload per second.
func (r RawUDPStreamResult) Gbps() float64 {
	return float64(r.Bytes) * 8 / float64(r.Elapsed.Nanoseconds())
}

// Lost is the number of segments that were sent and did not arrive.
func (r RawUDPStreamResult) Lost() uint64 { return r.Sent - r.Received - r.Corrupt }

func (r RawUDPStreamResult) String() string {
	return fmt.Sprintf("%.2f Gb/s (%d segments, %d lost, %d corrupt, %v)", r.Gbps(), r.Received, r.Lost(), r.Corrupt, r.Elapsed)
}
