package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// maxSessions is how many callers an agent has at a time.
const maxSessions = 16

var errStopped = errors.New("the agent was told to stop")

// Server is an agent. Set the fields, then call Serve.
type Server struct {
	Key  Key
	Host Host
	// Log is told who comes and goes; nobody is if nil.
	Log *slog.Logger
	// Program is what the agent says that it is; what the binary knows of itself if
	// empty.
	Program string
	// MaxMemory is how many bytes of memory a caller may have here, each of which
	// takes two; no more than 2 GiB, and so many if 0.
	MaxMemory uint64
	Timing    Timing

	log        *slog.Logger
	timing     Timing
	stats      serverStats
	handshakes handshakes
	quiet      atomic.Int64 // no more is said of strangers until then

	mu       sync.Mutex
	holders  map[string]*held
	sessions int
}

// Stats counts what happened to an agent.
type Stats struct {
	// Callers had the key.
	Callers uint64
	// Refused did not, or were too slow to show it.
	Refused uint64
	// Crowded were closed at their handshake, because too many others came.
	Crowded uint64
	// Crashes are panics of the devices' software in a call.
	Crashes uint64
	// Stuck are callers whose devices did not close in time.
	Stuck uint64
}

type serverStats struct{ callers, refused, crowded, crashes, stuck atomic.Uint64 }

// held is a device that somebody has.
type held struct {
	by *session
	n  int
}

// Serve has an agent with this key serve the host's devices to whoever connects to
// the listener, until ctx ends.
func Serve(ctx context.Context, ln net.Listener, key Key, host Host) error {
	return (&Server{Key: key, Host: host}).Serve(ctx, ln)
}

// Stats returns what has happened so far.
func (s *Server) Stats() Stats {
	return Stats{
		s.stats.callers.Load(), s.stats.refused.Load(), s.stats.crowded.Load(),
		s.stats.crashes.Load(), s.stats.stuck.Load(),
	}
}

// Serve accepts callers until ctx ends, or the listener fails. It returns when
// everything that they had opened is closed, and the listener is too.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	config, err := secured(s.Key, roleAgent, roleCaller)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	if s.log = s.Log; s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.timing = s.Timing.filled()
	var callers sync.WaitGroup
	defer callers.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		conn, err := accept(ctx, ln)
		if err != nil {
			ln.Close()
			return err
		}
		p := s.handshakes.begin(conn)
		callers.Go(func() { s.meet(ctx, p, config) })
	}
}

// accept is Accept that outlives what passes, such as a lack of descriptors.
func accept(ctx context.Context, ln net.Listener) (net.Conn, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, net.ErrClosed):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// meet finds out whether a connection is a caller's, and serves it if so.
func (s *Server) meet(ctx context.Context, p *pending, config *tls.Config) {
	raw := p.conn
	defer raw.Close()
	hurry := context.AfterFunc(ctx, func() { raw.Close() })
	conn := tls.Server(raw, config)
	err := handshake(conn, s.timing.Handshake)
	hurry()
	switch displaced := s.handshakes.end(p); {
	case displaced:
		s.stats.crowded.Add(1)
		s.tellOfStranger(raw, errDisplaced)
		return
	case err != nil:
		s.stats.refused.Add(1)
		s.tellOfStranger(raw, err)
		return
	}
	s.stats.callers.Add(1)
	log := s.log.With("caller", raw.RemoteAddr().String())
	log.Info("a caller has come")
	why := s.serve(ctx, conn, log)
	log.Info("the caller is gone", "why", why)
}

// tellOfStranger says that somebody without the key came, at most once a second:
// whoever knocks must not fill the log.
func (s *Server) tellOfStranger(raw net.Conn, err error) {
	now, until := time.Now().UnixNano(), s.quiet.Load()
	if now < until || !s.quiet.CompareAndSwap(until, now+int64(time.Second)) {
		return
	}
	s.log.Warn("refused a connection", "from", raw.RemoteAddr().String(), "why", err, "refused in all", s.stats.refused.Load(), "displaced in all", s.stats.crowded.Load())
}

// serve is what the agent does for a caller, from greeting to end.
func (s *Server) serve(ctx context.Context, conn net.Conn, log *slog.Logger) error {
	l := newLink(conn, s.timing)
	l.send(ours(s.Program, s.timing.Silence).frame())
	if err := l.flush(); err != nil {
		return err
	}
	if _, err := l.hear(s.timing.Handshake, "the agent", "the caller"); err != nil {
		l.bye(err)
		return err
	}
	if !s.enter() {
		err := fmt.Errorf("the agent has %d callers, and takes no more", maxSessions)
		l.bye(err)
		return err
	}
	defer s.leave()
	go l.write()
	defer context.AfterFunc(ctx, func() { l.bye(errStopped) })()
	own := newSession(s.Host, s, l)
	if s.MaxMemory > 0 {
		own.memory.limit = min(s.MaxMemory, maxMemory)
	}
	own.crash = func(what any, stack []byte) {
		s.stats.crashes.Add(1)
		log.Error("the device's software crashed", "panic", what, "stack", string(stack))
	}
	why := l.read(own.receive)
	if errors.Is(why, errBadMessage) {
		log.Warn("the caller does not keep to the protocol", "why", why)
	}
	if err := own.end(s.timing.Grace); err != nil {
		s.stats.stuck.Add(1)
		log.Error("a caller's devices stay held", "why", err)
	}
	return why
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions >= maxSessions {
		return false
	}
	s.sessions++
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions--
}

// hold implements holder.
func (s *Server) hold(device string, by *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holders[device]
	switch {
	case h == nil:
		if s.holders == nil {
			s.holders = make(map[string]*held)
		}
		s.holders[device] = &held{by, 1}
		return nil
	case h.by != by:
		return fmt.Errorf("device %s: another caller has it: %w", device, verbs.ErrBusy)
	}
	h.n++
	return nil
}

// letGo implements holder.
func (s *Server) letGo(device string, by *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holders[device]; h != nil && h.by == by {
		if h.n--; h.n == 0 {
			delete(s.holders, device)
		}
	}
}
