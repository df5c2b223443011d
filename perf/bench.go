package perf

import (
	"context"
	"time"
)

// Bench is two hosts with devices of one kind, and plain sockets of the transport
// below them.
type Bench interface {
	// RawStream returns the goodput of plain sockets in Gb/s. With work, each side
	// copies and computes a CRC, as a software device does. Over TCP, messages have
	// this size.
	RawStream(ctx context.Context, bytes int, work bool, d time.Duration) (gbps float64, err error)
	// RawPingPong returns the half round trip of plain sockets in µs, with the
	// packet size of a device for a message of this size.
	RawPingPong(ctx context.Context, bytes int, blocking bool, rounds int) (micros float64, err error)
	// Run runs a program on two new devices. With offloaded they neither compute
	// nor check the CRC.
	Run(ctx context.Context, p Program, offloaded bool) (float64, error)
	// IdleMB returns the resident memory, in MB, of a process with a device and an
	// idle connection.
	IdleMB(ctx context.Context) (float64, error)
}

// Options are the options of a run. Zero values mean the defaults.
type Options struct {
	// Rounds is the number of rounds of each comparison; 0 means 7.
	Rounds int
	// Slice is the duration of one sample of a stream or rate; 0 means 120 ms.
	Slice time.Duration
	// Sizes are the message sizes of streams; nil means 64 B to 4 MiB.
	Sizes []int
	// QPs are the numbers of queue pairs for small messages; nil means 1 to 64. The
	// first is the reference.
	QPs []int
	// Progress, if not nil, is called with the next measurement and the part of the
	// run that is done.
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
