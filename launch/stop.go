package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Kill kills a rank and all that it started, at once. Its outcome is Killed,
// which is no failure of the group; the others find it gone. A rank that has
// ended keeps its outcome, and the error is ErrEnded.
func (g *Group) Kill(rank int) error {
	m, err := g.member(rank)
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	// Under one lock: a rank that dies of it must be known as killed, and one that
	// has ended by itself must not.
	g.mu.Lock()
	defer g.mu.Unlock()
	err = m.send("kill", unix.SIGKILL)
	m.killed = m.killed || err == nil
	return err
}

// Freeze makes a rank and all that it started stand still until Thaw. It is
// excused from heart-beats meanwhile.
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

// Thaw lets a frozen rank go on.
func (g *Group) Thaw(rank int) error {
	m, err := g.member(rank)
	if err != nil {
		return fmt.Errorf("thaw: %w", err)
	}
	err = m.send("thaw", unix.SIGCONT)
	g.mu.Lock()
	m.frozen = false
	now := time.Now()
	m.silence.since, m.joinFrom, m.leftAt = now, now, now
	g.mu.Unlock()
	return err
}

func (m *member) send(what string, sig unix.Signal) error {
	if err := m.proc.signal(sig); err != nil {
		return fmt.Errorf("%s %s: %w", what, rankName(m.spec.Rank, m.spec.Host), err)
	}
	return nil
}

// Stop ends the group: every rank is asked what it is at, told to end, and killed
// if it does not. It does not wait for that; Wait does, and returns reason unless
// the group was ending already. The reason must not be nil.
func (g *Group) Stop(reason error) {
	if reason == nil {
		reason = errors.New("stopped")
	}
	g.end(reason)
}

// end ends the group, once.
func (g *Group) end(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending {
		return
	}
	g.ending = true
	if g.cause == nil {
		g.cause = cause
	}
	// The end must not depend on a caller who is slow to listen.
	g.ender.Go(func() {
		g.teller.tell(Event{Rank: -1, At: time.Now(), Kind: Stopping, Text: cause.Error()})
	})
	g.ender.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), g.opts.DumpTimeout)
		defer cancel()
		said := g.ask(ctx, g.members)
		late := errors.Is(cause, context.DeadlineExceeded)
		for _, m := range g.members {
			answer := said[m.spec.Rank]
			g.ender.Go(func() {
				m.lastWords(answer, late)
				m.terminate()
			})
		}
	})
}

// fail ends a rank that broke a rule or hangs. The first verdict counts.
func (m *member) fail(s State, why string) {
	g := m.g
	g.mu.Lock()
	first := m.verdict == "" && !m.killed
	if first {
		m.verdict, m.reason = s, why
	}
	g.mu.Unlock()
	if !first {
		return
	}
	g.blame(m, s, why)
	if g.opts.KeepGoing { // otherwise this one ends with its group
		m.lastWords(answer{}, true)
		m.terminate()
	}
	kind := Failing
	if s == Hung {
		kind = Silent
	}
	m.tell(kind, why)
}

// terminate asks the process to end, and makes it after a while.
func (m *member) terminate() {
	m.g.mu.Lock()
	m.stopping = true
	m.g.mu.Unlock()
	// A process that stands still hears nothing but SIGKILL until it goes on.
	if m.proc.signal(unix.SIGTERM, unix.SIGCONT) != nil {
		return
	}
	if !m.proc.overWithin(m.g.opts.TermGrace) {
		_ = m.proc.signal(unix.SIGKILL)
		<-m.proc.done
	}
}
