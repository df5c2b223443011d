package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
)

// Values that hold where a LinkConfig names none.
const (
	DefaultMTU          = 1500
	DefaultTxQueueBytes = 256 << 10
	DefaultQueueBytes   = 64 << 20
	DefaultRxQueueBytes = 64 << 20
)

// PortConfig describes a port to be attached to a Net.
type PortConfig struct {
	// Name is the port's own in its Net: traces, schedules and random streams go
	// by it. Empty means "port" and a number.
	Name string
	// Switch is the one that the port is attached to, in a Net that has several.
	Switch *Switch
	// Addrs are the IP addresses behind the port; at least one.
	Addrs []netip.Addr
	Link  LinkConfig
	// Up impairs what the port sends, Down what it is to receive; each at the far
	// end of its wire, having taken up the bandwidth.
	Up, Down impair.Config
}

// LinkConfig describes the cable of a port: the same both ways.
type LinkConfig struct {
	// RateBps is the bandwidth; 0 means without limit.
	RateBps uint64
	// Latency is how long a bit travels along the cable. Behind a switch a packet
	// crosses two cables.
	Latency time.Duration
	// MTU is the largest IP packet; larger ones are lost, and counted.
	MTU int
	// OverheadBytes is what a packet costs on the wire beyond its IP bytes; 38 for
	// Ethernet with preamble, check sequence and gap.
	OverheadBytes int
	// TxQueueBytes is how much waits in the port before Send reports that it is
	// full. One packet always fits.
	TxQueueBytes int
	// QueueBytes is the size of the switch's queue towards the port; packets that
	// do not fit are lost, and counted.
	QueueBytes int
	// RxQueueBytes is how much waits for Recv; the rest is lost, and counted.
	RxQueueBytes int
	// ECN is how the switch's queue marks.
	ECN ECNConfig
}

// ECNConfig marks packets of an ECN-capable transport by the length of the queue
// they meet: none up to MinBytes, every one above MaxBytes, and in between a
// share that grows evenly to MaxPPM. MinBytes == MaxBytes is a plain threshold.
// The zero value marks nothing.
type ECNConfig struct {
	MinBytes, MaxBytes int
	MaxPPM             uint32
}

// withDefaults fills in what is left out.
func (c LinkConfig) withDefaults() LinkConfig {
	for _, f := range []struct {
		field *int
		value int
	}{
		{&c.MTU, DefaultMTU},
		{&c.TxQueueBytes, DefaultTxQueueBytes},
		{&c.QueueBytes, DefaultQueueBytes},
		{&c.RxQueueBytes, DefaultRxQueueBytes},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return c
}

func (c *LinkConfig) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.MTU < 68 || c.MTU > 65535 {
		bad("MTU %d: IP wants 68 to 65535", c.MTU)
	}
	if c.Latency < 0 {
		bad("Latency %v is negative", c.Latency)
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"OverheadBytes", c.OverheadBytes},
		{"TxQueueBytes", c.TxQueueBytes},
		{"QueueBytes", c.QueueBytes},
		{"RxQueueBytes", c.RxQueueBytes},
		{"ECN.MinBytes", c.ECN.MinBytes},
	} {
		if f.value < 0 {
			bad("%s %d is negative", f.name, f.value)
		}
	}
	if c.ECN.MaxBytes < c.ECN.MinBytes {
		bad("ECN.MaxBytes %d is less than ECN.MinBytes %d", c.ECN.MaxBytes, c.ECN.MinBytes)
	}
	if c.ECN.MaxPPM > impair.PPM {
		bad("ECN.MaxPPM %d is more than %d, which is every packet", c.ECN.MaxPPM, impair.PPM)
	}
	return errors.Join(errs...)
}
