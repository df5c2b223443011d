package uswitch

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Values that hold where a Config names none.
const (
	DefaultMaxHeldFrames = 1 << 16
	DefaultMaxHeldBytes  = 64 << 20
	DefaultMaxAddresses  = 1 << 13
	DefaultBufferBytes   = 4 << 20
)

// PortConfig is a port to be.
type PortConfig struct {
	// Interface is the network interface, inside the switch's namespace. It must
	// be up, or come up, for frames to pass; its MTU is read when it is opened. It
	// should have no address, and IPv6 be disabled on it: what a kernel has to say
	// for itself would be among the frames.
	Interface string
	// Name is the port's in statistics and errors; Interface if empty.
	Name string
	// Addresses are known to be behind the port, now and always.
	Addresses []net.HardwareAddr
	// In and Out are what happens to frames from the port and to it; nil: nothing.
	In, Out FrameHandler
}

// Config is a switch to be. Only Ports is needed.
type Config struct {
	// Name is the switch's own, in errors.
	Name string
	// Ports are two or more; they go by their index.
	Ports []PortConfig
	// Open runs a function inside the network namespace of the ports. If nil, they
	// are in that of the calling thread.
	Open func(fn func() error) error
	// Epoch is time 0 of the times that Paths see; if zero, when New was called.
	Epoch time.Time
	// MaxHeldFrames and MaxHeldBytes bound what waits to leave later, all ports
	// together. A frame counts with the size of the buffer that it is kept in.
	MaxHeldFrames, MaxHeldBytes int
	// MaxAddresses bounds the addresses learnt; beyond it, frames are flooded.
	MaxAddresses int
	// BufferBytes is how much may wait in the kernel at each port for the switch
	// to come round. An ordinary user gets no more than net.core.rmem_max.
	BufferBytes int
}

// withDefaults fills in what is left out, and checks the rest.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name == "" {
		c.Name = "switch"
	}
	if len(c.Ports) < 2 {
		bad("%d ports: a switch has two or more", len(c.Ports))
	}
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{
		{"MaxHeldFrames", &c.MaxHeldFrames, DefaultMaxHeldFrames},
		{"MaxHeldBytes", &c.MaxHeldBytes, DefaultMaxHeldBytes},
		{"MaxAddresses", &c.MaxAddresses, DefaultMaxAddresses},
		{"BufferBytes", &c.BufferBytes, DefaultBufferBytes},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < 0 {
			bad("%s is negative: %d", f.name, *f.value)
		}
	}
	if c.Epoch.IsZero() {
		c.Epoch = time.Now()
	}
	c.Ports = append([]PortConfig(nil), c.Ports...)
	taken := make(map[string]int)
	for i := range c.Ports {
		p := &c.Ports[i]
		if p.Interface == "" {
			bad("port %d: no Interface", i)
			continue
		}
		if p.Name == "" {
			p.Name = p.Interface
		}
		if j, twice := taken[p.Interface]; twice {
			bad("ports %d and %d are both interface %s", j, i, p.Interface)
		}
		taken[p.Interface] = i
		for _, a := range p.Addresses {
			if len(a) != 6 || a[0]&1 != 0 {
				bad("port %s: %v is not an Ethernet address of a station", p.Name, a)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return c, fmt.Errorf("%s: %w", c.Name, err)
	}
	return c, nil
}
