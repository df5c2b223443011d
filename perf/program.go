package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fabrictest/fabrictest/verbs"
)

// Program is one of the programs of this package, as a value that can be sent to both sides.
type Program struct {
	Stream   *Stream   `json:"stream,omitempty"`
	PingPong *PingPong `json:"ping_pong,omitempty"`
	Rate     *Rate     `json:"rate,omitempty"`
}

// Run runs one side of the program. The client returns the result, in p.Unit().
func (p Program) Run(ctx context.Context, s *Side) (float64, error) {
	switch {
	case p.Stream != nil:
		return p.Stream.Run(ctx, s)
	case p.PingPong != nil:
		return p.PingPong.Run(ctx, s)
	case p.Rate != nil:
		return p.Rate.Run(ctx, s)
	}
	return 0, errors.New("the program has none of Stream, PingPong and Rate")
}

// Unit returns the unit of the program's result.
func (p Program) Unit() string {
	switch {
	case p.Stream != nil:
		return "Gb/s"
	case p.PingPong != nil:
		return "µs"
	default:
		return "1/s"
	}
}

// String returns the name of the program in results, with its parameters.
func (p Program) String() string {
	switch {
	case p.Stream != nil:
		name := fmt.Sprintf("%s %s", opNames[p.Stream.Op], sizeName(p.Stream.Bytes))
		if p.Stream.NoBursts {
			name += ", singly"
		}
		if p.Stream.BothWays {
			name += ", both ways"
		}
		if p.Stream.QPs > 1 {
			name += fmt.Sprintf(", %d QPs", p.Stream.QPs)
		}
		return name
	case p.PingPong != nil:
		how := "spinning"
		if p.PingPong.Blocking {
			how = "blocking"
		}
		if p.PingPong.WaitForSend {
			how += ", confirmed"
		}
		if p.PingPong.Write {
			how += ", by write"
		}
		return fmt.Sprintf("half round trip %s, %s", sizeName(cmp.Or(p.PingPong.Bytes, 8)), how)
	case p.Rate != nil:
		return fmt.Sprintf("sends of %s, %d QPs", sizeName(cmp.Or(p.Rate.Bytes, 64)), cmp.Or(p.Rate.QPs, 1))
	}
	return "nothing"
}

// opNames are the names of operations in results.
var opNames = map[verbs.WROpcode]string{verbs.OpRDMAWrite: "write", verbs.OpRDMARead: "read", verbs.OpSend: "send"}

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
	c, err := s.connect(ctx, connConfig{qps: 1, sends: pingSends, recvs: pingRecvs, memory: 64 << 10})
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
