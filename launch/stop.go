package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Kill kills the process group of a rank with SIGKILL. Its outcome is Killed, which
// does not fail the group; other ranks get ErrEnded. If the rank has ended,
// Kill returns ErrEnded and the outcome does not change.
func (g *Group) Kill(rank int) error {
	m, err := g.member(rank)
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	// Under one lock, so that killed is set if and only if the signal was sent before
	// the rank ended.
	g.mu.Lock()
	defer g.mu.Unlock()
	err = m.send("kill", unix.SIGKILL)
	m.killed = m.killed || err == nil
	return err
}

// Freeze stops the process group of a rank with SIGSTOP until Thaw. A frozen rank does
// not have to answer heartbeats.
func (g *Group) Freeze(rank int) error {
	m, err := g.member(rank)
	if err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	err = m.send("freeze", unix.SIGSTOP)
	m.frozen = m.frozen || err == nil
	return err
}

// Thaw continues a frozen rank with SIGCONT.
func (g *Group) Thaw(rank int) error {
	m, err := g.member(rank)
	if err != nil {
		return fmt.Errorf("thaw: %w", err)
	}
	err = m.send("thaw", unix.SIGCONT)
	g.mu.Lock()
	m.frozen = false
	now := time.Now()
	m.heartbeat.lastHeard, m.joinStart, m.disconnectedAt = now, now, now
	g.mu.Unlock()
	return err
}

func (m *member) send(what string, sig unix.Signal) error {
	if err := m.proc.signal(sig); err != nil {
		return fmt.Errorf("%s %s: %w", what, rankName(m.spec.Rank, m.spec.Host), err)
	}
	return nil
}

// Stop stops the group without waiting: it collects state dumps, sends SIGTERM, and
// SIGKILL after Options.TermGrace. Wait then returns reason, unless the group was
// stopping already.
func (g *Group) Stop(reason error) {
	if reason == nil {
		reason = errors.New("stopped")
	}
	g.stop(reason)
}

// stop implements Stop. Only the first call has an effect.
func (g *Group) stop(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return
	}
	g.stopping = true
	if g.cause == nil {
		g.cause = cause
	}
	// A slow OnEvent must not delay the stop.
	g.stopTasks.Go(func() {
		g.dispatcher.post(Event{Rank: -1, At: time.Now(), Kind: Stopping, Text: cause.Error()})
	})
	g.stopTasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), g.opts.DumpTimeout)
		defer cancel()
		dumps := g.requestDumps(ctx, g.members)
		timedOut := errors.Is(cause, context.DeadlineExceeded)
		for _, m := range g.members {
			d := dumps[m.spec.Rank]
			g.stopTasks.Go(func() {
				m.captureState(d, timedOut)
				m.terminate()
			})
		}
	})
}

// fail stops a rank that violated the protocol or hangs. The first call determines
// the outcome.
func (m *member) fail(s State, why string) {
	g := m.g
	g.mu.Lock()
	first := m.failState == "" && !m.killed
	if first {
		m.failState, m.failReason = s, why
	}
	g.mu.Unlock()
	if !first {
		return
	}
	g.recordFailure(m, s, why)
	if g.opts.KeepGoing { // otherwise recordFailure has stopped the group
		m.captureState(dump{}, true)
		m.terminate()
	}
	kind := Failing
	if s == Hung {
		kind = Silent
	}
	m.postEvent(kind, why)
}

// terminate sends SIGTERM, and SIGKILL after Options.TermGrace.
func (m *member) terminate() {
	m.g.mu.Lock()
	m.stopping = true
	m.g.mu.Unlock()
	// A stopped process handles SIGTERM only after SIGCONT.
	if m.proc.signal(unix.SIGTERM, unix.SIGCONT) != nil {
		return
	}
	if !m.proc.exitedWithin(m.g.opts.TermGrace) {
		_ = m.proc.signal(unix.SIGKILL)
		<-m.proc.done
	}
}
