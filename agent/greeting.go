package agent

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"time"
)

// Version is that of the protocol.
const Version = 1

// greeting is the first frame of each end. The agent speaks first. What comes behind
// the version may be another in another version.
type greeting struct {
	Version uint32
	Shape   uint64
	Program string
	// Silence is after how long without a sign of life the sender takes the other end
	// for dead.
	Silence time.Duration
}

// greetingMark is how greetings of all versions begin.
var greetingMark = []byte("fabrictest agent ")

func (g *greeting) frame() []byte {
	return encode(append(newFrame(frameGreeting, 64), greetingMark...), g, nil)
}

// ours is the greeting of this program.
func ours(program string, silence time.Duration) *greeting {
	if program == "" {
		program = "fabrictest"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			program += " " + info.Main.Version
		}
	}
	return &greeting{Version, protocolShape, program, silence}
}

// hear reads the other end's greeting and says whether we understand each other. us
// and them are what to call the ends.
func (l *link) hear(limit time.Duration, us, them string) (*greeting, error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	kind, body, err := readFrame(l.reader)
	if err != nil {
		return nil, err
	}
	if kind == frameBye {
		return nil, &byeError{string(body)}
	}
	rest, ok := bytes.CutPrefix(body, greetingMark)
	if kind != frameGreeting || !ok {
		return nil, fmt.Errorf("%w: no greeting", errBadMessage)
	}
	var version uint64
	if _, err := parseUvarint(rest, &version); err != nil {
		return nil, err
	}
	switch {
	case version < Version:
		return nil, fmt.Errorf("%w: %s speaks version %d, and %s %d: update %s", ErrVersion, them, version, us, Version, them)
	case version > Version:
		return nil, fmt.Errorf("%w: %s speaks version %d, and %s %d: update %s", ErrVersion, them, version, us, Version, us)
	}
	g := new(greeting)
	if err := decode(rest, g, nil); err != nil {
		return nil, err
	}
	if mine := ours("", 0); g.Shape != mine.Shape {
		return nil, fmt.Errorf("%w: %s is %s, and %s is %s, of the same version %d but with other messages: build both from the same sources",
			ErrVersion, them, g.Program, us, mine.Program, Version)
	}
	// Whatever we think is often enough, it must be for the other end.
	l.timing.Beat = max(time.Millisecond, min(l.timing.Beat, g.Silence/4))
	return g, nil
}
