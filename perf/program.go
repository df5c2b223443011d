package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Program is one of the programs of this package, as a value that can be sent to both sides.
type Program struct {
	Stream       *Stream       `json:"stream,omitempty"`
	Latency      *Latency      `json:"latency,omitempty"`
	Rate         *Rate         `json:"rate,omitempty"`
	RoundRobin   *RoundRobin   `json:"round_robin,omitempty"`
	Registration *Registration `json:"registration,omitempty"`
}

// Figures are the result of a program, on the client.
type Figures struct {
	// Value is the result in Program.Unit.
	Value float64 `json:"value,omitempty"`
	// Times has the time of each message of Latency, of each round of RoundRobin, or of each registration, and Deregistrations
	// those of the end of registrations.
	Times           *traffic.Histogram `json:"times,omitempty"`
	Deregistrations *traffic.Histogram `json:"deregistrations,omitempty"`
	// Transfer is the result of Stream and Rate.
	Transfer *Transfer `json:"transfer,omitempty"`
}

// Run runs one side of the program. The client returns the result. Its Value is the bandwidth of a
// Stream, the messages per second of a Rate, else the median time, each in the unit of Unit.
func (p Program) Run(ctx context.Context, s *Side) (f Figures, err error) {
	switch {
	case p.Stream != nil:
		f.Transfer, err = p.Stream.Run(ctx, s)
	case p.Latency != nil:
		f.Times, err = p.Latency.Run(ctx, s)
	case p.Rate != nil:
		f.Transfer, err = p.Rate.Run(ctx, s)
	case p.RoundRobin != nil:
		f.Times, err = p.RoundRobin.Run(ctx, s)
	case p.Registration != nil:
		f.Times, f.Deregistrations, err = p.Registration.Run(ctx, s)
	default:
		err = errors.New("the program has none of Stream, Latency, Rate, RoundRobin and Registration")
	}
	if err != nil || s.Role == Server {
		return Figures{}, err
	}
	switch {
	case p.Stream != nil:
		f.Value = f.Transfer.PerS() * float64(p.Stream.Bytes) * 8 / 1e9
	case p.Rate != nil:
		f.Value = f.Transfer.PerS()
	default:
		f.Value = float64(f.Times.Quantile(50)) / 1e3
	}
	return f, nil
}

// Unit returns the unit of the program's result.
func (p Program) Unit() string {
	switch {
	case p.Stream != nil:
		return "Gb/s"
	case p.Rate != nil:
		return "1/s"
	default:
		return "µs"
	}
}

// String returns the name of the program in results, with its parameters.
func (p Program) String() string {
	switch {
	case p.Stream != nil:
		name := fmt.Sprintf("%s %s", opNames[p.Stream.Op], sizeName(p.Stream.Bytes))
		if p.Stream.PostList == 1 {
			name += ", singly"
		}
		if p.Stream.BothWays {
			name += ", both ways"
		}
		if p.Stream.QPs > 1 {
			name += fmt.Sprintf(", %d QPs", p.Stream.QPs)
		}
		return name
	case p.Latency != nil && isOneSided(p.Latency.Op):
		return fmt.Sprintf("latency of %s %s", opNames[p.Latency.Op], sizeName(p.Latency.Bytes))
	case p.Latency != nil:
		how := "spinning"
		if p.Latency.Events {
			how = "blocking"
		}
		if p.Latency.WaitForSend {
			how += ", confirmed"
		}
		if p.Latency.Op == verbs.OpRDMAWrite {
			how += ", by write"
		}
		return fmt.Sprintf("half round trip %s, %s", sizeName(cmp.Or(p.Latency.Bytes, wordBytes)), how)
	case p.Rate != nil:
		return fmt.Sprintf("sends of %s, %d QPs", sizeName(cmp.Or(p.Rate.Bytes, 64)), cmp.Or(p.Rate.QPs, 1))
	case p.RoundRobin != nil:
		return fmt.Sprintf("half round trip %s, %s on %d QPs", sizeName(p.RoundRobin.Bytes), opNames[p.RoundRobin.Op], max(1, p.RoundRobin.QPs))
	case p.Registration != nil:
		return "registration of " + sizeName(p.Registration.Bytes)
	}
	return "nothing"
}

// opNames are the names of operations in results.
var opNames = map[verbs.WROpcode]string{
	verbs.OpRDMAWrite: "write", verbs.OpRDMARead: "read", verbs.OpSend: "send",
	verbs.OpAtomicFetchAdd: "fetch_add", verbs.OpAtomicCmpAndSwp: "cmp_swap",
}

// sizeName formats a size in the largest binary unit of which it is a multiple.
func sizeName(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}

// WithConnection connects a queue pair with one of the other side, calls f, and closes the
// connection when f has returned on both sides. The connection has buffers, and carries no traffic.
func WithConnection(ctx context.Context, s *Side, f func() error) error {
	c, err := s.connect(ctx, connConfig{qps: 1, sends: pingSends, recvs: pingRecvs, memory: 64 << 10, op: verbs.OpSend})
	if err != nil {
		return err
	}
	defer c.Close()
	return errors.Join(f(), s.barrier(ctx))
}

// ResidentMB returns the resident memory of this process in MB (10^6 bytes), from /proc.
func ResidentMB() (float64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	var size, resident uint64 // in pages
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0, fmt.Errorf("resident memory: /proc/self/statm is %q: %w", b, err)
	}
	return float64(resident) * float64(os.Getpagesize()) / 1e6, nil
}
