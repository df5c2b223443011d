package sim

import "github.com/fabrictest/fabrictest/emu/mono"

// CallKind is what a program spends virtual time for in a verb call.
type CallKind string

// The kinds of calls.
const (
	ControlCall CallKind = "control" // creates, changes or destroys an object
	PostCall    CallKind = "post"
	PollCall    CallKind = "poll"
	InlineData  CallKind = "inline" // writes data to the NIC
	Register    CallKind = "register"
	Deregister  CallKind = "deregister"
	Wake        CallKind = "wake" // of a program that slept
)

// Call is a verb call, or the part of one whose time depends on a number of bytes.
type Call struct {
	Port       *Port
	Kind       CallKind
	Bytes      int
	Start, End mono.Time
}

// CallTap observes the calls of programs when their time has passed.
type CallTap func(c Call)

// SetCallTap replaces the CallTap of all ports; nil removes it.
func (n *Net) SetCallTap(t CallTap) { n.callTap = t }

// tapCall shows the CallTap a call that ends now.
func (d *Driver) tapCall(kind CallKind, bytes int, start mono.Time) {
	if t := d.Port.net.callTap; t != nil {
		t(Call{Port: d.Port, Kind: kind, Bytes: bytes, Start: start, End: d.world.now})
	}
}
