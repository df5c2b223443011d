package conformance

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Bench is what a case works on: the device, its wire, and time.
//
// In a simulated world time is virtual, and waiting costs nothing; else it is real.
// A case is written for both: it never takes the time from elsewhere, blocks only
// in what the bench and the device give it, and starts no goroutine but by Go.
type Bench struct {
	World
	// Device is the device under test, opened for this case alone.
	Device verbs.Context
	// Caps are what it claims.
	Caps verbs.Caps
	// Local are the device's addresses, in the order of its GID table.
	Local []netip.Addr
	// Peers are the raw peer's own addresses, of the family of Local: the first is
	// the one it usually has, the others stand for other hosts.
	Peers []netip.Addr
	// Wire is the peer's end of the cable for protocols of datagrams; nil else.
	Wire Wire
	// Sockets says that the wire is made of ordinary UDP sockets. Of what the device
	// sends, it then shows payload, addresses, ports, traffic class, flow label and hop
	// limit; the rest of the headers is made up, and no verdict may rest on it. And Peers
	// may have one address only.
	Sockets bool
	// Streams is the peer's TCP for protocols of byte streams; nil else.
	Streams Streams
	// Segments opens the peer's other TCP, which is made by hand, for cases about segments;
	// ErrCannot, or nil, where there is none. It may be that of Streams.
	Segments func() (Segments, error)
	// Virtual says that time is.
	Virtual bool
	// CallTime is how long a verb call takes on this bench, where time is real: some
	// microseconds on this host, milliseconds through an agent in a busy virtual machine.
	CallTime time.Duration
	// MTU is the largest IP packet that the cable carries.
	MTU int
	// Rand is seeded by the lab: what a case draws can be drawn again.
	Rand *rand.Rand
	// Record keeps what happened.
	Record *Record

	// Partner opens another device of the same kind, without defects, on the same
	// network, for cases in which two devices talk. The bench closes it.
	Partner func() (verbs.Context, error)
	// Reopen closes the device and opens it again, as a program does that is started
	// anew: Device is another then, and what was made of the old one is gone.
	Reopen func() error
	// SetLink takes the device's cable out and puts it in; ErrCannot where that is
	// impossible.
	SetLink func(up bool) error
	// SetAddress takes one of Local from the device's port, as when a host loses an
	// address, and gives it back; ErrCannot where that is impossible. What the device
	// makes of it takes a moment.
	SetAddress func(addr netip.Addr, present bool) error
	// SetHandler has the way between the device and its partners be like that;
	// ErrCannot where that is impossible. At first it loses nothing.
	SetHandler func(Path) error
}

// Path is what a network does to packets on their way, in both directions. The zero
// value is nothing.
type Path struct {
	// LossPPM and DuplicatePPM of a million packets are lost, or come twice.
	LossPPM, DuplicatePPM uint32
	// Jitter is how much longer a packet may be on its way than another. Some then
	// overtake others, unless KeepOrder is set.
	Jitter    time.Duration
	KeepOrder bool
}

// World is the time that a case lives in.
type World interface {
	verbs.Proc
	// Go runs f beside the case: what blocks in a verb while the case plays the
	// peer. The case must Wait for it.
	Go(name string, f func() error) Task
}

// Task is something that was started by [World.Go].
type Task interface {
	// Wait returns what the function returned, or verbs.ErrTimeout. A task that has
	// been waited for may be waited for again.
	Wait(timeout time.Duration) error
}

// Patience is how long to wait for what has to come, and comes at once if the
// device is sound: generous, since nothing passes because it was quick.
func (b *Bench) Patience() time.Duration {
	if b.Virtual {
		return time.Minute
	}
	return max(3*time.Second, 100*b.CallTime)
}

// Reaction is the time in which a case reacts to the device by a few verb calls and
// packets. A timer of the device that must not expire meanwhile has to be longer.
func (b *Bench) Reaction() time.Duration { return 8 * b.CallTime }

// callSamples is how many verb calls [Bench.measureCalls] times.
const callSamples = 4

// measureCalls sets CallTime to the longest of a few verb calls. What they return is
// for cases to judge.
func (b *Bench) measureCalls() {
	for range callSamples {
		began := b.Now()
		_, _ = b.Device.QueryPort(1)
		b.CallTime = max(b.CallTime, b.Now()-began)
	}
}

// Note adds a line of the case's own to the record: a verb that was called, a
// completion that was found.
func (b *Bench) Note(format string, args ...any) { b.Record.note(b.Now(), format, args) }
