// Package verbs is the RDMA verbs API of this module: the types, interfaces and
// errors that applications use and that providers implement, for emulated devices,
// kernel software devices and NICs.
//
// Names (PD, MR, CQ, QP, WR, WC) and numeric values of enumerations are those of
// libibverbs; only Caps has no counterpart there. Differences to the C API: slices
// instead of linked lists, Close for every destroy, free and deregister, and errors
// that name the verb and the object.
//
// The package imports only the standard library and validates nothing: devices
// reject invalid requests, and conformance tests send them deliberately.
//
// Objects may be used from several goroutines. In the simulator, a program yields
// to others only in calls that block.
package verbs

import "time"

// Proc is the clock of a program. A program that uses it in place of package time
// runs unchanged in the simulator and in real time.
type Proc interface {
	// Now returns the time since the run started.
	Now() time.Duration
	Sleep(d time.Duration)
	// Compute uses the CPU for d.
	Compute(d time.Duration)
}

// Forever is a timeout that never expires.
const Forever time.Duration = -1

// Provider lists and opens devices of one kind. There is no registry: a program
// lists the providers that it links.
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
	// Counters returns the current values of the device's counters, in a fixed order.
	Counters() []Counter
	// CM returns the device's connection manager.
	CM() (CM, error)
	// Close closes the device and all objects created from it.
	Close() error
}

// Counter is a named device counter.
type Counter struct {
	Name  string
	Value uint64
}

// PD is a protection domain. QPs can only use MRs, MWs and AHs of their own PD.
type PD interface {
	RegMR(MRInit) (MR, error)
	AllocMW(MWType) (MW, error)
	CreateAH(AHAttr) (AH, error)
	Close() error
}

// XRCD is an XRC domain. An XRC target QP delivers only to SRQs of its domain.
type XRCD interface {
	Close() error
}
