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

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxSessions limits the clients of an agent.
const maxSessions = 16

var errStopping = errors.New("the agent is stopping")

// Server is an agent. Set the fields, then call Serve.
type Server struct {
	Key  Key
	Host Host
	// Log logs connections; nil disables it.
	Log *slog.Logger
	// Program is the agent's name and version; from the build information if empty.
	Program string
	// MaxMemory limits the registered memory of a client in bytes, each of which takes two;
	// at most, and by default, 2 GiB.
	MaxMemory uint64
	Timing    Timing

	logger     *slog.Logger // Log, or one that discards
	timeouts   Timing       // Timing with its defaults
	stats      serverStats
	handshakes handshakes
	logAfter   atomic.Int64 // no log of unauthenticated connections until then

	mu       sync.Mutex
	holders  map[string]*held
	sessions int
}

// Stats are counters of an agent.
type Stats struct {
	// Clients is the number of authenticated clients.
	Clients uint64
	// Unauthenticated is the number of connections without the key, or with a slow handshake.
	Unauthenticated uint64
	// Displaced is the number of connections displaced in their handshake.
	Displaced uint64
	// Crashes is the number of panics in calls.
	Crashes uint64
	// StuckClients is the number of clients whose devices did not close in time.
	StuckClients uint64
}

type serverStats struct{ clients, unauthenticated, displaced, crashes, stuckClients atomic.Uint64 }

// held is a device in use by a client.
type held struct {
	by    *session
	count int // of hold without release
}

// Stats returns the current counters.
func (s *Server) Stats() Stats {
	return Stats{
		s.stats.clients.Load(), s.stats.unauthenticated.Load(), s.stats.displaced.Load(),
		s.stats.crashes.Load(), s.stats.stuckClients.Load(),
	}
}

// Serve accepts clients until ctx ends or the listener fails. It returns after everything
// that they opened, and the listener, are closed.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	config, err := tlsConfig(s.Key, roleAgent, roleClient)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	if s.logger = s.Log; s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.timeouts = s.Timing.withDefaults()
	var clients sync.WaitGroup
	defer clients.Wait()
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
		clients.Go(func() { s.authenticate(ctx, p, config) })
	}
}

// accept accepts a connection. Unless ctx has ended or ln is closed, it tries again after an error,
// such as a lack of descriptors.
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

// authenticate performs the TLS handshake of a connection and serves the client, unless a later
// connection has displaced it because too many handshakes were under way.
func (s *Server) authenticate(ctx context.Context, p *pending, config *tls.Config) {
	raw := p.conn
	defer raw.Close()
	stopClosing := context.AfterFunc(ctx, func() { raw.Close() })
	conn := tls.Server(raw, config)
	err := handshake(conn, s.timeouts.HandshakeTimeout)
	stopClosing()
	switch displaced := s.handshakes.end(p); {
	case displaced:
		s.stats.displaced.Add(1)
		s.logUnauthenticated(raw, errDisplaced)
		return
	case err != nil:
		s.stats.unauthenticated.Add(1)
		s.logUnauthenticated(raw, err)
		return
	}
	s.stats.clients.Add(1)
	log := s.logger.With("client", raw.RemoteAddr().String())
	log.Info("client connected")
	why := s.serve(ctx, conn, log)
	log.Info("client disconnected", "why", why)
}

// logUnauthenticated logs an unauthenticated connection, at most once a second.
func (s *Server) logUnauthenticated(raw net.Conn, err error) {
	now, notBefore := time.Now().UnixNano(), s.logAfter.Load()
	if now < notBefore || !s.logAfter.CompareAndSwap(notBefore, now+int64(time.Second)) {
		return
	}
	s.logger.Warn("refused a connection", "from", raw.RemoteAddr().String(), "why", err, "refused in total", s.stats.unauthenticated.Load(), "displaced by newer ones in total", s.stats.displaced.Load())
}

// serve serves a client: it exchanges hellos, starts a session, handles the client's calls until
// the connection ends, and then closes the objects that the client has left open.
func (s *Server) serve(ctx context.Context, raw net.Conn, log *slog.Logger) error {
	conn := newConn(raw, s.timeouts, control.Call)
	if err := sendHello(conn, newHello(s.Program, s.timeouts.IdleTimeout)); err != nil {
		return err
	}
	if _, err := readHello(conn, s.timeouts.HandshakeTimeout, "the agent", "the client"); err != nil {
		conn.Close(err)
		return err
	}
	if !s.addSession() {
		err := fmt.Errorf("the agent has reached its limit of %d clients", maxSessions)
		conn.Close(err)
		return err
	}
	defer s.removeSession()
	go run(conn)
	defer context.AfterFunc(ctx, func() { conn.Close(errStopping) })()
	session := newSession(s.Host, s, func(f control.Frame) { _ = conn.QueueNow(f) }) // Serve returns the error
	if s.MaxMemory > 0 {
		session.memory.limit = min(s.MaxMemory, maxMemory)
	}
	session.crash = func(what any, stack []byte) {
		s.stats.crashes.Add(1)
		log.Error("the device's software crashed", "panic", what, "stack", string(stack))
	}
	why := conn.Serve(session.receive)
	conn.Close(why)
	if errors.Is(why, control.ErrProtocol) {
		log.Warn("the client violates the protocol", "why", why)
	}
	if err := session.end(s.timeouts.CloseTimeout); err != nil {
		s.stats.stuckClients.Add(1)
		log.Error("other clients cannot open the devices of a disconnected client yet", "why", err)
	}
	return why
}

// addSession counts a session; it returns false if there are maxSessions already.
func (s *Server) addSession() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions >= maxSessions {
		return false
	}
	s.sessions++
	return true
}

func (s *Server) removeSession() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions--
}

// hold reserves a device for a session, which may hold it several times. It fails while another
// session holds the device.
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
		return fmt.Errorf("device %s: in use by another client: %w", device, verbs.ErrBusy)
	}
	h.count++
	return nil
}

// release implements holder: it undoes one call of hold.
func (s *Server) release(device string, by *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holders[device]; h != nil && h.by == by {
		if h.count--; h.count == 0 {
			delete(s.holders, device)
		}
	}
}
