package perflab

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
)

// RawTCPPingPong sends a message there and back, again and again: one send and one
// recv a side and turn, if TCP does not cut them. It returns the median half
// round trip in µs.
func RawTCPPingPong(a, b rawbench.Endpoint, cfg RawTCPPingPongConfig) (halfMicros float64, err error) {
	if err := cfg.check(); err != nil {
		return 0, err
	}
	client, server, err := connect(a, b, cfg.Block)
	if err != nil {
		return 0, err
	}
	defer client.close()
	defer server.close()
	const warmup = 4
	blocks := warmup + max(1, cfg.Rounds/turns)
	times := make([]time.Duration, 0, blocks)
	ping, pong := newPlayer(client, cfg), newPlayer(server, cfg)
	err = both(a, b, client, server, func() error {
		for range blocks {
			start := time.Now()
			for range turns {
				if err := ping.turn(ping.send, ping.await); err != nil {
					return fmt.Errorf("TCP ping: %w", err)
				}
			}
			times = append(times, time.Since(start))
		}
		return nil
	}, func() error {
		for range blocks * turns {
			if err := pong.turn(pong.await, pong.send); err != nil {
				return fmt.Errorf("TCP pong: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	times = times[warmup:]
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1e3 / turns / 2, nil
}

// player is one side of a ping-pong.
type player struct {
	socket
	buf  []byte
	take func([]byte) (int, error)
}

func newPlayer(s socket, cfg RawTCPPingPongConfig) *player {
	p := &player{socket: s, buf: make([]byte, cfg.Bytes), take: s.receive}
	if cfg.Block {
		p.take = s.sleep
	}
	return p
}

func (p *player) turn(first, then func() error) error {
	if err := first(); err != nil {
		return err
	}
	return then()
}

func (p *player) send() error {
	for left := p.buf; len(left) > 0; {
		n, err := p.socket.send(left)
		if err != nil {
			return err
		}
		left = left[max(n, 0):]
	}
	return nil
}

func (p *player) await() error {
	var spins int
	var since time.Time
	for left := p.buf; len(left) > 0; {
		n, err := p.take(left)
		if err != nil {
			return err
		}
		left = left[n:]
		if spins++; spins%(1<<14) != 0 {
			continue
		}
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > patience {
			return fmt.Errorf("nothing came within %v", patience)
		}
	}
	return nil
}
