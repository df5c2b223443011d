package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// Version is that of the protocol.
const Version = 2

// Besides frames of package control there are frames with changes of memory. The body of
// a Call is the number of received memory frames, the method and its arguments; that of a
// Reply the failure and the results.
const kindMemory = control.FirstProtocolKind

const (
	// maxFrameLen is the largest body.
	maxFrameLen = 4 << 20
	// maxQueued limits the bytes in the send queue.
	maxQueued = 1 << 30
	maxHello  = 4 << 10
)

// Timing has the timeouts of a connection. Zero values mean the defaults.
type Timing struct {
	// HandshakeTimeout limits the TLS handshake and the hellos; default 10 s.
	HandshakeTimeout time.Duration
	// HeartbeatInterval is the heartbeat interval; default 2 s.
	HeartbeatInterval time.Duration
	// IdleTimeout is the idle timeout: without data for this long, the other end is considered
	// dead; default 15 s.
	IdleTimeout time.Duration
	// CloseTimeout limits closing of devices; default 10 s.
	CloseTimeout time.Duration
}

// withDefaults returns a copy with defaults for zero and negative values.
func (t Timing) withDefaults() Timing {
	for field, value := range map[*time.Duration]time.Duration{
		&t.HandshakeTimeout: 10 * time.Second, &t.HeartbeatInterval: 2 * time.Second,
		&t.IdleTimeout: 15 * time.Second, &t.CloseTimeout: 10 * time.Second,
	} {
		if *field <= 0 {
			*field = value
		}
	}
	return t
}

// newConn returns an end of a connection. It receives pings, close frames, memory frames, and
// frames of one more kind: control.Call at the agent, control.Reply at the client.
func newConn(conn net.Conn, t Timing, kind control.Kind) *control.Conn {
	return control.New(conn, control.Config{
		Limits:        control.Limits{control.Ping: 0, control.Close: control.MaxReason, kindMemory: maxFrameLen, kind: maxFrameLen},
		Names:         []string{"memory"}, // of kindMemory, in errors
		MaxQueueBytes: maxQueued,
		Heartbeat:     t.HeartbeatInterval, IdleTimeout: t.IdleTimeout, WriteTimeout: t.IdleTimeout,
	})
}

// run writes the queue of a connection until it ends. It closes a connection whose peer does
// not read. After any other error of writing, reading goes on until it fails too, so that
// Serve gets the reason that the peer sent before it closed the connection.
func run(c *control.Conn) {
	if err := c.Run(); errors.Is(err, os.ErrDeadlineExceeded) {
		c.Close(err)
	}
}

// hello is the first message of each end; the agent sends first.
type hello struct {
	Messages    uint64 // protocolHash
	Program     string
	IdleTimeout time.Duration // of the sender
}

// newHello returns the hello of this end. An empty program stands for fabrictest with its version.
func newHello(program string, idleTimeout time.Duration) *hello {
	if program == "" {
		program = "fabrictest"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			program += " " + info.Main.Version
		}
	}
	return &hello{protocolHash, program, idleTimeout}
}

// readHello reads the other end's hello. It returns an error if the versions differ, or the hashes
// of the protocol's messages. us and them name the ends in errors.
func readHello(c *control.Conn, limit time.Duration, us, them string) (*hello, error) {
	h := new(hello)
	if err := c.ReadHello(control.Protocol{Version: Version, Us: us, Them: them, MaxHello: maxHello, Timeout: limit}, h); err != nil {
		return nil, err
	}
	if mine := newHello("", 0); h.Messages != mine.Messages {
		return nil, fmt.Errorf("%w: %s is %s, and %s is %s, of the same version %d but with other messages: build both from the same sources",
			ErrVersion, them, h.Program, us, mine.Program, Version)
	}
	// Send heartbeats often enough for the idle timeout of the other end.
	c.Heartbeat = max(time.Millisecond, min(c.Heartbeat, h.IdleTimeout/4))
	return h, nil
}

// sendHello sends the hello of this end.
func sendHello(c *control.Conn, h *hello) error {
	return c.SendHello(control.Protocol{Version: Version}, h)
}
