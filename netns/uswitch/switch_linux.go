package uswitch

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Switch is a switch with open ports. It forwards frames during Run.
type Switch struct {
	name  string
	epoch time.Time

	mu      sync.Mutex // held unless Run is blocked
	core    *core
	sockets []*socket
	rx      *receiver
	tx      sender
	closed  bool
	running bool
	stopped chan struct{} // closed when Run has returned
	stop    bool
	cpu     cpuClock
	wake    int // eventfd that wakes Run
}

// New opens the ports of cfg. The caller closes the switch.
func New(cfg Config) (*Switch, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Switch{name: cfg.Name, epoch: cfg.Epoch, rx: newReceiver(), wake: -1}
	s.core = newCore(&cfg, func(p *port, ms []message) {
		s.tx.send(s.sockets[p.index].fd, ms, &p.counters[Out])
	})
	s.core.noUDPGSO = !SupportsUDPGSO()
	inNamespace := cfg.InNamespace
	if inNamespace == nil {
		inNamespace = func(fn func() error) error { return fn() }
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		err = os.NewSyscallError("eventfd", err)
	} else {
		err = inNamespace(func() error { return s.openPorts(&cfg) })
	}
	if err != nil {
		s.release()
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return s, nil
}

// openPorts opens a socket for each port.
func (s *Switch) openPorts(cfg *Config) error {
	for i := range cfg.Ports {
		sock, err := openSocket(cfg.Ports[i].Interface, cfg.BufferBytes)
		if err != nil {
			return fmt.Errorf("port %s: %w", cfg.Ports[i].Name, err)
		}
		s.sockets = append(s.sockets, sock)
		s.core.ports[i].mtu = sock.mtu
	}
	return nil
}

// release closes the sockets and the eventfd.
func (s *Switch) release() {
	for _, sock := range s.sockets {
		_ = sock.close()
	}
	if s.wake >= 0 {
		unix.Close(s.wake)
	}
}

// Now returns the time since Config.Epoch.
func (s *Switch) Now() time.Duration { return time.Since(s.epoch) }

// Close ends Run and closes the ports. Delayed frames are lost.
func (s *Switch) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("%s: %w", s.name, os.ErrClosed)
	}
	s.closed, s.stop = true, true
	running, stopped := s.running, s.stopped
	s.mu.Unlock()
	if running {
		s.interrupt()
		<-stopped
	}
	s.release()
	return nil
}

// interrupt wakes Run.
func (s *Switch) interrupt() {
	one := [8]byte{1}
	_, _ = unix.Write(s.wake, one[:]) // full: already interrupted
}

// change runs fn on a port while no frame is handled.
func (s *Switch) change(index int, fn func(p *port)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: %w", s.name, os.ErrClosed)
	}
	if index < 0 || index >= len(s.core.ports) {
		return fmt.Errorf("%s: no port %d: there are %d", s.name, index, len(s.core.ports))
	}
	s.core.now = s.Now()
	fn(s.core.ports[index])
	if s.running {
		s.interrupt() // the deadline may have changed
	}
	return nil
}

// SetHandler replaces the FrameHandler of a port and direction; nil forwards frames unchanged. When
// SetHandler returns, the old handler is no longer called: frames that it holds are lost, while
// delayed frames that it has emitted are still forwarded.
func (s *Switch) SetHandler(index int, dir Direction, handler FrameHandler) error {
	if dir > Out {
		return fmt.Errorf("%s: no direction %d", s.name, dir)
	}
	return s.change(index, func(p *port) { s.core.setHandler(p, dir, handler) })
}

// SetPort sets a port up, or down as if its cable were unplugged, which drops its
// delayed frames. The interface itself is unchanged.
func (s *Switch) SetPort(index int, up bool) error {
	return s.change(index, func(p *port) {
		s.checkRemoved(p)
		switch {
		case p.state == PortRemoved:
		case up:
			p.state = PortUp
		case p.state == PortUp:
			s.core.setDown(p, PortDown)
		}
	})
}

// WhileQuiesced runs fn while no frame is handled, so that fn can read the
// state of FrameHandlers. fn must not call the switch.
func (s *Switch) WhileQuiesced(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// Stats returns the counters of the switch.
func (s *Switch) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.core.ports {
		s.checkRemoved(p)
	}
	st := s.core.stats()
	st.CPU = s.cpu.used()
	for i, sock := range s.sockets {
		if !s.closed {
			s.core.ports[i].counters[In].Drops.Overrun += sock.overruns()
		}
		st.Ports[i].In.Drops.Overrun = s.core.ports[i].counters[In].Drops.Overrun
		st.Ports[i].BufferBytes = sock.buffer
	}
	return st
}

var errRunning = errors.New("already running")
