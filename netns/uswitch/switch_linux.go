package uswitch

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Switch is a switch whose ports are open. Frames pass while Run runs.
type Switch struct {
	name  string
	epoch time.Time

	mu      sync.Mutex // held whenever the switch is not asleep
	core    *core
	sockets []*socket
	rx      *receiver
	tx      sender
	closed  bool
	running bool
	stopped chan struct{} // closed when Run has returned
	stop    bool
	thread  cpuClock
	wake    int // descriptor that ends a sleep
}

// New opens the ports of cfg. The caller closes the switch.
func New(cfg Config) (*Switch, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Switch{name: cfg.Name, epoch: cfg.Epoch, rx: newReceiver(), wake: -1}
	s.core = newCore(&cfg, func(p *port, ms []message) {
		s.tx.send(s.sockets[p.index].fd, ms, &p.counts[Out])
	})
	s.core.singleUDP = !SupportsUDPGSO()
	open := cfg.Open
	if open == nil {
		open = func(fn func() error) error { return fn() }
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		err = os.NewSyscallError("eventfd", err)
	} else {
		err = open(func() error { return s.openPorts(&cfg) })
	}
	if err != nil {
		s.release()
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return s, nil
}

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

func (s *Switch) release() {
	for _, sock := range s.sockets {
		_ = sock.close()
	}
	if s.wake >= 0 {
		unix.Close(s.wake)
	}
}

// Now is the time that Paths see.
func (s *Switch) Now() time.Duration { return time.Since(s.epoch) }

// Close ends Run if it runs, and closes the ports. What was held is lost.
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

// interrupt ends the sleep of Run.
func (s *Switch) interrupt() {
	one := [8]byte{1}
	_, _ = unix.Write(s.wake, one[:]) // full means that it is awake
}

// change runs fn while no frame passes, on a port of that index.
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
		s.interrupt() // there may be another deadline
	}
	return nil
}

// SetHandler replaces what happens to the frames of a port in one direction; nil
// means nothing. When it returns the old Path is not called any more. Frames that
// the old one has emitted with a delay still leave in their time; those that it
// kept back within itself stay there.
func (s *Switch) SetHandler(port int, dir Direction, path FrameHandler) error {
	if dir > Out {
		return fmt.Errorf("%s: no direction %d", s.name, dir)
	}
	return s.change(port, func(p *portType) { s.core.setPath(p, dir, path) })
}

// portType lets methods with a parameter of that name speak of the type.
type portType = port

// SetPort takes a port down, as if its cable were pulled out, or up again. What
// is under way there is lost. The interface itself stays as it is.
func (s *Switch) SetPort(port int, up bool) error {
	return s.change(port, func(p *portType) {
		s.checkGone(p)
		switch {
		case p.state == PortRemoved:
		case up:
			p.state = PortUp
		case p.state == PortUp:
			s.core.takeDown(p, PortDown)
		}
	})
}

// WhileQuiesced runs fn while no frame passes and no Path is called, so that fn can
// look at the Paths. It must not call the switch.
func (s *Switch) WhileQuiesced(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// Stats returns what the switch has done.
func (s *Switch) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.core.ports {
		s.checkGone(p)
	}
	st := s.core.stats()
	st.CPU = s.thread.used()
	for i, sock := range s.sockets {
		if !s.closed {
			s.core.ports[i].counts[In].Drops.Overrun += sock.overruns()
		}
		st.Ports[i].In.Drops.Overrun = s.core.ports[i].counts[In].Drops.Overrun
		st.Ports[i].BufferBytes = sock.buffer
	}
	return st
}

var errRunning = errors.New("already running")
