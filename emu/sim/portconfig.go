package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
)

// Defaults of LinkConfig.
const (
	DefaultMTU          = 1500
	DefaultTxQueueBytes = 256 << 10
	DefaultQueueBytes   = 64 << 20
	DefaultRxQueueBytes = 64 << 20
)

// PortConfig configures a port of a Net.
type PortConfig struct {
	// Name is unique in its Net; traces, schedules and random streams use it.
	// The default is "port" and a number.
	Name string
	// Switch is the switch of the port, in a Net with several.
	Switch *Switch
	// Addrs are the IP addresses of the port; at least one.
	Addrs []netip.Addr
	Link  LinkConfig
	// Up impairs packets that the port sends, Down those that it receives. Both
	// apply at the far end of the link: dropped packets have used its
	// bandwidth.
	Up, Down impair.Config
}

// LinkConfig configures a cable. Both directions are the same.
type LinkConfig struct {
	// RateBps is the bandwidth; 0 means unlimited.
	RateBps uint64
	// Latency is the propagation delay of the cable. A packet through a switch
	// crosses two cables.
	Latency time.Duration
	// MTU is the largest IP packet; larger packets are dropped and counted.
	MTU int
	// OverheadBytes is the framing per IP packet; 38 for Ethernet with
	// preamble, FCS and inter-frame gap.
	OverheadBytes int
	// TxQueueBytes is the size of the transmit queue. Send returns early if it
	// is full. One packet always fits.
	TxQueueBytes int
	// QueueBytes is the size of the switch's egress queue towards the port;
	// packets that do not fit are dropped and counted.
	QueueBytes int
	// RxQueueBytes is the size of the receive queue; packets that do not fit
	// are dropped and counted.
	RxQueueBytes int
	// ECN configures marking in the egress queue of the switch.
	ECN ECNConfig
}

// ECNConfig configures RED-style ECN marking by queue length: no packet up to
// MinBytes, every packet above MaxBytes, and in between with a probability that
// grows linearly to MaxPPM. MinBytes == MaxBytes is a step threshold. The zero
// value disables marking.
type ECNConfig struct {
	MinBytes, MaxBytes int
	MaxPPM             uint32
}

// withDefaults returns c with defaults for zero fields.
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
		bad("MTU %d: must be between 68 and 65535", c.MTU)
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
