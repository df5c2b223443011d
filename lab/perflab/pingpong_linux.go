package perflab

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/perf"
)

// RawTCPPingPong sends a message back and forth over TCP, with one send and one recv per side
// and trip if TCP does not segment it. It returns the median half round trip in µs.
func RawTCPPingPong(a, b RawEndpoint, cfg RawPingPongConfig) (halfMicros float64, err error) {
	return rawPingPong(a, b, cfg, connectTCP)
}

// RawUDPPingPong sends a datagram back and forth, with one sendto and one recvfrom per side and
// trip. It returns the median half round trip in µs.
func RawUDPPingPong(a, b RawEndpoint, cfg RawPingPongConfig) (halfMicros float64, err error) {
	return rawPingPong(a, b, cfg, openUDPPair)
}

// rawPingPong runs a ping-pong between two sockets that open returns.
func rawPingPong(a, b RawEndpoint, cfg RawPingPongConfig,
	open func(a, b RawEndpoint, block bool) (client, server socket, err error),
) (halfMicros float64, err error) {
	client, server, err := open(a, b, cfg.Block)
	if err != nil {
		return 0, err
	}
	defer client.close()
	defer server.close()
	return runPingPong(cfg, [2]int{a.CPU, b.CPU}, newPingPongSocket(client, cfg), newPingPongSocket(server, cfg))
}

// pingPonger is one side of a ping-pong.
type pingPonger interface {
	send() error
	// receive returns when a message has arrived, or fails after ioTimeout.
	receive() error
}

// runPingPong measures round trips: ping sends first and pong answers, each on its CPU of cpus,
// counted from 1; 0 is any. It returns the median half round trip in µs.
func runPingPong(cfg RawPingPongConfig, cpus [2]int, ping, pong pingPonger) (halfMicros float64, err error) {
	const warmup = 4 // samples that are not counted
	samples := warmup + max(1, cfg.Rounds/tripsPerSample)
	times := make([]float64, 0, samples)
	// After an error the other side ends within ioTimeout.
	err = runOnCPUs(cpus, func() error {
		for range samples {
			start := time.Now()
			if err := runTrips(tripsPerSample, ping.send, ping.receive); err != nil {
				return err
			}
			times = append(times, float64(time.Since(start).Nanoseconds()))
		}
		return nil
	}, func() error { return runTrips(samples*tripsPerSample, pong.receive, pong.send) })
	if err != nil {
		return 0, fmt.Errorf("ping-pong: %w", err)
	}
	return perf.Median(times[warmup:]) / 1e3 / tripsPerSample / 2, nil
}

// runTrips calls first and second alternately, each of them trips times.
func runTrips(trips int, first, second func() error) error {
	for range trips {
		if err := first(); err != nil {
			return err
		}
		if err := second(); err != nil {
			return err
		}
	}
	return nil
}

// pingPongSocket implements pingPonger with a socket. An error shuts a TCP connection down, so
// that the other side ends too.
type pingPongSocket struct {
	socket
	message []byte
	recv    func([]byte) (int, error)
}

// newPingPongSocket returns one side of a ping-pong. Its receive blocks if cfg.Block, else spins.
func newPingPongSocket(s socket, cfg RawPingPongConfig) *pingPongSocket {
	p := &pingPongSocket{socket: s, message: make([]byte, cfg.Bytes), recv: s.receive}
	if cfg.Block {
		p.recv = s.receiveBlocking
	}
	return p
}

// send implements pingPonger. It spins while the socket is full.
func (p *pingPongSocket) send() error {
	for rest := p.message; len(rest) > 0; {
		n, err := p.socket.send(rest)
		if err != nil {
			p.shutdown()
			return err
		}
		rest = rest[max(n, 0):] // n is -1 if the socket is full
	}
	return nil
}

// receive implements pingPonger. It fails if the message is not complete within ioTimeout, and
// reads the clock only once in many polls.
func (p *pingPongSocket) receive() error {
	const pollsPerClockRead = 4096
	var deadline time.Time
	polls := 0
	for rest := p.message; len(rest) > 0; {
		n, err := p.recv(rest)
		if polls++; err == nil && polls%pollsPerClockRead == 0 && timedOut(&deadline) {
			err = errNoReply
		}
		if err != nil {
			p.shutdown()
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// shutdown shuts a TCP connection down. It ignores errors: UDP sockets have no connection.
func (s socket) shutdown() { _ = unix.Shutdown(s.fd, unix.SHUT_RDWR) }

var errNoReply = fmt.Errorf("nothing received within %v: a message was lost, or the peer has stopped", ioTimeout)

// timedOut reports whether the deadline has passed. The first call, with a zero deadline, sets
// it to ioTimeout from now.
func timedOut(deadline *time.Time) bool {
	now := time.Now()
	if deadline.IsZero() {
		*deadline = now.Add(ioTimeout)
	}
	return now.After(*deadline)
}
