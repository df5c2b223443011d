package perf

import (
	"context"
	"time"
)

// Bench is two hosts on which a run measures: devices of one kind, and the bare
// sockets of the transport below them.
type Bench interface {
	// RawStream is the goodput of bare sockets in Gb/s: with a copy and a CRC on
	// each side, which is what a device does in software, or without. Where sockets
	// carry a stream, a program's messages on it are of so many bytes.
	RawStream(ctx context.Context, bytes int, work bool, d time.Duration) (gbps float64, err error)
	// RawPingPong is the half round trip of bare sockets in µs, with as many bytes
	// as a device makes of a message of so many.
	RawPingPong(ctx context.Context, bytes int, blocking bool, rounds int) (micros float64, err error)
	// Run runs a program on two devices that are opened for it. With offloaded
	// they neither compute nor check the CRC of packets.
	Run(ctx context.Context, p Program, offloaded bool) (float64, error)
	// IdleMB is the resident memory, in MB, of a host's process that has a device
	// and a connection and does nothing.
	IdleMB(ctx context.Context) (float64, error)
}

// Options are those of a run. Zero values mean the defaults.
type Options struct {
	// Rounds is how often each comparison is made; 0 means 7.
	Rounds int
	// Slice is how long one sample of a stream or a rate takes; 0 means 120 ms.
	Slice time.Duration
	// Sizes of messages to stream; nil means 64 B to 4 MiB.
	Sizes []int
	// QPs to spread small messages over; nil means 1 to 64. The first is what the
	// others are compared with.
	QPs []int
	// Progress, if not nil, is told what is measured next, and how much of the
	// run is done.
	Progress func(doing string, done float64)
}

func (o Options) orDefault() Options {
	o.Rounds = orElse(o.Rounds, 7)
	o.Slice = orElse(o.Slice, 120*time.Millisecond)
	if o.Sizes == nil {
		for n := 64; n <= 4<<20; n *= 4 {
			o.Sizes = append(o.Sizes, n)
		}
	}
	if o.QPs == nil {
		o.QPs = []int{1, 2, 4, 8, 16, 32, 64}
	}
	if o.Progress == nil {
		o.Progress = func(string, float64) {}
	}
	return o
}
