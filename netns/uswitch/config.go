package uswitch

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// Defaults of Config.
const (
	DefaultMaxDelayedFrames = 1 << 16
	DefaultMaxDelayedBytes  = 64 << 20
	DefaultMaxAddresses     = 1 << 13
	DefaultBufferBytes      = 4 << 20
)

// PortConfig configures a port.
type PortConfig struct {
	// Interface is the network interface in the switch's namespace. Frames pass
	// while it is up; its MTU is read at open. It should have no address and
	// IPv6 disabled, or the kernel sends frames of its own.
	Interface string
	// Name is used in statistics and errors; the default is Interface.
	Name string
	// Addresses are static MAC addresses behind the port.
	Addresses []net.HardwareAddr
	// In and Out handle frames from and to the port; nil forwards them unchanged.
	In, Out FrameHandler
}

// Config configures a Switch. Only Ports is required.
type Config struct {
	// Name is used in errors.
	Name string
	// Ports are two or more, identified by index.
	Ports []PortConfig
	// InNamespace runs fn, which opens the ports, in their network namespace; nil
	// means the namespace of the calling thread.
	InNamespace func(fn func() error) error
	// Epoch is time 0 of the times that FrameHandlers see; the default is the time of New.
	Epoch time.Time
	// MaxDelayedFrames and MaxDelayedBytes limit the delayed frames of all ports. A
	// frame counts with the size of its buffer.
	MaxDelayedFrames, MaxDelayedBytes int
	// MaxAddresses limits the learnt addresses; frames to others are flooded.
	MaxAddresses int
	// BufferBytes is the receive buffer of each port's socket. Unprivileged
	// users get no more than net.core.rmem_max.
	BufferBytes int
}

// withDefaults returns a copy with defaults for zero values, and validates it.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	c.Name = cmp.Or(c.Name, "switch")
	if len(c.Ports) < 2 {
		bad("%d ports: a switch has two or more", len(c.Ports))
	}
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{
		{"MaxDelayedFrames", &c.MaxDelayedFrames, DefaultMaxDelayedFrames},
		{"MaxDelayedBytes", &c.MaxDelayedBytes, DefaultMaxDelayedBytes},
		{"MaxAddresses", &c.MaxAddresses, DefaultMaxAddresses},
		{"BufferBytes", &c.BufferBytes, DefaultBufferBytes},
	} {
		if *f.value = cmp.Or(*f.value, f.def); *f.value < 0 {
			bad("%s is negative: %d", f.name, *f.value)
		}
	}
	if c.Epoch.IsZero() {
		c.Epoch = time.Now()
	}
	c.Ports = slices.Clone(c.Ports)
	taken := make(map[string]int)
	for i := range c.Ports {
		p := &c.Ports[i]
		if p.Interface == "" {
			bad("port %d: no Interface", i)
			continue
		}
		p.Name = cmp.Or(p.Name, p.Interface)
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
