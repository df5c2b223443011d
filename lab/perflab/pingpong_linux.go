package perflab

import (
	"fmt"
	"slices"
	"time"
)

// RawTCPPingPong sends a message back and forth, with one send and one recv per
// side and trip if TCP does not segment it. It returns the median half round trip
// in µs.
func RawTCPPingPong(a, b RawEndpoint, cfg RawTCPPingPongConfig) (halfMicros float64, err error) {
	if err := cfg.check(); err != nil {
		return 0, err
	}
	client, server, err := connect(a, b, cfg.Block)
	if err != nil {
		return 0, err
	}
	defer client.close()
	defer server.close()
	const warmup = 4 // samples that are not counted
	samples := warmup + max(1, cfg.Rounds/tripsPerSample)
	times := make([]time.Duration, 0, samples)
	ping, pong := newPingPongSide(client, cfg), newPingPongSide(server, cfg)
	err = runBothSides(a, b, client, server, func() error {
		for range samples {
			start := time.Now()
			for range tripsPerSample {
				if err := ping.exchange(ping.sendAll, ping.recvAll); err != nil {
					return fmt.Errorf("TCP ping: %w", err)
				}
			}
			times = append(times, time.Since(start))
		}
		return nil
	}, func() error {
		for range samples * tripsPerSample {
			if err := pong.exchange(pong.recvAll, pong.sendAll); err != nil {
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
	median := times[len(times)/2]
	return float64(median.Nanoseconds()) / 1e3 / tripsPerSample / 2, nil
}

// pingPongSide is one side of a ping-pong.
type pingPongSide struct {
	socket
	buf  []byte
	recv func([]byte) (int, error)
}

// newPingPongSide returns a side that receives blocking or spinning, as cfg says.
func newPingPongSide(s socket, cfg RawTCPPingPongConfig) *pingPongSide {
	p := &pingPongSide{socket: s, buf: make([]byte, cfg.Bytes), recv: s.receive}
	if cfg.Block {
		p.recv = s.receiveBlocking
	}
	return p
}

// exchange sends and receives one message, in the order of its arguments.
func (p *pingPongSide) exchange(first, then func() error) error {
	if err := first(); err != nil {
		return err
	}
	return then()
}

// sendAll sends a whole message, spinning while the socket is full.
func (p *pingPongSide) sendAll() error {
	for rest := p.buf; len(rest) > 0; {
		n, err := p.socket.send(rest)
		if err != nil {
			return err
		}
		rest = rest[max(n, 0):]
	}
	return nil
}

// recvAll receives a whole message. It reads the clock for ioTimeout only once in many polls.
func (p *pingPongSide) recvAll() error {
	var spins int
	var since time.Time
	for rest := p.buf; len(rest) > 0; {
		n, err := p.recv(rest)
		if err != nil {
			return err
		}
		rest = rest[n:]
		if spins++; spins%(1<<14) != 0 {
			continue
		}
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > ioTimeout {
			return fmt.Errorf("nothing received within %v", ioTimeout)
		}
	}
	return nil
}
