// Package flawed makes the verbs of a sound device misbehave: between a program
// and its device, work requests, completions and attributes are changed, and what
// the device refuses is accepted, so that what the program sees is a device with a
// defect. It knows no transport and works on any verbs.Context. Defects that a
// peer can see on the wire are not here but with the engines.
//
// A flawed device may be used as the one behind it may: from several goroutines,
// and in a simulated world. It is made for tests and allocates as it likes; a
// device without flaws is not decorated at all.
package flawed

import (
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Quirks are the defects that a program can be shown whatever the device behind
// it is. Tags say what each does, and whose defect it is or which requirement it
// breaks.
type Quirks struct {
	// Completions.
	SparseCompletions bool `defect:"rc/wr/5, rc/inv/2, ud/9, err/4, cq/9" does:"completions are filled in halfway"`
	FlushReversed     bool `defect:"rc/seq/9, qp/7" does:"receives and sends of a failed QP are flushed newest first"`

	// Requests.
	FenceIgnored     bool `defect:"cq/3, rfc5040/5.5/10" does:"the fence is ignored"`
	AlwaysFenced     bool `defect:"cq/4" does:"every request waits for earlier READs and atomics"`
	SignalAllIgnored bool `defect:"cq/5" does:"SignalAll is ignored"`

	// Objects and their attributes.
	ArmsWithoutChannel bool `defect:"rxe, mlx4, mlx5, irdma" does:"a CQ without channel can be armed"`
	SRQUnchecked       bool `defect:"srq/3, srq/8" does:"limits and sizes of SRQs are not checked, and QPs on them take receives"`
	QueryStale         bool `defect:"qp/10" does:"a query tells the state and the PSNs that were set"`
	LimitsOverstated   bool `defect:"mlx4, irdma" does:"a device makes fewer objects than it claims"`
	XRCTargetDies      bool `defect:"xrc/3" does:"an XRC target QP dies with the handle that made it"`
}

// AllQuirks lists every quirk in the order of the struct.
func AllQuirks() []nic.QuirkInfo { return nic.AllQuirks(new(Quirks)) }

// Set switches a quirk on or off by its name.
func (q *Quirks) Set(name string, on bool) error { return nic.SetQuirk(q, name, on) }

// Names lists the quirks that are switched on.
func (q *Quirks) Names() []string { return nic.QuirksOn(q) }

// Device returns d with flaws; d itself if there are none.
func Device(d verbs.Context, q Quirks) verbs.Context {
	if q == (Quirks{}) {
		return d
	}
	return &device{Context: d, q: q, flawed: map[any]any{}}
}

// device is a verbs.Context. Of the handles it makes, those of queues, queue pairs
// and channels are its own; all others are the sound device's.
type device struct {
	verbs.Context
	q Quirks

	mu     sync.Mutex // never held in a call to the sound device, which may wait
	flawed map[any]any
}

// keep remembers the flawed handle for a sound one.
func (d *device) keep(sound, flawed any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flawed[sound] = flawed
}

// drop forgets a handle that was closed.
func (d *device) drop(sound any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.flawed, sound)
}

// ours is the flawed handle for a sound one that the device tells of.
func ours[T any](d *device, sound T) T {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.flawed[sound]; ok {
		return f.(T)
	}
	return sound
}

// its is the sound handle behind one that a program gives.
func its[T any](x T) T {
	if f, ok := any(x).(interface{ sound() T }); ok {
		return f.sound()
	}
	return x
}

// QueryDevice claims, by LimitsOverstated, twice as much of some things.
func (d *device) QueryDevice() (verbs.DeviceAttr, error) {
	a, err := d.Context.QueryDevice()
	if d.q.LimitsOverstated {
		a.MaxAH, a.MaxMW, a.MaxQP = 2*a.MaxAH, 2*a.MaxMW, 2*a.MaxQP
	}
	return a, err
}

// WaitAsync returns the next event, with our handles in it.
func (d *device) WaitAsync(timeout time.Duration) (verbs.AsyncEvent, error) {
	e, err := d.Context.WaitAsync(timeout)
	e.QP, e.CQ, e.SRQ = ours(d, e.QP), ours(d, e.CQ), ours(d, e.SRQ)
	return e, err
}
