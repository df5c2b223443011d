package perf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// WithConnection connects one queue pair of each side, calls f on both, and closes
// the connection.
func WithConnection(ctx context.Context, s *Side, f func() error) error {
	c, err := s.connect(ctx, connConfig{qps: 1, sends: pingSends, recvs: pingRecvs, memory: 1 << 16})
	if err != nil {
		return err
	}
	defer c.Close()
	return errors.Join(f(), s.barrier(ctx))
}

// ResidentMB returns the resident memory of this process in MB (10^6 bytes), from
// /proc.
func ResidentMB() (float64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, fmt.Errorf("resident memory: /proc/self/statm says %q", b)
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resident memory: /proc/self/statm: %w", err)
	}
	return float64(pages) * float64(os.Getpagesize()) / 1e6, nil
}
