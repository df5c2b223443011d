package conformance

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Bench is the test bench of a case: the device under test, the peer's end of its link, a clock.
//
// Time is virtual in the simulator and real elsewhere. A case runs on both, and
// therefore takes the time from the bench only, blocks only in methods of the bench and
// the device, and starts goroutines only with Go.
type Bench struct {
	Runtime
	PeerLink
	Controls
	// Device is the device under test, opened for this case only.
	Device verbs.Context
	// Caps are the capabilities that the device claims.
	Caps verbs.Caps
	// Local are the device's addresses, in the order of its GID table.
	Local []netip.Addr
	// Peers are the scripted peer's addresses, of the same family as Local. The first is
	// the usual one; the others imitate further hosts.
	Peers []netip.Addr
	// Virtual reports that time is virtual.
	Virtual bool
	// CallTime is the measured duration of a verb call, in real time: microseconds on
	// this host, milliseconds through an agent in a busy virtual machine.
	CallTime time.Duration
	// MTU is the largest IP packet of the link.
	MTU int
	// Rand is seeded by the lab; a seed reproduces a case.
	Rand *rand.Rand
	// Record is the log of the case.
	Record *Record

	schedules int                   // Options.Schedules: how many to explore; 0 for the case's default
	progress  func(done, total int) // calls Options.Progress; nil if that is nil
}

// PeerLink is the scripted peer's end of the device's link.
type PeerLink struct {
	// Wire is for datagram protocols; nil for others.
	Wire Wire
	// UDPSockets reports that the wire consists of ordinary UDP sockets. It then shows
	// the payload, addresses, ports, traffic class, flow label and hop limit of received
	// packets; other header fields are invented, and no case may judge them. Peers may
	// have one address only.
	UDPSockets bool
	// Streams is the peer's TCP for stream protocols; nil for others.
	Streams Streams
	// RawTCP opens the peer's TCP for cases about segments. It is nil, or returns an
	// error that wraps ErrBenchCannot, if the bench has none. It may equal Streams.
	RawTCP func() (RawTCP, error)
}

// Controls change what surrounds the device. Errors may wrap ErrBenchCannot.
type Controls struct {
	// Partner opens a second device of the same kind, without defects, on the same
	// network. The bench closes it.
	Partner func() (verbs.Context, error)
	// Reopen closes the device and opens it again, like a restarted program. Device
	// changes, and objects of the old device are gone.
	Reopen func() error
	// SetLink sets the device's link down or up.
	SetLink func(up bool) error
	// SetAddress removes an address of Local from the device's port, or adds it again.
	// The device takes a moment to react.
	SetAddress func(addr netip.Addr, present bool) error
	// SetPath sets the impairments between the device and its partners; at first none.
	SetPath func(Path) error
}

// Path is a set of impairments, for both directions. The zero value has none.
type Path struct {
	// LossPPM packets in a million are dropped, and DuplicatePPM are duplicated.
	LossPPM, DuplicatePPM uint32
	// Jitter is the largest additional delay of a packet. Packets are reordered by it
	// unless KeepOrder is set.
	Jitter    time.Duration
	KeepOrder bool
}

// Runtime is the clock and scheduler of a case.
type Runtime interface {
	verbs.Proc
	// Go runs f concurrently, for verbs that block while the case acts as the peer. The
	// case must Wait for the task.
	Go(name string, f func() error) Task
}

// Task is a function started by [Runtime.Go].
type Task interface {
	// Wait returns the result of the function, or verbs.ErrTimeout. It may be called again.
	Wait(timeout time.Duration) error
}

// ResponseTimeout returns how long to wait for a response that a correct device sends at once.
// It is generous, so that a slow device does not fail for being slow.
func (b *Bench) ResponseTimeout() time.Duration {
	if b.Virtual {
		return time.Minute
	}
	return max(3*time.Second, 100*b.CallTime)
}

// ReactionTime returns the time that a case needs for up to 8 verb calls and their packets.
// Device timers that must not expire meanwhile have to be longer.
func (b *Bench) ReactionTime() time.Duration { return 8 * b.CallTime }

// measureCalls sets CallTime, from which the timeouts of the case follow, to the duration of the
// longest of a few verb calls. Only their durations matter: errors are ignored.
func (b *Bench) measureCalls() {
	const samples = 4
	for range samples {
		began := b.Now()
		_, _ = b.Device.QueryPort(1)
		b.CallTime = max(b.CallTime, b.Now()-began)
	}
}

// Note adds a line of text to the record, for example about a verb call or a completion.
func (b *Bench) Note(format string, args ...any) {
	b.Record.add(Event{At: b.Now(), Kind: EventNote, Text: fmt.Sprintf(format, args...)})
}
