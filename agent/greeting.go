package agent

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"time"
)

// Version is that of the protocol.
const Version = 1

// greeting is the first frame of each end; the agent sends first. Fields after the version
// may differ between versions.
type greeting struct {
	Version uint32
	Shape   uint64
	Program string
	// Silence is the idle timeout of the sender.
	Silence time.Duration
}

// greetingMark is the start of greetings of all versions.
var greetingMark = []byte("fabrictest agent ")

func (g *greeting) frame() []byte {
	return encode(append(newFrame(frameGreeting, 64), greetingMark...), g, nil)
}

// newGreeting returns the first message of this end: the version of the protocol, the
// program, and the time after which a silent peer counts as dead.
func newGreeting(program string, idleTimeout time.Duration) *greeting {
	if program == "" {
		program = "fabrictest"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			program += " " + info.Main.Version
		}
	}
	return &greeting{Version, protocolHash, program, idleTimeout}
}

// hear reads the other end's greeting and checks that the versions agree. us and them name
// the ends in errors.
func (l *link) hear(limit time.Duration, us, them string) (*greeting, error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	kind, body, err := readFrame(l.reader)
	if err != nil {
		return nil, err
	}
	if kind == frameClose {
		return nil, &closeError{string(body)}
	}
	rest, ok := bytes.CutPrefix(body, greetingMark)
	if kind != frameGreeting || !ok {
		return nil, fmt.Errorf("%w: not a greeting", errBadMessage)
	}
	var version uint64
	if _, err := parseUvarint(rest, &version); err != nil {
		return nil, err
	}
	switch {
	case version < Version:
		return nil, fmt.Errorf("%w: %s has version %d, %s has %d: update %s", ErrVersion, them, version, us, Version, them)
	case version > Version:
		return nil, fmt.Errorf("%w: %s has version %d, %s has %d: update %s", ErrVersion, them, version, us, Version, us)
	}
	g := new(greeting)
	if err := decode(rest, g, nil); err != nil {
		return nil, err
	}
	if mine := newGreeting("", 0); g.Shape != mine.Shape {
		return nil, fmt.Errorf("%w: %s is %s, and %s is %s, of the same version %d but with other messages: build both from the same sources",
			ErrVersion, them, g.Program, us, mine.Program, Version)
	}
	// Send heartbeats often enough for the idle timeout of the other end.
	l.timing.HeartbeatInterval = max(time.Millisecond, min(l.timing.HeartbeatInterval, g.Silence/4))
	return g, nil
}
