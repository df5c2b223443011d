package perflab

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// RawUDPPingPongConfig configures a ping-pong.
type RawUDPPingPongConfig struct {
	// Rounds is the number of round trips; 0 means 20000.
	Rounds int
	// Bytes is the UDP payload of each datagram; 0 means 64.
	Bytes int
	// Block makes both ends sleep until a datagram arrives. Otherwise both busy-poll.
	Block bool

	cpus [2]int // of both ends
}

// blockRounds is the number of round trips that are timed together: to read the clock for
// each would change the result.
const blockRounds = 50

// withDefaults returns the configuration with defaults for zero values, and checks it.
func (c RawUDPPingPongConfig) withDefaults() (RawUDPPingPongConfig, error) {
	orDefault(&c.Rounds, 20000)
	orDefault(&c.Bytes, 64)
	switch {
	case c.Rounds < blockRounds:
		return c, fmt.Errorf("ping-pong: %d rounds, want at least %d", c.Rounds, blockRounds)
	case c.Bytes < 1 || c.Bytes > maxUDPPayload:
		return c, fmt.Errorf("ping-pong: %d bytes, want 1 to %d", c.Bytes, maxUDPPayload)
	}
	return c, nil
}

// RawUDPPingPongResult is the result of a ping-pong.
type RawUDPPingPongResult struct {
	blocks []time.Duration // sorted times of blockRounds round trips
}

// HalfMicros is the median half round trip in µs.
func (r RawUDPPingPongResult) HalfMicros() float64 {
	if len(r.blocks) == 0 {
		return 0
	}
	return float64(r.blocks[(len(r.blocks)-1)/2].Nanoseconds()) / 1e3 / blockRounds / 2
}

// pingPonger is one end of a ping-pong.
type pingPonger interface {
	send() error
	// receive returns when a datagram has arrived, or fails after replyTimeout.
	receive() error
}

var errNoReply = fmt.Errorf("no datagram within %v: one was lost, or the peer has stopped", replyTimeout)

// replyTimeout ends a ping-pong whose datagram was lost. It is checked seldom, to keep the
// loop short.
const replyTimeout = 20 * time.Second

// timedOut reports whether the deadline has passed. The first call, with a zero deadline, sets
// it to replyTimeout from now.
func timedOut(deadline *time.Time) bool {
	now := time.Now()
	if deadline.IsZero() {
		*deadline = now.Add(replyTimeout)
	}
	return now.After(*deadline)
}

// runPingPong runs a, which sends first and measures, here and b, which echoes, on another
// goroutine.
func runPingPong(cfg RawUDPPingPongConfig, a, b pingPonger) (RawUDPPingPongResult, error) {
	const warmup = 4 // blocks
	blocks := warmup + cfg.Rounds/blockRounds
	echoed := make(chan error, 1)
	go func() { echoed <- onCPU(cfg.cpus[1], func() error { return echo(b, blocks*blockRounds) }) }()
	times := make([]time.Duration, 0, blocks)
	err := onCPU(cfg.cpus[0], func() error {
		for range blocks {
			took, err := pingBlock(a)
			if err != nil {
				return err
			}
			times = append(times, took)
		}
		return nil
	})
	// After an error echo returns within replyTimeout.
	if err = errors.Join(err, <-echoed); err != nil {
		return RawUDPPingPongResult{}, err
	}
	times = times[warmup:]
	slices.Sort(times)
	return RawUDPPingPongResult{blocks: times}, nil
}

// pingBlock returns the time of blockRounds round trips.
func pingBlock(p pingPonger) (time.Duration, error) {
	start := time.Now()
	for range blockRounds {
		err := p.send()
		if err == nil {
			err = p.receive()
		}
		if err != nil {
			return 0, fmt.Errorf("ping: %w", err)
		}
	}
	return time.Since(start), nil
}

// echo answers this number of datagrams.
func echo(p pingPonger, rounds int) error {
	for range rounds {
		err := p.receive()
		if err == nil {
			err = p.send()
		}
		if err != nil {
			return fmt.Errorf("echo: %w", err)
		}
	}
	return nil
}
