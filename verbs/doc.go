// Package verbs is the RDMA verbs interface as an application sees it: value
// types, small interfaces and errors, for any device: emulated, a kernel's or
// a NIC's.
//
// Names follow the field's own (PD, MR, CQ, QP, WR, WC) and the numeric values
// of all enumerations are those of libibverbs (Caps apart, which it does not
// have), so that a reader of the ibv_* manual pages needs no dictionary and a
// provider over libibverbs is a cast.
// What differs from C is what Go does better: slices instead of linked lists,
// Close for every kind of destruction, errors that name verb and object.
//
// The package imports the standard library only and validates nothing: what is
// legal is the device's to say, and a conformance test must be able to ask for
// what is not.
//
// Objects of one device may be used from several goroutines. In a simulated
// world a call that blocks parks the calling program; nothing else does.
package verbs

import "time"

// Proc is what a program needs of the world it runs in besides its device:
// time. A program that takes its time from here runs unchanged in a simulated
// world and in a real one.
type Proc interface {
	// Now is the time since the world began.
	Now() time.Duration
	// Sleep waits for d.
	Sleep(d time.Duration)
	// Compute keeps the processor busy for d.
	Compute(d time.Duration)
}

// Forever is a timeout that never expires.
const Forever time.Duration = -1

// Provider is a source of devices. There is no registry: whoever composes a
// program lists the providers it links.
type Provider interface {
	Name() string
	Devices() ([]DeviceInfo, error)
	Open(device string) (Context, error)
}

// Context is an opened device.
type Context interface {
	Info() DeviceInfo
	QueryDevice() (DeviceAttr, error)
	QueryPort(port uint8) (PortAttr, error)
	QueryGID(port uint8, index int) (GIDEntry, error)
	QueryPKey(port uint8, index int) (uint16, error)

	AllocPD() (PD, error)
	CreateCompChannel() (CompChannel, error)
	CreateCQ(CQInit) (CQ, error)
	CreateSRQ(SRQInit) (SRQ, error)
	CreateQP(QPInit) (QP, error)
	OpenXRCD() (XRCD, error)
	// OpenQP opens a second handle to an XRC target QP by its number.
	OpenQP(XRCD, QPN) (QP, error)

	// WaitAsync returns the next asynchronous event, or ErrTimeout.
	WaitAsync(timeout time.Duration) (AsyncEvent, error)
	// Counters returns a snapshot of what the device has counted, in a fixed
	// order.
	Counters() []Counter
	// CM returns the device's connection manager.
	CM() (CM, error)
	// Close closes the device and everything made from it.
	Close() error
}

// Counter is one of a device's counters.
type Counter struct {
	Name  string
	Value uint64
}

// PD is a protection domain: what is made in one is out of reach from another.
type PD interface {
	RegMR(MRInit) (MR, error)
	AllocMW(MWType) (MW, error)
	CreateAH(AHAttr) (AH, error)
	Close() error
}

// XRCD is an extended reliable connection domain: it ties XRC target QPs to
// the XRC shared receive queues they may deliver to.
type XRCD interface {
	Close() error
}
